"""The frames that foreign clients wait for or believe: drains, settlement modes, filters, temporary topics.

Of a real router (docs/spec/routing.md §5.3, §5.4, §5.7, §6.2).
"""

from typing import Any

import pytest
from harness import RunningRouter
from open_house import OPEN_HOUSE, port_of
from raw_peer import ATTACH, DETACH, FLOW, IN_SESSION, TRANSFER, RawPeer, attach_sender, frame, raw_peer, transfer

from router.values import Described, symbol, ubyte, uint, ulong

EXTRA_CONFIGURATION = OPEN_HOUSE
UNSETTLED, SETTLED, MIXED = ubyte(0), ubyte(1), ubyte(2)
FIRST, SECOND = ubyte(0), ubyte(1)
MESSAGE = b"\x00\x53\x77\xa1\x05hello"
SELECTOR = {symbol("jms-selector"): Described(symbol("apache.org:selector-filter:string"), "color = 'red'")}


@pytest.fixture(autouse=True)
def _is_listening(router: RunningRouter) -> None:
    port_of(router, "free")


def receiver(
    source: list[Any], handle: int = 0, *, send: ubyte = MIXED, settle: ubyte = FIRST, name: str = "r"
) -> bytes:
    termini = Described(ulong(0x28), source), Described(ulong(0x29), [])
    return frame(ATTACH, f"{name}{handle}", uint(handle), True, send, settle, *termini)


def sender(target: list[Any], handle: int = 0, *, send: ubyte = MIXED, settle: ubyte = FIRST) -> bytes:
    termini = Described(ulong(0x28), []), Described(ulong(0x29), target)
    return frame(ATTACH, f"s{handle}", uint(handle), False, send, settle, *termini, None, None, uint(0))


def credit(number: int, *, handle: int = 0, count: int = 0, drain: bool = False) -> bytes:
    fields = uint(0), uint(2048), uint(0), uint(2048), uint(handle), uint(count), uint(number), None, drain
    return frame(FLOW, *fields)


def ask(peer: RawPeer, data: bytes, code: int) -> list[Any]:
    """The fields of the first performative of that code behind what was said."""
    peer.received = b""
    peer.send(data)
    return peer.read_until(code)


def test_drain_without_credit_is_answered(router: RunningRouter) -> None:
    """issue 12.4: as Azure's client for Go drains a link that never had credit, or has used it up."""
    with raw_peer(router, "free") as peer:
        ask(peer, IN_SESSION + receiver(["drained"]), ATTACH)
        assert ask(peer, credit(0, drain=True), FLOW)[4:9] == [0, 0, 0, None, True]
        ask(peer, credit(1) + frame(ATTACH, *SENDING), ATTACH)
        ask(peer, transfer_on(7), TRANSFER)
        answer = ask(peer, credit(0, count=1, drain=True), FLOW)
        assert answer[4:9] == [0, 1, 0, None, True]
        assert answer[2] == 1  # the next id of a delivery, as the engine has it
        assert ask(peer, credit(0, count=1, drain=True) + credit(3, count=1) + transfer_on(7, 1), TRANSFER)[1] == 1


SENDING = ("s", uint(7), False, None, None, Described(ulong(0x28), []), Described(ulong(0x29), ["drained"]), None, None,
           uint(0))  # fmt: skip


def transfer_on(handle: int, number: int = 0) -> bytes:
    return frame(TRANSFER, uint(handle), uint(number), bytes([number]), uint(0), True, False, payload=MESSAGE)


@pytest.mark.parametrize("send", [UNSETTLED, SETTLED, MIXED])
@pytest.mark.parametrize("settle", [FIRST, SECOND])
def test_settlement_modes_are_said_where_they_are_honoured(router: RunningRouter, send: ubyte, settle: ubyte) -> None:
    """issue 12.4"""
    with raw_peer(router, "free") as peer:
        answer = ask(peer, IN_SESSION + sender(["modes"], send=send, settle=settle), ATTACH)
        assert answer[3:5] == [send, settle]
        answer = ask(peer, receiver(["modes"], 1, send=send, settle=settle), ATTACH)
        assert answer[3:5] == [SETTLED if send == SETTLED else MIXED, settle]


def test_a_durable_subscription_with_a_selector_is_answered_as_neither(router: RunningRouter) -> None:
    """issue 12.5: what Qpid JMS asks for by createDurableSubscriber."""
    asked = ["topic", uint(2), symbol("never"), uint(60), False, None, symbol("copy"), SELECTOR]
    with raw_peer(router, "free") as peer:
        source = [*ask(peer, IN_SESSION + receiver(asked), ATTACH)[5].value, *[None] * 8]
    address, durable, expiry, timeout_s, _, _, distribution, filters = source[:8]
    assert (address, durable or 0, expiry, timeout_s or 0) == ("topic", 0, "link-detach", 0)
    assert (distribution, filters) == ("copy", None)


def test_a_second_detach_closes_nothing(router: RunningRouter) -> None:
    """issue 12.6: detached, then closed, by a client that does both."""
    with raw_peer(router, "free") as peer:
        ask(peer, IN_SESSION + receiver(["left"]), ATTACH)
        ask(peer, frame(DETACH, uint(0), False), DETACH)
        answer = ask(peer, frame(DETACH, uint(0), True) + receiver(["left"], name="again"), ATTACH)
        assert answer[0] == "again0"
        assert DETACH not in [code for code, _ in peer.performatives()]


def test_a_temporary_topic_has_two_consumers(router: RunningRouter) -> None:
    """issue 12.7: as Qpid JMS makes it, with a sender whose target is dynamic."""
    topic = [None, None, None, None, True, None, symbol("temporary-topic")]
    with raw_peer(router, "free") as peer:
        address = ask(peer, IN_SESSION + sender(topic), ATTACH)[6].value[0]
        for handle in (1, 2):
            ask(peer, receiver([address], handle), ATTACH)
        with raw_peer(router, "free") as producer:
            ask(producer, IN_SESSION + attach_sender(address), FLOW)
            peer.received = b""
            peer.send(credit(5, handle=1) + credit(5, handle=2))
            producer.send(transfer(MESSAGE))
            while len(got := [fields[0] for code, fields in peer.performatives() if code == TRANSFER]) < 2:
                peer.socket.settimeout(10)
                peer.received += peer.socket.recv(65536)
        assert set(got) == {1, 2}
