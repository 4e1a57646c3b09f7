"""Everything that a peer can make the router keep, and the account that pays for it.

The charge equals the memory: for the costliest object of each kind, resident memory grows by at most twice the charge.
tests/attacks/test_account_is_what_the_memory_is.py shows that. Each new kind of kept memory needs an entry here.

Attack: the account counted encoded bytes, while the router kept objects. 8 MB of nulls in outcomes took 1.1 GB.
"""

from dataclasses import dataclass
from typing import Final, Literal

Payer = Literal[
    "user, host and router",  # those of the connection, but not the connection's own budget
    "connection",  # the connection that it arrived on, and with it its user, its host and the router
    "receiver",  # the connection that it went to, and with it its user, its host and the router
    "sender",
    "neighbour",  # the connection to the router that announced it
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One kind of kept memory.

    what    the kind, in words
    payer   the account
    tariff  bytes, in words. The constants define them
    bound   a limit for what no client needs; "": only the account limits it
    shown   the test of the costliest object, if it is not the test named above
    """

    what: str
    payer: Payer
    tariff: str
    bound: str = ""
    shown: str = ""


KEPT: Final[dict[str, Kept]] = {
    "connection": Kept(what="an open connection", payer="user, host and router", tariff="CONNECTION_BYTES"),
    "properties of an open": Kept(
        what="the properties and capabilities of an Open",
        payer="connection",
        tariff="twice their bytes, and OPEN_VALUE_BYTES for each value",
        bound="2,048 values of a frame, 256 capabilities",
    ),
    "beginning of a frame": Kept(
        what="a frame that has not come whole",
        payer="connection",
        tariff="the bytes that it announces, beyond FREE_FRAME_BYTES",
        bound="maxFrameSize of the listener",
    ),
    "session": Kept(what="a session, begun", payer="connection", tariff="SESSION_BYTES", bound="channel-max"),
    "link to receive": Kept(what="a link and its address", payer="connection", tariff="LINK_BYTES"),
    "link to send": Kept(what="the same of a sender", payer="connection", tariff="LINK_BYTES"),
    "dynamic address": Kept(
        what="a link with an address that the router makes", payer="connection", tariff="LINK_BYTES"
    ),
    "long names": Kept(what="the texts of an Attach", payer="connection", tariff="four times their bytes"),
    "filter of nulls": Kept(
        what="a filter of tiny values",
        payer="connection",
        tariff="four times its bytes, and VALUE_BYTES for each value",
        bound="2,048 values of a frame",
    ),
    "many filters": Kept(what="300 ordinary filters", payer="connection", tariff="as a filter of nulls"),
    "capabilities": Kept(
        what="the capabilities of a terminus", payer="connection", tariff="as a filter", bound="256 capabilities"
    ),
    "node properties": Kept(
        what="the dynamic-node-properties of a terminus", payer="connection", tariff="as a filter of nulls"
    ),
    "properties of a link": Kept(
        what="the properties of an Attach", payer="connection", tariff="four times their bytes"
    ),
    "routed link": Kept(
        what="a link that goes on to a container, its termini copied there", payer="connection", tariff="as its filter"
    ),
    "link on an ended session": Kept(
        what="a link that was attached when the router ended its session, and that the peer has detached",
        payer="connection",
        tariff="as the link, until the session ends",
    ),
    "small message": Kept(what="a message that waits", payer="sender", tariff="its bytes, and RECORD_BYTES"),
    "large message": Kept(what="one of more than 1 KiB", payer="sender", tariff="twice its bytes, and RECORD_BYTES"),
    "message in parts": Kept(
        what="one that has not come whole", payer="sender", tariff="its bytes, and DELIVERY_BYTES"
    ),
    "unsettled message": Kept(
        what="a delivery that a receiver has not settled", payer="receiver", tariff="RECORD_BYTES"
    ),
    "annotations of an outcome": Kept(
        what="modified with annotations, not settled",
        payer="receiver",
        tariff="three times its bytes, and twice VALUE_BYTES for each value",
        bound="64 values; 1 MiB for all deliveries of one frame: the details beyond are dropped",
    ),
    "information of an outcome": Kept(
        what="rejected with an error's info, not settled",
        payer="receiver", tariff="as annotations", bound="as annotations"
    ),
    "description of an outcome": Kept(
        what="rejected with a long description, not settled",
        payer="receiver",
        tariff="as annotations",
        bound="as annotations",
    ),
    "other state": Kept(
        what="a state that is no outcome, of a transaction say, not settled",
        payer="receiver",
        tariff="as annotations",
        bound="as annotations; a frame with more is refused",
    ),
    "outcome of many": Kept(
        what="one frame that gives many deliveries an outcome", payer="receiver", tariff="as annotations, for each"
    ),
    "outcome that was settled": Kept(
        what="the settled deliveries that the engine uses again",
        payer="receiver",
        tariff="nothing",
        bound="released with each flush where one had details, else every second",
    ),
    "state of a transfer": Kept(
        what="the state of a Transfer, or one that a sender gives",
        payer="receiver",
        tariff="RECORD_BYTES covers it",
        bound="7 values and 256 bytes: a Transfer with more is refused, of a Disposition the details are dropped",
    ),
    "open transaction": Kept(
        what="the id that a coordinator has given a client",
        payer="connection",
        tariff="TRANSACTION_BYTES",
        bound="1,024 of a client at a container, 65,536 of a neighbour; 256 bytes",
        shown="tests/attacks/test_transaction_past_its_coordinator.py",
    ),
    "own link route": Kept(
        what="a link route that a peer makes for itself",
        payer="connection",
        tariff="ROUTE_BYTES, and four times its texts",
        bound="256 of a connection, 2,048 words",
    ),
    "reply address": Kept(
        what="the reply-to of a message received, where replies are allowed",
        payer="user, host and router",
        tariff="ENTRY_BYTES and its text",
        bound="8 MiB of a connection",
    ),
    "full socket buffer": Kept(
        what="what is written for a peer that does not read", payer="connection", tariff="FULL_BUFFER_BYTES",
        shown="tests/core/test_budgets.py",
    ),
    "part of a large message": Kept(
        what="the pieces of a streamed message that wait", payer="sender", tariff="their bytes",
        shown="tests/core/test_budgets.py",
    ),
    "other router's address": Kept(
        what="an address that another router has told of", payer="neighbour", tariff="2 KiB",
        shown="tests/core/test_many_addresses.py",
    ),
    "control message": Kept(
        what="what routers say to each other and has no effect yet", payer="neighbour", tariff="its bytes",
        shown="tests/core/test_network.py",
    ),
}  # fmt: skip
