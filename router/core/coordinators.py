"""Routed links of transaction coordinators: they control which transactions a client may name on its other links.

Attack: containers number their transactions for each connection, and clients of the router share one connection. A
client that named a number near its own could add messages to, or discharge, another client's transaction.

Sources: AMQP 1.0 §4.2 to §4.4; docs/spec/routing.md §9.1.
"""

from collections.abc import Callable
from typing import Final

from router.core.budget import Account
from router.core.in_links import InLink
from router.core.outcomes import DECLARED, UNKNOWN_TRANSACTION
from router.core.routed import RoutedIn, RoutedOut, RoutedPath, forward_routed
from router.values import Condition, Handle

# The transactions that a client may have open at one container. Attack: endless Declares, each of which is remembered.
MAX_OPEN: Final = 1024
# The same limit for all clients of another router or of an edge, which share one connection.
MAX_OPEN_OF_NEIGHBOUR: Final = 65_536
# A longer id does not fit into the state of a Transfer, so no client can use it. Attack: a container's ids of a
# megabyte.
MAX_ID_BYTES: Final = 256
# The charge for one transaction: its id, in two tables.
TRANSACTION_BYTES: Final = 768
TOO_MANY_OPEN: Final = Condition(
    name="amqp:resource-limit-exceeded", description="too many transactions are open on the connection"
)
TOO_LARGE: Final = Condition(
    name="amqp:not-implemented", description="a message to a coordinator is small and has no state"
)

# (a message to a coordinator) → the id that a Discharge names; None for a Declare; a Condition for any other message.
Read = Callable[[bytes], bytes | Condition | None]


class Transactions:
    """The transactions that one peer has open at one container, on all of its coordinators' links.

    A container may give two links the same id, for example if two clients of another router have these links.
    """

    __slots__ = ("_account", "_open", "limit", "paths")

    def __init__(self, account: Account, *, is_neighbours: bool) -> None:
        """Sets up an empty set of transactions.

        account  of the peer, which pays for them
        """
        self._account = account
        self._open: dict[bytes, int] = {}  # id → the number of links that got it
        self.limit = MAX_OPEN_OF_NEIGHBOUR if is_neighbours else MAX_OPEN
        self.paths: dict[CoordinatorPath, None] = {}

    def __contains__(self, name: bytes | None) -> bool:
        return name in self._open

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, name: bytes) -> None:
        self._open[name] = self._open.get(name, 0) + 1
        self._account.charge(TRANSACTION_BYTES)

    def end(self, name: bytes) -> None:
        self._account.charge(-TRANSACTION_BYTES)
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


class CoordinatorPath(RoutedPath):
    """The path to a coordinator. A transaction ends when its Discharge is forwarded, or when the link ends.

    The container may give the id to another client as soon as it has the Discharge.
    """

    __slots__ = ("_names", "read", "transactions")

    def __init__(
        self,
        key: str,
        inward: RoutedIn,
        onward: "CoordinatorOut",
        has_transaction: Callable[[bytes | None], bool],
        transactions: Transactions,
        read: Read,
    ) -> None:
        super().__init__(key, inward, onward, has_transaction)
        self.forward, self.begin = _forward_request, _refuse_large
        self.transactions = transactions
        self.read = read
        self._names: set[bytes] = set()
        transactions.paths[self] = None

    def on_declared(self, name: bytes) -> None:
        """Records a transaction that the container has declared.

        One beyond a limit is not recorded, and may not be named.
        """
        has_room = len(self.transactions) < self.transactions.limit and len(name) <= MAX_ID_BYTES
        if has_room and name not in self._names:
            self._names.add(name)
            self.transactions.begin(name)

    def fault_of(self, request: bytes | Condition | None) -> Condition | None:
        """Returns the error for a request that is refused, or None if it is forwarded."""
        if isinstance(request, Condition):
            return request
        if request is not None:
            return None if request in self._names else UNKNOWN_TRANSACTION
        under_way = self.onward.load
        return TOO_MANY_OPEN if len(self.transactions) + under_way >= self.transactions.limit else None

    def on_discharged(self, name: bytes) -> None:
        self._names.remove(name)
        self.transactions.end(name)

    def let_go(self) -> None:
        """Ends all transactions of a link that is over: its container rolls back those that were not discharged."""
        while self._names:
            self.transactions.end(self._names.pop())
        self.transactions.paths.pop(self, None)


class CoordinatorOut(RoutedOut):
    """The link on which requests go to a coordinator. The outcomes of these requests name the transactions."""

    __slots__ = ()

    def on_delivery(self, outgoing: Handle) -> None:
        if outgoing in self.unsettled and self.wire.remote_state(outgoing) == DECLARED:
            assert isinstance(self.path, CoordinatorPath)
            name = self.wire.transaction(outgoing)
            if name is not None:
                self.path.on_declared(name)
        super().on_delivery(outgoing)


def _forward_request(link: InLink, address: object, delivery: Handle, size: int) -> None:
    """Forwards a complete message to a coordinator, unless it names a transaction of another client."""
    assert isinstance(address, CoordinatorPath)
    request = address.read(link.work.copy(size))
    fault = address.fault_of(request)
    if fault is not None:
        link.refuse(delivery, fault)
        address.relay_credit()
        return
    if isinstance(request, bytes):
        address.on_discharged(request)
    forward_routed(link, address, delivery, size)


def _refuse_large(link: InLink, address: object, delivery: Handle, _size: int) -> None:
    """Refuses a message to a coordinator that arrives in parts, or has a state of its own."""
    assert isinstance(address, CoordinatorPath)
    link.refuse(delivery, TOO_LARGE)
    address.relay_credit()
