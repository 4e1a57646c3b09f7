"""The interior's side: tracking, look-ups, heartbeats, and who gets none of them."""

from typing import Any

import pytest

from router.edge.effects import CloseConnection, RejectMessage, SendMessage
from router.edge.interior import SERVICES, InteriorMachine, refused_lines
from router.edge.limits import Limits
from router.edge.messages import LookupReply, Message
from router.edge.tracking import Destinations
from router.effects import Log
from router.values import int_, uint, ulong

A, B = 1, 2  # connections of edges


def to(*owners: int | None) -> Destinations:
    """The destinations: each the connection of an edge, or somebody else (None)."""
    sole = owners[0] if len(set(owners)) == 1 else None
    return Destinations(are_there=bool(owners), sole=sole)


class Interior:
    """Two edges, A and B, each with the link that it is told by: 11 and 12."""

    def __init__(self, limits: Limits | None = None, credit: int = 32) -> None:
        self.machine = InteriorMachine(limits=limits)
        self.told: list[tuple[int, Any]] = []
        for connection in (A, B):
            self.machine.tracking.connection_up(connection)
            assert self.machine.tracking.link_up(connection, 10 + connection)
            self.take(self.machine.tracking.set_credit(connection, credit))

    def take(self, messages: list[SendMessage]) -> None:
        self.told += [(sent.link, sent.message.body) for sent in messages]

    def sends(self, connection: int, key: str = "M0a", destinations: Destinations | None = None) -> None:
        self.take(self.machine.tracking.sender_attached(connection, key, destinations or to()))

    def change(self, destinations: Destinations, key: str = "M0a") -> list[tuple[int, Any]]:
        """What the edges are told by it."""
        self.told.clear()
        self.take(self.machine.tracking.changed(key, destinations))
        return list(self.told)


def test_a_sender_of_an_edge_is_used_where_somebody_else_receives() -> None:
    """network 85, 86: presettled, the key with class and phase."""
    interior = Interior()
    interior.sends(A, destinations=to(A))
    assert interior.told == []
    interior.sends(B, destinations=to(A))
    assert interior.told == [(12, ["M0a", True])]
    message = interior.machine.tracking.changed("M0a", to(A, None))[0].message
    assert (message.is_settled, message.has_header, message.body) == (True, True, ["M0a", True])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (to(), to(None), {(11, True), (12, True)}),
        (to(), to(A), {(12, True)}),
        (to(A), to(A, A), set()),
        (to(A), to(A, None), {(11, True)}),
        (to(A), to(A, B), {(11, True)}),
        (to(A, B), to(A), {(11, False)}),
        (to(A, None), to(A), {(11, False)}),
        (to(A), to(), {(11, False), (12, False)}),
        (to(None), to(), {(11, False), (12, False)}),
        (to(None), to(B), {(12, False)}),
        (to(None, None), to(None), set()),
    ],
)
def test_edges_are_told_of_the_first_and_the_last_other_destination(
    before: Destinations, after: Destinations, told: set[tuple[int, bool]]
) -> None:
    """network 85, 87"""
    interior = Interior()
    interior.sends(A)
    interior.sends(B)
    interior.change(before)
    assert {(link, body[1]) for link, body in interior.change(after)} == told


def test_an_edge_without_credit_is_told_the_last_state_alone() -> None:
    """Whatever an edge does not want to hear, the interior holds one state of each of its addresses."""
    interior = Interior(credit=0)
    for key in ("M0a", "M0b"):
        interior.sends(A, key)
    for _ in range(1000):
        interior.change(to(None))
        interior.change(to())
    interior.change(to(None))
    interior.change(to(None), "M0b")
    interior.take(interior.machine.tracking.set_credit(A, 1))
    assert interior.told == [(11, ["M0a", True])]
    interior.take(interior.machine.tracking.set_credit(A, 5))
    assert interior.told == [(11, ["M0a", True]), (11, ["M0b", True])]


