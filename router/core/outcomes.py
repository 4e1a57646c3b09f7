"""Delivery states by their AMQP descriptor codes, and the merging of several outcomes.

Sources: AMQP 1.0 §3.4, §4.4, §4.5; docs/spec/routing.md §7.3.
"""

from typing import Final

from router.values import Condition

RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
DECLARED: Final = 0x33  # given by a coordinator: a transaction is open
TRANSACTIONAL: Final = 0x34  # no outcome: it marks a message or an outcome that belongs to a transaction

# An action in a transaction that no container here has would take effect before the commit, and stay after a rollback.
UNKNOWN_TRANSACTION: Final = Condition(
    name="amqp:transaction:unknown-id",
    description="no coordinator at the container of this link has given the connection such a transaction",
)

_RANK = {RELEASED: 0, MODIFIED: 1, ACCEPTED: 2, REJECTED: 3}


def merge(first: int, second: int) -> int:
    """Returns the merged outcome of two receivers for a multicast sender.

    Rejected wins over accepted, accepted over modified, and modified over released. A state that is no outcome
    (transactional, declared, an extension) counts as rejected.
    """
    return max(first, second, key=lambda state: _RANK.get(state, _RANK[REJECTED]))


def effective(state: int) -> int:
    """Returns `state` if it is one of the four outcomes, else REJECTED."""
    return state if state in _RANK else REJECTED
