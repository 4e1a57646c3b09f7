"""The compiled steps of a message do what the ones in Python do: both are shown the same frames on an engine each."""

import importlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import steps as twin
from twins.steps import PYTHON

from router.amqp.codec import encode
from router.amqp.engine import steps
from router.amqp.engine.library import OUTPUT_VIEW, Pointer, ffi, lib, load_message, message_bytes
from router.amqp.engine.steps import FLOW, MESSAGE, NOTHING, OUTCOME, PROTOTYPES, Steps
from router.values import Described, uint, ulong

HEADER = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, CREDIT, TRANSFERRED, DISPOSITION = range(0x10, 0x16)
SOURCE, TARGET = 0x28, 0x29
ACCEPTED, REJECTED, RELEASED = 0x24, 0x25, 0x26
IN, OUT = 0, 1  # handles of the link on which the peer sends, and of the one on which it receives


def frame(code: int, *fields: Any, payload: bytes = b"") -> bytes:
    body = encode(Described(ulong(code), list(fields))) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def state(code: int) -> Described | None:
    return Described(ulong(code), []) if code else None


GREETING = HEADER + b"".join(
    (
        frame(OPEN, "peer", None, uint(65536)),
        frame(BEGIN, None, uint(0), uint(1000), uint(1000)),
        frame(ATTACH, "in", uint(IN), False, None, None, Described(ulong(SOURCE), ["a"]),
              Described(ulong(TARGET), ["a"]), None, None, uint(0)),
        frame(ATTACH, "out", uint(OUT), True, None, None, Described(ulong(SOURCE), ["b"]),
              Described(ulong(TARGET), ["b"])),
        frame(CREDIT, uint(0), uint(1000), uint(0), uint(1000), uint(OUT), uint(0), uint(1000)),
    )
)  # fmt: skip


@dataclass
class Bench:
    """An engine's proton objects, a peer that has attached a link each way, and the steps to be judged."""

    steps: Steps

    def __post_init__(self) -> None:
        self.transport, self.connection, self.events = lib.pn_transport(), lib.pn_connection(), lib.pn_collector()
        lib.pn_transport_set_server(self.transport)
        lib.pn_connection_collect(self.connection, self.events)
        lib.pn_transport_bind(self.transport, self.connection)
        self.links: list[Pointer] = []
        self.sent: list[Pointer] = []
        self.seen: list[tuple[Any, ...]] = []
        self.left, self.said = len(HEADER), b""
        self.say(GREETING)
        self.seen.clear()

    def say(self, data: bytes) -> None:
        lib.pn_transport_push(self.transport, data, len(data))
        self.work()
        self.output()
        self.work()

    def work(self) -> None:
        """Act on every event, and write down what there was to see of it."""
        steps = self.steps
        what = steps.first_event(self.events)
        while what != NOTHING:
            if what > 0:
                self.answer(what, lib.pn_collector_peek(self.events))
            elif what == FLOW:
                self.seen.append(("flow", self.links.index(steps.step.link)))
            else:
                self.on_delivery(what, self.links.index(steps.step.link), steps.step.delivery)
            what = steps.next_event(self.events)

    def answer(self, what: int, event: Pointer) -> None:
        if what == lib.PN_CONNECTION_REMOTE_OPEN:
            lib.pn_connection_open(self.connection)
        elif what == lib.PN_SESSION_REMOTE_OPEN:
            lib.pn_session_open(lib.pn_event_session(event))
        elif what == lib.PN_LINK_REMOTE_OPEN:
            link = lib.pn_event_link(event)
            self.links.append(link)
            lib.pn_link_open(link)
            if lib.pn_link_is_receiver(link):
                lib.pn_link_flow(link, 1000)

    def on_delivery(self, what: int, link: int, delivery: Pointer) -> None:
        if what == MESSAGE:
            self.seen.append(("message", link, lib.pn_delivery_settled(delivery), self.taken(link)))
            self.steps.accept(delivery)
            return
        self.seen.append(
            ("outcome" if what == OUTCOME else "transfer", link, lib.pn_delivery_remote_state(delivery),
             lib.pn_delivery_settled(delivery), lib.pn_delivery_partial(delivery), lib.pn_delivery_aborted(delivery))
        )  # fmt: skip
        if lib.pn_delivery_settled(delivery):
            lib.pn_delivery_settle(delivery)

    def taken(self, link: int) -> bytes:
        return message_bytes(self.steps.take(self.links[link]))

    def output(self) -> bytes:
        output = b""
        while (size := self.steps.pull(self.transport, self.left)) > 0:
            output += bytes(OUTPUT_VIEW[:size])
            self.left = self.steps.step.left
        self.said += output
        return output

    def free(self) -> None:
        lib.pn_transport_unbind(self.transport)
        lib.pn_connection_release(self.connection)
        lib.pn_collector_release(self.events)
        lib.pn_decref(self.transport)
        lib.pn_decref(self.connection)
        lib.pn_collector_free(self.events)


