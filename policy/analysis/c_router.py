"""The policy attributes that qdrouterd 1.20 knows. Everything else in the schemas is an extension.

Source: docs/spec/policy-and-auth.md §1.1, §1.2, §1.3.
"""

from functools import cache
from typing import Final

import schemas

_POLICY_KEYS: Final = frozenset(
    (
        *("maxConnections", "maxMessageSize", "enableVhostPolicy", "enableVhostNamePatterns", "policyDir"),
        *("defaultVhost", "name", "identity", "type"),
    )
)
_VHOST_KEYS: Final = frozenset(
    (
        *("hostname", "id", "aliases", "maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"),
        *("maxMessageSize", "allowUnknownUser", "groups", "name", "identity", "type"),
    )
)
_GROUP_KEYS: Final = frozenset(
    (
        *("users", "remoteHosts", "maxConnectionsPerUser", "maxConnectionsPerHost", "maxMessageSize"),
        *("maxFrameSize", "maxSessionWindow", "maxSessions", "maxSenders", "maxReceivers", "allowDynamicSource"),
        *("allowAnonymousSender", "allowUserIdProxy", "allowWaypointLinks", "allowFallbackLinks"),
        *("allowDynamicLinkRoutes", "allowAdminStatusUpdate", "sources", "targets", "sourcePattern", "targetPattern"),
    )
)

# Attributes of other sections that concern rights and with which 1.20 does not start.
SECTION_EXTENSIONS: Final = {"router": ("managementDirs",), "connector": ("allowManagement",)}


@cache
def policy_extensions() -> frozenset[str]:
    """Returns the attributes of the `policy` section with which 1.20 does not start."""
    attributes = schemas.load("management")["entityTypes"]["policy"]["attributes"]
    return frozenset(key for key, attribute in attributes.items() if attribute.get("create")) - _POLICY_KEYS


@cache
def vhost_extensions() -> frozenset[str]:
    """Returns the vhost attributes that 1.20 does not know, except old names of attributes that it knows."""
    properties = schemas.load("policy")["$defs"]["vhost"]["properties"]
    return frozenset(key for key in properties.keys() - _VHOST_KEYS if not properties[key].get("deprecated"))


@cache
def group_extensions() -> frozenset[str]:
    """Keys of a group that 1.20 passes over, with a line in its log."""
    return frozenset(schemas.load("policy")["$defs"]["group"]["properties"]) - _GROUP_KEYS
