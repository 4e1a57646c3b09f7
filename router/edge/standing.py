"""The links that an edge opens on its uplink, in their order. Source: docs/spec/network.md §14.2."""

from collections.abc import Iterator
from typing import Final

from router.edge.effects import AttachLink, End, SessionName
from router.edge.limits import LINK_CREDIT, MANAGEMENT_REPLY_CREDIT, TRACKING_CREDIT
from router.edge.messages import DOWNLINK, HEARTBEAT_ADDRESS, LOOKUP_ADDRESS, MANAGEMENT_ADDRESS, TRACKING_ADDRESS

# The uses of the standing links. The first two are the core's.
UPLINK: Final = "uplink"
DOWN: Final = "downlink"
TRACKING: Final = "tracking"
MANAGEMENT: Final = "management"
MANAGEMENT_REPLIES: Final = "management replies"
LOOKUP: Final = "lookup"
LOOKUP_REPLIES: Final = "lookup replies"
HEARTBEAT: Final = "heartbeat"

_NOWHERE: Final = End()  # a terminus without an address
_MADE: Final = End(is_dynamic=True)


def _links(edge_id: str) -> Iterator[tuple[str, SessionName, bool, End | None, End | None, int]]:
    """Iterates over service, session, True if the edge sends, source, target, and the edge's credit."""
    yield UPLINK, "endpoint", True, _NOWHERE, _NOWHERE, 0
    downlink = End(address=edge_id, capability=DOWNLINK)
    yield DOWN, "endpoint", False, downlink, End(capability=DOWNLINK), LINK_CREDIT
    yield TRACKING, "core", False, End(address=TRACKING_ADDRESS), _NOWHERE, TRACKING_CREDIT
    yield MANAGEMENT, "core", True, None, End(address=MANAGEMENT_ADDRESS), 0
    yield MANAGEMENT_REPLIES, "core", False, _MADE, None, MANAGEMENT_REPLY_CREDIT
    yield LOOKUP, "core", True, None, End(address=LOOKUP_ADDRESS), 0
    yield LOOKUP_REPLIES, "core", False, _MADE, None, LINK_CREDIT
    yield HEARTBEAT, "core", True, None, End(address=HEARTBEAT_ADDRESS), 0


def standing_links(edge_id: str, connection: int, numbers: Iterator[int]) -> list[AttachLink]:
    """Returns the effects that attach the standing links.

    numbers  numbers of links that were never used
    """
    return [
        AttachLink(
            connection=connection,
            link=next(numbers),
            session=session,
            is_sender=is_sender,
            source=source,
            target=target,
            credit=credit,
            service=service,
        )
        for service, session, is_sender, source, target, credit in _links(edge_id)
    ]
