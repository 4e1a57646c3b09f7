"""Decides whether a connection, session, link or message is permitted. The same facts always give the same answer.

Pure: no clock, no I/O; the caller counts (usage.py). An error inside a decision is a denial.
Source: docs/spec/policy-and-auth.md §3.
"""

from dataclasses import dataclass
from typing import Final

from policy.addressing.address import Address, Unclear
from policy.addressing.lists import Verdict, is_reserved
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.granted import TARGET_KEY as GRANTED_TARGET_KEY
from policy.granted import settings_with, settings_without_policy
from policy.groups import REPLIES_KEY, REPLY_WINDOW_KEY, Group
from policy.rights import MANAGEMENT_KEY
from policy.ruleset import Ruleset
from policy.settings import Settings, make_settings
from policy.vhosts import CONNECTOR_GROUP, Vhost

__all__ = [
    "ALLOWED",
    "ConnectionDecision",
    "Settings",
    "decide_accept",
    "decide_connection",
    "decide_connector",
    "decide_link",
    "decide_message",
    "decide_session",
    "decide_ungoverned_link",
]

ALLOWED: Final = Decision(is_allowed=True, reason=Reason.ALLOWED)
INTERNAL_ERROR: Final = Decision(is_allowed=False, reason=Reason.INTERNAL_ERROR)

WAYPOINT_CAPABILITY_PREFIX: Final = "qd.waypoint"
FALLBACK_CAPABILITY: Final = "qd.fallback"
# No attribute can permit it, so none is named.
OWNERSHIP: Final = "only the connection that made a dynamic address receives from it"
RESERVED: Final = "a user's name is none that addresses of the router begin with"
OWN_TARGET: Final = "a connection may send to the dynamic addresses it made"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDecision:
    """A decision on a connection, and its settings.

    vhost, group  the ones selected, as far as the decision got
    settings      of an allowed connection; None if vhost policy is off and the authenticator grants no addresses, so
                  that nothing restricts it
    """

    decision: Decision
    vhost: str | None = None
    group: str | None = None
    settings: Settings | None = None


def decide_accept(ruleset: Ruleset, open_connections: int) -> Decision:
    """Decides whether one more socket may be accepted. Applies with or without vhost policy (§3.2).

    open_connections  accepted and still open, without this one
    """
    try:
        if open_connections < ruleset.max_connections:
            return ALLOWED
        rule = Rule(item=f"maxConnections: {ruleset.max_connections}")
        return _deny(Reason.ROUTER_CONNECTION_LIMIT, rule)
    except Exception:
        return INTERNAL_ERROR


def decide_connection(ruleset: Ruleset, facts: ConnectionFacts, usage: Usage) -> ConnectionDecision:
    """Decides whether this connection may stay, and under which settings (§3.3).

    usage  of the vhost that `ruleset.select_vhost` finds, without this connection. All three limits are evaluated;
           the first that is reached is the reason, the others are in `also`.
    """
    try:
        user, granted = facts.user or "", facts.granted
        if not ruleset.is_enabled:
            settings = settings_without_policy(user, granted) if granted is not None else None
            return ConnectionDecision(decision=ALLOWED, settings=settings)
        vhost = ruleset.select_vhost(facts.requested_vhost)
        if vhost is None:
            rule = Rule(item=f"defaultVhost: {ruleset.default_vhost}")
            return ConnectionDecision(decision=_deny(Reason.NO_VHOST, rule))
        if is_reserved(user):
            decision = _deny(Reason.RESERVED_USER_NAME, Rule(vhost=vhost.name, item=RESERVED))
            return ConnectionDecision(decision=decision, vhost=vhost.name)
        group = vhost.group_of(user, facts.groups)
        if group is None:
            rule = vhost.rule("allowUnknownUser", "false")
            return ConnectionDecision(decision=_deny(Reason.UNKNOWN_USER, rule), vhost=vhost.name)
        if not group.window.contains(facts.now):
            return ConnectionDecision(decision=_not_valid(group, facts.now), vhost=vhost.name, group=group.name)
        if not group.hosts.contains(facts.remote_host):
            decision = _deny(Reason.HOST_NOT_ALLOWED, group.rule("remoteHosts"))
            return ConnectionDecision(decision=decision, vhost=vhost.name, group=group.name)
        reached = _limits_reached(vhost, group, usage)
        if reached:
            (reason, rule), *others = reached
            also = tuple(other for other, _ in others)
            decision = Decision(is_allowed=False, reason=reason, rule=rule, also=also)
            return ConnectionDecision(decision=decision, vhost=vhost.name, group=group.name)
        settings = make_settings(vhost, group, user, policy_max_message_size=ruleset.max_message_size)
        if granted is not None:
            settings = settings_with(settings, granted)
        return ConnectionDecision(decision=ALLOWED, vhost=vhost.name, group=group.name, settings=settings)
    except Exception:
        return ConnectionDecision(decision=INTERNAL_ERROR)