@pytest.fixture(params=[pytest.param(PYTHON, id="python"), pytest.param(steps.STEPS, id="compiled")])
def bench(request: pytest.FixtureRequest) -> Any:
    made = Bench(request.param)
    yield made
    made.free()


def transfer(number: int, payload: bytes, *, is_settled: bool = False, more: bool = False, **rest: Any) -> bytes:
    """rest  state: outcome code on the transfer; aborted"""
    return frame(
        TRANSFERRED, uint(IN), uint(number), number.to_bytes(4, "big"), uint(0), is_settled, more, None,
        state(rest.get("state", 0)), None, rest.get("aborted", False), payload=payload,
    )  # fmt: skip


def disposition(number: int, code: int, *, is_settled: bool) -> bytes:
    return frame(DISPOSITION, True, uint(number), uint(number), is_settled, state(code))


def test_complete_message_is_a_message_with_its_bytes(bench: Bench) -> None:
    bench.say(transfer(0, b"hello") + transfer(1, b"there", is_settled=True))
    assert bench.seen == [("message", IN, False, b"hello"), ("message", IN, True, b"there")]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(transfer(0, b"part", more=True), id="partial"),
        pytest.param(transfer(0, b"part", more=True) + transfer(0, b"", aborted=True), id="aborted"),
        pytest.param(transfer(0, b""), id="empty"),
        pytest.param(transfer(0, b"said", state=ACCEPTED), id="with a state"),
    ],
)
def test_anything_but_a_complete_message_is_a_transfer(bench: Bench, frames: bytes) -> None:
    bench.say(frames)
    assert [each[0] for each in bench.seen] == ["transfer"]


def test_outcome_is_only_what_is_accepted_and_settled(bench: Bench) -> None:
    load_message(b"hello")
    for _ in range(4):
        bench.steps.send_whole(bench.links[OUT], 5)
    bench.output()
    bench.work()
    bench.seen.clear()
    bench.say(
        disposition(0, ACCEPTED, is_settled=True) + disposition(1, ACCEPTED, is_settled=False)
        + disposition(2, REJECTED, is_settled=True) + disposition(3, 0, is_settled=True)
    )  # fmt: skip
    assert [each[0] for each in bench.seen] == ["outcome", "transfer", "transfer", "transfer"]


def test_no_two_deliveries_have_one_tag(bench: Bench) -> None:
    load_message(b"hello")
    make = (lambda: bench.steps.send_whole(bench.links[OUT], 5), lambda: bench.steps.new_delivery(bench.links[OUT]))
    tags = set()
    for number in range(10):
        delivery = make[number % 2]()
        tag = lib.pn_delivery_tag(delivery)
        tags.add(bytes(ffi.buffer(tag.start, tag.size)))
        if number % 2:
            lib.pn_link_advance(bench.links[OUT])
    assert len(tags) == 10


