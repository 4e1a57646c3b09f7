"""Attack: a container has less memory than the budgets, and one user fills it within them.

The AMQP engine does not check whether it got the memory that it asked for: the process died, with all connections. Now
the router first closes the connection that holds most, and the other connections do not notice.

If more came within a second than was free, no check came in time, and the engine wrote past its buffers: the heap was
overwritten with what the peer had sent.
"""

import resource
from contextlib import ExitStack
from pathlib import Path

import pytest
import raw_peer
from daemon_process import LISTENER, start
from daemons import peer_of
from memory_net import Client, Net
from raw_peer import RawPeer

from router.amqp.codec import encode_message
from router.core.budget import MIB, Limits
from router.core.shedding import shed
from router.io import memory_limit
from router.io.memory_limit import MemoryLimit, Shortage


def filled(net: Net, name: str, messages: int) -> Client:
    """Has large messages waiting for a receiver that grants no credit."""
    client = net.client(name)
    sender = client.sender(name)
    net.client(f"of {name}").receiver(name)
    net.pump()
    for _ in range(messages):
        sender.send(b"x" * 60_000)
    net.pump()
    return client


def test_the_connection_that_holds_most_is_closed_before_the_memory_is_used_up() -> None:
    net = Net(limits=Limits())
    greedy, other, honest = filled(net, "greedy", 100), filled(net, "other", 30), net.client("honest")
    net.pump()
    held = net.core.budgets.router.held
    assert held > 13 * MIB
    said: list[str] = []
    limit = MemoryLimit(size_bytes=held, what="limit of a test", measure="resident")
    shortage = Shortage(limit, lambda: shed(net.core), said.append, lambda _limit: net.core.budgets.router.held)
    shortage.on_second(net.now)
    net.work.finish()
    net.pump()
    assert greedy.condition is not None
    assert greedy.condition.name == "amqp:resource-limit-exceeded"
    assert net.core.budgets.router.held < held // 2
    assert "memory is short" in said[0]
    shortage.on_second(net.now)
    assert len(said) == 1
    assert not other.is_closed_by_router
    sender, receiver = honest.sender("a"), honest.receiver("a", credit=1)
    net.pump()
    sender.send(b"still here")
    net.pump()
    assert receiver.bodies == [b"still here"]
    net.no_errors()


def test_nobody_is_closed_who_holds_next_to_nothing() -> None:
    net = Net(limits=Limits())
    net.client().receiver("a", credit=1)
    net.pump()
    assert shed(net.core) is None


UNLIMITED = """
router {
    mode: standalone
    id: R
    connectionByteBudget: 0
    userByteBudget: 0
    hostByteBudget: 0
    routerByteBudget: 0
}
"""
SENDERS, MESSAGES, MESSAGE_BYTES = 60, 200, 14_000
FULL = SENDERS * MESSAGES * MESSAGE_BYTES  # bytes, and twice as many where the engine doubles its buffers


def in_session(peer: RawPeer) -> RawPeer:
    peer.send(raw_peer.IN_SESSION)
    peer.read_until(raw_peer.BEGIN)
    return peer


def virtual_bytes(process_id: int) -> int:
    pages = Path(f"/proc/{process_id}/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


@pytest.mark.parametrize("limit_mib", [140, 160])
def test_a_process_that_is_given_no_more_memory_lives(tmp_path: Path, limit_mib: int) -> None:
    """Everybody sends, within credit, to a receiver that reads nothing: more than the process may have, in a second."""
    limit = limit_mib * MIB
    router = start(
        tmp_path, UNLIMITED + LISTENER, preparation=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    )
    try:
        with ExitStack() as stack:
            receiver = in_session(stack.enter_context(peer_of(router)))
            receiver.send(raw_peer.attach_receiver("a") + raw_peer.flow(credit=SENDERS * MESSAGES))
            senders = [in_session(stack.enter_context(peer_of(router))) for _ in range(SENDERS)]
            for sender in senders:
                sender.send(raw_peer.attach_sender("a"))
                sender.read_until(raw_peer.FLOW)
            assert virtual_bytes(router.process.pid) < limit < virtual_bytes(router.process.pid) + FULL
            body = encode_message(body=bytes(MESSAGE_BYTES))
            for sender in senders:
                sender.send(b"".join(raw_peer.transfer(body, number=number) for number in range(MESSAGES)))
            router.wait_for_log("which holds most, is closed|MemoryError")
        with peer_of(router) as later:
            in_session(later)
        assert router.tool("qdstat", "-g").status == 0
        assert router.process.poll() is None
    finally:
        router.end()


def test_a_read_is_taken_only_where_there_is_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that holds most is closed before, one in a second; if that is not enough, the one that sends."""
    free = 1000 * MIB
    monkeypatch.setattr(memory_limit, "is_given", lambda size: size <= free)
    closed: list[str] = []

    def close() -> str:
        closed.append("greedy")
        return closed[-1]

    limit = MemoryLimit(size_bytes=256 * MIB, what="limit of a test", measure="virtual")
    shortage = Shortage(limit, close, lambda _text: None, lambda _limit: 256 * MIB)
    assert shortage.may_read()
    assert closed == []
    free = limit.reserve_bytes - 1
    assert shortage.may_read()
    assert shortage.may_read()
    assert closed == ["greedy"]
    shortage.on_second(0.0)
    free = limit.reserve_bytes // 2 - 1
    assert not shortage.may_read()
    assert len(closed) == 2
