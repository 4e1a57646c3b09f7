"""The routing protocol of an interior router, as a pure machine: events in, effects out, with the clock as an argument.

`machine.Machine` takes the events: a tick each second, control messages, links up and lost, local addresses added and
removed. It answers each with a list of effects (`effects`), to be carried out in their order. Nothing here sends, waits
or reads a clock, so a network of machines runs in a test without a socket.

`router.network` gives the events and carries out the effects. `router.core` has the control links, and the remote
destinations of addresses.

settings    the operator's settings
messages    HELLO, RA, LSR, LSU, MAR, MAU as values: their bodies, and which ones of a peer are accepted
neighbours  the links, which router uses each, and which link leads to a neighbour
database    the known routers and their reported links
paths       next hops, costs, radius and valid origins
topology    keeps neighbours, routers and paths consistent: the rows that other modules get
mobile      the addresses of this router and of the others
asking      requests that wait, and are repeated
flooding    the links on which a flooded message must still be sent
router_exchange, mobile_exchange  the effects of the messages of either family
limits      the limits of all these parts, each with its attack

Source: docs/spec/network.md §5-§9.
"""
