"""The states of an incoming link in the engine: every state, every input."""

import pytest
from memory_net import Net

from router.amqp.engine import IncomingWire
from router.amqp.engine.links import _HELD

STATES = ("closed", "idle", "streaming", "held", "streaming, then held", "last")
# (state, input) -> the next one; what is not named changes nothing.
TABLE = {
    **{(state, "release_core"): "closed" for state in STATES},
    ("idle", "hold"): "held",
    ("idle", "read_by"): "streaming",
    ("idle", "take_no_more"): "closed",
    ("streaming", "hold"): "streaming, then held",
    ("streaming", "drop_reader"): "idle",
    ("streaming", "end_stream"): "idle",
    ("streaming", "take_no_more"): "last",
    ("held", "go_on"): "idle",
    ("held", "read_by"): "streaming, then held",
    ("held", "take_no_more"): "last",
    ("held", "read_out"): "idle",
    ("streaming, then held", "go_on"): "streaming",
    ("streaming, then held", "drop_reader"): "held",
    ("streaming, then held", "end_stream"): "held",
    ("streaming, then held", "take_no_more"): "last",
    ("last", "drop_reader"): "closed",
    ("last", "end_stream"): "closed",
}
INPUTS = ("hold", "go_on", "read_by", "drop_reader", "end_stream", "take_no_more", "read_out", "release_core")
# Only an admitted link is held, and only one that may take a message is read; a link is not held twice.
NEVER = {*(("closed", each) for each in INPUTS if each != "release_core"), ("last", "hold"), ("last", "read_by")}


class Reader:
    received = 0

    def __init__(self) -> None:
        self.calls: list[str] = []

    def more(self) -> None:
        self.calls.append("more")

    def hurry(self) -> None:
        self.calls.append("hurry")

    def abort(self) -> None:
        self.calls.append("abort")


def wire_in(state: str, reader: Reader) -> IncomingWire:
    net = Net()
    client = net.client()
    client.sender("a")
    net.pump()
    (link,) = net.peer(client).attachment.in_links
    wire = link.wire
    assert isinstance(wire, IncomingWire)
    steps = {
        "closed": ("release_core",),
        "idle": (),
        "streaming": ("read_by",),
        "held": ("hold",),
        "streaming, then held": ("read_by", "hold"),
        "last": ("read_by", "take_no_more"),
    }
    for step in steps[state]:
        put(wire, step, reader)
    assert state_of(wire) == state
    return wire


def put(wire: IncomingWire, step: str, reader: Reader) -> None:
    wire.read_by(reader) if step == "read_by" else getattr(wire, step)()


def state_of(wire: IncomingWire) -> str:
    if wire.forward is None:
        return "closed" if wire.stream is None else "last"
    if wire.stream is None:
        return "idle"
    if wire.stream is _HELD:
        return "held"
    return "streaming, then held" if wire.is_held else "streaming"


@pytest.mark.parametrize("step", INPUTS)
@pytest.mark.parametrize("state", STATES)
def test_every_input_leads_to_the_state_of_the_table(state: str, step: str) -> None:
    if (state, step) in NEVER:
        return
    reader = Reader()
    wire = wire_in(state, reader)
    put(wire, step, reader)
    assert state_of(wire) == TABLE.get((state, step), state)
    goes_on = step == "go_on" and state in ("streaming", "streaming, then held", "last")
    hurries = step == "read_out" and state in ("streaming", "streaming, then held", "last")
    assert reader.calls == ["more"] * goes_on + ["hurry"] * hurries


@pytest.mark.parametrize("state", ["idle", "streaming", "held"])
def test_payment_changes_no_state(state: str) -> None:
    wire = wire_in(state, Reader())
    plain = wire.forward
    wire.pay_by(lambda _size: None)
    assert state_of(wire) == state
    assert wire.forward is not plain
    wire.pay_by(None)
    assert state_of(wire) == state
    assert wire.forward is plain


def test_payment_does_not_open_a_link_that_takes_no_more() -> None:
    wire = wire_in("last", Reader())
    wire.pay_by(lambda _size: None)
    assert state_of(wire) == "last"
