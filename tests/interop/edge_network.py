"""Edge routers as processes, beside the interior ones of `router_network`."""

from collections.abc import Iterator
from contextlib import contextmanager

from proton.utils import BlockingConnection
from router_network import Node, Processes

TIMEOUT_S = 20
EDGES = """\
listener {
    name: edges
    host: 127.0.0.1
    port: 0
    role: edge
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
"""
EDGE = """\
router {{
    mode: edge
    id: {name}
}}
listener {{
    name: clients
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
UPLINK = """\
connector {{
    name: to-{name}
    host: 127.0.0.1
    port: {port}
    role: edge
    saslMechanisms: ANONYMOUS
}}
"""


def interior(running: Processes, name: str, *, to: tuple[str, ...] = ()) -> int:
    """Returns the port of its listener for edges."""
    node = running.start(name, to=to, extra=EDGES)
    return int(node.wait_for_log(r"Listening on 127\.0\.0\.1:(\d+) \(edges\)")[1])


def edge(running: Processes, name: str, *ports: int) -> Node:
    """Has its uplink by the first port, and stand-bys by the others."""
    text = EDGE.format(name=name) + "".join(UPLINK.format(name=port, port=port) for port in ports)
    node = running.run(name, text)
    node.wait_for_log(r"Edge connection \(id=\d+\) to interior established")
    return node


@contextmanager
def client(node: Node) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(f"amqp://127.0.0.1:{node.clients}", timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")
    try:
        yield connection
    finally:
        connection.close()
