"""What holds for every policy, extensions included: order says nothing, denials only take away, names open nothing."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rulesets import at, ruleset

from policy.addressing.lists import escaped
from policy.analysis.confirmation import confirms
from policy.analysis.difference import diff_rulesets
from policy.analysis.effort import TooComplexError
from policy.decide import decide_connection, decide_link, decide_message
from policy.decision import Reason
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset

INSTANTS = ("2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00Z")
NOWS = (1.0e9, 1.78e9, 1.79e9, 1.9e9)
HOSTS = ("*", "10.0.0.1", "10.0.0.0/8", "10.0.0.4-10.0.0.9", "::1", "2001:db8::/32", "::ffff:10.0.0.1")
LITERALS = ("*", "a", "a.*", "b", "${user}", "in.${user}", "${user}.*", "a.b*", "amqp:/a", "in.${user}.x")
PATTERNS = ("#", "*", "a.#", "a.*", "*.b", "${user}", "a/${user}", "${user}.#", "in/${user}")
DENIED = ("a", "b*", "in.anna", "b.c", "a.b", "amqp:/a", "/b", "*")
# Who may choose his name chooses one of these.
HOSTILE = ("*", "#", "a*", "a.#", "..", "/", ".a", "a/", ",", "a,b", "${user}", "{user}", "x${user}y", "")


@st.composite
def groups(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A group with any of the settings there are; users and joined groups are its own, as a vhost wants it."""
    group: dict[str, Any] = {
        "users": draw(st.sampled_from([[], [f"{name}-1"], [f"{name}-1", "anna" if name == "g" else f"{name}-2"]])),
        "remoteHosts": draw(st.lists(st.sampled_from(HOSTS), max_size=3, unique=True)),
    }
    for literal, pattern, denied in (
        ("sources", "sourcePattern", "denySources"),
        ("targets", "targetPattern", "denyTargets"),
    ):
        is_literal = draw(st.booleans())
        items = st.sampled_from(LITERALS if is_literal else PATTERNS)
        group[literal if is_literal else pattern] = draw(st.lists(items, max_size=3, unique=True))
        if draw(st.booleans()):
            group[denied] = draw(st.lists(st.sampled_from(DENIED), max_size=2, unique=True))
    if draw(st.booleans()):
        group["authenticatorGroups"] = [f"of-{name}", f"also-{name}"][: draw(st.integers(1, 2))]
    if draw(st.integers(0, 3)) == 0:
        begin, end = draw(st.sampled_from([(0, None), (None, 1), (0, 1), (1, 2), (None, 2)]))
        group |= {key: INSTANTS[at] for key, at in (("validFrom", begin), ("validUntil", end)) if at is not None}
    for key in ("maxSenders", "maxConnectionsPerUser", "maxMessageSize", "maxMessageRate", "maxByteRate"):
        if (value := draw(st.sampled_from([None, None, None, 0, 2]))) is not None:
            group[key] = value
    for key in ("allowDynamicSource", "allowAnonymousSender", "allowWaypointLinks", "allowReplies"):
        if draw(st.booleans()):
            group[key] = draw(st.booleans())
    return group


