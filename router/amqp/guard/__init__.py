"""The guard: every frame must pass this package before it reaches the AMQP engine. Imports no proton.

`machine` decides about every frame, from the sessions that the peer has begun and its links. `begun` stores our own
sessions and links, and which frame answers them. `tables` stores the channels and handles, and admits plain Transfers,
Flows and Dispositions after a few comparisons. It is compiled from frames.c, or runs in Python.
"""

from router.amqp.guard.begun import CannotBegin
from router.amqp.guard.machine import Guard
from router.amqp.guard.performatives import Performative, Refused
from router.amqp.guard.tables import MAX_SPAN

__all__ = ["MAX_SPAN", "CannotBegin", "Guard", "Performative", "Refused"]
