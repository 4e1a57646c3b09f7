"""A candidate policy beside the one in force: what it says is recorded and changes nothing (issue 5, Shadow)."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from memory_net import ACCEPTED, REJECTED, RELEASED, Client, Net, Vhosts

import schemas
from router.admission import candidate as shadow_module
from router.admission import disagreements
from router.audit import event as audit_event

OPEN_HOUSE = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
OFF = Vhosts(policy={})
STAMP = audit_event.Stamp(event_id="0" * 32, start="0" * 32, sequence=0, time_s=0.0, router_id="R")
EVENTS = jsonschema.Draft202012Validator(schemas.load("audit_event"))


def vhosts(name: str = "v", *, vhost: Mapping[str, Any] | None = None, **group: Any) -> Vhosts:
    """One vhost, open to everybody but for what is given."""
    return Vhosts({name: {"allowUnknownUser": True, "groups": {"$default": {**OPEN_HOUSE, **group}}, **(vhost or {})}})


def shadows(net: Net) -> list[tuple[str, str, str, str, int]]:
    """decision, stage, reason in force, the candidate's, count; of every event that speaks of a candidate."""
    found = []
    for event in net.audits:
        if event["decision"].startswith("shadow_"):
            EVENTS.validate(audit_event.complete(event, STAMP))
            side = event["shadow"]
            found.append((event["decision"], event["stage"], event["reason"], side["reason"], side["count"]))
    return found


def counted(net: Net) -> dict[str, int]:
    assert net.shadow is not None
    return {row.identity.removeprefix("shadowDisagreement/"): count for row, count in net.shadow.disagreements.rows()}


def connected(net: Net) -> Client:
    client = net.client(hostname="v")
    net.pump()
    return client


def test_equal_policies_never_disagree() -> None:
    net = Net(vhosts=vhosts(maxReceivers=1), candidate=vhosts(maxReceivers=1))
    client = connected(net)
    anonymous = client.sender(None)
    ends = [client.receiver("a"), client.receiver("b"), client.sender("a"), anonymous]
    net.pump()
    anonymous.send(address="a")
    net.pump()
    assert [end.is_attached for end in ends] == [True, False, True, True]
    assert shadows(net) == []
    assert counted(net) == {}
    assert net.shadow is not None
    assert net.shadow.decisions > 5


def test_a_link_the_candidate_would_deny_lives() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    receiver = connected(net).receiver("b")
    net.pump()
    assert receiver.is_attached
    assert shadows(net) == [("shadow_deny", "attach", "allowed", "source_not_allowed", 1)]
    assert counted(net) == {"would_deny/source_not_allowed/vhost/v": 1}
    (event,) = [event for event in net.audits if event["decision"] == "shadow_deny"]
    assert (event["address"], event["direction"], event["vhost"]) == ("b", "receive", "v")
    assert event["rule"]["item"] == "sources: *"
    assert (event["shadow"]["vhost"], event["shadow"]["group"], event["shadow"]["item"]) == ("v", "$default", "sources")
    assert event["ruleset_digest"] != event["shadow"]["ruleset_digest"]
    assert (
        "[C1] SHADOW DENY attach 'b' for user 'anonymous', rhost '10.0.0.1', vhost 'v': "
        "candidate source_not_allowed (sources), in force allowed"
    ) in net.log_texts("POLICY")


def test_a_link_the_candidate_would_allow_stays_denied() -> None:
    net = Net(vhosts=vhosts(targets="a"), candidate=vhosts())
    sender = connected(net).sender("b")
    net.pump()
    assert not sender.is_attached
    assert shadows(net) == [("shadow_allow", "attach", "target_not_allowed", "allowed", 1)]
    assert counted(net) == {"would_allow/target_not_allowed/vhost/v": 1}
    assert [event["decision"] for event in net.audits] == ["shadow_allow", "deny"]


