"""Addresses of an edge on its uplink: which links there are for them, and when they are used."""

import pytest
from one_edge import OneEdge

from router.edge.effects import End, RejectMessage
from router.edge.messages import Message


def test_a_receiver_on_the_edge_has_one_link_on_the_uplink() -> None:
    """network 84"""
    edge = OneEdge()
    edge.up()
    edge.forget()
    edge.address("M0orders", receives=True)
    edge.address("M0orders", receives=True)
    (link,) = edge.links
    assert (link.is_sender, link.source, link.target, link.credit) == (False, End(address="orders"), End(), 250)
    edge.address("M0orders")
    assert edge.detached == [link.link]
    edge.address("M0orders", receives=True)
    assert len(edge.links) == 2


def test_a_sender_on_the_edge_has_a_link_that_waits_for_the_interiors_word() -> None:
    """network 85, 87"""
    edge = OneEdge()
    edge.up()
    edge.address("M0orders", sends=True)
    link = edge.of("M0orders", is_sender=True)
    assert (link.source, link.target, link.credit) == (End(), End(address="orders"), 0)
    edge.track("M0orders", True)
    edge.answer(link)
    assert edge.used == []
    edge.track("M0orders", True)
    edge.track("M0orders", True)
    edge.track("M0orders", False)
    assert edge.used == [(link.link, True), (link.link, False)]


def test_a_used_link_is_unbound_before_it_is_closed() -> None:
    edge = OneEdge()
    edge.up()
    edge.address("M0orders", sends=True)
    link = edge.of("M0orders", is_sender=True)
    edge.answer(link)
    edge.track("M0orders", True)
    edge.address("M0orders")
    assert edge.used == [(link.link, True), (link.link, False)]
    assert edge.detached == [link.link]
    edge.track("M0orders", True)
    assert len(edge.used) == 2


@pytest.mark.parametrize("key", ["M0unknown", "M0received", "C0", ""])
def test_a_tracking_message_about_nothing_of_ours_is_ignored(key: str) -> None:
    edge = OneEdge()
    edge.address("M0received", receives=True)
    edge.up()
    tracking = edge.link("tracking")
    edge.forget()
    edge.take(edge.machine.received(tracking.link, Message(body=[key, True]), edge.now))
    assert edge.effects == []


@pytest.mark.parametrize(
    "body", [None, {}, [], ["M0a"], ["M0a", 1], [b"M0a", True], ["M0a", True, 1], ["M" * 5000, True]]
)
def test_a_malformed_tracking_message_is_rejected_and_told_of(body: object) -> None:
    """network 86: the body is a list of a key and a boolean."""
    edge = OneEdge()
    edge.up()
    tracking = edge.link("tracking")
    edge.forget()
    edge.take(edge.machine.received(tracking.link, Message(body=body), edge.now))
    assert edge.logs == ["Edge Address Proxy: received an invalid message body, rejecting"]
    assert isinstance(edge.effects[-1], RejectMessage)


def test_addresses_come_back_with_the_next_uplink() -> None:
    edge = OneEdge()
    edge.address("M0orders", receives=True, sends=True)
    edge.up(7)
    edge.open(8)
    edge.answer(edge.of("M0orders", is_sender=True))
    edge.track("M0orders", True)
    edge.forget()
    edge.close(7)
    assert [(link.key, link.is_sender) for link in edge.links[8:]] == [("M0orders", False), ("M0orders", True)]
    edge.answer(edge.of("M0orders", is_sender=True))
    assert edge.used == []


def test_a_link_that_the_interior_refuses_is_not_asked_for_again_and_again() -> None:
    """Or the two would attach and refuse without end."""
    edge = OneEdge()
    edge.up()
    edge.address("M0secret", receives=True, sends=True)
    refused = edge.links[8:]
    edge.forget()
    for link in refused:
        edge.take(edge.machine.link_detached(link.link))
    edge.address("M0secret", receives=True, sends=True)
    assert edge.links == []
    edge.address("M0secret")
    edge.address("M0secret", receives=True)
    assert len(edge.links) == 1


@pytest.mark.parametrize(
    ("key", "receiver", "sender"),
    [
        ("MFfall", "qd.fallback", "qd.fallback"),
        ("M0way", "qd.waypoint.1", None),
        ("M1way", "qd.waypoint.2", "qd.waypoint.1"),
        ("M2way", None, "qd.waypoint.2"),
    ],
)
def test_links_of_addresses_with_phases_name_theirs(key: str, receiver: str | None, sender: str | None) -> None:
    edge = OneEdge()
    edge.up()
    edge.address(key, receives=True, sends=True, phases=(0, 2))
    source, target = edge.of(key, is_sender=False).source, edge.of(key, is_sender=True).target
    assert source is not None
    assert target is not None
    assert (source.capability, target.capability) == (receiver, sender)


def test_a_phase_that_no_link_has_is_not_made_known() -> None:
    edge = OneEdge()
    edge.up()
    edge.forget()
    edge.address("M3way", receives=True, sends=True, phases=(0, 2))
    assert edge.links == []