def decide_session(settings: Settings, open_sessions: int) -> Decision:
    """Decides whether the client may begin one more session (§3.6).

    open_sessions  sessions that the peer began, without this one
    """
    try:
        if settings.max_sessions == 0 or open_sessions < settings.max_sessions:
            return ALLOWED
        return _deny(Reason.SESSION_LIMIT, settings.rule("maxSessions", settings.max_sessions))
    except Exception:
        return INTERNAL_ERROR


def decide_link(settings: Settings, facts: LinkFacts) -> Decision:
    """Decides whether the client may attach this link (§3.7, §3.8). If allowed, names the list item that allows it."""
    try:
        if isinstance(facts.address, Unclear):
            return _unclear(facts.address)
        if facts.direction == "send":
            return _decide_sender(settings, facts, facts.address)
        return _decide_receiver(settings, facts, facts.address)
    except Exception:
        return INTERNAL_ERROR


def decide_ungoverned_link(facts: LinkFacts) -> Decision:
    """Decides on a link of a connection without settings, if vhost policy is on (§3.8)."""
    if facts.direction == "receive" and not facts.is_dynamic and facts.dynamic_address == "other":
        return _deny(Reason.DYNAMIC_ADDRESS_NOT_OWN, Rule(item=OWNERSHIP))
    return ALLOWED


def decide_message(settings: Settings, facts: MessageFacts) -> Decision:
    """Decides whether this message may pass (§3.9 steps 4 and 5)."""
    try:
        user_id, target = facts.user_id, facts.target
        if user_id and not settings.allow_user_id_proxy and user_id != settings.user.encode():
            return _deny(Reason.USER_ID_PROXY, settings.rule("allowUserIdProxy", "false"))
        if isinstance(target, Unclear):
            return _unclear(target)
        if facts.is_blank_target:
            return _deny(Reason.MESSAGE_TARGET_NOT_ALLOWED, settings.rule(settings.origin.target_key))
        if target is not None:
            verdict = settings.targets.judge(target, is_message=True)
            if verdict.item is None:
                unlisted = _decide_unlisted(settings, facts, verdict)
                if unlisted is not None:
                    return unlisted
                key = settings.origin.target_key
                return _address_denied(settings, Reason.MESSAGE_TARGET_NOT_ALLOWED, key, "denyTargets", verdict)
            if (denied := _management_elsewhere_denied(settings, target)) is not None:
                return denied
        return ALLOWED
    except Exception:
        return INTERNAL_ERROR


