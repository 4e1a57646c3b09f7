"""What is under way between two routers: windows of sessions, and messages that leave in the midst of a pass."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, Fleet, Net
from memory_net.frames import frames

from router.connection.lanes import MAX_LANES, SPARE
from router.core.budget import Limits
from router.core.remotes import PRIORITIES

FRAME = 16 * 1024
CREDIT = 250
# Control, one for each priority, and those of each router for streaming.
STANDING = 1 + PRIORITIES + 2 * SPARE
AMQP_HEADER = b"AMQP\0\1\0\0"


def engine_towards(fleet: Fleet, name: str, neighbour: str) -> Any:
    network = fleet[name].core.network
    assert network is not None
    (trunk,) = [each for each in network.trunks.values() if each.neighbour == neighbour]
    return trunk.data[4].engine  # type: ignore[union-attr]


def test_the_sessions_of_a_neighbour_have_windows_as_large_as_the_credit_of_their_links() -> None:
    """With a share that shrank with each session, the usual priority had 73 messages in a round trip, however far."""
    net = Net(router_id="A", limits=Limits(), session_bytes=8 << 20)
    neighbour = net.client("B", role="inter-router")
    for _ in range(STANDING + 3 * MAX_LANES):
        neighbour.connection.session().open()
    net.pump()
    windows = [begin[2] for begin in neighbour.frames("begin")]
    # Some of the first are the router's own.
    assert [window >= CREDIT for window in windows[: STANDING - SPARE]] == [True] * (STANDING - SPARE)
    assert windows == sorted(windows, reverse=True)
    assert sum(windows) * FRAME <= Limits().neighbour


def test_both_routers_have_room_for_the_credit_of_a_link() -> None:
    fleet = Fleet("A", "B", limits=Limits(), session_bytes=8 << 20)
    made, taken = fleet.connect("A", "B")
    fleet.settle()
    for end in (made, taken):
        assert [window >= CREDIT for window in windows_of(bytes(end.recorded))] == [True] * STANDING


def windows_of(recorded: bytes) -> list[int]:
    """The incoming windows of the Begins that a router wrote."""
    return [frame.fields[2] for frame in frames(recorded[recorded.rindex(AMQP_HEADER) :]) if frame.name == "begin"]


@pytest.mark.parametrize("is_settled", [False, True])
def test_messages_leave_for_a_neighbour_while_others_are_taken(is_settled: bool) -> None:
    """200 come in one read: three times 64 leave before it is worked off."""
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    receiver = fleet["B"].client().receiver("orders", credit=200, accepts=True)
    client = fleet["A"].client()
    sender = client.sender("orders")
    fleet.settle()
    engine = engine_towards(fleet, "A", "B")
    sizes = spied(engine)
    for number in range(200):
        sender.send(bytes([number]), is_settled=is_settled)
    client.push_to_router()
    assert len(sizes) == 4
    # The number of the first takes a byte less.
    assert sizes[0] + 1 == sizes[1] == sizes[2] == 8 * sizes[3]
    fleet.pump()
    assert receiver.bodies == [bytes([number]) for number in range(200)]
    if not is_settled:
        assert sender.outcomes == [ACCEPTED] * 200
    for name in "AB":
        fleet[name].no_errors()


def spied(engine: Any) -> list[int]:
    """The sizes of what an engine writes from now on."""
    sizes: list[int] = []
    write: Callable[[bytes], None] = engine.write

    def wrote(data: bytes) -> None:
        sizes.append(len(data))
        write(data)

    engine.write = wrote
    return sizes


def test_a_fault_of_a_write_in_the_midst_of_a_pass_ends_the_neighbours_connection_alone() -> None:
    fleet = Fleet("A", "B")
    fleet.connect("A", "B")
    fleet["B"].client().receiver("orders", credit=200, accepts=True)
    client = fleet["A"].client()
    sender = client.sender("orders")
    fleet.settle()

    def broken(_data: bytes) -> None:
        raise KeyError("anything")

    engine_towards(fleet, "A", "B").write = broken
    for number in range(100):
        sender.send(bytes([number]))
    fleet.pump()
    assert not client.is_closed_by_router
    # None of them is said to be accepted, and each has its outcome once nobody is reached any more.
    assert ACCEPTED not in sender.outcomes
    assert len(sender.outcomes) == 100
    assert [entry.text for entry in fleet["A"].logs if entry.level == "critical"] == []
    here = fleet["A"].client().receiver("orders", credit=10, accepts=True)
    fleet.pump()
    sender.send(b"later")
    fleet.pump()
    assert here.bodies == [b"later"]
