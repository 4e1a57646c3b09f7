"""Explains a decision: every step to it, each with the place of its rule.

Pure. The verdict is that of `policy.decide`; this module only lists the steps, in the order of the specification.
Source: docs/spec/policy-and-auth.md §2.7, §3.3, §3.7, §3.8.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from policy.addressing.address import Address, Unclear
from policy.addressing.patterns import split_tokens
from policy.decide import OWN_TARGET, OWNERSHIP, ConnectionDecision, Settings, decide_connection, decide_link
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, ManagementFacts, Usage
from policy.groups import UNLIMITED_LINKS, Group
from policy.hosts import HostRanges, parse_address
from policy.rights import MANAGEMENT_KEY, UNRESTRICTED, decide_management, lacking
from policy.ruleset import Ruleset
from policy.vhosts import ANY_USER, DEFAULT_GROUP, Vhost
from policy.windows import shown_instant

# More items than a reader needs. Keeps the explanation of a list of thousands short.
MAX_SHOWN_ITEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One check on the way to a decision.

    is_passed  None if the step decided nothing
    rule       the place of its rule, if it has one
    """

    about: str
    text: str
    is_passed: bool | None = None
    rule: Rule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision and the steps to it; the last step is the one that decided."""

    decision: Decision
    steps: tuple[Step, ...]
    vhost: str | None = None
    group: str | None = None
    settings: Settings | None = None


def explain_connection(ruleset: Ruleset, facts: ConnectionFacts, usage: Usage | None = None) -> Explanation:
    """Explains the decision on a connection.

    usage  open connections except this one; left out: none
    """
    counts = Usage() if usage is None else usage
    judged = decide_connection(ruleset, facts, counts)
    steps = tuple(_connection_steps(ruleset, facts, counts, judged))
    return Explanation(
        decision=judged.decision, steps=steps, vhost=judged.vhost, group=judged.group, settings=judged.settings
    )


def explain_link(settings: Settings | None, facts: LinkFacts) -> Explanation:
    """Explains the decision on a link.

    settings  of the connection; None if policy does not govern it

    A dynamic address belongs to another connection, unless the facts say that it is this connection's own.
    """
    if isinstance(facts.address, Unclear):
        decision = Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS, address=facts.address.written)
        text = f"'{facts.address.written}' is no address: {facts.address.why}"
        return Explanation(decision=decision, steps=(_failed("address", text),))
    if settings is None:
        text = "the connection is not governed by policy: every link may be opened"
        return Explanation(decision=Decision(is_allowed=True, reason=Reason.ALLOWED), steps=(_passed("link", text),))
    address = facts.address
    if facts.dynamic_address is None and address is not None and address.is_dynamic:
        facts = replace(facts, dynamic_address="other")
    decision = decide_link(settings, facts)
    steps = tuple(_link_steps(settings, facts, address, decision))
    return Explanation(decision=decision, steps=steps, vhost=settings.vhost, group=settings.group, settings=settings)


def explain_management(settings: Settings | None, facts: ManagementFacts) -> Explanation:
    """Explains whether a management request that has reached $management is permitted.

    settings  as for `explain_link`
    """
    rights = settings.management if settings is not None else UNRESTRICTED
    rule = settings.rule(MANAGEMENT_KEY, rights) if settings is not None and rights.is_set else None
    decision = decide_management(rights, facts, rule)
    missing = lacking(rights, facts)
    text = f"may {facts}" if not missing else f"may not {facts}: '{missing}' is missing"
    text = f"{text}; the rights are: {rights}"
    step = Step(about="management", text=text, is_passed=decision.is_allowed, rule=rule)
    vhost, group = (settings.vhost, settings.group) if settings is not None else (None, None)
    return Explanation(decision=decision, steps=(step,), vhost=vhost, group=group, settings=settings)


def _connection_steps(
    ruleset: Ruleset, facts: ConnectionFacts, usage: Usage, judged: ConnectionDecision
) -> Iterator[Step]:
    if judged.decision.reason is Reason.INTERNAL_ERROR:
        yield _failed("facts", f"'{facts.remote_host}' is no numeric address, and what cannot be judged is denied")
        return
    if not ruleset.is_enabled:
        yield _passed("policy", "enableVhostPolicy is off: nothing is restricted")
        return
    vhost = ruleset.select_vhost(facts.requested_vhost)
    yield _vhost_step(ruleset, facts.requested_vhost, vhost)
    if vhost is None:
        return
    user = facts.user or ""
    yield Step(about="user", text=_user_text(facts))
    group = vhost.group_of(user, facts.groups)
    yield _group_step(vhost, facts, group)
    if group is None:
        return
    if not group.window.is_always:
        yield _window_step(group, facts.now)
        if not group.window.contains(facts.now):
            return
    is_near = group.hosts.contains(facts.remote_host)
    yield _host_step(group, facts.remote_host, is_near)
    if is_near:
        yield _management_step(group)
        yield from _limit_steps(vhost, group, usage)


def _user_text(facts: ConnectionFacts) -> str:
    name = f"'{facts.user}'" if facts.user else "a peer without a name"
    how = f"authenticated by {facts.mechanism}" if facts.mechanism else "without SASL"
    tls = "over TLS" if facts.is_encrypted else "in the clear"
    return f"{name}, {how}, {tls}; names are compared exactly, in upper and lower case"


def _vhost_step(ruleset: Ruleset, requested: str, vhost: Vhost | None) -> Step:
    name: str | None = requested
    by = "by its name"
    if ruleset.tree is not None:
        name = ruleset.find_pattern(requested)
        by = f"by the pattern '{name}'"
    if vhost is None:
        default = f"there is no default vhost '{ruleset.default_vhost}'" if ruleset.default_vhost else "none is default"
        rule = Rule(item=f"defaultVhost: {ruleset.default_vhost}")
        return _failed("vhost", f"no vhost is called '{requested}', and {default}", rule)
    if name is None or name not in ruleset.owners:
        text = f"no vhost is called '{requested}': the default vhost '{vhost.name}' governs"
        return _passed("vhost", text, vhost.rule("hostname", vhost.name))
    if name != vhost.name:
        text = f"'{requested}' is vhost '{vhost.name}', {by if ruleset.tree is not None else 'by an alias'}"
        return _passed("vhost", text, vhost.rule("aliases", name))
    return _passed("vhost", f"'{requested}' is vhost '{vhost.name}', {by}", vhost.rule("hostname", vhost.name))


def _group_step(vhost: Vhost, facts: ConnectionFacts, group: Group | None) -> Step:
    user = facts.user or ""
    if group is None:
        default = "allowUnknownUser is false"
        text = f"no group of vhost '{vhost.name}' lists '{user}' or '{ANY_USER}', and {default}"
        return _failed("group", text, vhost.rule("allowUnknownUser", "false"))
    if user in vhost.user_groups:
        return _passed("group", f"group '{group.name}' lists '{user}'", group.rule("users", user))
    if vouched := [name for name in facts.groups if vhost.joined_groups.get(name) is group]:
        text = f"the authenticator says '{user}' is in '{vouched[0]}', which group '{group.name}' lists"
        return _passed("group", text, group.rule("authenticatorGroups", vouched[0]))
    if group is vhost.any_user_group:
        text = f"no group lists '{user}': group '{group.name}' lists '{ANY_USER}'"
        return _passed("group", text, group.rule("users", ANY_USER))
    text = f"no group lists '{user}': unknown users have the settings of group '{DEFAULT_GROUP}'"
    return _passed("group", text, vhost.rule("allowUnknownUser", "true"))


def _window_step(group: Group, now: float | None) -> Step:
    when = f"at {shown_instant(now)}" if now is not None else "at an unknown time"
    text = f"it is asked {when}: group '{group.name}' is valid {group.window}"
    if group.window.contains(now):
        return _passed("window", text)
    rule = group.rule(*group.window.reason_at(now))
    return _failed("window", f"{text}; meanwhile its members are in no other group", rule)


def _host_step(group: Group, host: str, is_near: bool) -> Step:
    rule = group.rule("remoteHosts")
    if group.hosts.is_any:
        return _passed("host", f"'{host}' may connect: group '{group.name}' admits any address", rule)
    listed = _shown(shown_ranges(group.hosts), "no address at all")
    if is_near:
        return _passed("host", f"'{host}' may connect: group '{group.name}' admits {listed}", rule)
    return _failed("host", f"'{host}' may not connect: group '{group.name}' admits {listed}", rule)


def _management_step(group: Group) -> Step:
    text = f"group '{group.name}', where its targets reach $management: {group.management}"
    return Step(about="management", text=text, rule=group.rule(MANAGEMENT_KEY) if group.management.is_set else None)


def shown_ranges(hosts: HostRanges) -> tuple[str, ...]:
    """Returns the ranges as `remoteHosts` items."""
    if hosts.is_any:
        return ("*",)
    v4 = ((str(IPv4Address(low)), str(IPv4Address(high))) for low, high in hosts.v4)
    v6 = ((str(IPv6Address(low)), str(IPv6Address(high))) for low, high in hosts.v6)
    return tuple(low if low == high else f"{low}-{high}" for low, high in (*v4, *v6))


def _limit_steps(vhost: Vhost, group: Group, usage: Usage) -> Iterator[Step]:
    place: Vhost | Group = vhost
    yield _limit_step("connections to the vhost", usage.total, vhost.max_connections, vhost.rule("maxConnections"))
    limit = group.max_connections_per_user
    place, limit = (vhost, vhost.max_connections_per_user) if limit is None else (group, limit)
    yield _limit_step("connections of this user", usage.of_user, limit, place.rule("maxConnectionsPerUser"))
    limit = group.max_connections_per_host
    place, limit = (vhost, vhost.max_connections_per_host) if limit is None else (group, limit)
    yield _limit_step("connections from this host", usage.of_host, limit, place.rule("maxConnectionsPerHost"))


def _limit_step(what: str, count: int, limit: int, rule: Rule) -> Step:
    text = f"{what}: {count} open, at most {limit}"
    return Step(about="limit", text=text, is_passed=count < limit, rule=rule)


def _link_steps(settings: Settings, facts: LinkFacts, address: Address | None, decision: Decision) -> Iterator[Step]:
    is_send = facts.direction == "send"
    role, key = ("senders", "maxSenders") if is_send else ("receivers", "maxReceivers")
    limit = settings.max_senders if is_send else settings.max_receivers
    bound = "no limit" if limit >= UNLIMITED_LINKS else f"at most {limit}"
    is_below = facts.open_links < limit
    yield Step(
        about="limit", text=f"{role}: {facts.open_links} open, {bound}", is_passed=is_below, rule=settings.rule(key)
    )
    if not is_below:
        return
    if is_send and (rates := _shown_rates(settings)):
        yield Step(about="rate", text=f"the connection may send {rates}, held back by credit")
    reason = decision.reason
    if is_send and (facts.is_coordinator or address is None):
        what = "a transaction coordinator" if facts.is_coordinator else "a sender without an address"
        yield _switch_step(settings, what, "allowAnonymousSender", settings.allow_anonymous_sender)
    elif not is_send and facts.is_dynamic:
        yield _switch_step(settings, "a dynamic source", "allowDynamicSource", settings.allow_dynamic_source)
    elif address is None:
        yield _failed("address", "a receiver needs an address", settings.rule(settings.origin.source_key))
    elif reason in (Reason.WAYPOINT_CAPABILITY, Reason.FALLBACK_CAPABILITY):
        switch = "allowWaypointLinks" if reason is Reason.WAYPOINT_CAPABILITY else "allowFallbackLinks"
        yield _switch_step(settings, f"the capability {', '.join(facts.capabilities)}", switch, False)
    elif decision.rule is not None and decision.rule.item in (OWNERSHIP, OWN_TARGET):
        text = f"'{address.written}' has the form of a dynamic address: {decision.rule.item}"
        yield Step(about="owner", text=text, is_passed=decision.is_allowed, rule=decision.rule)
    elif is_send and _is_about_replies(settings, address, decision):
        yield from _reply_steps(settings, facts, address, decision)
    else:
        yield from _address_steps(settings, address, is_send, decision)


def _is_about_replies(settings: Settings, address: Address, decision: Decision) -> bool:
    is_unlisted = decision.is_allowed and settings.targets.judge(address).item is None
    return is_unlisted or decision.reason in (Reason.REPLY_WINDOW_OVER, Reason.REPLY_NOT_EXPECTED)


def _reply_steps(settings: Settings, facts: LinkFacts, address: Address, decision: Decision) -> Iterator[Step]:
    age_s, key = facts.reply_age_s, settings.origin.target_key
    yield Step(about="address", text=f"{key} of group '{settings.group}' do not name '{address.written}'")
    came = f"a message with this reply-to came {age_s:g} seconds ago" if age_s is not None else "none has come"
    window = f"allowReplies lets the connection reply for {settings.reply_window_s} seconds"
    yield Step(about="reply", text=f"{window}: {came}", is_passed=decision.is_allowed, rule=decision.rule)


def _shown_rates(settings: Settings) -> str:
    rates = ((settings.max_message_rate, "messages"), (settings.max_byte_rate, "bytes"))
    return " and ".join(f"{rate} {what} a second" for rate, what in rates if rate is not None)


def _switch_step(settings: Settings, what: str, key: str, is_on: bool) -> Step:
    text = f"{what}: {key} is {'true' if is_on else 'false'} in group '{settings.group}'"
    return Step(about="link", text=text, is_passed=is_on, rule=settings.rule(key, "true" if is_on else "false"))


def _address_steps(settings: Settings, address: Address, is_send: bool, decision: Decision) -> Iterator[Step]:
    if address.plain != address.written:
        yield Step(
            about="address", text=f"'{address.written}' is understood as '{address.plain}', which must be allowed"
        )
    if address.is_management:
        yield Step(about="address", text=f"'{address.plain}' reaches the management of a router")
    origin, text = settings.origin, decision.address or address.written
    key, rules = (origin.target_key, origin.targets) if is_send else (origin.source_key, origin.sources)
    verb = "send to" if is_send else "receive from"
    if decision.is_allowed:
        item = (decision.rule.item or "") if decision.rule is not None else ""
        yield _passed("address", f"may {verb} '{text}': it matches {item}", decision.rule)
        return
    if decision.rule is not None and (decision.rule.item or "").startswith("deny"):
        yield _failed("address", f"may not {verb} '{text}': {decision.rule.item} overrides", decision.rule)
        return
    listed = _shown(rules.canonical, "nothing")
    why = f"may not {verb} '{text}': {key} of group '{settings.group}' admits {listed}"
    if is_send and settings.allow_replies:
        why = f"{why} (and no message with it as reply-to has come that counts: allowReplies)"
    if (advice := _address_advice(rules.canonical, text)) is not None:
        why = f"{why} ({advice})"
    yield _failed("address", why, settings.rule(key))


def _address_advice(items: tuple[str, ...], address: str) -> str | None:
    """Returns a hint at a usual mistake that may explain a denied address, else None."""
    for item in items:
        if item.lower() == address.lower():
            return "upper and lower case differ"
        if split_tokens(item) == split_tokens(address):
            return f"'{item}' is compared character by character"
    return "it has a scheme or a blank around it" if "://" in address or address != address.strip() else None


def _shown(items: tuple[str, ...], nothing: str) -> str:
    if not items:
        return nothing
    more = f" and {len(items) - MAX_SHOWN_ITEMS} more" if len(items) > MAX_SHOWN_ITEMS else ""
    return ", ".join(f"'{item}'" for item in items[:MAX_SHOWN_ITEMS]) + more


def is_numeric_host(text: str) -> bool:
    """Returns whether `text` can be the address of a peer."""
    try:
        ip_address(text)
        parse_address(text)
    except ValueError:
        return False
    return True


def _passed(about: str, text: str, rule: Rule | None = None) -> Step:
    return Step(about=about, text=text, is_passed=True, rule=rule)


def _failed(about: str, text: str, rule: Rule | None = None) -> Step:
    return Step(about=about, text=text, is_passed=False, rule=rule)