def test_another_spelling_is_judged_by_both() -> None:
    """Attack: a spelling that reaches what the candidate denies"""
    net = Net(vhosts=vhosts(), candidate=vhosts(denyTargets="secret"))
    sender = connected(net).sender("amqp:/secret")
    net.pump()
    assert sender.is_attached
    assert shadows(net) == [("shadow_deny", "attach", "allowed", "target_not_allowed", 1)]


def test_a_denied_connection_the_candidate_would_allow_is_not_counted_as_open() -> None:
    net = Net(vhosts=vhosts("other"), candidate=vhosts())
    client = connected(net)
    assert client.is_closed_by_router
    assert shadows(net) == [("shadow_allow", "open", "no_vhost", "allowed", 1)]
    assert net.shadow is not None
    assert (net.shadow.ledger.usage("v", "anonymous", "10.0.0.1").total, len(net.shadow.connections)) == (0, 0)


def test_a_connection_the_candidate_would_deny_is_said_once() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts("other"))
    client = connected(net)
    receiver = client.receiver("a")
    net.pump()
    assert receiver.is_attached
    assert shadows(net) == [("shadow_deny", "open", "allowed", "no_vhost", 1)]
    assert counted(net) == {"would_deny/no_vhost/vhost/v": 1}


def test_with_policy_off_the_candidate_is_asked_and_nothing_enforced() -> None:
    net = Net(vhosts=OFF, candidate=vhosts(sources="a", maxSessions=1, allowAnonymousSender=False))
    client, stranger = connected(net), net.client(hostname="w")
    session = client.connection.session()
    session.open()
    ends = [client.receiver("b"), client.sender(None), stranger.receiver("b")]
    net.pump()
    assert all(end.is_attached for end in ends)
    assert client.router.gate.settings is None
    assert sorted(shadows(net)) == [
        ("shadow_deny", "attach", "allowed", "anonymous_sender", 1),
        ("shadow_deny", "attach", "allowed", "source_not_allowed", 1),
        ("shadow_deny", "begin", "allowed", "session_limit", 1),
        ("shadow_deny", "open", "allowed", "no_vhost", 1),
    ]
    assert counted(net)["would_deny/no_vhost/requested/w"] == 1


def test_connection_limits_are_compared_with_what_the_candidate_would_have_admitted() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(vhost={"maxConnections": 1}))
    first, second = connected(net), connected(net)
    assert len(shadows(net)) == 1
    first.kill()
    net.pump()
    connected(net)  # the second did not count, so there is room
    assert len(shadows(net)) == 1
    connected(net)
    assert counted(net) == {"would_deny/vhost_connection_limit/vhost/v": 2}
    assert not second.is_closed_by_router
    event = net.audits[-1]
    assert (event["shadow"]["total"], event["shadow"]["of_host"]) == (1, 1)


def test_what_ends_is_given_back() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts())
    client = connected(net)
    assert net.shadow is not None
    assert net.shadow.ledger.usage("v", "anonymous", "10.0.0.1").total == 1
    client.kill()
    net.pump()
    assert net.shadow.ledger.usage("v", "anonymous", "10.0.0.1").total == 0
    assert net.shadow.connections == {}
    net.nothing_left()


def test_messages_to_a_target_the_candidate_would_deny_pass_and_are_all_counted() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(targets="a"))
    client = connected(net)
    client.receiver("b", credit=10, accepts=True)
    anonymous = client.sender(None)
    net.pump()
    sendings = [anonymous.send(address="b") for _ in range(5)]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED] * 5
    assert counted(net) == {"would_deny/message_target_not_allowed/vhost/v": 5}
    assert net.shadow is not None
    net.shadow.disagreements.flush()
    said = ("shadow_deny", "transfer", "allowed", "message_target_not_allowed")
    assert shadows(net) == [(*said, 1), (*said, 4)]


