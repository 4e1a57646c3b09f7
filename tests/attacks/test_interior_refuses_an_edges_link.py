"""Attack: a client of an edge uses an address that the interior refuses to the edge, and leaves.

The edge did not notice that the interior had detached the link, and detached it again when the client left. The engine
used the link after its memory was free, and the edge sometimes crashed. Only the sanitizer sees it each time:
tests/asan runs this file with it.
"""

from typing import Any

import pytest
from memory_net import ACCEPTED, Fleet, Vhosts

EASY: dict[str, Any] = {
    "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True,
}  # fmt: skip
EDGES = EASY | {"sources": "good, E1, _$qd.*", "targets": "good, _$qd.*, $management"}


def edge_network() -> Fleet:
    """Its edges may use the address `good` and no other."""
    groups = {"open": EASY, "A": EDGES}
    vhosts = Vhosts(
        {name: {"allowUnknownUser": True, "groups": {"$default": group}} for name, group in groups.items()},
        policy={"enableVhostPolicy": True, "defaultVhost": "A"},
    )
    fleet = Fleet("A", edges=("E1",), vhosts=vhosts)
    fleet.connect("E1", "A", role="edge")
    fleet.tick(2)
    return fleet


@pytest.mark.parametrize("leaves", ["kill", "close", "detach"])
@pytest.mark.parametrize("what", ["sender", "receiver"])
def test_a_client_leaves_a_refused_address(what: str, leaves: str) -> None:
    fleet = edge_network()
    uplink = fleet["E1"].peer(fleet["E1"].ends[0])
    standing = len(uplink.engine.links)
    for number in range(20):
        client = fleet["E1"].client(policy_vhost="open")
        end = getattr(client, what)(f"bad {number}")
        fleet.pump()
        assert not end.is_detached  # clients of the edge may use it
        assert len(uplink.links.numbers()) == standing  # type: ignore[attr-defined]
        client.kill() if leaves == "kill" else client.close() if leaves == "close" else end.close()
        fleet.pump()
    assert len(uplink.engine.links) == standing
    receiver = fleet["A"].client(policy_vhost="open").receiver("good", credit=1, accepts=True)
    sender = fleet["E1"].client(policy_vhost="open").sender("good")
    fleet.pump()
    sending = sender.send(b"hello")
    fleet.pump()
    assert (receiver.bodies, sending.outcome) == ([b"hello"], ACCEPTED)
    fleet.no_errors()
