"""What the schema lets a configuration file say and the router refuses at its start.

Empty values, which would be less than was meant. Pure. Source: docs/spec/management.md §1.1, §1.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an entity of the file stops the start.

    reason     what it wants, and what would be right
    attribute  that is to blame, by its canonical name; "" for the whole entity
    """

    reason: str
    attribute: str = ""


# Type -> attributes that an empty value would make as if they were left out, which is laxer or not what anybody means:
# a listener without TLS, or with every mechanism; a connector that trusts the system's authorities.
_NEVER_EMPTY: Final[Mapping[str, frozenset[str]]] = {
    "router": frozenset({"id", "auditDir", "saslConfigDir", "saslConfigName"}),
    "listener": frozenset({"port", "sslProfile", "saslMechanisms", "saslPlugin", "policyVhost", "routerIds"}),
    "connector": frozenset({"host", "port", "sslProfile", "saslMechanisms", "policyVhost", "routerIds"}),
    "sslProfile": frozenset({"name", "caCertFile", "certFile", "privateKeyFile", "uidFormat"}),
}


def refusal(type_: str, attributes: Mapping[str, object]) -> Refusal | None:
    """Why an entity of the file is refused; None: it is not.

    type_       short name
    attributes  validated, by canonical name
    """
    for attribute in sorted(_NEVER_EMPTY.get(type_, ())):
        if attributes.get(attribute) == "":
            text = f"{type_}: '{attribute}' is empty: give it a value, or take the line out"
            return Refusal(reason=text, attribute=attribute)
    return None
