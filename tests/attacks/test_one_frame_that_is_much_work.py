"""Attack: one frame, or one closed connection, causes the work of thousands, without a pause for other connections.

- an Attach whose capabilities are 15,000 symbols without a letter: 60 ms each, and decoded four times
- a Disposition of tens of thousands of deliveries, or an End or a close with unsettled ones: 0.1 to 0.6 s
- a close with thousands of receivers on one address: 4 s for 10,000, growing with the square of their number
- handles that fall into one place of the engine's hash table: each frame searched all links

Now the number of values in a frame is limited, and the rest is done in turns.
"""

import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from bystander import Bystander, bystander
from frames_attacker import Attacker, attacker, besieged_router, wire
from harness import RunningRouter, eventually

pytestmark = pytest.mark.timing

router = besieged_router

# A round trip takes half a millisecond alone, and two turns of the others' beside this: so many of a hundred may take
# longer than that, on a busy machine.
WORST_S = 0.25
LINKS = 6000
SENDERS, EACH = 100, 250  # deliveries that are left unsettled
START = wire.frame(wire.open_("much")) + wire.frame(wire.begin(incoming=1 << 20))


class Siege:
    """One attack: `prepare` it, then `strike` once."""

    def __init__(self, router: RunningRouter, stack: ExitStack) -> None:
        self.router = router
        self.stack = stack

    def peer(self) -> Attacker:
        peer = self.stack.enter_context(attacker(self.router, "free"))
        peer.say(START)
        peer.wait_for(wire.BEGIN)
        peer.received = b""
        return peer

    def receivers(self) -> Attacker:
        """One peer with LINKS receivers on one address, all attached."""
        peer = self.peer()
        for some in batches(range(LINKS), 200):
            peer.say(*(wire.frame(wire.attach(f"l{n}", n, is_receiver=True, address="much")) for n in some))
            answers(peer, wire.ATTACH, len(some))
        return peer

    def unsettled(self) -> tuple[Attacker, Attacker]:
        """A sender, and the receiver that has SENDERS x EACH deliveries of it and settles none."""
        receiver, sender = self.peer(), self.peer()
        credit = wire.flow(0, credit=1 << 20, count=0, window=1 << 20)
        receiver.say(wire.frame(wire.attach("r", 0, is_receiver=True, address="much")), wire.frame(credit))
        answers(receiver, wire.ATTACH, 1)
        number = 0
        for handle in range(SENDERS):
            sender.say(wire.frame(wire.attach(f"s{handle}", handle, is_receiver=False, address="much")))
            answers(sender, wire.FLOW, 1)
            numbers = range(number, number := number + EACH)
            sender.say(*(wire.frame(wire.transfer(handle, each, wire.message(1))) for each in numbers))
            answers(receiver, wire.TRANSFER, EACH)
        return sender, receiver


def batches(numbers: range, size: int) -> Iterator[range]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def answers(peer: Attacker, code: int, count: int) -> None:
    """Read until so many performatives of that code have come."""
    seen = 0
    while True:
        at, data = 0, peer.received
        while len(data) - at >= 8 and len(data) - at >= (size := int.from_bytes(data[at : at + 4], "big")):
            seen += size > 8 and data[at + 10] == code
            at += size
        peer.received = data[at:]
        if seen >= count:
            return
        assert peer.read_some(30), "the router closed the connection"


def hang_up_receivers(siege: Siege) -> Callable[[], None]:
    return siege.receivers().socket.close


def end_receivers(siege: Siege) -> Callable[[], None]:
    peer = siege.receivers()

    def strike() -> None:
        peer.say(wire.frame(wire.end()))
        answers(peer, wire.END, 1)

    return strike


def disposition(siege: Siege) -> Callable[[], None]:
    sender, receiver = siege.unsettled()
    settles = wire.disposition(is_receiver=True, first=0, last=SENDERS * EACH, state=wire.MODIFIED)

    def strike() -> None:
        receiver.say(wire.frame(settles))
        answers(sender, wire.DISPOSITION, 1)

    return strike


def hang_up_unsettled(siege: Siege) -> Callable[[], None]:
    sender, receiver = siege.unsettled()

    def strike() -> None:
        receiver.socket.close()
        answers(sender, wire.DISPOSITION, 1)

    return strike


STRIKES = (hang_up_receivers, end_receivers, disposition, hang_up_unsettled)


@pytest.mark.parametrize("prepare", STRIKES)
def test_others_do_not_wait_for_all_of_it(
    prepare: Callable[[Siege], Callable[[], None]], router: RunningRouter
) -> None:
    with ExitStack() as stack:
        strike = prepare(Siege(router, stack))
        with bystander(router) as honest:
            await_round_trips(honest, 20)
            before = len(honest.seconds)
            strike()
            await_round_trips(honest, before + 200)
    assert max(honest.seconds[before:]) < WORST_S


def await_round_trips(honest: Bystander, count: int) -> None:
    assert eventually(lambda: len(honest.seconds) >= count or honest.error is not None, 60)


SYMBOLS = 15_000


def symbols(count: int) -> bytes:
    """An array of symbols without a letter: a byte each."""
    return b"\xf0" + struct.pack(">II", count + 5, count) + b"\xa3" + bytes(count)


def test_a_frame_of_thousands_of_symbols_is_refused(router: RunningRouter) -> None:
    nulls = itertools.repeat(wire.NULL, 9)
    source = wire.performative(0x28, wire.text("a"), *nulls, symbols(SYMBOLS))
    with attacker(router, "free") as peer:
        fields = wire.text("l"), wire.uint(0), wire.TRUE, wire.NULL, wire.NULL, source, wire.target("t")
        peer.say(START, wire.frame(wire.performative(wire.ATTACH, *fields)))
        assert peer.condition_of_close() == "amqp:resource-limit-exceeded"


def test_capabilities_that_would_stay_decoded_are_few(router: RunningRouter) -> None:
    nulls = itertools.repeat(wire.NULL, 9)
    source = wire.performative(0x28, wire.text("a"), *nulls, symbols(1000))
    with attacker(router, "free") as peer:
        fields = wire.text("l"), wire.uint(0), wire.TRUE, wire.NULL, wire.NULL, source, wire.target("t")
        peer.say(START, wire.frame(wire.performative(wire.ATTACH, *fields)))
        assert peer.condition_of_close() == "amqp:resource-limit-exceeded"


def test_handles_of_one_place_are_refused(router: RunningRouter) -> None:
    places = int(0.86 * 32768)  # of the engine's table while it has thousands
    with attacker(router, "free") as peer:
        made = (wire.attach(f"l{n}", n * places, is_receiver=True, address="a") for n in range(10))
        peer.say(START, *map(wire.frame, made))
        assert peer.condition_of_close() == "amqp:connection:framing-error"
