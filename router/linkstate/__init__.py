"""The routing protocol of an interior router, as a pure machine: events in, effects out, the clock an argument.

`machine.Machine` takes the events: a tick each second, control messages, links up and lost, local addresses that appear
and go. It answers each with a list of effects (`effects`), to be carried out in their order. Nothing here sends, waits
or looks at a clock, so that a network of machines runs in a test without a socket.

`router.core` will carry the effects out: it owns the control links, wraps a `SendControl` into its envelope, forwards
control messages for other routers along `RouterRow.path`, and keeps the remote destinations of addresses.
`router.control` will give the ticks and write the log lines.

settings    what an operator sets
messages    HELLO, RA, LSR, LSU, MAR, MAU as values; what their bodies are and what of a peer's is accepted
neighbours  the links, who speaks on them, and which link leads to a neighbour
database    the routers that are known and what they said of their links
paths       next hops, costs, radius and valid origins
topology    neighbours, routers and paths kept consistent: the rows that others see of it
mobile      the addresses of this router and of the others
asking      requests that wait, and are repeated
flooding    which links a flooded message still has to take
router_exchange, mobile_exchange  what a message of either family does
limits      the bounds of all of it, each with its attack

Source: docs/spec/network.md §5-§9.
"""
