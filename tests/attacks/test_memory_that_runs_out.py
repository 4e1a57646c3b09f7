"""Attack: a container has less memory than the budgets, and one user fills it within them.

The AMQP engine does not look whether it was given the memory that it asked for: the process died, with everybody's
connections. Now the connection that holds most is closed before, and the others do not notice.
"""

from memory_net import Client, Net

from router.core.budget import MIB, Limits
from router.core.shedding import shed
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
