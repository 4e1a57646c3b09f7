"""The guard: no frame reaches the AMQP engine that this package has not admitted. Imports no proton.

`machine` decides, for every frame, from what the peer has begun and attached; `begun` knows what we have, and which
frame answers it. `tables` knows the channels and handles, and lets plain Transfers, Flows and Dispositions pass by a
few comparisons; compiled from frames.c, or in Python.
"""

from router.amqp.guard.begun import CannotBegin
from router.amqp.guard.machine import Guard
from router.amqp.guard.performatives import Performative, Refused
from router.amqp.guard.tables import MAX_SPAN

__all__ = ["MAX_SPAN", "CannotBegin", "Guard", "Performative", "Refused"]