def test_a_message_in_somebody_elses_name() -> None:
    strict, lax = vhosts(allowUserIdProxy=False), vhosts(allowUserIdProxy=True)
    for in_force, tried, outcome, decision in (
        (lax, strict, ACCEPTED, ("shadow_deny", "transfer", "allowed", "user_id_proxy", 1)),
        (strict, lax, REJECTED, ("shadow_allow", "transfer", "user_id_proxy", "allowed", 1)),
        (OFF, strict, ACCEPTED, ("shadow_deny", "transfer", "allowed", "user_id_proxy", 1)),
    ):
        net = Net(vhosts=in_force, candidate=tried)
        client = connected(net)
        client.receiver("a", credit=10, accepts=True)
        sender = client.sender("a")
        net.pump()
        sendings = [sender.send(user_id=b"anonymous"), sender.send(user_id=b"eve")]
        net.pump()
        assert [sending.outcome for sending in sendings] == [ACCEPTED, outcome]
        assert shadows(net) == [decision]


@pytest.mark.parametrize("size", [200, 300_000], ids=["whole", "streamed"])
def test_a_message_too_large_for_the_candidate_alone_passes(size: int) -> None:
    net = Net(vhosts=vhosts(maxMessageSize=1_000_000), candidate=vhosts(maxMessageSize=size // 2))
    client = connected(net)
    receiver = client.receiver("a", credit=10, accepts=True)
    sender = client.sender("a")
    net.pump()
    sendings = [sender.send(bytes(size)), sender.send(b"small")]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED, ACCEPTED]
    assert [len(body) for body in receiver.bodies] == [size, 5]
    assert shadows(net) == [("shadow_deny", "transfer", "allowed", "message_too_large", 1)]
    event = net.audits[-1]
    assert (event["address"], event["shadow"]["limit"]) == ("a", size // 2)


@pytest.mark.parametrize("size", [200, 300_000], ids=["whole", "streamed"])
@pytest.mark.parametrize(("tried", "said"), [(0, 1), (10, 0), (10_000_000, 1)])
def test_a_message_too_large_for_the_policy_in_force_is_refused(size: int, tried: int, said: int) -> None:
    net = Net(vhosts=vhosts(maxMessageSize=100), candidate=vhosts(maxMessageSize=tried))
    client = connected(net)
    receiver = net.client(hostname="v").receiver("a", credit=10, accepts=True)
    sender = client.sender("a")
    net.pump()
    sender.send(bytes(size))
    net.pump()
    assert client.is_closed_by_router
    assert receiver.complete == []
    assert shadows(net) == [("shadow_allow", "transfer", "message_too_large", "allowed", 1)] * said
    assert [event["reason"] for event in net.audits if event["decision"] == "deny"] == ["message_too_large"]


# Faults


@pytest.mark.parametrize(
    "name", ["decide_connection", "decide_session", "decide_link", "decide_message", "Subject", "rule_members"]
)
def test_a_fault_of_the_shadow_changes_no_outcome(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(shadow_module, name, broken)
    net = Net(vhosts=vhosts(sources="a"), candidate=vhosts(targets="a", allowUserIdProxy=False))
    client = connected(net)
    receivers = [client.receiver("a", credit=10, accepts=True), client.receiver("b")]
    senders = [client.sender(None), client.sender("a")]
    net.pump()
    sendings = [senders[0].send(address="a"), senders[0].send(address="b"), senders[1].send(user_id=b"eve")]
    net.pump()
    assert [end.is_attached for end in (*receivers, *senders)] == [True, False, True, True]
    assert [sending.outcome for sending in sendings] == [ACCEPTED, RELEASED, REJECTED]
    assert net.shadow is not None
    assert net.shadow.faults >= 1
    (error, *_) = [text for text in net.log_texts("POLICY") if text.startswith("SHADOW ERROR")]
    assert "RuntimeError at " in error
    assert "secret" not in error
    assert any(each[0] == "shadow_error" for each in shadows(net))
    client.kill()
    net.pump()
    assert net.shadow.connections == {}
    assert net.shadow.ledger.usage("v", "anonymous", "10.0.0.1").total == 0


def test_a_fault_while_telling_of_a_fault_changes_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(shadow_module, "decide_link", broken)
    monkeypatch.setattr(disagreements.Disagreements, "tell", broken)
    net = Net(vhosts=vhosts(), candidate=vhosts())
    receiver = connected(net).receiver("a")
    net.pump()
    assert receiver.is_attached
    assert net.shadow is not None
    assert net.shadow.faults == 1


# Floods


def test_repeats_are_told_as_one_event_and_none_is_lost() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    for _ in range(10):
        client.receiver("b")
    net.pump()
    assert net.shadow is not None
    said = ("shadow_deny", "attach", "allowed", "source_not_allowed")
    assert shadows(net) == [(*said, 1)]
    net.shadow.disagreements.flush()
    assert shadows(net) == [(*said, 1), (*said, 9)]
    net.shadow.disagreements.flush()
    assert len(shadows(net)) == 2
    client.receiver("b")  # nothing came between the last two: told at once again
    net.pump()
    assert shadows(net) == [(*said, 1), (*said, 9), (*said, 1)]
    assert counted(net) == {"would_deny/source_not_allowed/vhost/v": 11}


def test_a_flush_that_is_given_up_leaves_the_rest_to_the_next() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    for address in "bcd":
        client.receiver(address)
        client.receiver(address)
    net.pump()
    assert net.shadow is not None
    next(net.shadow.disagreements.flushing())
    assert sum(each[4] for each in shadows(net)) == 4
    net.shadow.disagreements.flush()
    assert sum(each[4] for each in shadows(net)) == 6


def test_attack_an_address_per_attempt_is_told_in_sums_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disagreements, "MAX_TOLD", 3)
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    for number in range(10):
        client.receiver(f"b{number}" + "x" * 5000)
    net.pump()
    assert net.shadow is not None
    assert len(shadows(net)) == 3
    net.shadow.disagreements.flush()
    assert sum(each[4] for each in shadows(net)) == 10
    assert net.audits[-1].get("address") is None
    assert len(net.shadow.disagreements._told) == 0


def test_attack_a_vhost_name_per_attempt_does_not_grow_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disagreements, "MAX_REQUESTED_NAMES", 2)
    net = Net(vhosts=OFF, candidate=Vhosts({}))
    for number in range(5):
        net.client(hostname=f"v{number}")
    net.pump()
    assert counted(net) == {
        "would_deny/no_vhost/requested/v0": 1,
        "would_deny/no_vhost/requested/v1": 1,
        "would_deny/no_vhost/other": 3,
    }


def test_attack_a_long_address_is_not_kept() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    connected(net).receiver("b" * 10_000)
    net.pump()
    assert net.shadow is not None
    ((_, subject), told) = next(((key[1][1], key[1][0]), each) for key, each in net.shadow.disagreements._told.items())  # type: ignore[index]
    assert subject.address is not None
    assert told.event["address"] is not None
    assert len(subject.address) == len(told.event["address"]) == 1025


# Another candidate


def candidate_of(policy: Vhosts) -> Any:
    from memory_net import ruleset_of

    return ruleset_of(policy)


def asked_again(net: Net) -> None:
    for client in net.clients:
        for _ in client.router.ask_candidate(0.0):
            pass


def test_another_candidate_is_asked_about_open_connections_and_counts_anew() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    client.receiver("b")
    net.pump()
    assert net.shadow is not None
    assert net.shadow.use(candidate_of(vhosts("other")))
    assert counted(net) == {}
    asked_again(net)
    assert counted(net) == {"would_deny/no_vhost/vhost/v": 1}
    assert net.shadow.use(candidate_of(vhosts(maxReceivers=0)))
    asked_again(net)
    assert net.shadow.ledger.usage("v", "anonymous", "10.0.0.1").total == 1
    assert counted(net) == {"would_deny/receiver_limit/vhost/v": 1}
    asked_again(net)  # once is enough
    assert counted(net) == {"would_deny/receiver_limit/vhost/v": 1}


def test_another_candidate_is_asked_about_open_sessions_and_links_in_their_order() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts())
    client = connected(net)
    session = client.connection.session()
    session.open()
    ends = [client.receiver("a"), client.receiver("b"), client.sender("b"), client.sender("a")]
    net.pump()
    assert net.shadow is not None
    net.shadow.use(candidate_of(vhosts(maxSessions=1, maxReceivers=1, targets="a")))
    asked_again(net)
    assert counted(net) == {
        "would_deny/session_limit/vhost/v": 1,
        "would_deny/receiver_limit/vhost/v": 1,
        "would_deny/target_not_allowed/vhost/v": 1,
    }
    assert {event["address"] for event in net.audits if event["stage"] == "attach"} == {"b"}
    assert all(end.is_attached for end in ends)