@st.composite
def vhosts(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for hostname in draw(st.lists(st.sampled_from(["h", "k", "$default"]), unique=True, min_size=1, max_size=2)):
        members = {name: draw(groups(name)) for name in draw(st.lists(st.sampled_from("gm"), unique=True))}
        if draw(st.booleans()):
            members["$default"] = {**draw(groups("d")), "users": draw(st.sampled_from([[], ["*"]]))}
        vhost = {"hostname": hostname, "groups": members, "allowUnknownUser": "$default" in members}
        if hostname == "h":
            vhost["aliases"] = "x, y"
        found.append(vhost)
    return found


@st.composite
def reordered(draw: st.DrawFn, written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same vhosts, groups and items in another order."""

    def mixed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: mixed(value[key]) for key in draw(st.permutations(list(value)))}
        return draw(st.permutations(value)) if isinstance(value, list) else value

    return [mixed(vhost) for vhost in draw(st.permutations(written))]


PEERS = ("10.0.0.1", "10.0.0.5", "10.9.9.9", "::1", "::ffff:10.0.0.1", "2001:db8::5", "9.9.9.9")
ADDRESSES = ("a", "a.b", "a/b", "anna", "b.c", "in.anna", "in.carl", "x.b", "b", "amqp:/a", "zz")
REQUESTS = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["anna", "g-1", "m-1", "d-1", "carl", "a", "b.c", *HOSTILE]),
        "groups": st.lists(st.sampled_from(["of-g", "of-m", "also-g", "of-d", "zz"]), max_size=2),
        "host": st.sampled_from(PEERS),
        "vhost": st.sampled_from(["h", "k", "x", "z", ""]),
        "now": st.sampled_from(NOWS),
        "address": st.sampled_from(ADDRESSES),
    }
)


def decided(rules: Ruleset, request: dict[str, Any]) -> tuple[Any, ...]:
    """Every decision about a request, without the places of rules."""
    facts = ConnectionFacts(
        user=request["user"],
        remote_host=request["host"],
        requested_vhost=request["vhost"],
        connection_name="c",
        groups=tuple(request["groups"]),
        now=request["now"],
    )
    judged = decide_connection(rules, facts, Usage(of_user=1))
    found: list[Any] = [judged.decision.reason, judged.group]
    if judged.settings is not None:
        address = request["address"]
        links = [
            LinkFacts(direction="send", address=at(address), open_links=1),
            LinkFacts(direction="receive", address=at(address)),
            LinkFacts(direction="receive", address=None, is_dynamic=True),
            LinkFacts(direction="send", address=None),
        ]
        found += [decide_link(judged.settings, link).reason for link in links]
        found.append(decide_message(judged.settings, MessageFacts(target=at(address))).is_allowed)
    return tuple(found)


@pytest.mark.slow
@given(st.data(), vhosts(), st.lists(REQUESTS, min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_no_order_changes_a_decision(data: st.DataObject, written: list[dict[str, Any]], asked: list[Any]) -> None:
    """Of vhosts, of groups, of attributes, of list items, of the groups the authenticator names."""
    one, other = ruleset(*written), ruleset(*data.draw(reordered(written)))
    assert one.digest == other.digest
    for request in asked:
        turned = {**request, "groups": request["groups"][::-1]}
        assert decided(one, request) == decided(other, turned)


@pytest.mark.slow
@given(vhosts())
@settings(max_examples=30, deadline=None)
def test_nothing_differs_from_itself(written: list[dict[str, Any]]) -> None:
    rules = ruleset(*written)
    # Another digest, so that every vhost is gone through, and yet the same rules.
    copy = ruleset(*({**vhost, "maxConnections": 65534} for vhost in written))
    assert diff_rulesets(rules, rules) == ()
    assert {change.subject for change in diff_rulesets(rules, copy)} <= {"maxConnections"}


@pytest.mark.slow
@given(vhosts(), vhosts(), REQUESTS)
@settings(max_examples=25, deadline=None)
def test_a_difference_is_found_and_every_witness_is_confirmed(
    before: list[dict[str, Any]], after: list[dict[str, Any]], request: dict[str, Any]
) -> None:
    old, new = ruleset(*before), ruleset(*after)
    try:
        changes = diff_rulesets(old, new)
    except TooComplexError:
        assume(False)
        return
    assert all(confirms(old, new, change) for change in changes)
    was, is_ = (decided(each, request)[0] == "allowed" for each in (old, new))
    if was != is_:
        assert any(change.subject == "connect" and change.is_widening == is_ for change in changes)


denials = st.lists(st.sampled_from(DENIED), max_size=2)


@pytest.mark.slow
@given(st.data(), vhosts(), st.sampled_from(["denySources", "denyTargets"]), denials)
@settings(max_examples=30, deadline=None)
def test_adding_a_denial_never_widens(
    data: st.DataObject, written: list[dict[str, Any]], key: str, denied: list[str]
) -> None:
    vhost = data.draw(st.sampled_from(written))
    assume(vhost["groups"])
    name = data.draw(st.sampled_from(sorted(vhost["groups"])))
    group = vhost["groups"][name]
    stricter = {**vhost, "groups": {**vhost["groups"], name: {**group, key: [*group.get(key, []), *denied]}}}
    changes = diff_rulesets(ruleset(vhost), ruleset(stricter))
    assert not any(change.is_widening for change in changes)


UNIT = "\ue020"  # a name that is in no rule


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(LITERALS[1:]), max_size=4) | st.none(),
    st.lists(st.sampled_from(PATTERNS[3:]), max_size=4),
    st.sampled_from(HOSTILE) | st.text("*#./,${user}ab", min_size=1, max_size=7),
    st.text("*#./,${user}ab", max_size=4),
    st.text("*#./,${user}ab", max_size=6),
)
@settings(max_examples=400, deadline=None)
def test_what_a_name_allows_stands_in_the_address(
    literals: list[str] | None, patterns: list[str], user: str, head: str, tail: str
) -> None:
    """Whatever a name is made of it is one unit: an address that only it opens has the whole name where `${user}` is,
    so that with another name in its place the owner of that one may use it.
    """
    lists = {"sources": literals} if literals is not None else {"sourcePattern": patterns}
    rules = ruleset({"hostname": "h", "groups": {"g": {"users": "*", "remoteHosts": "*", **lists}}})

    def may(name: str, address: str) -> bool:
        facts = ConnectionFacts(user=name, remote_host="10.0.0.1", requested_vhost="h", connection_name="c")
        decided = decide_connection(rules, facts, Usage())
        if decided.settings is None:
            assert decided.decision.reason is Reason.RESERVED_USER_NAME
            return False
        return decide_link(decided.settings, LinkFacts(direction="receive", address=at(address))).is_allowed

    names = (user, escaped(user))
    around_name = [each for n in names for each in (f"{head}{n}{tail}", f"in.{n}{tail}", f"a/{n}", f"{n}.{tail}")]
    for address in (head + tail, *around_name, "a", "b", "secret"):
        if may(user, address) and not may("", address):
            places = [(at, name) for at in range(len(address) + 1) for name in names if address.startswith(name, at)]
            assert any(may(UNIT, address[:at] + UNIT + address[at + len(name) :]) for at, name in places)


@pytest.mark.parametrize("user", HOSTILE)
def test_a_name_chooses_no_group(user: str) -> None:
    """A name is compared exactly: only who is called so is in the group, and `*` as a name is nobody's."""
    named = {"users": ["anna", "a.b"], "remoteHosts": "*", "sources": "*"}
    rules = ruleset({"hostname": "h", "groups": {"g": named}})
    facts = ConnectionFacts(user=user, remote_host="10.0.0.1", requested_vhost="h", connection_name="c")
    assert decide_connection(rules, facts, Usage()).decision.is_allowed == (user in named["users"])
