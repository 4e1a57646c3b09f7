"""The edge protocol, both of its sides, as pure machines: events in, effects out, the clock an argument.

An edge router has one active connection to an interior router, its uplink. `machine.EdgeMachine` is the edge's side:
which connection is the uplink, the links on it, the addresses of the edge made known there. `interior.InteriorMachine`
is the other side: which edge may use which of its links, what it may ask for, whether it still lives. Nothing here
sends, waits or looks at a clock. `router.connection` gives the events and carries the effects out, in their order.

uplinks      which connection is active, and which takes over
standing     the links that an edge opens on its uplink, in their order
proxies      the edge's addresses on its uplink: a link for those that receive, a link for those that send
asking       requests of a router to a service of its neighbour, and their answers
lookups      the edge asks whether an address is a link route
link_routes  the link routes of the edge, made known on the interior
tracking     the interior tells an edge which of its links have a receiver elsewhere
answering    the interior answers look-ups
heartbeat    the edge says that it lives; the interior notices that it does not
messages     what all of them send and accept
limits       the bounds of all of it, each with its attack

Source: docs/spec/network.md §14.
"""