def test_another_candidate_looks_at_the_messages_of_open_links() -> None:
    net = Net(vhosts=OFF, candidate=vhosts(allowUserIdProxy=True))
    client = connected(net)
    client.receiver("a", credit=10, accepts=True)
    sender = client.sender("a")
    net.pump()
    sender.send(b"x" * 100, user_id=b"eve")
    net.pump()
    assert net.shadow is not None
    net.shadow.use(candidate_of(vhosts(allowUserIdProxy=False, maxMessageSize=50)))
    asked_again(net)
    sending = sender.send(b"x" * 100, user_id=b"eve")
    net.pump()
    assert sending.outcome == ACCEPTED
    assert counted(net) == {"would_deny/message_too_large/vhost/v": 1, "would_deny/user_id_proxy/vhost/v": 1}


def test_a_connection_that_opened_meanwhile_is_not_asked_about_twice() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts())
    assert net.shadow is not None
    net.shadow.use(candidate_of(vhosts("other")))
    connected(net)
    asked_again(net)
    assert counted(net) == {"would_deny/no_vhost/vhost/v": 1}


def test_the_same_candidate_again_goes_on_counting() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    client.receiver("b")
    net.pump()
    assert net.shadow is not None
    assert not net.shadow.use(candidate_of(vhosts(sources="a")))
    assert counted(net) == {"would_deny/source_not_allowed/vhost/v": 1}


