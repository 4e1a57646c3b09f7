"""auditAllows: what policy admits is on record, and a flood of it is a number (issue 15: the trail)."""

import json
from typing import Any

import pytest
from memory_net import Net, Vhosts

import schemas
from auth.identity import Identity
from router.admission.allows import Allows
from router.admission.connection_gate import ConnectionGate, LinkRequest
from router.audit import event as audit_event
from router.effects import Audit, Effect

GROUP = {"users": "*", "remoteHosts": "*", "sources": "news.*", "targets": "orders", "allowDynamicSource": True}
POLICY = Vhosts({"$default": {"groups": {"staff": GROUP}}})


def net_with(which: str) -> Net:
    net = Net(vhosts=POLICY)
    if which != "none":
        net.gate.allows = Allows(net.effects.append, lambda: net.now, lambda: net.wall_s, has_links=which == "link")
    return net


def allowed(net: Net) -> list[Any]:
    return [event for event in net.audits if event["decision"] == "allow"]


@pytest.mark.parametrize(
    ("which", "stages"), [("none", []), ("connection", ["open"]), ("link", ["open", "attach", "attach"])]
)
def test_what_is_admitted_is_recorded_as_far_as_asked(which: str, stages: list[str]) -> None:
    net = net_with(which)
    client = net.client()
    client.sender("orders")
    client.receiver("news.today")
    client.receiver("secret")
    net.pump()
    assert [event["stage"] for event in allowed(net)] == stages
    assert [event["reason"] for event in net.audits if event["decision"] == "deny"] == ["source_not_allowed"]
    for event in allowed(net):
        assert (event["reason"], event["vhost"], event["group"]) == ("allowed", "$default", "staff")
        assert event["ruleset_digest"] == net.gate.ruleset.digest


def gate_of(net: Net, groups: tuple[str, ...] = ()) -> ConnectionGate:
    gate = ConnectionGate(
        net.gate,
        connection_id=7,
        connection_name="192.0.2.7:9",
        remote_host="192.0.2.7",
        listener="l:1",
        is_governed=True,
    )
    identity = Identity(user="anna", mechanism="PLAIN", groups=groups)
    assert gate.admit(identity, hostname=None, policy_vhost=None, is_encrypted=True, now=net.wall_s) is None
    return gate


def test_the_facts_that_policy_was_asked_with_are_in_the_event() -> None:
    net = net_with("link")
    gate = gate_of(net, ("staff", "night shift"))
    gate.begin()
    request = LinkRequest(direction="receive", address=None, link_name="x", is_dynamic=True, capabilities=("queue",))
    assert gate.attach(request) is None
    opened, attached = allowed(net)
    assert json.loads(opened["groups"]) == ["staff", "night shift"]
    assert opened["usage"] == {"total": 0, "of_user": 0, "of_host": 0}
    assert attached["asked"] == {
        "is_dynamic": True, "is_coordinator": False, "capabilities": '["queue"]',
        "dynamic_address": None, "reply_age_ms": None,
    }  # fmt: skip
    stamp = audit_event.Stamp(event_id="1" * 32, start="2" * 32, sequence=3, time_s=0.0, router_id="R1")
    for event in (opened, attached):
        whole = audit_event.complete(event, stamp)
        assert whole["detail"] == ""
        assert set(whole) <= set(schemas.load("audit_event")["properties"])


def test_attack_a_client_attaches_without_end_to_fill_the_disk() -> None:
    """Its links become a number, and its first denial is written in full all the same."""
    net = net_with("link")
    gate = gate_of(net)
    gate.begin()
    request = LinkRequest(direction="receive", address=None, link_name="x" * 200, is_dynamic=True)
    for _ in range(20_000):
        assert gate.attach(request) is None
        gate.detach("receive")
    assert len(allowed(net)) < 200
    denied = LinkRequest(direction="send", address=None, link_name="y", is_coordinator=True)
    gate.attach(denied)
    gate.close()
    assert net.gate.allows is not None
    list(net.gate.allows.folding.reports(is_end=True))
    assert sum(event.get("attempts", 1) for event in allowed(net)) == 20_001
    assert [event.get("attempts") for event in net.audits if event["decision"] == "deny"] == [None]
    assert any("ALLOW attach allowed" in text for text in net.log_texts("POLICY"))


def test_a_connection_that_policy_was_not_asked_about_says_so() -> None:
    effects: list[Effect] = []
    now = [0.0]
    allows = Allows(effects.append, lambda: now[0], lambda: 1_700_000_000.0 + now[0], has_links=False)
    allows.opened({"connection": 7, "remote_host": "192.0.2.7", "user": None, "vhost": None}, None, 5.0)
    assert effects == [
        Audit(
            event={
                "connection": 7, "remote_host": "192.0.2.7", "user": None, "vhost": None, "stage": "open",
                "decision": "allow", "reason": "allowed", "rule": None, "detail": "policy was not asked",
            },
            time_s=5.0,
        )
    ]  # fmt: skip


def test_attack_many_connections_of_one_user_are_a_number_with_its_times() -> None:
    """Each is let in: the user pays for the records, not one host after the other."""
    effects: list[Effect] = []
    now = [0.0]
    allows = Allows(effects.append, lambda: now[0], lambda: 1_700_000_000.0 + now[0], has_links=False)
    for number in range(4000):
        host = f"10.0.{number // 250}.{number % 250}"
        facts: Any = {"connection": number, "remote_host": host, "user": "anna", "mechanism": "PLAIN", "vhost": "v"}
        allows.opened(facts, None, 5.0)
    now[0] = 60.0
    list(allows.folding.reports(is_end=True))
    events: list[Any] = [each.event for each in effects if isinstance(each, Audit)]
    assert len(events) < 2000
    assert sum(event.get("attempts", 1) for event in events) == 4000
    assert events[-1]["folded"]["owner"] == "user"
    assert events[-1]["folded"]["first"] == "2023-11-14T22:13:20.000000Z"
