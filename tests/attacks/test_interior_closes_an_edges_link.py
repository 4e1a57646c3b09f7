"""Attack: an interior router closes a link that an edge has for an address, and the edge's clients of it leave.

The edge closed that link then, of which the engine's memory was free and may be another's: it had not noted that the
link was gone.
"""

import pytest
from memory_net import Fleet

from router.connection.uplink_links import UplinkLinks
from router.values import Condition


@pytest.mark.parametrize("is_sender", [True, False])
@pytest.mark.parametrize("comes_again", [True, False])
def test_the_link_is_not_touched_again(is_sender: bool, comes_again: bool) -> None:
    fleet = Fleet("INT", edges=("E",))
    at_edge, at_interior = fleet.connect("E", "INT", role="edge")
    fleet.settle()
    client = fleet["E"].client()
    end = client.sender("a") if is_sender else client.receiver("a", credit=10)
    fleet.pump()
    edge, interior = fleet["E"].peer(at_edge), fleet["INT"].peer(at_interior)
    *_, name = (wire.name for wire in edge.engine.links.values())
    (other,) = (wire for wire in interior.engine.links.values() if wire.name == name)
    before = len(edge.engine.links)
    interior.links.end_link(other, Condition(name="amqp:resource-limit-exceeded", description=""))
    fleet["INT"].work.finish()
    fleet.pump()
    assert len(edge.engine.links) == before - 1
    assert isinstance(edge.links, UplinkLinks)
    there = {wire.link for wire in edge.engine.links.values()}
    assert {wire.link for _, wire in edge.links._own.values()} <= there
    end.close()
    fleet.pump()
    if comes_again:
        _ = client.sender("a") if is_sender else client.receiver("a", credit=10)
        fleet.pump()
        assert len(edge.engine.links) == before
    fleet.no_errors()
