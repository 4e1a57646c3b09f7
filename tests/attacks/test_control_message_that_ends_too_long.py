"""Attack: an edge, an interior or a neighbour sends a message for the router itself that is too long.

It comes in parts, and the last part makes it too long. The router settled it, but its reader still read it: the router
died when the link or its session ended.
"""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import ACCEPTED, REJECTED, Client, Net, Sender, encoded
from proton import symbol

from router.amqp.engine import IncomingWire

SERVICES = ("_$qd.addr_lookup", "_$qd.edge_heartbeat")
CONTROL = {"capabilities": symbol("qd.router")}
# At so many bytes the engine begins to give out a message that has not come whole.
PART = 140_000
ENDS: dict[str, Callable[[Client, Sender], None]] = {
    "detach": lambda _client, sender: sender.detach(),
    "close": lambda _client, sender: sender.close(),
    "session": lambda _client, sender: sender.link.session.close(),
    "connection": lambda client, _sender: client.close(),
    "gone": lambda client, _sender: client.kill(),
}


def attached(net: Net, to: str) -> tuple[Client, Sender]:
    """An edge with a link to a service, or a neighbour with its control links."""
    client = net.client("TEST", role="edge" if to in SERVICES else "inter-router", strip="no")
    session = client.connection.session()
    session.open()
    if to in SERVICES:
        sender = client.sender(to, session=session)
    else:
        client.receiver(None, credit=10, source=CONTROL, target=CONTROL)
        sender = client.sender(None, source=CONTROL, target=CONTROL, session=session)
    net.pump()
    return client, sender


def nobody_reads(net: Net) -> bool:
    wires: list[Any] = [link.wire for link in net.core.links.values() if isinstance(link.wire, IncomingWire)]
    return all(wire.reader is None for wire in wires)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("to", [*SERVICES, "control"])
def test_it_is_rejected_and_read_no_more(to: str, is_settled: bool, end: str) -> None:
    net = Net(router_id="A", read_bytes=8192)
    assert net.core.network is not None
    net.core.network.control_message_bytes = 16_384
    client, sender = attached(net, to)
    for _ in range(2):
        message = encoded(bytes(PART + 10_000))
        sending = sender.start()
        sender.append(message[:PART])
        net.pump()
        sender.append(message[PART:])
        if is_settled:
            sending.settle()
        else:
            sender.finish()
        net.pump()
        assert nobody_reads(net)
        assert is_settled or sending.outcome == REJECTED
    # The link goes on.
    after = sender.send(b"short")
    net.pump()
    assert after.outcome in (ACCEPTED, REJECTED)
    ENDS[end](client, sender)
    net.pump()
    assert client.router_closed is (end == "connection")
    bystander = net.client().receiver("a", credit=1, accepts=True)
    sending = net.client().sender("a").send(b"still here")
    net.pump()
    assert (sending.outcome, bystander.bodies) == (ACCEPTED, [b"still here"])
