"""Checks that every receiver of a message finds the sections that we find, and no others.

For links whose user-id is checked: any client must see what the check saw. A properties section behind the
body is one way to show a client another; others hide one in a map that is longer than its elements, where clients that
go by the count and clients that go by the size read on at different places. So a message is walked once, all the way
down (walk.c). `.front` looks at no more than what stands before the properties.

Sources: AMQP 1.0 §1, §3.2; docs/spec/routing.md §13.
"""

from router.amqp.layout.walk import MALFORMED, NOTHING, SOMETHING, CompiledWalk, Walk

__all__ = ["MALFORMED", "NOTHING", "SOMETHING", "CompiledWalk", "Walk"]