def test_what_is_sent_stands_in_the_output(bench: Bench) -> None:
    load_message(b"hello there")
    bench.steps.send_whole(bench.links[OUT], 5)
    written = bench.output()
    assert b"hello" in written
    assert b"there" not in written
    assert bench.output() == b""


def test_what_is_more_than_a_frame_is_pulled_at_once(bench: Bench) -> None:
    """proton gives no more at once than the peer takes in a frame: a write for each would cost as many calls."""
    load_message(bytes(3000))
    for _ in range(30):
        bench.steps.send_whole(bench.links[OUT], 3000)
    size = bench.steps.pull(bench.transport, bench.left)
    assert size > 30 * 3000
    assert bench.steps.pull(bench.transport, bench.steps.step.left) <= 0


@pytest.mark.parametrize("size", [11, 1013, 1014, 1015, 1024, 1025, 100_000])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_what_is_inserted_stands_at_its_place(size: int, share: float, bench: Bench) -> None:
    """Also around the length up to which the parts are put together first."""
    message, at = (b"hello there " * (size // 12 + 1))[:size], int(size * share)
    load_message(message + b", behind the message")
    bench.steps.send_with(bench.links[OUT], size, at, b"<inserted>", 10)
    written, expected = bench.output(), message[:at] + b"<inserted>" + message[at:]
    if size < 100_000:
        assert written.endswith(expected)
    else:  # in several frames
        assert expected[:500] in written
        assert written.endswith(expected[-500:])
    assert message_bytes(size) == message


TRANSFERS = st.tuples(
    st.just("transfer"), st.sampled_from((0, 1, 5, 3000)), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from((0, ACCEPTED, RELEASED)),
)  # fmt: skip
DISPOSITIONS = st.tuples(st.just("disposition"), st.sampled_from((0, ACCEPTED, REJECTED, RELEASED)), st.booleans())
STEPS = st.lists(st.one_of(TRANSFERS, DISPOSITIONS, st.just(("send",)), st.just(("credit",))), max_size=30)


def play(steps: Steps, script: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    bench = Bench(steps)
    number = sent = answered = 0
    is_open = False  # a transfer with `more` waits for its rest
    for kind, *rest in script:
        if kind == "transfer":
            size, is_settled, more, aborted, code = rest
            is_aborted = aborted and is_open
            bench.say(transfer(number, b"x" * size, is_settled=is_settled, more=more and not is_aborted,
                               aborted=is_aborted, state=code))  # fmt: skip
            is_open = more and not is_aborted
            number += not is_open
        elif kind == "send":
            load_message(b"y" * 100)
            if sent % 2:
                bench.steps.send_with(bench.links[OUT], 100, sent, b"z" * sent, sent)
            else:
                bench.steps.send_whole(bench.links[OUT], 100)
            bench.seen.append(("written", len(bench.output())))
            sent += 1
        elif kind == "disposition" and answered < sent:
            bench.say(disposition(answered, rest[0], is_settled=rest[1]))
            answered += 1
        elif kind == "credit":
            bench.say(frame(CREDIT, uint(0), uint(1000), uint(0), uint(1000), uint(OUT), uint(0), uint(1000)))
    bench.free()
    return bench.seen


def test_events_are_acted_on_in_slices(bench: Bench) -> None:
    """Attack: one Disposition of a hundred thousand deliveries, one message for ten thousand receivers."""
    steps = bench.steps
    data = b"".join(transfer(number, b"x", is_settled=True, more=False, aborted=False, state=0) for number in range(3))
    lib.pn_transport_push(bench.transport, data, len(data))
    lates = []
    steps.set_slice(-1)  # over before it begins: one event each
    try:
        while (what := steps.first_event(bench.events)) == MESSAGE:
            bench.on_delivery(what, bench.links.index(steps.step.link), steps.step.delivery)
            assert steps.next_event(bench.events) == NOTHING
            lates.append(bool(steps.step.is_late))
    finally:
        steps.set_slice(0)
    assert len(bench.seen) == 3
    assert lates[:2] == [True, True]
    assert not steps.step.is_late


@given(script=STEPS)
def test_both_see_the_same(script: list[tuple[Any, ...]]) -> None:
    assert play(steps.STEPS, script) == play(PYTHON, script)


def test_prototypes_are_those_of_the_installed_proton() -> None:
    """Otherwise the router does not start."""
    assert {name: ffi.typeof(ffi.addressof(lib, name)).cname for name in PROTOTYPES} == PROTOTYPES


@pytest.mark.parametrize("fault", [TypeError, AttributeError])
def test_steps_of_older_sources_say_what_to_do(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """After an update of the sources without `make`."""
    module = importlib.import_module("router.amqp.engine._steps")

    def refuse(*_: object) -> None:
        raise fault("bind() takes exactly 9 arguments")

    monkeypatch.setattr(module, "lib", SimpleNamespace(bind=refuse))
    with pytest.raises(ImportError, match="run `make`"):
        steps._bind()


GONE = 0xFFFFFFFE  # proton's number for what it has no handle for
NUMBERS = st.sampled_from((0, 1, 255, 256, 70000))


def widened(flow: bytes) -> bytes:
    """Its list with sizes of four bytes."""
    body = b"\x00\x53\x13\xd0" + (flow[12] + 3).to_bytes(4, "big") + flow[13:14].rjust(4, b"\0") + flow[14:]
    return (len(body) + 8).to_bytes(4, "big") + flow[4:8] + body


@st.composite
def a_flow(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A Flow as proton writes it, and as it is to be sent."""
    windows = [uint(draw(NUMBERS)) for _ in range(4)]
    channel = draw(st.sampled_from((0, 7, 0xFFFE)))
    handle = draw(st.sampled_from((None, uint(0), uint(3), uint(GONE))))
    link = [] if handle is None else [handle, uint(draw(NUMBERS)), uint(draw(NUMBERS)), None, draw(st.booleans())]
    whole, alone = (
        of[:4] + b"\x02\x00" + channel.to_bytes(2, "big") + of[8:]
        for of in (frame(CREDIT, *windows, *link), frame(CREDIT, *windows))
    )
    if draw(st.booleans()):
        whole, alone = widened(whole), widened(alone)
    return whole, b"" if channel == 0xFFFE else alone if handle == GONE else whole


@st.composite
def another_frame(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """One that stays as it is, with a Flow in its payload perhaps."""
    flow, _ = draw(a_flow())
    made = draw(st.sampled_from((b"\x00\x00\x00\x08\x02\x00\x00\x00", transfer(0, b"x" * 100), transfer(0, flow))))
    return made, made


def tidied(kind: Steps, data: bytes, cuts: list[int]) -> bytes:
    """`data` as it leaves in pieces, where what `tidy` has not looked at comes again with the next."""
    output, waiting, at, left = b"", b"", 0, len(HEADER)
    for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        waiting, at = waiting + data[at:cut], cut
        kind.step.left = left
        if kind is PYTHON:
            buffer = bytearray(waiting)
            kept, used = twin._tidy(memoryview(buffer))
        else:
            compiled = importlib.import_module("router.amqp.engine._steps")
            buffer, looked_at = bytearray(waiting), compiled.ffi.new("size_t *")
            kept = compiled.lib.tidy(compiled.ffi.from_buffer("uint8_t[]", buffer), len(buffer), looked_at)
            used = looked_at[0]
        output, waiting, left = output + bytes(buffer[:kept]), waiting[used:], kind.step.left
    assert not waiting
    assert not left
    return output


@given(
    frames=st.lists(st.one_of(a_flow(), another_frame()), max_size=8), cuts=st.lists(st.integers(0, 600), max_size=5)
)
def test_flows_of_what_has_gone_are_not_sent_as_they_are(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    """However the frames are cut into pieces."""
    data, wanted = (HEADER + b"".join(each) for each in zip(*frames, strict=True)) if frames else (HEADER, HEADER)
    for kind in (PYTHON, steps.STEPS):
        assert tidied(kind, data, cuts) == wanted