def test_without_a_candidate_that_can_be_used_nothing_is_asked() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    assert net.shadow is not None
    net.shadow.ruleset = None
    client = connected(net)
    client.receiver("b")
    net.pump()
    assert counted(net) == {}
    assert net.shadow.decisions == 0
    net.shadow.use(candidate_of(vhosts("other")))
    asked_again(net)
    assert counted(net) == {"would_deny/no_vhost/vhost/v": 1}


def test_what_repeated_is_told_before_another_candidate_comes() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts(sources="a"))
    client = connected(net)
    for _ in range(3):
        client.receiver("b")
    net.pump()
    assert net.shadow is not None
    digest = net.shadow.ruleset.digest  # type: ignore[union-attr]
    net.shadow.use(candidate_of(vhosts()))
    assert [each[4] for each in shadows(net)] == [1, 2]
    assert net.audits[-1]["shadow"]["ruleset_digest"] == digest


def test_remembered_targets_are_asked_about_again_when_the_candidate_changes() -> None:
    net = Net(vhosts=vhosts(), candidate=vhosts())
    client = connected(net)
    client.receiver("b", credit=10, accepts=True)
    anonymous = client.sender(None)
    net.pump()
    anonymous.send(address="b")
    net.pump()
    assert net.shadow is not None
    net.shadow.use(candidate_of(vhosts(targets="a")))
    asked_again(net)
    anonymous.send(address="b")
    net.pump()
    assert counted(net) == {"would_deny/message_target_not_allowed/vhost/v": 1}
