"""Bans as a connection meets them, and what counts as a failure. Spec: docs/spec/policy-and-auth.md §3.15."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import Net, Vhosts

from auth.credentials import VerifyRequest, VerifyResult
from auth.sasl_frames import Init, Mechanisms, encode
from policy.ban_set import Ban, parse_ban
from policy.configuration.schema import load_schema
from router.admission.connection_gate import CONNECTION_REFUSED, ConnectionGate
from router.connection.inspection import condition_of
from router.effects import AdmissionFailed

SASL = b"AMQP\x03\x01\x00\x00"
DISALLOWED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")


def ban_in(net: Net, host: str | None = None, user: str | None = None, reason: str = "") -> Ban:
    ban = parse_ban("b", host, user, None, net.now, reason=reason)
    net.gate.bans.bans.add(ban)
    return ban


def closes(net: Net, host: str = "10.0.0.1") -> bool:
    ban = net.gate.bans.ban_of(host)
    if ban is not None:
        place = {"remote_host": host, "connection_name": f"{host}:9", "listener": "l:1"}
        net.gate.bans.record_accept(ban, connection_id=7, **place)
    return ban is not None


def failures(net: Net) -> list[str]:
    return [effect.remote_host for effect in net.effects if isinstance(effect, AdmissionFailed)]


def governed(**group: Any) -> Net:
    return Net(vhosts=Vhosts({"v": {"groups": {"g": {"users": "anonymous", "remoteHosts": "*", **group}}}}))


def test_a_banned_host_is_closed_at_accept_and_told_of() -> None:
    net = Net()
    ban_in(net, "10.0.0.0/24", reason="it scans")
    assert closes(net)
    assert not closes(net, "10.0.1.1")
    (event,) = net.audits
    assert event == {
        "decision": "deny",
        "stage": "accept",
        "reason": "banned",
        "detail": "it scans",
        "rule": {"vhost": None, "group": None, "item": "ban b: 10.0.0.0/24", "file": None, "line": None},
        "connection": 7,
        "connection_name": "10.0.0.1:9",
        "listener": "l:1",
        "remote_host": "10.0.0.1",
    }
    assert net.log_texts("POLICY") == ["DENY Connection '10.0.0.1' based on ban 'b': it scans"]
    counters = net.ledger.policy_counters()
    assert (counters["connectionsProcessed"], counters["connectionsDenied"], counters["totalDenials"]) == (1, 1, 1)
    assert counters["connectionsCurrent"] == 0


def test_a_banned_flood_leaves_two_events_and_every_attempt_counted() -> None:
    """Attack: a banned host connects again and again to fill the disk, and the audit log's queue."""
    net = Net()
    ban_in(net, "10.0.0.1")
    assert all(closes(net) for _ in range(1000))
    assert len(list(net.gate.bans.reports())) == 1
    assert [event.get("attempts", 1) for event in net.audits] == [1, 999]
    assert len(net.log_texts("POLICY")) == 2
    assert net.ledger.policy_counters()["totalDenials"] == 1000
    assert not list(net.gate.bans.reports())
    assert len(net.audits) == 2


def test_a_ban_that_is_lifted_leaves_nothing_untold() -> None:
    net = Net()
    ban_in(net, "10.0.0.1")
    for _ in range(5):
        closes(net)
    net.gate.bans.remove("b")
    net.gate.bans.remove("b")
    assert [event.get("attempts", 1) for event in net.audits] == [1, 4]
    assert not closes(net)


@pytest.mark.parametrize("host", [None, "10.0.0.0/8"])
@pytest.mark.parametrize("net", [Net(), governed()], ids=["without vhost policy", "with"])
def test_a_banned_user_learns_nothing_but_that_policy_disallows(net: Net, host: str | None) -> None:
    """The refusal is the one that every denied Open gets."""
    ban = ban_in(net, host, "anonymous", reason="left the company")
    before = len(net.audits)
    client = net.client(hostname="v")
    net.pump()
    assert client.is_closed_by_router
    assert (client.refusal.name, client.refusal.description) == DISALLOWED
    (event,) = net.audits[before:]
    assert {**event}.items() >= {"stage": "open", "reason": "banned", "user": "anonymous", "vhost": None}.items()
    assert event["detail"] == "left the company"
    assert failures(net)[-1:] == ["10.0.0.1"]
    net.gate.bans.remove(ban.name)
    assert not (client := net.client(hostname="v")).is_closed_by_router
    net.pump()
    assert client.condition is None
    net.nothing_left()


def test_another_user_or_the_same_from_elsewhere_is_not_banned() -> None:
    net = Net()
    net.gate.bans.bans.add(parse_ban("one", None, "eve", None, 0.0))
    net.gate.bans.bans.add(parse_ban("two", "10.9.0.0/16", "anonymous", None, 0.0))
    client = net.client()
    net.pump()
    assert client.condition is None
    assert net.audits == []


