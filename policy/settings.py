"""The settings that one connection got at its Open. Later changes of the ruleset do not change them.

Source: docs/spec/policy-and-auth.md §1.3, §2.8, §3.5.
"""

from dataclasses import dataclass, field, replace

from policy.addressing.lists import Permission
from policy.decision import Rule
from policy.facts import GrantedAddresses
from policy.groups import Group
from policy.rights import ManagementRights
from policy.vhosts import Vhost


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings of one connection.

    user                "" if there is none
    max_frame_size      bytes; 0: the listener's
    max_message_size    bytes; 0: no limit
    max_session_window  bytes; 0: the listener's
    max_sessions        0: no limit
    max_senders         0: none may be opened; the same for max_receivers
    max_message_rate    messages a second, 0: none; None: no limit
    max_byte_rate       bytes of messages a second, 0: none; None: no limit
    reply_window_s      how long a received reply-to may be used, if allow_replies is on
    management          the management rights, if sources and targets include it
    sources, targets    with the user's name inserted
    is_of_vhost         false: vhost policy is off, and only the authenticator restricts the connection (§9.6)
    """

    vhost: str
    group: str
    user: str
    max_frame_size: int
    max_message_size: int
    max_session_window: int
    max_sessions: int
    max_senders: int
    max_receivers: int
    max_message_rate: int | None
    max_byte_rate: int | None
    allow_dynamic_source: bool
    allow_anonymous_sender: bool
    allow_user_id_proxy: bool
    allow_waypoint_links: bool
    allow_fallback_links: bool
    allow_dynamic_link_routes: bool
    allow_admin_status_update: bool
    allow_replies: bool
    reply_window_s: int
    management: ManagementRights
    sources: Permission = field(repr=False)
    targets: Permission = field(repr=False)
    origin: Group = field(repr=False)
    is_of_vhost: bool = True

    def rule(self, key: str, value: object = None) -> Rule:
        """Returns the place of one of the group's attributes, for a decision that rests on it."""
        rule = self.origin.rule(key, value)
        return rule if self.is_of_vhost else replace(rule, vhost=None, group=None)

    def as_granted(self) -> GrantedAddresses | None:
        """Returns the grant with which a router would restrict its client as these settings do.

        `${user}` is not replaced.

        None if `address-authz` (§9.6) cannot express it, because the group has patterns or denies addresses.
        """
        group = self.origin
        has_patterns = "Pattern" in group.source_key + group.target_key
        if has_patterns or group.denied_sources.items or group.denied_targets.items:
            return None
        return GrantedAddresses(sources=group.sources.items, targets=group.targets.items)


def make_settings(
    vhost: Vhost, group: Group, user: str, *, policy_max_message_size: int, is_connector: bool = False
) -> Settings:
    """Returns the settings of `user` in `group`. On a connector, its own frame size and session window apply (§3.5)."""
    size = group.max_message_size
    if size is None:
        size = vhost.max_message_size
    if size is None:
        size = policy_max_message_size
    return Settings(
        vhost=vhost.name,
        group=group.name,
        user=user,
        max_frame_size=0 if is_connector else group.max_frame_size,
        max_message_size=size,
        max_session_window=0 if is_connector else group.max_session_window,
        max_sessions=group.max_sessions,
        max_senders=group.max_senders,
        max_receivers=group.max_receivers,
        max_message_rate=_nearest(group.max_message_rate, vhost.max_message_rate),
        max_byte_rate=_nearest(group.max_byte_rate, vhost.max_byte_rate),
        allow_dynamic_source=group.allow_dynamic_source,
        allow_anonymous_sender=group.allow_anonymous_sender,
        allow_user_id_proxy=group.allow_user_id_proxy,
        allow_waypoint_links=group.allow_waypoint_links,
        allow_fallback_links=group.allow_fallback_links,
        allow_dynamic_link_routes=group.allow_dynamic_link_routes,
        allow_admin_status_update=group.allow_admin_status_update,
        allow_replies=group.allow_replies,
        reply_window_s=group.reply_window_s,
        management=group.management,
        sources=Permission(group.sources, group.denied_sources, user),
        targets=Permission(group.targets, group.denied_targets, user),
        origin=group,
    )


def _nearest(of_group: int | None, of_vhost: int | None) -> int | None:
    return of_vhost if of_group is None else of_group
