"""Network admission at the Open: a peer joins under a router id that its login entitles it to, or not at all."""

import pytest
from memory_net import ROUTER_ID, Net

from auth.identity import Identity
from policy.router_ids import RouterIds
from router.admission.connection_gate import ConnectionGate
from router.admission.joining import ROUTER_REFUSED, admit_router, proved_name
from router.effects import AdmissionFailed, Log

OWN_ID = RouterIds.parse("${user}")


def gate_of(net: Net) -> ConnectionGate:
    return ConnectionGate(
        net.gate,
        connection_id=7,
        connection_name="10.0.0.9:4711",
        remote_host="10.0.0.9",
        listener="0.0.0.0:55672",
        is_governed=False,
    )


@pytest.mark.parametrize("role", ["inter-router", "edge"])
def test_a_peer_that_skips_the_login_is_closed_before_its_links(role: str) -> None:
    """network 18.1: with an item for everybody, too. Its links came with its Open."""
    net = Net(router_id="A")
    client = net.client("B", role=role, router_ids=RouterIds.parse("*"))
    client.receiver("orders")
    net.pump()
    assert client.is_closed_by_router
    assert client.condition is not None
    assert (client.condition.name, client.condition.description) == (
        ROUTER_REFUSED.condition,
        ROUTER_REFUSED.description,
    )
    assert client.frames("attach") == []
    assert not any("Connection Opened" in text for text in net.log_texts())
    net.nothing_left()


def test_the_denial_is_recorded_with_the_name_the_id_and_the_setting() -> None:
    net = Net()
    gate = gate_of(net)
    gate.identity = Identity(user="mallory", mechanism="PLAIN", is_authenticated=True)
    assert admit_router(gate, OWN_ID, "B", proved_name(gate.identity)) is ROUTER_REFUSED
    (event,) = net.audits
    assert (event["stage"], event["decision"], event["reason"]) == ("open", "deny", "router_id_not_allowed")
    assert event["ruleset_digest"] == net.gate.ruleset.digest
    assert [each.level for each in net.effects if isinstance(each, Log) and each.module == "POLICY"] == ["info"]
    assert event["detail"] == "'mallory' may not join the network as router 'B'"
    assert event["rule"] == {"vhost": None, "group": None, "item": "routerIds: ${user}", "file": None, "line": None}
    assert (event["user"], event["remote_host"], event["condition"]) == (
        "mallory",
        "10.0.0.9",
        "amqp:unauthorized-access",
    )
    (text,) = net.log_texts("POLICY")
    assert text == (
        "[C7] DENY AMQP Open rhost '10.0.0.9': 'mallory' may not join the network as router 'B' "
        "[router_id_not_allowed: routerIds: ${user}]"
    )
    assert [each.remote_host for each in net.effects if isinstance(each, AdmissionFailed)] == ["10.0.0.9"]


def test_an_admitted_peer_may_speak_under_its_id_only() -> None:
    net = Net()
    gate = gate_of(net)
    assert admit_router(gate, OWN_ID, "B", "B") is None
    assert gate.router_id == "B"
    assert net.audits == []


def test_without_the_setting_any_peer_may_join_under_any_id() -> None:
    """network 3.3: as in 1.20."""
    net = Net(router_id="A")
    client = net.client("anything", role="inter-router")
    net.pump()
    assert not client.is_closed_by_router
    gate = gate_of(net)
    assert admit_router(gate, None, "B", None) is None
    assert gate.router_id is None


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        (Identity(user=None), None),
        (Identity(user="anonymous"), None),
        (Identity(user="CN=B"), None),
        (Identity(user="anonymous", mechanism="ANONYMOUS", is_authenticated=True), None),
        (Identity(user="anonymous", mechanism="anonymous", is_authenticated=True), None),
        (Identity(user="B", mechanism="PLAIN", is_authenticated=False), None),
        (Identity(user="B", mechanism="EXTERNAL", is_authenticated=True), "B"),
        (Identity(user="B", mechanism="SCRAM-SHA-256", is_authenticated=True), "B"),
    ],
)
def test_only_a_login_proves_a_name(identity: Identity, name: str | None) -> None:
    assert proved_name(identity) == name


def test_a_long_id_is_cut_in_the_records() -> None:
    """Attack: an Open whose container-id is as long as a frame, for the log."""
    net = Net()
    admit_router(gate_of(net), OWN_ID, "x" * 16000, "B")
    assert len(net.log_texts("POLICY")[0]) < 400
    assert len(net.audits[0]["detail"]) < 300


def test_the_own_id_of_the_router_is_admitted_to_nobody_else() -> None:
    """Attack: a neighbour that joins under the id of the router it joins."""
    net = Net()
    assert admit_router(gate_of(net), OWN_ID, ROUTER_ID, "B") is ROUTER_REFUSED


@pytest.mark.parametrize("name", [None, ""])
def test_a_peer_that_has_proved_no_name_is_recorded_as_such(name: str | None) -> None:
    net = Net()
    assert admit_router(gate_of(net), OWN_ID, "B", name) is ROUTER_REFUSED
    assert net.audits[0]["detail"] == "a peer without a name may not join the network as router 'B'"


def test_an_id_that_may_be_one_is_written_whole() -> None:
    net = Net()
    for size, shown in ((127, "x" * 127), (128, "x" * 127 + "...")):
        admit_router(gate_of(net), OWN_ID, "x" * size, "B")
        assert net.audits[-1]["detail"] == f"'B' may not join the network as router '{shown}'"
