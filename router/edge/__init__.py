"""The edge protocol, both sides, as pure machines: events in, effects out, with the clock as an argument.

An edge router has one active connection to an interior router, its uplink. `machine.EdgeMachine` is the edge's side:
which connection is the uplink, the links on it, and the edge's addresses announced there. `interior.InteriorMachine` is
the other side: which edge may use which of its links, what it may request, and whether it is still alive. Nothing here
sends, waits or reads a clock. `router.connection` gives the events and carries out the effects in their order.

uplinks      which connection is active, and which replaces it
standing     the links that an edge opens on its uplink, in their order
proxies      the edge's addresses on its uplink: a link for those with receivers, and one for those with senders
asking       requests of a router to a service of its neighbour, and their answers
lookups      the edge asks whether an address is a link route
link_routes  the link routes of the edge, announced on the interior
tracking     the interior tells an edge which of its links have a receiver elsewhere
answering    the interior answers look-ups
heartbeat    the edge sends heartbeats; the interior notices if they stop
messages     the messages that they send and accept
limits       the limits of all these parts, each with its attack

Source: docs/spec/network.md §14.
"""
