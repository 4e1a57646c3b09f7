"""What an edge asks its interior: look-ups and link routes; and how it says that it lives."""

import pytest
from one_edge import STARTED_AT, OneEdge

from router.edge.limits import Limits
from router.edge.messages import Message
from router.values import int_, uint


def ask(edge: OneEdge, token: int = 1, address: str = "queue/1", *, is_sender: bool = True) -> None:
    edge.take(edge.machine.look_up(token, address, edge.now, is_sender=is_sender))


def reply(edge: OneEdge, body: object, status: object = uint(0), correlation_id: object = None) -> None:
    name = correlation_id if correlation_id is not None else edge.sent[-1].message.correlation_id
    properties = {"version": uint(1), "opcode": uint(1), "status": status}
    edge.hear("lookup replies", Message(body=body, correlation_id=name, application_properties=properties))


def test_a_lookup_asks_with_the_clients_text() -> None:
    """network 92: opcode and version are uints, and the reply goes to the address that the interior made."""
    edge = OneEdge()
    edge.up()
    ask(edge, address="queue/1")
    (sent,) = edge.sent
    message = sent.message
    assert sent.link == edge.link("lookup").link
    assert message.body == ["queue/1", True]
    assert message.application_properties == {"version": 1, "opcode": 1}
    assert all(type(value) is uint for value in message.application_properties.values())
    assert message.reply_to == f"amqp:/_topo/0/INT/temp.{edge.link('lookup replies').link}"
    assert message.correlation_id == f"client-{STARTED_AT:016x}00000000"
    assert message.is_settled
    assert message.has_header


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ([True, True], uint(0), "forward"),
        ([True, False], uint(0), "no_route"),
        ([False, True], uint(0), "local"),
        ([False, False], uint(3), "local"),
        ([True, True], uint(3), "local"),
        ([True, True], "zero", "local"),
        ([True], uint(0), "local"),
        ("yes", uint(0), "local"),
        ([1, 1], uint(0), "local"),
    ],
)
def test_the_answer_decides_the_attach(body: object, status: object, answer: str) -> None:
    """network 92: also for unknown addresses, status 3 and [false, false]."""
    edge = OneEdge()
    edge.up()
    ask(edge, 5)
    reply(edge, body, status)
    assert edge.decided == [(5, answer)]


def test_no_attach_waits_for_an_interior_that_is_not_there_or_says_nothing() -> None:
    edge = OneEdge()
    ask(edge, 1)
    assert edge.decided == [(1, "local")]
    edge.up()
    ask(edge, 2)
    edge.wait(2)
    assert edge.decided == [(1, "local")]
    edge.wait(1)
    assert edge.decided == [(1, "local"), (2, "local")]
    reply(edge, [True, True])
    assert len(edge.decided) == 2
    ask(edge, 3)
    edge.close()
    assert edge.decided[-1] == (3, "local")
    edge.open(8)
    ask(edge, 4)
    assert edge.decided[-1] == (4, "local")


def test_an_answer_to_nothing_that_was_asked_decides_nothing() -> None:
    edge = OneEdge()
    edge.up()
    ask(edge, 1)
    names: tuple[object, ...] = ("client-0", b"x", 7, ["a"], {}, "x" * 10_000)
    for name in names:
        reply(edge, [True, True], correlation_id=name)
    assert edge.decided == []


def test_clients_that_attach_without_end_do_not_fill_the_edge() -> None:
    edge = OneEdge(Limits(waiting_lookups=3))
    edge.up()
    for token in range(5):
        ask(edge, token)
    assert edge.decided == [(3, "local"), (4, "local")]
    assert len(edge.sent) == 3


# Link routes


def answer_management(edge: OneEdge, status: object, body: object) -> None:
    name = edge.sent[-1].message.correlation_id
    message = Message(body=body, correlation_id=name, application_properties={"statusCode": status})
    edge.hear("management replies", message)


