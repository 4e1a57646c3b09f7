"""Attack: frames that no state of the connection allows.

They use channels that were never begun, handles that were never attached, and deliveries of other links. Some corrupted
the AMQP engine's memory, some were carried out, some were silently accepted. Each is a violation that closes the
connection with its condition.
"""

import pytest
from frames_attacker import attacker, besieged_router, say_in_turn, send_to_router, wire
from harness import RunningRouter

router = besieged_router


def at(channel: int, body: bytes) -> bytes:
    return wire.frame(body, channel)


OPEN, BEGIN = at(0, wire.open_("attacker", "localhost")), at(0, wire.begin())
SENDER = at(0, wire.attach("s", 0, is_receiver=False, address="guests.a"))
RECEIVER = at(0, wire.attach("r", 1, is_receiver=True, address="guests.a"))
SESSION = OPEN + BEGIN
LINKS = SESSION + SENDER + RECEIVER
MESSAGE = wire.message(10)


def send(handle: int, delivery_id: int | None, **terms: object) -> bytes:
    return at(0, wire.transfer(handle, delivery_id, MESSAGE, **terms))  # type: ignore[arg-type]


# What is said, behind the headers.
ORDERS = {
    "begin before open": BEGIN,
    "attach before open": SENDER,
    "close before open": at(0, wire.close()),
    "open on another channel": at(1, wire.open_()),
    "open twice": OPEN + OPEN,
    "open twice with a session": SESSION + OPEN,
    "begin twice": SESSION + BEGIN,
    "begin twice with links": LINKS + BEGIN + SENDER + at(0, wire.end()) + at(0, wire.end()),
    "begin over channel-max": OPEN + at(32768, wire.begin()),
    "begin on channel 65535": OPEN + at(65535, wire.begin()) + at(65535, wire.end()),
    "begin on channel 65534": OPEN + at(65534, wire.begin()) + at(65534, wire.end()),
    "attach on no session": OPEN + SENDER,
    "attach on another channel": SESSION + at(1, wire.attach("s", 0, is_receiver=False)),
    "attach after end": SESSION + at(0, wire.end()) + SENDER,
    "attach twice on a handle": SESSION + SENDER + at(0, wire.attach("t", 0, is_receiver=True)),
    "attach twice by name": SESSION + SENDER + at(0, wire.attach("s", 5, is_receiver=False, address="guests.a")),
    "attach over handle-max": SESSION + at(0, wire.attach("s", 0xFFFFFFFF, is_receiver=False, address="guests.a")),
    "attach on handle 2^31": SESSION + at(0, wire.attach("s", 0x80000000, is_receiver=False, address="guests.a")),
    "transfer on no session": OPEN + send(0, 0),
    "transfer on no link": SESSION + send(0, 0),
    "transfer on another handle": LINKS + send(7, 0),
    "transfer after detach": LINKS + at(0, wire.detach(0)) + send(0, 0),
    "transfer after end": LINKS + at(0, wire.end()) + send(0, 0),
    "first transfer without a delivery-id": LINKS + send(0, None),
    "delivery-id left out": LINKS + send(0, 0) + send(0, 2),
    "delivery-id used again": LINKS + send(0, 0) + send(0, 0),
    "delivery-id going back": LINKS + send(0, 5) + send(0, 4),
    "continuation with another id": LINKS + send(0, 0, is_last=False) + send(0, 1),
    "continuation with another id after the last": LINKS + send(0, 0, is_last=False) + send(0, 7, is_last=False),
    "settled taken back": LINKS + send(0, 0, is_last=False, is_settled=True) + send(0, 0, is_settled=False),
    "flow on no session": OPEN + at(0, wire.flow(None)),
    "flow for an unknown handle": LINKS + at(0, wire.flow(9, credit=1)),
    "flow after detach": LINKS + at(0, wire.detach(1)) + at(0, wire.flow(1, credit=1)),
    "disposition on no session": OPEN + at(0, wire.disposition(is_receiver=True, first=0)),
    "disposition backwards": LINKS + at(0, wire.disposition(is_receiver=True, first=5, last=2)),
    "detach on no session": OPEN + at(0, wire.detach(0)),
    "detach of an unknown handle": LINKS + at(0, wire.detach(9)),
    "transfer after detaching twice": LINKS + at(0, wire.detach(0)) + at(0, wire.detach(0)) + send(0, 0),
    "end of an unknown channel": SESSION + at(3, wire.end()),
    "end twice": SESSION + at(0, wire.end()) + at(0, wire.end()),
}
# Legal, or nearly, and a trap for who counts one by one.
HEAVY = {
    "disposition of all deliveries": [at(0, wire.disposition(is_receiver=True, first=0, last=0x7FFFFFFF))],
    "disposition of all deliveries of its own": [at(0, wire.disposition(is_receiver=False, first=0, last=0x7FFFFFFF))],
    "disposition of unknown deliveries": [at(0, wire.disposition(is_receiver=True, first=77, last=99))],
    "two thousand dispositions": [at(0, wire.disposition(is_receiver=True, first=0, last=0x7FFFFFFF))] * 2000,
    "two thousand sessions windows": [at(0, wire.flow(None, window=0xFFFFFFFF, next_in=0xFFFFFFFF))] * 2000,
}


@pytest.mark.parametrize("is_hasty", [True, False], ids=["at once", "in turn"])
@pytest.mark.parametrize("name", ORDERS)
def test_a_violation_closes_the_connection_with_a_condition(name: str, is_hasty: bool, router: RunningRouter) -> None:
    assert send_to_router(router, ORDERS[name], is_hasty=is_hasty).startswith("amqp:")


@pytest.mark.parametrize("name", ["begin twice", "attach twice on a handle", "transfer on another handle"])
def test_what_follows_a_violation_is_not_done(name: str, router: RunningRouter) -> None:
    """An Attach right behind it, in the same bytes, attaches nothing."""
    with attacker(router) as peer:
        behind = at(0, wire.attach("behind", 30, is_receiver=True, address="guests.behind"))
        say_in_turn(router, peer, ORDERS[name], behind)
        assert peer.condition_of_close().startswith("amqp:")
        attached = [fields[0] for code, fields in peer.performatives() if code == wire.ATTACH]
    assert "behind" not in attached


def test_nothing_is_answered_after_a_close(router: RunningRouter) -> None:
    with attacker(router) as peer:
        peer.say(OPEN, at(0, wire.close()), BEGIN, SENDER)
        assert peer.condition_of_close() == ""
        assert {code for code, _ in peer.performatives()} == {wire.OPEN, wire.CLOSE}


def test_a_second_detach_closes_nothing(router: RunningRouter) -> None:
    """issue 12.6: neither the connection nor the links beside it; a thousand of them are worked off in turns."""
    with attacker(router) as peer:
        say_in_turn(router, peer, LINKS, at(0, wire.detach(0)))
        peer.say(*[at(0, wire.detach(0))] * 1000, SENDER, send(0, 0), at(0, wire.close()))
        assert peer.condition_of_close() == ""
        detached = [fields[0] for code, fields in peer.performatives() if code == wire.DETACH]
    assert detached == [0]


@pytest.mark.parametrize("name", HEAVY)
def test_heavy_frames_are_answered_in_time(name: str, router: RunningRouter) -> None:
    with attacker(router) as peer:
        say_in_turn(router, peer, LINKS, send(0, 0))
        peer.say(*HEAVY[name], at(0, wire.close()))
        assert peer.condition_of_close() == ""
