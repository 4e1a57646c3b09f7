"""The kinds of entities: rules of an entity type that the schema cannot express, in one file each.

`KINDS` names every type that has such rules, and every type that a configuration file may have.
"""

from typing import Final

from policy.configuration.kinds.address import AddressKind
from policy.configuration.kinds.attached import AutoLinkKind, LinkRouteKind
from policy.configuration.kinds.ban import BanKind
from policy.configuration.kinds.endpoint import ConnectorKind, ListenerKind
from policy.configuration.kinds.exchange import BindingKind, ExchangeKind
from policy.configuration.kinds.kind import AuthenticatorKind, Kind, NamedKind, PluginKind
from policy.configuration.kinds.live import ConnectionKind, ConsoleKind, LinkKind, NodeKind
from policy.configuration.kinds.log import LogKind, LogStatsKind
from policy.configuration.kinds.policy import PolicyKind
from policy.configuration.kinds.router import RouterKind
from policy.configuration.kinds.vhost import VhostKind
from policy.configuration.schema import EntityType

# In the order in which the entities of a file take effect: ports open last.
CONFIGURED: Final[tuple[Kind, ...]] = (
    LogKind("log"),
    RouterKind("router"),
    PolicyKind("policy"),
    NamedKind("sslProfile"),
    PluginKind("authServicePlugin"),
    AuthenticatorKind("fileAuthenticator"),
    AuthenticatorKind("ldapAuthenticator"),
    AuthenticatorKind("tokenAuthenticator"),
    AuthenticatorKind("sasldbAuthenticator"),
    AuthenticatorKind("saslauthdAuthenticator"),
    AuthenticatorKind("kerberosAuthenticator"),
    AddressKind("address"),
    LinkRouteKind("linkRoute"),
    AutoLinkKind("autoLink"),
    ExchangeKind("exchange"),
    BindingKind("binding"),
    VhostKind("vhost"),
    BanKind("ban"),
    ConsoleKind("console"),
    Kind("dummy"),
    ConnectorKind("connector"),
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
    """Returns the kind of a type. A type that is not listed has a plain Kind."""
    return _BY_NAME.get(entity_type.short_name) or Kind(entity_type.short_name)
