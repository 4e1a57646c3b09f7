"""Makes the most expensive objects that the router keeps for a peer: `python kept_things.py COUNT MIB [KIND ...]`.

For each kind, a separate process makes up to COUNT objects, or as many as MIB pay for. It prints one line of JSON: how
many objects were made, by how many bytes the process has grown, and how many bytes were charged. The peers are only
bytes: only the router keeps objects.
"""

import ctypes
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent / "core"))
sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire
from memory_net import Net, Vhosts

from router.connection.auto_links import Place
from router.connection.link_routes import LinkRoute
from router.connection.own_routes import OwnRoutes
from router.core.budget import CONNECTION_BYTES, Limits

MOST: Final = 10_000  # links of one connection, by half
NO_END: Final = 1 << 40
NULLS: Final = wire.list_of(*[wire.NULL] * 1900)
FILTERS: Final = wire.map_of(
    *(each for at in range(300) for each in (wire.symbol(f"f{at}"), wire.described(1, wire.text("color = 'red'"))))
)
Making = Iterator[None]  # one more is there after each step


class Peer:
    """Says frames, and reads nothing of the answers."""

    def __init__(self, net: Net, *, opened: bytes | None = None, sessions: int = 1, **terms: Any) -> None:
        self.net = net
        self.client = net.client(opens=False, **terms)
        self.say(wire.HEADER + wire.frame(opened or wire.open_("p", "h", channels=1000)))
        for channel in range(sessions):
            self.say(wire.frame(wire.begin(incoming=1 << 30, outgoing=1 << 30), channel))

    def say(self, data: bytes) -> None:
        self.client.say(data)
        for client in (*self.net.clients[:8], self.client):
            for said in (client.inbox, client.recorded, client.uttered):
                said.clear()
        self.net.effects.clear()

    def attach(self, handle: int, *, is_receiver: bool, **fields: Any) -> None:
        self.say(wire.frame(attach(f"l{handle}", handle, is_receiver=is_receiver, **fields)))


def attach(
    name: str, handle: int, *, is_receiver: bool, address: str | None = "a", filters: bytes = wire.NULL,
    capabilities: bytes = wire.NULL, node: bytes = wire.NULL, properties: bytes = wire.NULL,
) -> bytes:  # fmt: skip
    own = wire.NULL if address is None else wire.text(address)
    dynamic = wire.TRUE if address is None else wire.NULL
    source = wire.performative(
        0x28, own if is_receiver else wire.text("from"), wire.NULL, wire.NULL, wire.NULL,
        dynamic if is_receiver else wire.NULL, node, wire.NULL, filters, wire.NULL, wire.NULL, capabilities,
    )  # fmt: skip
    target = wire.performative(0x29, wire.text("to") if is_receiver else own)
    return wire.performative(
        wire.ATTACH, wire.text(name), wire.uint(handle), wire.boolean(is_receiver), wire.NULL, wire.NULL, source,
        target, wire.NULL, wire.NULL, wire.NULL if is_receiver else wire.uint(0), wire.NULL, wire.NULL, wire.NULL,
        properties,
    )  # fmt: skip


def connections(net: Net) -> Making:
    while True:
        Peer(net, sessions=0)
        yield


def opens(net: Net) -> Making:
    fields = [wire.text("p"), wire.text("h"), *[wire.NULL] * 7]
    properties = wire.map_of(*(each for at in range(900) for each in (wire.symbol(f"{at}"), wire.list_of())))
    while True:
        Peer(net, opened=wire.performative(wire.OPEN, *fields, properties), sessions=0)
        yield


def beginnings_of_frames(net: Net) -> Making:
    while True:
        peer = Peer(net, max_frame_bytes=1 << 20)
        peer.attach(0, is_receiver=False)
        whole = wire.frame(wire.transfer(0, 0, wire.message(1_000_000)))
        for at in range(0, len(whole) - 1, 60_000):
            peer.say(whole[at : min(at + 60_000, len(whole) - 1)])
        yield


def sessions(net: Net) -> Making:
    while True:
        peer = Peer(net, sessions=0)
        for channel in range(900):
            peer.say(wire.frame(wire.begin(), channel))
            yield


def links(net: Net, *, is_receiver: bool, **fields: Any) -> Making:
    peer = Peer(net)
    for handle in range(2 * MOST):
        address = {"address": f"a{handle}"} if "address" not in fields else {}
        peer.attach(handle, is_receiver=is_receiver, **address, **fields)
        yield


def long_names(net: Net) -> Making:
    peer = Peer(net)
    for handle in range(2 * MOST):
        peer.attach(handle, is_receiver=True, address=f"{handle}{'a' * 15_000}")
        yield