def decide_connector(ruleset: Ruleset, policy_vhost: str, user: str | None, now: float | None) -> ConnectionDecision:
    """Decides whether the outgoing connection of a connector with a policyVhost may stay, and its settings (§3.5).

    user  the connector's saslUsername
    now   as in ConnectionFacts
    """
    try:
        if not ruleset.is_enabled:
            return ConnectionDecision(decision=ALLOWED)
        vhost = ruleset.select_vhost(policy_vhost)
        group = vhost.groups.get(CONNECTOR_GROUP) if vhost is not None else None
        if vhost is None or group is None:
            name = vhost.name if vhost is not None else None
            rule = Rule(item=f"policyVhost: {policy_vhost}") if vhost is None else vhost.rule("groups", CONNECTOR_GROUP)
            return ConnectionDecision(decision=_deny(Reason.NO_VHOST, rule), vhost=name)
        if not group.window.contains(now):
            return ConnectionDecision(decision=_not_valid(group, now), vhost=vhost.name, group=group.name)
        size = ruleset.max_message_size
        settings = make_settings(vhost, group, user or "", policy_max_message_size=size, is_connector=True)
        return ConnectionDecision(decision=ALLOWED, vhost=vhost.name, group=group.name, settings=settings)
    except Exception:
        return ConnectionDecision(decision=INTERNAL_ERROR)


def _not_valid(group: Group, now: float | None) -> Decision:
    return _deny(Reason.GROUP_NOT_VALID, group.rule(*group.window.reason_at(now)))


def _limits_reached(vhost: Vhost, group: Group, usage: Usage) -> list[tuple[Reason, Rule]]:
    reached = []
    if usage.total >= vhost.max_connections:
        rule = vhost.rule("maxConnections", vhost.max_connections)
        reached.append((Reason.VHOST_CONNECTION_LIMIT, rule))
    limit = group.max_connections_per_user
    if usage.of_user >= (vhost.max_connections_per_user if limit is None else limit):
        place = vhost if limit is None else group
        rule = place.rule("maxConnectionsPerUser", vhost.max_connections_per_user if limit is None else limit)
        reached.append((Reason.USER_CONNECTION_LIMIT, rule))
    limit = group.max_connections_per_host
    if usage.of_host >= (vhost.max_connections_per_host if limit is None else limit):
        place = vhost if limit is None else group
        rule = place.rule("maxConnectionsPerHost", vhost.max_connections_per_host if limit is None else limit)
        reached.append((Reason.HOST_CONNECTION_LIMIT, rule))
    return reached


def _decide_sender(settings: Settings, facts: LinkFacts, address: Address | None) -> Decision:
    if facts.open_links >= settings.max_senders:
        return _deny(Reason.SENDER_LIMIT, settings.rule("maxSenders", settings.max_senders))
    if facts.is_coordinator or address is None:
        if settings.allow_anonymous_sender:
            return ALLOWED
        return _deny(Reason.ANONYMOUS_SENDER, settings.rule("allowAnonymousSender", "false"))
    if facts.capabilities and (denied := _capability_denied(settings, facts.capabilities)) is not None:
        return denied
    verdict, key = settings.targets.judge(address), settings.origin.target_key
    if verdict.item is None:
        unlisted = _decide_unlisted(settings, facts, verdict)
        if unlisted is not None:
            return unlisted
        return _address_denied(settings, Reason.TARGET_NOT_ALLOWED, key, "denyTargets", verdict)
    if (denied := _management_elsewhere_denied(settings, address)) is not None:
        return denied
    return Decision(is_allowed=True, reason=Reason.ALLOWED, rule=settings.rule(key, verdict.item), address=verdict.text)


def _management_elsewhere_denied(settings: Settings, address: Address) -> Decision | None:
    """Returns a denial if the client may not manage another router. That router would give it all rights.

    Attack: a client that may read here, and may use every target, deletes the listeners of every other router.
    """
    rights = settings.management
    if not address.is_management or address.key[0] not in "RH" or not rights.is_set or rights.is_everything:
        return None
    return _deny(Reason.MANAGEMENT_NOT_ALLOWED, settings.rule(MANAGEMENT_KEY, rights))


