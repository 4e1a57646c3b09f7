"""The kinds of entities: what the schema cannot say of a type, in one file each.

`KINDS` names every type that has rules of its own, and every type that a configuration file may have.
"""

from typing import Final

from router.management.kinds.address import AddressKind
from router.management.kinds.attached import AutoLinkKind, LinkRouteKind
from router.management.kinds.ban import BanKind
from router.management.kinds.endpoint import EndpointKind, ListenerKind
from router.management.kinds.exchange import BindingKind, ExchangeKind
from router.management.kinds.kind import Kind, NamedKind
from router.management.kinds.live import ConnectionKind, ConsoleKind, LinkKind, NodeKind
from router.management.kinds.log import LogKind, LogStatsKind
from router.management.kinds.policy import PolicyKind
from router.management.kinds.router import RouterKind
from router.management.kinds.vhost import VhostKind
from router.management.schema import EntityType

# In the order in which the entities of a file take effect: when a port opens, everything else is in place.
CONFIGURED: Final[tuple[Kind, ...]] = (
    LogKind("log"),
    RouterKind("router"),
    PolicyKind("policy"),
    NamedKind("sslProfile"),
    NamedKind("authServicePlugin"),
    NamedKind("fileAuthenticator"),
    NamedKind("ldapAuthenticator"),
    NamedKind("tokenAuthenticator"),
    NamedKind("sasldbAuthenticator"),
    NamedKind("saslauthdAuthenticator"),
    NamedKind("kerberosAuthenticator"),
    AddressKind("address"),
    LinkRouteKind("linkRoute"),
    AutoLinkKind("autoLink"),
    ExchangeKind("exchange"),
    BindingKind("binding"),
    VhostKind("vhost"),
    BanKind("ban"),
    ConsoleKind("console"),
    Kind("dummy"),
    EndpointKind("connector"),
    ListenerKind("listener"),
)
LIVE: Final[tuple[Kind, ...]] = (
    NodeKind("management"),
    LogStatsKind("logStats"),
    ConnectionKind("connection"),
    LinkKind("router.link"),
)
KINDS: Final = (*CONFIGURED, *LIVE)

APPLY_ORDER: Final = tuple(kind.name for kind in CONFIGURED)
_BY_NAME: Final = {kind.name: kind for kind in KINDS}


def kind_of(entity_type: EntityType) -> Kind:
    """A type that is not listed is a plain Kind."""
    return _BY_NAME.get(entity_type.short_name) or Kind(entity_type.short_name)