def routed_links(net: Net) -> Making:
    route = LinkRoute(pattern="q/#", direction="receive", place=Place(kind="container", text="p"), name="q", key="Cq")
    net.surroundings.link_routes.add(route)
    container, peer = Peer(net, role="route-container", sessions=0), Peer(net)
    container.say(wire.frame(wire.begin(0)))
    for handle in range(4000):  # a container answers no more
        peer.attach(handle, is_receiver=True, address="q.x", filters=FILTERS)
        yield


def links_on_ended_sessions(net: Net) -> Making:
    peer = Peer(net, sessions=0)
    for channel in range(900):
        peer.say(wire.frame(wire.begin(), channel))
        for handle in range(10):
            said = attach(f"l{handle}", handle, is_receiver=True, address=f"a{handle}{'a' * 10_000}")
            peer.say(wire.frame(said, channel))
        *_, session = net.peer(peer.client).engine.sessions.values()
        session.close()
        for handle in range(10):
            peer.say(wire.frame(wire.detach(handle), channel))
            yield


def messages(net: Net, size: int, *, credit: int = 0, state: bytes = wire.NULL, parts: bool = False) -> Making:
    """Each on a link that has credit for it."""
    receiver, sender, address = Peer(net), Peer(net), f"a{len(net.clients)}"
    receiver.attach(0, is_receiver=True, address=address)
    if credit:
        receiver.say(wire.frame(wire.flow(0, credit=credit, count=0, window=1 << 30)))
    for number in range(2 * MOST):
        on_each = 1 if parts else 250
        if not number % on_each:
            sender.attach(number // on_each, is_receiver=False, address=address)
        said = wire.transfer(number // on_each, number, wire.message(size), is_last=not parts, state=state)
        sender.say(wire.frame(said))
        yield


def outcomes(net: Net, state: bytes, *, at_once: int = 1, is_settled: bool = False) -> Making:
    """The messages are made first, and are no part of what is measured but for their records."""
    receiver, sender, address = Peer(net), Peer(net), f"a{len(net.clients)}"
    receiver.attach(0, is_receiver=True, address=address)
    receiver.say(wire.frame(wire.flow(0, credit=NO_END >> 10, count=0, window=1 << 30)))
    number = 0
    while True:
        for more in range(at_once):
            if not (number + more) % 250:
                sender.attach((number + more) // 250, is_receiver=False, address=address)
            sender.say(wire.frame(wire.transfer((number + more) // 250, number + more, wire.message(10))))
        last = number + at_once - 1
        said = wire.disposition(is_receiver=True, first=number, last=last, is_settled=is_settled, state=state)
        receiver.say(wire.frame(said))
        number += at_once
        yield


def outcomes_settled(net: Net) -> Making:
    """Thousands are settled with long errors, and what is kept of them is used for messages that are not."""
    receiver, sender, address = Peer(net), Peer(net), f"a{len(net.clients)}"
    receiver.attach(0, is_receiver=True, address=address)
    receiver.say(wire.frame(wire.flow(0, credit=NO_END >> 10, count=0, window=1 << 30)))
    many = 2000
    for number in range(2 * many):
        if not number % 250:
            sender.attach(number // 250, is_receiver=False, address=address)
        sender.say(wire.frame(wire.transfer(number // 250, number, wire.message(10))))
        if number == many - 1:
            for first in range(many):
                said = wire.disposition(is_receiver=True, first=first, is_settled=True, state=rejected(10_000))
                receiver.say(wire.frame(said))
        if number >= many:
            yield


def own_routes(net: Net) -> Making:
    routes = OwnRoutes(net.surroundings.link_routes)
    while True:
        peer = Peer(net, sessions=0)
        for at in range(256):
            routes.add(
                net.peer(peer.client), identity=f"{at}", name=f"{at} {'n' * 400}", pattern=f"a.{at}.{'p' * 480}.#",
                direction="send",
            )  # fmt: skip
            yield


def replies(net: Net) -> Making:
    receiver, sender = Peer(net), Peer(net)
    receiver.attach(0, is_receiver=True, address="service")
    receiver.say(wire.frame(wire.flow(0, credit=NO_END >> 10, count=0, window=1 << 30)))
    sender.attach(0, is_receiver=False, address="service")
    for number in range(2 * MOST):
        fields = (wire.NULL, wire.NULL, wire.NULL, wire.NULL, wire.text(f"{number}{'r' * 200}"))
        message = wire.performative(0x73, *fields) + wire.message(1)
        sender.attach(1, is_receiver=False, address=f"{number}{'r' * 200}")
        sender.say(wire.frame(wire.transfer(0, number, message, is_settled=True)) + wire.frame(wire.detach(1)))
        yield


def information(values: int) -> bytes:
    return wire.map_of(wire.symbol("k"), wire.list_of(*[wire.NULL] * values))


def rejected(size: int, info: bytes = wire.NULL) -> bytes:
    return wire.performative(0x25, wire.performative(0x1D, wire.symbol("a:b"), wire.text("x" * size), info))


def modified(values: int) -> bytes:
    return wire.performative(0x27, wire.TRUE, wire.TRUE, information(values))


MAKERS: Final[dict[str, Callable[[Net], Making]]] = {
    "connection": connections,
    "properties of an open": opens,
    "beginning of a frame": beginnings_of_frames,
    "session": sessions,
    "link to receive": lambda net: links(net, is_receiver=True),
    "link to send": lambda net: links(net, is_receiver=False),
    "dynamic address": lambda net: links(net, is_receiver=True, address=None),
    "long names": long_names,
    "filter of nulls": lambda net: links(net, is_receiver=True, filters=wire.map_of(wire.symbol("f"), NULLS)),
    "many filters": lambda net: links(net, is_receiver=True, filters=FILTERS),
    "capabilities": lambda net: links(
        net, is_receiver=True, capabilities=b"\xf0\x00\x00\x02\x05\x00\x00\x01\x00\xa3" + b"\x01x" * 256
    ),
    "node properties": lambda net: links(
        net, is_receiver=True, address=None, node=wire.map_of(wire.symbol("lifetime-policy"), NULLS)
    ),
    "properties of a link": lambda net: links(
        net, is_receiver=True, properties=wire.map_of(wire.symbol("k"), wire.text("x" * 15_000))
    ),
    "routed link": routed_links,
    "link on an ended session": links_on_ended_sessions,
    "small message": lambda net: messages(net, 10),
    "large message": lambda net: messages(net, 15_000),
    "message in parts": lambda net: messages(net, 15_000, parts=True),
    "unsettled message": lambda net: messages(net, 10, credit=1 << 30),
    "annotations of an outcome": lambda net: outcomes(net, modified(55)),
    "information of an outcome": lambda net: outcomes(net, rejected(10, information(50))),
    "description of an outcome": lambda net: outcomes(net, rejected(15_000)),
    "other state": lambda net: outcomes(net, wire.described(0x34, wire.list_of(*[wire.NULL] * 60))),
    "outcome of many": lambda net: outcomes(net, rejected(3_000), at_once=100),
    "outcome that was settled": outcomes_settled,
    "state of a transfer": lambda net: messages(
        net, 10, credit=1 << 30, state=wire.described(0x34, wire.list_of(*[wire.NULL] * 4, wire.binary(bytes(200))))
    ),
    "own link route": own_routes,
    "reply address": replies,
}  # fmt: skip
ALLOWED: Final = Vhosts(
    {
    "$default": {
        "allowUnknownUser": True,
        "maxConnections": 65_535,
        "maxConnectionsPerUser": 65_535,
        "maxConnectionsPerHost": 65_535,
        "groups": {
            "$default": {
                "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True, "allowReplies": True,
                "maxSessions": 1000, "maxSenders": 65_535, "maxReceivers": 65_535,
            }
        },
    }
    }
)  # fmt: skip


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


def charged_bytes(net: Net) -> int:
    """After what the daemon does every second."""
    net.look_back()
    for link in net.core.links.values():
        link.count_records()
    return net.core.budgets.router.held


def measure(kind: str, most: int, most_bytes: int) -> dict[str, int | str]:
    """Make up to `most` of the kind, or as many as take `most_bytes` by the account."""
    net = Net(
        vhosts=ALLOWED if kind == "reply address" else None,
        limits=Limits(link=NO_END, connection=NO_END, user=NO_END, host=NO_END, router=NO_END),
        connection_bytes=CONNECTION_BYTES,
    )
    for _ in zip(range(3), MAKERS[kind](net), strict=False):
        pass  # what is needed once does not count
    charged, before, count = charged_bytes(net), resident_bytes(), 0
    for count, _ in enumerate(MAKERS[kind](net), 1):
        if count >= most or net.core.budgets.router.held - charged >= most_bytes:
            break
    charged = charged_bytes(net) - charged
    return {"kind": kind, "count": count, "grown": resident_bytes() - before, "charged": charged}


def main(most: int, most_mib: int, kinds: list[str]) -> None:
    for kind in kinds or MAKERS:
        child = os.fork()  # what one kind has left is no part of the next
        if not child:
            print(json.dumps(measure(kind, most, most_mib * 1024 * 1024)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{kind}: cannot be made")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