def test_links_of_an_edge_that_are_gone_leave_nothing() -> None:
    interior = Interior()
    interior.sends(A)
    interior.sends(A)
    interior.machine.tracking.sender_gone(A, "M0a")
    assert interior.machine.tracking.is_tracked("M0a")
    interior.machine.tracking.sender_gone(A, "M0a")
    assert not interior.machine.tracking.is_tracked("M0a")
    interior.sends(A)
    interior.sends(A, "M0b")
    interior.sends(B, "M0b")
    interior.machine.tracking.connection_lost(A)
    assert not interior.machine.tracking.is_tracked("M0a")
    assert interior.change(to(None), "M0b") == [(12, ["M0b", True])]
    interior.machine.tracking.connection_lost(B)
    assert not interior.machine.tracking.is_tracked("M0b")
    assert interior.change(to(), "M0b") == []


def test_an_edge_is_tracked_for_so_many_addresses() -> None:
    interior = Interior(Limits(tracked_addresses_per_edge=2))
    for number in range(5):
        interior.sends(A, f"M0{number}", to(None))
    assert len(interior.told) == 2
    interior.machine.tracking.sender_gone(A, "M04")
    interior.machine.tracking.sender_gone(A, "M00")
    interior.sends(A, "M05", to(None))
    assert len(interior.told) == 3


def test_an_edge_has_one_link_that_it_is_told_by() -> None:
    interior = Interior()
    assert not interior.machine.tracking.link_up(A, 13)
    interior.machine.tracking.link_gone(A, 11)
    assert interior.machine.tracking.link_up(A, 13)


# Look-ups


def request(**changes: Any) -> Message:
    properties = {"version": uint(1), "opcode": uint(1)}
    made = {"body": ["a", True], "application_properties": properties, "reply_to": "r", "correlation_id": "c"}
    return Message(**made | changes)


@pytest.mark.parametrize(
    ("found", "status", "body"),
    [
        (LookupReply(is_found=True, is_link_route=True, has_destinations=False), 0, [True, False]),
        (LookupReply(is_found=False, is_link_route=False, has_destinations=False), 3, [False, False]),
    ],
)
def test_a_lookup_is_answered(found: LookupReply, status: int, body: list[bool]) -> None:
    """network 92"""
    asked = []

    def find(address: str, is_sender: bool) -> LookupReply:
        asked.append((address, is_sender))
        return found

    answered = InteriorMachine(find).look_up(A, request())
    assert isinstance(answered, tuple)
    _, reply = answered
    assert asked == [("a", True)]
    assert (reply.to, reply.correlation_id, reply.body, reply.is_settled) == ("r", "c", body, True)
    assert reply.application_properties == {"version": 1, "opcode": 1, "status": status}
    assert all(type(value) is uint for value in reply.application_properties.values())


@pytest.mark.parametrize("value", [uint(1), ulong(1), int_(1), 1, "1"])
def test_version_and_opcode_may_be_of_any_type_of_number(value: Any) -> None:
    answered = InteriorMachine().look_up(A, request(application_properties={"version": value, "opcode": value}))
    assert isinstance(answered, tuple)


@pytest.mark.parametrize(
    "changes",
    [
        {"application_properties": None},
        {"application_properties": {"opcode": 1}},
        {"application_properties": {"version": 2, "opcode": 1}},
        {"application_properties": {"version": "one", "opcode": 1}},
        {"application_properties": {"version": -1, "opcode": 1}},
        {"application_properties": {"version": True, "opcode": 1}},
        {"application_properties": {"version": 1.0, "opcode": 1}},
        {"application_properties": {"version": 1}},
        {"application_properties": {"version": 1, "opcode": 0}},
        {"application_properties": {"version": 1, "opcode": "9" * 5000}},
        {"body": ["a"]},
        {"body": None},
        {"body": [1, True]},
        {"body": ["a", 1]},
        {"body": ["a" * 5000, True]},
        {"reply_to": None},
        {"reply_to": ""},
        {"reply_to": "r" * 5000},
        {"correlation_id": None},
        {"correlation_id": "c" * 5000},
    ],
)
def test_a_malformed_lookup_is_rejected_and_told_of(changes: dict[str, Any]) -> None:
    """network 93"""
    effects = InteriorMachine().look_up(A, request(**changes))
    assert isinstance(effects, list)
    told, rejected = effects
    assert isinstance(told, Log)
    assert isinstance(rejected, RejectMessage)
    assert (told.module, told.level) == ("ROUTER_CORE", "error")
    assert len(told.text) < 200


