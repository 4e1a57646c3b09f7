"""A router in memory: real proton clients on real connections, without sockets or sleeping, with a clock for tests.

    net = Net({"m": "multicast"})
    sender, receiver = net.client().sender("a"), net.client().receiver("a", credit=10)
    net.pump()
    sender.send(b"hello")
    net.pump()
    assert receiver.bodies == [b"hello"]

Several connected ones are a network:

    fleet = Fleet("A", "B", "C")
    fleet.connect("A", "B")
    fleet.settle()
    sender, receiver = fleet["A"].client().sender("a"), fleet["B"].client().receiver("a", credit=10)

`pump` carries bytes in both directions until no side has any. A client that stops reading makes its socket fill up as a
real client does. A client that is killed leaves without a Close.
"""

from memory_net.clients import Client
from memory_net.connected import End, Fleet
from memory_net.containers import broker, broker_at, receiver_of, sender_of
from memory_net.ends import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Outcome,
    Received,
    Receiver,
    Sender,
    Sending,
    encoded,
)
from memory_net.frames import Frame, frames
from memory_net.live_deliveries import watch
from memory_net.net import ROUTER_ID, Net, at, free_clients
from memory_net.policies import Vhosts, ruleset_of

__all__ = [
    "ACCEPTED", "MODIFIED", "REJECTED", "RELEASED", "ROUTER_ID", "Client", "End", "Fleet", "Frame", "Net", "Outcome",
    "Received", "Receiver", "Sender", "Sending", "Vhosts", "at", "broker", "broker_at", "encoded", "frames",
    "free_clients", "receiver_of", "ruleset_of", "sender_of",
]  # fmt: skip

watch()
