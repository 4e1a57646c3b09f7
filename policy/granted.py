"""The settings of a connection whose authentication service grants it addresses.

The addresses replace the group's `sources`, `targets` and patterns. Addresses that the group denies stay denied.
Source: docs/spec/policy-and-auth.md §9.6.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from policy.addressing.lists import Permission, compile_literals
from policy.attributes import read_items
from policy.facts import GrantedAddresses
from policy.settings import Settings, make_settings
from policy.vhosts import compile_vhost

# The attribute that log lines and audit events name in place of `sources` and `targets`.
SOURCE_KEY: Final = "address-authz recv"
TARGET_KEY: Final = "address-authz send"


def _no_names(_name: str) -> Sequence[str]:
    raise OSError("no host is named here")


# Of a connection without vhost policy: only the addresses restrict it, and it has no rights beyond them.
_NONE: Final[dict[str, object]] = dict.fromkeys(
    ("allowWaypointLinks", "allowFallbackLinks", "allowDynamicLinkRoutes", "allowAdminStatusUpdate"), False
)
_NO_VHOST, _ = compile_vhost(
    {"hostname": "", "groups": {"": {"users": "*", "remoteHosts": "*", **_NONE}}}, None, resolve=_no_names
)


def settings_without_policy(user: str, granted: GrantedAddresses) -> Settings:
    """Returns the settings if vhost policy is off."""
    settings = make_settings(_NO_VHOST, _NO_VHOST.groups[""], user, policy_max_message_size=0)
    return replace(settings_with(settings, granted), is_of_vhost=False)


def settings_with(settings: Settings, granted: GrantedAddresses) -> Settings:
    """Returns a group's settings with the addresses that the service grants."""
    group = settings.origin
    # As in a list of a policy file, an address with a comma counts as two.
    sources, targets = (compile_literals(read_items(",".join(each))) for each in (granted.sources, granted.targets))
    return replace(
        settings,
        allow_dynamic_source=True,
        allow_anonymous_sender=True,
        sources=Permission(sources, group.denied_sources, settings.user),
        targets=Permission(targets, group.denied_targets, settings.user),
        origin=replace(group, sources=sources, targets=targets, source_key=SOURCE_KEY, target_key=TARGET_KEY),
    )
