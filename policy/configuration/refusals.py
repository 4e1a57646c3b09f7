"""Values of a configuration file that the schema permits and the router refuses at startup.

These are empty values, which would mean less than intended. Pure. Source: docs/spec/management.md §1.1, §1.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why an entity of the file stops the start.

    reason     the fault and the remedy
    attribute  the one at fault, by its canonical name; "" for the whole entity
    """

    reason: str
    attribute: str = ""


# Type -> attributes for which an empty value would mean the same as an absent one, which is less strict or not
# intended: a listener without TLS, or with every mechanism; a connector that trusts the system's authorities.
_NEVER_EMPTY: Final[Mapping[str, frozenset[str]]] = {
    "router": frozenset({"id", "auditDir", "saslConfigDir", "saslConfigName"}),
    "listener": frozenset({"port", "sslProfile", "saslMechanisms", "saslPlugin", "policyVhost", "routerIds"}),
    "connector": frozenset({"host", "port", "sslProfile", "saslMechanisms", "policyVhost", "routerIds"}),
    "sslProfile": frozenset({"name", "caCertFile", "certFile", "privateKeyFile", "uidFormat"}),
}


def refusal(type_: str, attributes: Mapping[str, object]) -> Refusal | None:
    """Returns why an entity of the file is refused, None if it is not.

    type_       short name
    attributes  validated, by canonical name
    """
    for attribute in sorted(_NEVER_EMPTY.get(type_, ())):
        if attributes.get(attribute) == "":
            text = f"{type_}: '{attribute}' is empty: give it a value, or take the line out"
            return Refusal(reason=text, attribute=attribute)
    return None