def _decide_unlisted(settings: Settings, facts: LinkFacts | MessageFacts, verdict: Verdict) -> Decision | None:
    """Decides on an address that no target allows: the connection's own, or a reply (§3.16).

    None if neither applies.
    """
    if verdict.denied_by is not None:
        return None
    owner, age_s = facts.dynamic_address, facts.reply_age_s
    # The grants of an authentication service are complete (§9.6): they replace the group's lists, and also this rule.
    if owner == "own" and settings.origin.target_key != GRANTED_TARGET_KEY:
        return Decision(is_allowed=True, reason=Reason.ALLOWED, rule=settings.rule(OWN_TARGET), address=verdict.text)
    if not settings.allow_replies or (age_s is None and owner is None):
        return None
    is_allowed, rule = False, settings.rule(REPLIES_KEY, "true")
    if age_s is None:
        reason = Reason.REPLY_NOT_EXPECTED
    elif age_s < settings.reply_window_s:
        is_allowed, reason = True, Reason.ALLOWED
    else:
        reason, rule = Reason.REPLY_WINDOW_OVER, settings.rule(REPLY_WINDOW_KEY, settings.reply_window_s)
    return Decision(is_allowed=is_allowed, reason=reason, rule=rule, address=verdict.text)


def _decide_receiver(settings: Settings, facts: LinkFacts, address: Address | None) -> Decision:
    if facts.open_links >= settings.max_receivers:
        return _deny(Reason.RECEIVER_LIMIT, settings.rule("maxReceivers", settings.max_receivers))
    if facts.is_dynamic:
        if settings.allow_dynamic_source:
            return ALLOWED
        return _deny(Reason.DYNAMIC_SOURCE, settings.rule("allowDynamicSource", "false"))
    if address is None:
        return _deny(Reason.NO_SOURCE_ADDRESS, settings.rule(settings.origin.source_key))
    if facts.capabilities and (denied := _capability_denied(settings, facts.capabilities)) is not None:
        return denied
    verdict, key = settings.sources.judge(address), settings.origin.source_key
    if facts.dynamic_address is not None:
        is_own = facts.dynamic_address == "own"
        if not is_own or verdict.denied_by is None:
            reason = Reason.ALLOWED if is_own else Reason.DYNAMIC_ADDRESS_NOT_OWN
            rule = settings.rule(OWNERSHIP)
            return Decision(is_allowed=is_own, reason=reason, rule=rule, address=verdict.text)
    if verdict.item is None:
        return _address_denied(settings, Reason.SOURCE_NOT_ALLOWED, key, "denySources", verdict)
    return Decision(is_allowed=True, reason=Reason.ALLOWED, rule=settings.rule(key, verdict.item), address=verdict.text)


def _unclear(address: Unclear) -> Decision:
    return Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS, address=address.written)


def _address_denied(settings: Settings, reason: Reason, key: str, deny_key: str, verdict: Verdict) -> Decision:
    """Returns a denial by the item that denies the address, or else by the list that does not allow it."""
    denied_by = verdict.denied_by
    rule = settings.rule(key) if denied_by is None else settings.rule(deny_key, denied_by)
    return Decision(is_allowed=False, reason=reason, rule=rule, address=verdict.text)


def _capability_denied(settings: Settings, capabilities: tuple[str, ...]) -> Decision | None:
    """Returns a denial because of a capability, else None. Every symbol counts, single or in an array."""
    if not settings.allow_waypoint_links and any(
        capability.startswith(WAYPOINT_CAPABILITY_PREFIX) for capability in capabilities
    ):
        return _deny(Reason.WAYPOINT_CAPABILITY, settings.rule("allowWaypointLinks", "false"))
    if not settings.allow_fallback_links and FALLBACK_CAPABILITY in capabilities:
        return _deny(Reason.FALLBACK_CAPABILITY, settings.rule("allowFallbackLinks", "false"))
    return None


def _deny(reason: Reason, rule: Rule) -> Decision:
    return Decision(is_allowed=False, reason=reason, rule=rule)