def test_a_connection_that_is_expelled_is_told_why_and_holds_nothing() -> None:
    net = Net()
    client, other = net.client(), net.client()
    receiver, sender = client.receiver("a", credit=10), other.sender("a")
    net.pump()
    sender.send(b"before")
    net.pump()
    connection = client.router
    net.gate.bans.record_closing(ban_in(net, "10.0.0.1"), connection.gate.facts(), stage=connection.audit_stage)
    connection.expel(condition_of(CONNECTION_REFUSED))
    net.work.finish()
    net.pump()
    assert (client.refusal.name, client.refusal.description) == DISALLOWED
    assert len(receiver.bodies) == 1
    assert [event["stage"] for event in net.audits] == ["engine"]
    assert net.log_texts("POLICY")[-1:] == ["[C1] Connection '10.0.0.1:1' is closed based on ban 'b': no reason given"]
    assert not [text for text in net.log_texts("SERVER") if "failed" in text]
    net.nothing_left()


@pytest.mark.parametrize("opens", [False, True])
def test_expelling_before_the_open_closes_too(opens: bool) -> None:
    net = Net()
    client = net.client(opens=opens)
    if opens:
        client.push_to_router()
    client.router.expel(condition_of(CONNECTION_REFUSED))
    client.router.expel(condition_of(CONNECTION_REFUSED))
    net.work.finish()
    net.pump()
    assert client.is_closed_by_router
    net.nothing_left()


@pytest.mark.parametrize("is_valid", [False, True])
@pytest.mark.parametrize("when", ["before the verifier is asked", "while it works"])
def test_many_logins_at_once_do_not_outrun_the_ban(when: str, is_valid: bool) -> None:
    """Attack: all connections are accepted before the first password has failed. Nobody is told what became of his."""
    net = Net(mechanisms=lambda _verified: ("PLAIN",))
    asked: list[Callable[[VerifyResult], None]] = []

    def verify(
        _request: VerifyRequest, _host: str, _begins: Callable[[], bool], done: Callable[[VerifyResult], None]
    ) -> Callable[[], None]:
        asked.append(done)
        return lambda: None

    net.verify = verify
    client = net.client(opens=False)
    login = Init(mechanism="PLAIN", initial_response=b"\0eve\0perhaps")
    if when == "before the verifier is asked":
        ban_in(net, "10.0.0.1")
    client.say(SASL + encode(login))
    if when == "while it works":
        ban_in(net, "10.0.0.1")
        asked.pop()(VerifyResult(is_valid=is_valid))
    assert not asked
    net.work.finish()
    assert client.is_closed_by_router
    assert encode(Mechanisms(names=("PLAIN",))) in bytes(client.recorded)
    assert b"\x00\x53\x44" not in bytes(client.recorded)  # an outcome
    (event,) = net.audits
    assert (event["reason"], event["stage"], event["user"]) == ("banned", "sasl", "eve")
    assert failures(net) == []
    net.nothing_left()


DENIED: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("no vhost", {}, "w", ["10.0.0.1"]),
    ("unknown user", {"users": "bob"}, "v", ["10.0.0.1"]),
    ("host not allowed", {"remoteHosts": "192.0.2.1"}, "v", ["10.0.0.1"]),
    ("the limit of a group", {"maxConnectionsPerUser": 0}, "v", []),
    ("allowed", {}, "v", []),
]


@pytest.mark.parametrize(("group", "vhost", "expected"), [one[1:] for one in DENIED], ids=[one[0] for one in DENIED])
def test_which_denied_opens_count_as_failures(group: dict[str, Any], vhost: str, expected: list[str]) -> None:
    """Limits do not: others reach them for one who did nothing."""
    net = governed(**group)
    net.client(hostname=vhost)
    net.pump()
    assert failures(net) == expected


def test_the_connection_limit_of_the_router_counts_for_nobody() -> None:
    net = Net(vhosts=Vhosts({}, {"maxConnections": 0}))
    assert not net.gate.accept(connection_id=1, remote_host="10.0.0.1", connection_name="10.0.0.1:1", listener="l")
    assert failures(net) == []


def test_a_connection_the_router_makes_counts_for_nobody() -> None:
    """A connector is deleted where its peer is not wanted."""
    net = Net()
    gate = ConnectionGate(
        net.gate, connection_id=1, connection_name="h:1", remote_host="", listener="h:1", is_governed=False,
        is_accepted=False,
    )  # fmt: skip
    gate.count_failure()
    assert failures(net) == []


def test_the_entity_says_that_it_is_ours() -> None:
    ban = load_schema().types["ban"]
    assert ban.description.startswith("Extension.")
    assert ban.operations == ("CREATE", "DELETE", "READ")
