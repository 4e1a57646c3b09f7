"""With a candidate all ends as without, and what is recorded is where decisions differ (issue 5, Shadow)."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import at

from auth.identity import Identity
from policy.addressing.address import Address
from policy.decide import Settings, decide_connection, decide_link, decide_message, decide_session
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset, compile_ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import ConnectionGate, Gate, LinkRequest
from router.effects import Audit, Effect, Log

ADDRESSES = ("", "q", "q.x", "alice", "other")
limits = st.sampled_from([None, 0, 1, 2])
lists = st.sampled_from([None, "*", "q", "q.*", "${user}", "other,q*"])
denied = st.sampled_from([None, None, "q.x", "other"])
switches = st.booleans()


def present(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with these members, without those that are None."""
    return st.fixed_dictionaries(members).map(
        lambda drawn: {key: value for key, value in drawn.items() if value is not None}
    )


groups = present(
    users=st.sampled_from(["*", "alice", "bob"]),
    remoteHosts=st.sampled_from(["*", "*", "*", "10.0.0.1"]),
    maxConnectionsPerUser=limits,
    maxSessions=limits,
    maxSenders=limits,
    maxReceivers=limits,
    maxMessageSize=st.sampled_from([None, 0, 10, 20]),
    allowDynamicSource=switches,
    allowAnonymousSender=switches,
    allowUserIdProxy=switches,
    sources=lists,
    targets=lists,
    denySources=denied,
    denyTargets=denied,
)
vhost = present(maxConnections=limits, groups=st.fixed_dictionaries({"g": groups}))
rulesets = st.builds(
    lambda vhosts, is_enabled: compile_ruleset(
        {"enableVhostPolicy": is_enabled},
        [({"hostname": name, **attributes}, None) for name, attributes in vhosts.items()],
        resolve=lambda _name: [],
    ),
    st.dictionaries(st.sampled_from(["h", "i", "$default"]), vhost, min_size=1, max_size=3),
    st.sampled_from([True, True, True, False]),
)
requests = st.one_of(
    st.tuples(st.just("begin")),
    st.tuples(st.just("attach"), st.sampled_from(["send", "receive"]), st.sampled_from(ADDRESSES), st.booleans()),
    st.tuples(st.just("detach"), st.sampled_from(["send", "receive"])),
    st.tuples(st.just("target"), st.sampled_from(ADDRESSES[1:])),
    st.tuples(st.just("user_id"), st.sampled_from([b"", b"alice", b"bob"])),
    st.tuples(st.just("size"), st.integers(1, 30)),
)
connections = st.tuples(
    st.sampled_from(["alice", "bob"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.sampled_from(["h", "i", "z"]),
    st.lists(requests, max_size=8), st.booleans(),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """answers  of every request, in order; differences  what the reference expects to be recorded."""

    answers: list[object]
    effects: list[Effect]
    ledger: UsageLedger
    shadow: Shadow | None
    differences: list[tuple[str, str]]


def run(in_force: Ruleset, candidate: Ruleset | None, script: list[Any]) -> Run:
    effects: list[Effect] = []
    shadow = None
    if candidate is not None:
        shadow = Shadow(effects.append)
        shadow.use(candidate)
    gate = Gate(in_force, UsageLedger(), effects.append, shadow)
    made = Run([], effects, gate.ledger, shadow, [])
    reference = UsageLedger()
    for number, (user, host, requested, asked, ends) in enumerate(script):
        facts = ConnectionFacts(
            user=user, remote_host=host, requested_vhost=requested, connection_name=f"{host}:{number}", now=1.0
        )
        connection = ConnectionGate(
            gate, connection_id=number, connection_name=facts.connection_name, remote_host=host, listener="l",
            is_governed=True,
        )  # fmt: skip
        gate.accept(connection_id=number, remote_host=host, connection_name=facts.connection_name, listener="l")
        refusal = connection.admit(
            Identity(user=user), hostname=requested, policy_vhost=None, is_encrypted=False, now=1.0
        )
        made.answers.append(refusal)
        own = open_as(candidate, facts, reference, is_allowed=refusal is None, differences=made.differences)
        if refusal is None:
            for request in asked:
                answer = ask(connection, request)
                made.answers.append(answer)
                if own is not None:
                    compare(own, connection, request, answer, made.differences)
        if refusal is not None or ends:
            connection.close()
            if own is not None and refusal is None:
                reference.release(own.vhost, user, host, facts.connection_name)
    return made


def open_as(
    candidate: Ruleset | None, facts: ConnectionFacts, ledger: UsageLedger, *, is_allowed: bool,
    differences: list[tuple[str, str]],
) -> Settings | None:  # fmt: skip
    """The reference: what the candidate grants, counting only what both would have."""
    if candidate is None:
        return None
    selected = candidate.select_vhost(facts.requested_vhost)
    user = facts.user or ""
    usage = ledger.usage(selected.name, user, facts.remote_host) if selected is not None else Usage()
    judged = decide_connection(candidate, facts, usage)
    if judged.decision.is_allowed != is_allowed:
        differences.append(("open", judged.decision.reason.value))
    if judged.settings is not None and is_allowed:
        ledger.admit(judged.settings.vhost, user, facts.remote_host, facts.connection_name)
        return judged.settings
    return None


def named(text: str) -> Address | None:
    return at(text) if text else None


def ask(connection: ConnectionGate, request: Any) -> object:
    match request:
        case ("begin",):
            return connection.begin()
        case ("attach", direction, address, is_dynamic):
            request = LinkRequest(direction=direction, address=named(address), link_name="l", is_dynamic=is_dynamic)
            return connection.attach(request)
        case ("detach", direction):
            if connection.open_senders if direction == "send" else connection.open_receivers:
                connection.detach(direction)
            return None
        case ("target", address):
            judged = connection.known_target(address) or connection.judge_target(at(address), 1)
            return None if isinstance(judged, Address) else judged
        case ("user_id", user_id):
            return connection.refuse_user_id(user_id, 1, "a")
        case ("size", size):
            watched = connection.watched_message_bytes
            return connection.refuse_size(size, 0, 1, "a") if watched and size > watched else None
    raise AssertionError(request)


def compare(
    own: Settings, connection: ConnectionGate, request: Any, answer: object, differences: list[tuple[str, str]]
) -> None:
    match request:
        case ("begin",):
            decision = decide_session(own, connection.open_sessions - (answer is None))
        case ("attach", direction, address, is_dynamic):
            opened = connection.open_senders if direction == "send" else connection.open_receivers
            facts = LinkFacts(direction=direction, address=named(address), is_dynamic=is_dynamic)
            decision = decide_link(own, replace(facts, open_links=opened - (answer is None)))
        case ("target", address):
            decision = decide_message(own, MessageFacts(target=at(address)))
        case ("user_id", user_id):
            decision = decide_message(own, MessageFacts(user_id=user_id))
        case ("size", size):
            is_over = 0 < own.max_message_size < size
            if is_over == (answer is None):
                differences.append(("transfer", "message_too_large" if is_over else "allowed"))
            return
        case _:
            return
    if decision.is_allowed != (answer is None):
        stage = request[0] if request[0] in ("begin", "attach") else "transfer"
        differences.append((stage, decision.reason.value))


def recorded(effects: list[Effect]) -> list[tuple[str, str]]:
    """Each as often as it was recorded."""
    found = []
    for effect in effects:
        if isinstance(effect, Audit) and effect.event["decision"] in ("shadow_deny", "shadow_allow"):
            shadow = effect.event["shadow"]
            found += [(effect.event["stage"], shadow["reason"])] * shadow["count"]
    return sorted(found)


def without_shadow(effects: list[Effect]) -> list[Effect]:
    def is_shadows(effect: Effect) -> bool:
        if isinstance(effect, Audit):
            return bool(effect.event["decision"].startswith("shadow_"))
        return isinstance(effect, Log) and "SHADOW" in effect.text

    return [effect for effect in effects if not is_shadows(effect)]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rulesets, rulesets, st.lists(connections, min_size=1, max_size=4))
def test_a_candidate_changes_no_answer_no_count_and_no_record(
    in_force: Ruleset, tried: Ruleset, script: list[Any]
) -> None:
    alone, beside = run(in_force, None, script), run(in_force, tried, script)
    assert beside.answers == alone.answers
    assert without_shadow(beside.effects) == alone.effects
    assert beside.ledger.policy_counters() == alone.ledger.policy_counters()
    names = alone.ledger.vhost_names()
    assert [beside.ledger.vhost_stats(name) for name in beside.ledger.vhost_names()] == [
        alone.ledger.vhost_stats(name) for name in names
    ]
    assert beside.shadow is not None
    assert beside.shadow.faults == 0


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rulesets, rulesets, st.lists(connections, min_size=1, max_size=4))
def test_what_is_recorded_is_where_the_decisions_differ(in_force: Ruleset, tried: Ruleset, script: list[Any]) -> None:
    made = run(in_force, replace(tried, is_enabled=True), script)
    assert made.shadow is not None
    made.shadow.disagreements.flush()
    assert recorded(made.effects) == sorted(made.differences)
    assert sum(count for _row, count in made.shadow.disagreements.rows()) == len(made.differences)