def test_malformed_lookups_do_not_fill_the_log() -> None:
    machine = InteriorMachine(limits=Limits(complaints_per_connection_and_tick=3))
    lines = [effect for _ in range(100) for effect in machine.look_up(A, request(body=1)) if isinstance(effect, Log)]
    assert len(lines) == 3
    machine.tick(1.0)
    assert len(machine.look_up(A, request(body=1))) == 2
    assert len(machine.look_up(B, request(body=1))) == 2


# Who is admitted


@pytest.mark.parametrize("is_sender", [True, False])
@pytest.mark.parametrize("address", SERVICES)
def test_services_are_for_edges_in_their_direction(address: str, is_sender: bool) -> None:
    """network 94, 98"""
    is_admitted = InteriorMachine().admits(A, address, is_sender=is_sender)
    assert is_admitted is (is_sender is (address != "_$qd.edge_addr_tracking"))


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("_$qd.addr_lookup", "address lookup server"),
        ("_$qd.edge_heartbeat", "heartbeat server"),
        ("_$qd.edge_addr_tracking", None),
    ],
)
def test_a_refused_link_to_a_service_is_told_of(address: str, server: str | None) -> None:
    texts = [line.text for line in refused_lines(address, "client")]
    assert texts == ([f"Attempt to attach to {server} rejected (container=client)"] if server else [])


# Heartbeats


def closed(effects: Any) -> list[int]:
    return [effect.connection for effect in effects if isinstance(effect, CloseConnection)]


def test_an_edge_that_is_silent_for_more_than_eight_seconds_is_closed() -> None:
    """network 97"""
    machine, now = InteriorMachine(), 100.0
    (told,) = machine.heartbeats.attached(A, 5, "E1", "link", now)
    assert isinstance(told, Log)
    assert told.text == "[C1] Client attached to heartbeat server (container=E1, endpoint=link)"
    machine.heartbeats.attached(B, 6, "E2", "link", now)
    lines: list[str] = []
    ended: dict[int, float] = {}
    for _ in range(30):
        now += 1
        machine.heartbeats.heard(6, now)
        effects = machine.tick(now)
        lines += [effect.text for effect in effects if isinstance(effect, Log)]
        for connection in closed(effects):
            ended.setdefault(connection, now)
            machine.heartbeats.detached(5)
    assert 108 < ended[A] <= 111
    assert list(ended) == [A]
    assert lines == ["[C1] Lost heartbeat from container E1, closing connection"]


def test_a_heartbeat_link_that_is_gone_closes_nothing() -> None:
    machine = InteriorMachine()
    machine.heartbeats.attached(A, 5, "E1", "link", 0.0)
    (told,) = machine.heartbeats.detached(5)
    assert isinstance(told, Log)
    assert told.text == "[C1] Client detached from heartbeat server (container=E1, endpoint=link)"
    assert closed([*machine.tick(20.0), *machine.tick(40.0)]) == []
    assert machine.heartbeats.detached(5) == []


def test_an_edge_has_so_many_heartbeat_links() -> None:
    machine = InteriorMachine(limits=Limits(heartbeat_links_per_connection=2))
    for link in range(2):
        assert machine.admits(A, "_$qd.edge_heartbeat", is_sender=True)
        machine.heartbeats.attached(A, link, "E1", "link", 0.0)
    assert not machine.admits(A, "_$qd.edge_heartbeat", is_sender=True)
    assert machine.admits(B, "_$qd.edge_heartbeat", is_sender=True)
