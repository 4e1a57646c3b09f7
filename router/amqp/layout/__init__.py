"""Checks that every receiver of a message finds the same sections that the router finds.

This is for links whose user-id is checked: each client must see what the check saw. A properties section after the body
could show a client another user-id. So could one hidden in a map that is longer than its elements: clients that use the
count and clients that use the size continue at different places. So each message is walked once, at all levels
(walk.c). `.front` looks only at what comes before the properties.

Sources: AMQP 1.0 §1, §3.2; docs/spec/routing.md §13.
"""

from router.amqp.layout.walk import MALFORMED, NOTHING, SOMETHING, CompiledWalk, Walk

__all__ = ["MALFORMED", "NOTHING", "SOMETHING", "CompiledWalk", "Walk"]
