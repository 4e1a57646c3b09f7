"""What the schema lets a configuration file say and the router refuses at its start.

What this version cannot do, so that nobody believes it is done; and empty values that would be less than was meant.
Pure. Source: docs/spec/management.md §1.1, §1.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NOT_BUILT: Final = "not supported by this version of the router"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an entity of the file stops the start.

    reason     what it wants, and what would be right
    attribute  that is to blame, by its canonical name; "" for the whole entity
    is_last    whatever else is wrong with the file is told before
    """

    reason: str
    attribute: str = ""
    is_last: bool = False


# Type -> why none of its entities can be served.
UNSERVED_TYPES: Final[Mapping[str, str]] = {
    "linkRoute": f"link routes are {_NOT_BUILT}: take the section out",
    "autoLink": f"auto links are {_NOT_BUILT}: take the section out",
    "exchange": f"exchanges are {_NOT_BUILT}: take the section out",
    "binding": f"bindings of exchanges are {_NOT_BUILT}: take the section out",
}
# Type -> attribute -> why an entity cannot be served in which it is on.
UNSERVED_ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "listener": {
        "http": f"http listeners are {_NOT_BUILT}: take the section out",
        "httpRootDir": f"http listeners are {_NOT_BUILT}: take the section out",
    },
    "address": {"enableFallback": f"fallback destinations are {_NOT_BUILT}: take 'enableFallback' out"},
}
# Type -> attribute -> the values that are served.
_SERVED_VALUES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "router": {"mode": ("standalone", "interior")},
    "listener": {"role": ("normal", "route-container", "inter-router")},
    "connector": {"role": ("normal", "route-container", "inter-router")},
}

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
    if (reason := UNSERVED_TYPES.get(type_)) is not None:
        return Refusal(reason=reason)
    for attribute, served in _SERVED_VALUES.get(type_, {}).items():
        if (value := attributes[attribute]) not in served:
            # A router that is half part of a network would drop messages without a word.
            text = f"{type_} {attribute} '{value}' is not supported by this version: expected {' or '.join(served)}"
            # What the mode does not allow is wrong whatever this version can do.
            return Refusal(reason=text, attribute=attribute, is_last=True)
    for attribute, reason in UNSERVED_ATTRIBUTES.get(type_, {}).items():
        if attributes.get(attribute):
            return Refusal(reason=reason, attribute=attribute)
    for attribute in sorted(_NEVER_EMPTY.get(type_, ())):
        if attributes.get(attribute) == "":
            text = f"{type_}: '{attribute}' is empty: give it a value, or take the line out"
            return Refusal(reason=text, attribute=attribute)
    return None