@pytest.mark.parametrize(
    ("key", "pattern", "direction"),
    [("Celr", "elr/#", "in"), ("Delr", "elr/#", "out"), ("E*.a.#", "*.a.#", "in"), ("F*.a.#", "*.a.#", "out")],
)
def test_a_link_route_is_created_and_deleted_on_the_interior(key: str, pattern: str, direction: str) -> None:
    """network §14.7"""
    edge = OneEdge()
    edge.up()
    edge.take(edge.machine.link_route_activated(key, edge.now))
    (sent,) = edge.sent
    kind, name = "org.apache.qpid.dispatch.router.connection.linkRoute", f"E1/proxyLinkRoute/{key}"
    assert sent.link == edge.link("management").link
    assert not sent.message.is_settled
    assert sent.message.application_properties == {"operation": "CREATE", "type": kind, "name": name}
    assert sent.message.body == {"type": kind, "pattern": pattern, "direction": direction, "name": name}
    assert sent.message.reply_to == f"amqp:/_topo/0/INT/temp.{edge.link('management replies').link}"
    answer_management(edge, int_(201), {"identity": "60"})
    edge.take(edge.machine.link_route_deactivated(key, edge.now))
    deletion = edge.sent[-1].message
    assert deletion.application_properties == {"operation": "DELETE", "type": kind, "identity": "60", "name": name}
    assert deletion.body == {}
    answer_management(edge, int_(204), {})
    assert len(edge.sent) == 2
    assert edge.logs[1:] == []


def test_link_routes_come_back_with_the_next_uplink() -> None:
    """network §14.7: they are gone with the uplink that they were made on."""
    edge = OneEdge()
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    edge.up(7)
    answer_management(edge, int_(201), {"identity": "60"})
    edge.forget()
    edge.close(7)
    edge.up(8)
    assert [message.message.application_properties["operation"] for message in edge.sent] == ["CREATE"]


def test_a_route_that_changes_while_its_request_is_under_way_is_looked_at_again() -> None:
    edge = OneEdge()
    edge.up()
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    edge.take(edge.machine.link_route_deactivated("Ca", edge.now))
    assert len(edge.sent) == 1
    answer_management(edge, int_(201), {"identity": "60"})
    assert edge.sent[-1].message.application_properties["operation"] == "DELETE"
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    assert len(edge.sent) == 2
    answer_management(edge, int_(404), {})
    assert [each.message.application_properties["operation"] for each in edge.sent] == ["CREATE", "DELETE", "CREATE"]


@pytest.mark.parametrize(("status", "body"), [(int_(403), {}), (None, {}), (int_(201), {}), (int_(201), ["identity"])])
def test_a_link_route_that_the_interior_refuses_is_told_of_and_given_up(status: object, body: object) -> None:
    edge = OneEdge()
    edge.up()
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    answer_management(edge, status, body)
    assert edge.logs[-1].startswith("Link route 'Ca' was not created on the interior router: status ")
    edge.wait(60)
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    assert len([sent for sent in edge.sent if not sent.message.is_settled]) == 1


def test_a_request_without_an_answer_is_made_again_when_there_is_credit() -> None:
    edge = OneEdge()
    edge.up()
    edge.take(edge.machine.link_route_activated("Ca", edge.now))
    edge.wait(10)
    edge.take(edge.machine.credit_changed(edge.link("management").link, 250, edge.now))
    assert len([sent for sent in edge.sent if not sent.message.is_settled]) == 2


# Heartbeat


def test_the_edge_says_that_it_lives_every_two_seconds() -> None:
    """network 97: an int that counts, without a header."""
    edge = OneEdge()
    edge.up()
    edge.wait(1)
    assert len(edge.sent) == 1
    edge.wait(6)
    bodies = [sent.message.body for sent in edge.sent]
    assert bodies == [0, 1, 2, 3]
    assert {type(body) for body in bodies} == {int_}
    assert not any(sent.message.has_header for sent in edge.sent)


def test_the_edge_does_not_beat_without_credit() -> None:
    edge = OneEdge()
    edge.up()
    link = edge.link("heartbeat").link
    edge.take(edge.machine.credit_changed(link, 0, edge.now))
    edge.wait(4)
    assert edge.sent == []
    edge.take(edge.machine.credit_changed(link, 2, edge.now))
    edge.wait(20)
    assert [sent.message.body for sent in edge.sent] == [0, 1]
