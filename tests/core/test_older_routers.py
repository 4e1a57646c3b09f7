"""Neighbours from before 1.13: one pair of data links, no streaming links, nothing said of annotations.

Source: docs/spec/network.md §3.3, §4.3, §10.6, §19.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Client, Net, Receiver, Sender, encoded
from proton import Array, Data, symbol

from router.core.budget import Limits
from router.core.remotes import DataOutLink
from router.network.envelope import encode_control
from router.values import int_

CONTROL, DATA = "qd.router", "qd.router-data"


class Older:
    """The neighbour OLD of the router A. Its messages lack what later versions added."""

    def __init__(self, net: Net, *offered: str) -> None:
        self.net = net
        self.client: Client = net.client("OLD", opens=False, role="inter-router", strip="no")
        if offered:
            self.client.connection.offered_capabilities = Array(
                symbol(""), Data.SYMBOL, *(symbol(name) for name in offered)
            )
        self.client.open()
        self.control_in, self.control_out = self._pair(CONTROL)
        self.data_in, self.data_out = self._pair(DATA)
        net.pump()
        for _ in range(3):
            self.tick()

    def _pair(self, capability: str) -> tuple[Receiver, Sender]:
        kind = {"capabilities": symbol(capability)}
        receiver = self.client.receiver(None, credit=1000, accepts=True, source=kind, target=kind)
        return receiver, self.client.sender(None, source=kind, target=kind)

    def say(self, to: str, opcode: str, **body: Any) -> None:
        self.control_out.send_bytes(encode_control("0/OLD", to, opcode, {"id": "OLD", "area": "0", **body}))
        self.net.pump()

    def tick(self) -> None:
        assert self.net.host is not None
        self.net.advance(1.0, step=1.0)
        self.net.host.on_second(self.net.now)
        self.net.pump()
        self.say("_local/qdhello", "HELLO", seen=["A"])

    def has(self, address: str) -> None:
        """A consumer there."""
        self.say("_topo/0/all/qdrouter.ma", "MAU", mobile_seq=int_(1), add=[f"M0{address}"], **{"del": []})


@pytest.fixture
def net() -> Net:
    return Net({"news": "multicast", "near": "closest"}, router_id="A")


def test_an_older_neighbour_joins(net: Net) -> None:
    """network 111: without pv, instance, hints, a version of annotations or more than one pair of data links"""
    old = Older(net)
    assert net.host is not None
    assert net.host.own_links == {"OLD": 1}
    assert not [text for text in net.log_texts("ROUTER") if "annotations version" in text]
    old.has("orders")
    sender = net.client().sender("orders")
    net.pump()
    for priority in range(10):
        sender.send(b"there", priority=priority)
    net.pump()
    assert sender.outcomes == [ACCEPTED] * 10
    assert old.data_in.bodies == [b"there"] * 10
    receiver = net.client().receiver("replies", credit=10, accepts=True)
    net.pump()
    back = old.data_out.send(b"back", address="replies")
    net.pump()
    assert back.outcome == ACCEPTED
    assert receiver.bodies == [b"back"]
    net.no_errors()


@pytest.mark.parametrize("address", ["orders", "near", "news"])
def test_a_stream_takes_the_data_link_that_an_older_neighbour_has(net: Net, address: str) -> None:
    """network 111: it is offered no other, whatever the address's treatment; what comes behind goes behind."""
    old = Older(net, "ANONYMOUS-RELAY")
    old.has(address)
    first, second = net.client().sender(address), net.client().sender(address)
    net.pump()
    message = encoded(b"x" * 300_000)
    long = first.start()
    first.append(message[:200_000])
    net.pump()
    short = second.send(b"behind")
    net.pump()
    assert long.outcome is None
    first.append(message[200_000:])
    first.finish()
    net.pump()
    assert long.outcome == short.outcome == ACCEPTED
    assert [len(body) for body in old.data_in.bodies] == [300_000, 6]
    assert old.client.attached_by_router == []
    assert [link.slot for link in net.core.links.values() if isinstance(link, DataOutLink)] == [0]
    net.no_errors()


def test_a_neighbour_that_offers_streaming_links_gets_one(net: Net) -> None:
    """network 111: the same, of 1.13 or later"""
    newer = Older(net, "ANONYMOUS-RELAY", "qd.streaming-links")
    newer.has("orders")
    sender = net.client().sender("orders")
    net.pump()
    sender.send(b"x" * 300_000)
    net.pump()
    (streaming,) = newer.client.attached_by_router
    assert isinstance(streaming, Receiver)
    assert [len(body) for body in streaming.bodies] == [300_000]
    assert newer.data_in.bodies == []
    net.no_errors()


def test_a_stream_from_an_older_neighbour_comes_by_its_data_link(net: Net) -> None:
    """network 111"""
    old = Older(net)
    receiver = net.client().receiver("replies", credit=10, accepts=True)
    net.pump()
    message = encoded(b"x" * 300_000, address="replies")
    sending = old.data_out.start()
    old.data_out.append(message[:200_000])
    net.pump()
    old.data_out.append(message[200_000:])
    old.data_out.finish()
    net.pump()
    assert sending.outcome == ACCEPTED
    assert [len(body) for body in receiver.bodies] == [300_000]
    net.no_errors()


class TestOneSessionForAllLargeMessages:
    """1.20 attaches all its links for large messages on one session. Its window is theirs together."""

    SIZE = 1_600_000

    @staticmethod
    def senders(old: Older, count: int) -> list[Sender]:
        session = old.client.connection.session()
        session.open()
        kind = {"capabilities": symbol(DATA)}
        links = [old.client.sender(None, source=kind, target=kind, session=session) for _ in range(count)]
        old.net.pump()
        return links

    @classmethod
    def send_at_once(cls, net: Net, senders: list[Sender], address: str = "a") -> None:
        """A piece of each message in turn, as far as the window takes them."""
        payload = encoded(bytes(cls.SIZE), address=address)
        pieces = range(0, len(payload), 32_000)
        for sender in senders:
            sender.start()
        for at in pieces:
            for sender in senders:
                sender.append(payload[at : at + 32_000])
            net.pump()
        for sender in senders:
            sender.finish()
        net.pump()

    def test_those_that_wait_do_not_stop_the_one_that_is_delivered(self) -> None:
        net = Net(router_id="A", limits=Limits())
        old = Older(net)
        receiver = net.client().receiver("a", credit=100, accepts=True)
        senders = self.senders(old, 12)
        account = net.peer(old.client).attachment.account
        before = account.held
        self.send_at_once(net, senders)
        assert [len(body) for body in receiver.bodies] == [self.SIZE] * 12
        assert [sender.outcomes for sender in senders] == [[ACCEPTED]] * 12
        assert account.held - before < 100_000

    def test_nor_do_those_whose_receiver_has_no_credit(self) -> None:
        net = Net(router_id="A", limits=Limits())
        old = Older(net)
        idle = net.client().receiver("idle", accepts=True)
        receiver = net.client().receiver("a", credit=100, accepts=True)
        *waiting, sender = self.senders(old, 6)
        account = net.peer(old.client).attachment.account
        self.send_at_once(net, waiting, "idle")
        assert account.held > 5 * self.SIZE  # within its budget, and at its cost
        self.send_at_once(net, [sender])
        assert [len(body) for body in receiver.bodies] == [self.SIZE]
        idle.flow(10)
        net.pump()
        assert [len(body) for body in idle.bodies] == [self.SIZE] * 5
        assert account.held < self.SIZE
