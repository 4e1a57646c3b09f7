"""Byte budgets: limit how many bytes the router holds for each peer.

Everything that stays in memory because of a peer is charged to the account of its connection, and to the levels above:
the peer's user, its host and the router. A charge is a number of bytes. A negative charge returns bytes.

If a level is over its limit, this affects only those that have more than their share of it, in steps:
1. senders are held back: nothing is taken from the engine for them, and they get no credit
2. new sessions and links are refused
3. past the last step above the limit, the connection that holds most is closed

Attack: messages to a receiver that grants no credit, endless sessions and links, or a receiver that does not read or
settle. Each filled the router's memory, whichever peer sent. Source: docs/security.md, byte budgets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from router.core.weights import COPIES, LARGE_BYTES

Kind = Literal["link", "connection", "user", "host", "router"]
BUDGET_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# A delivery in flight, without its payload: the engine's objects on both sides and the core's record.
RECORD_BYTES: Final = 2048
# An open connection: its engine, its layers and its buffers, including those of TLS.
CONNECTION_BYTES: Final = 32 * 1024
MIB: Final = 1024 * 1024
# If memory is short, connections that hold less than this are not closed: closing them would not help.
SHEDS_BYTES: Final = MIB
MAX_SESSION_BYTES: Final = 2**31 - 1
MAX_ADDRESS_BYTES: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bytes that may be held for each link, connection, user and host, and by the router. 0 means no limit."""

    link: int = 16 * MIB
    connection: int = 64 * MIB
    user: int = 256 * MIB
    host: int = 512 * MIB
    router: int = 1024 * MIB

    @property
    def routers_login(self) -> int:
        """The limit of one login of routers, for each of its connections.

        One user with all its bytes cannot fill it.
        """
        return 2 * self.user

    @property
    def neighbour(self) -> int:
        """The limit of a connection to another router."""
        return self.routers_login or self.connection


NO_LIMITS: Final = Limits(link=0, connection=0, user=0, host=0, router=0)


class Party(Protocol):
    """The connection that an account belongs to."""

    def hold_back(self, level: "Level", /) -> None:
        """Takes nothing more from the connection's senders."""
        ...

    def let_go(self) -> None:
        """Lets the connection's senders continue."""
        ...

    def crowd(self, *, is_crowded: bool) -> None:
        """Notes that the connection's receivers have, or no longer have, too much that they neither read nor settle."""
        ...

    def exhaust(self, level: "Level", /) -> None:
        """Closes the connection: a level is far over its limit, and no other connection holds more."""
        ...


class _Nobody:
    """The party of an account whose connection is gone."""

    def hold_back(self, level: "Level", /) -> None: ...
    def let_go(self) -> None: ...
    def crowd(self, *, is_crowded: bool) -> None: ...
    def exhaust(self, level: "Level", /) -> None: ...


_NOBODY: Final = _Nobody()


class Level:
    """All that is held for one connection, one user, one host, or by the router.

    limit   bytes; 0: no limit
    held    bytes, at present
    peak    the largest number of bytes that was held
    leaving the part of `held` that belongs to closed connections, which closing another connection does not free
    wide    the part of `limit` for bytes that are held in addition to the budget
    """

    __slots__ = (
        "_last",
        "_resume",
        "accounts",
        "held",
        "held_back",
        "kind",
        "leaving",
        "limit",
        "name",
        "peak",
        "using",
        "wide",
    )

    def __init__(self, kind: Kind, name: str, limit: int) -> None:
        self.kind = kind
        self.name = name
        self.limit = limit
        self.held = self.peak = self.leaving = self.wide = 0
        self.using = 0  # the number of accounts that hold something
        self.accounts: dict[Account, None] = {}
        self.held_back: dict[Account, None] = {}
        self._resume = limit - limit // 8  # senders that were held back continue below this
        # The last step: above this a connection is closed.
        self._last = 2 * limit if kind == "connection" else limit + limit // 4

    def take(self, account: "Account", size: int) -> None:
        """Adds `size` bytes that `account` holds. The account has already added them to its own count."""
        held = self.held = self.held + size
        if held > self.peak:
            self.peak = held
        if held > self.limit > 0:
            self._over(account)

    def give(self, size: int) -> None:
        """Removes `size` bytes, which are free again."""
        self.held -= size
        if self.held_back and self.held <= self._resume:
            held_back, self.held_back = self.held_back, {}
            for account in held_back:
                account.leave_behind(self)

    def widen(self, size: int) -> None:
        """Increases the limit by `size` bytes, if there is a limit."""
        if self.limit:
            self.limit += size
            self._resume += size
            self._last += size
            self.wide += size

    def grow(self, size: int) -> None:
        """Changes the limit like `widen`, but for one connection more or fewer."""
        if self.limit:
            self.widen(size)
            self.wide -= size

    def room_for(self, account: "Account") -> int:
        """Returns the bytes that an account may add without need: three quarters of the limit, or its share.

        Attack: one peer fills three quarters, so that there is no room for the shares of the other peers.
        """
        user, limit = account.user, self.limit - self.wide
        if self.kind == "router" and user is not None:
            of_own = limit // account.count_users() - user.held
        else:
            of_own = (limit - self.leaving) // max(1, self.using) - account.held
        return max(limit - limit // 4 - self.held, of_own)

    def _over(self, account: "Account") -> None:
        if account not in self.held_back and self._has_more_than_its_share(account):
            self.held_back[account] = None
            account.fall_behind(self)
        if self.held - self.leaving > self._last:
            self._close(max((each for each in self.accounts if each.is_open), key=self._weight))

    def shed(self) -> "Account | None":
        """Closes the connection that holds most, because memory is short. Returns its account.

        Returns None if no connection holds enough to help.
        """
        held_much = (each for each in self.accounts if each.is_open and each.held >= SHEDS_BYTES)
        greatest = max(held_much, key=self._weight, default=None)
        if greatest is not None:
            self._close(greatest)
        return greatest

    def _close(self, account: "Account") -> None:
        account.shut()
        account.party.exhaust(self)

    def _has_more_than_its_share(self, account: "Account") -> bool:
        """Returns True if the account holds more than its share. On the router level, shares are for users, else for
        connections.

        The shares leave out bytes of connections that are gone. Attacks: one user's ten thousand connections, so that
        each connection of another user holds more than a share; a connection that sends its share and closes,
        repeatedly.
        """
        user = account.user
        if self.kind != "router" or user is None:
            kept, wide = (account.kept, self.wide) if self.kind == "user" else (0, 0)
            return (account.held - kept) * self.using > self.limit - wide - self.leaving
        share = self.limit // account.count_users()
        return user.held > share and account.held * user.using > share - user.leaving

    def _weight(self, account: "Account") -> tuple[int, int]:
        """Returns the key for choosing what to close: the user that holds most, then its connection that holds most."""
        return account.user.held if account.user is not None else 0, account.held


class Account:
    """The bytes that are held for one connection.

    held      bytes of every sort
    base      the part of `held` for the connection itself. A connection that holds no more than this has no share
    waiting   the part that waits for the connection's receivers to read or settle it
    addresses the part for other routers' addresses that the connection announced
    kept      the part that came from other routers and waits for the connection's receivers
    is_open   True if the connection can still be closed
    link_limit  bytes of one sending link's messages that may wait; 0: no limit
    """

    __slots__ = (
        *(
            "_budgets",
            "_is_crowded",
            "_is_neighbour",
            "_limit",
            "addresses",
            "base",
            "behind",
            "held",
            "is_open",
            "kept",
        ),
        *("levels", "link_limit", "party", "user", "waiting"),
    )

    def __init__(
        self, budgets: "Budgets", party: Party, levels: tuple[Level, ...], *, is_neighbour: bool = False
    ) -> None:
        """Joins the levels.

        is_neighbour  True if the peer is a router: its links carry the messages of many users, which one link's limit
                      must not stop
        """
        self._budgets = budgets
        self._is_neighbour = is_neighbour
        self._limit = levels[0].limit
        self.link_limit = 0 if is_neighbour else budgets.limits.link
        self.party = party
        self.levels: tuple[Level, ...] = ()
        self.user: Level | None = None  # None before the Open
        self.held = self.waiting = self.addresses = self.kept = self.base = 0
        self.behind: dict[Level, None] = {}  # the levels that hold it back
        self.is_open = True
        self._is_crowded = False
        for level in levels:
            self.join(level)

    @property
    def limits(self) -> Limits:
        return self._budgets.limits

    @property
    def own(self) -> Level:
        return self.levels[0]

    def count_users(self) -> int:
        """Returns the number of users."""
        return self._budgets.user_count

    def session_bytes(self, number: int) -> int:
        """Returns how many bytes the `number`th session of the connection may send before they are taken, at most.

        Data within a granted window still arrives after the senders are held back. All of it must fit under the last
        step.

        The first sessions of a neighbour have equal windows. A window counts frames of any size. If it were smaller
        than the credit of a link, a distant neighbour could send no more in a round trip.
        """
        limits = [self._limit, *(level.limit for level in self.levels[1:])]
        least = min((limit for limit in limits if limit), default=0)
        if not least:
            return MAX_SESSION_BYTES
        if self._is_neighbour:
            return min((self.limits.connection or least) // 16, least // (4 * number))
        return least // (8 * number)

    def has_much_room(self) -> bool:
        """Returns True if every level is less than half full.

        Only then does the router hold bytes that it need not hold.
        """
        return all(level.held * 2 < level.limit for level in self.levels if level.limit)

    def may_keep_more(self) -> bool:
        """Returns True if more data may arrive that its links do not take, so that other links continue.

        The limit is three quarters of its own level, while the other levels are less than half full.
        """
        own, *others = self.levels
        is_below = not own.limit or own.held * 4 < own.limit * 3
        return is_below and all(level.held * 2 < level.limit for level in others if level.limit)

    def join(self, level: Level) -> None:
        """Joins a level, with all bytes that it already holds."""
        self.levels = (*self.levels, level)
        level.accounts[self] = None
        if level.kind == "user":
            self.user = level
        if self.held > self.base:
            level.using += 1
        if self.held:
            level.take(self, self.held)

    def charge_connection(self) -> None:
        """Charges for the memory that an idle connection takes.

        This comes out of the budgets of its user, its host and the router. Its own budget is for what is held on it.
        Attack: endless silent connections. Each took 30 to 60 kB, which no account paid for.
        """
        self.held = self.base = self._budgets.connection_bytes
        for level in self.levels[1:]:
            level.take(self, self.base)

    def charge(self, size: int) -> None:
        """Adds `size` bytes to what is held. A negative `size` returns bytes."""
        if not self.is_open:
            for level in self.levels:
                level.leaving += size
        if size > 0:
            if self.held <= self.base < self.held + size:
                for level in self.levels:
                    level.using += 1
            self.held += size
            for level in self.levels:
                level.take(self, size)
        elif size:
            self.held += size
            if self.held <= self.base < self.held - size:
                for level in self.levels:
                    level.using -= 1
            for level in self.levels:
                level.give(-size)
            if not self.held and not self.is_open:
                self._leave()

    def hold_addresses(self, size: int) -> None:
        """Sets the bytes that other routers' addresses take which the connection announced.

        They come out of the budgets of its user, its host and the router. Its own budget is for messages: a neighbour
        that has announced as many addresses as it may can still send.
        """
        more = size - self.addresses
        self.addresses = size
        self._charge_others(more)

    def keep(self, size: int) -> None:
        """Adds `size` bytes (may be negative) that came from other routers for its receivers.

        They do not reduce its own budget or its user's budget.

        Attack: one user sends messages from other routers to another user's slow receivers. They filled the receiving
        user's budget: that user's messages were held back, and one of many connections of that user was closed.
        """
        self.kept += size
        self.own.widen(size)
        if self.user is not None:
            self.user.widen(size)
        self.charge(size)

    def level_without_room(self, size: int) -> Level | None:
        """Returns a level that has no room to keep `size` bytes more, or None."""
        for level in self.levels[1:]:
            if level.limit and level.room_for(self) < size:
                return level
        return None

    def _charge_others(self, more: int) -> None:
        """Charges `more` bytes to the budgets of the user, the host and the router, not to its own."""
        if more > 0:
            self.own.widen(more)
        self.charge(more)
        if more < 0:
            self.own.widen(more)

    def room_for_addresses(self) -> int:
        """Returns the bytes that newly announced addresses may take. The router leaves out addresses that need more."""
        return min((level.room_for(self) for level in self.levels[1:] if level.limit), default=MAX_ADDRESS_BYTES)

    def wait(self, size: int) -> None:
        """Does the same as `charge`, for bytes that its receivers have to read or settle."""
        self.waiting += size
        self.charge(size)
        limit = self._limit
        if (self.waiting > limit > 0) is not self._is_crowded and (size > 0 or self.waiting <= limit - limit // 8):
            self._is_crowded = not self._is_crowded
            self.party.crowd(is_crowded=self._is_crowded)

    def fall_behind(self, level: Level) -> None:
        self.behind[level] = None
        self.party.hold_back(level)

    def leave_behind(self, level: Level) -> None:
        self.behind.pop(level, None)
        if not self.behind:
            self.party.let_go()

    def shut(self) -> None:
        """Notes that the connection is about to close: closing it again would free nothing."""
        if self.is_open:
            self.is_open = False
            for level in self.levels:
                level.leaving += self.held

    def close(self) -> None:
        """Notes that the connection is gone. Bytes that are still held for it continue to count."""
        self.shut()
        self.party = _NOBODY
        base, self.base = self.base, 0
        self.held -= base
        for level in self.levels[1:]:
            level.leaving -= base
            level.give(base)
        if not self.held:
            self._leave()

    def _leave(self) -> None:
        for level in self.levels:
            level.accounts.pop(self, None)
            level.held_back.pop(self, None)
            if not level.accounts:
                self._budgets.forget(level)
            elif level is self.user and self._is_neighbour:
                level.grow(-self.limits.routers_login)
        self.levels = self.levels[:1]
        self.behind.clear()


class Payer(Protocol):
    """The account or link that pays for held bytes: a sender's link, a receiver's link, or an account."""

    def charge(self, size: int, /) -> None: ...


class Charge:
    """The bytes of one message that waits on one or more links. They are paid once, and each link pays for a record.

    The bytes of a large message are held here and in the engine's buffer, which keeps them until the sender's delivery
    is settled.

    size  bytes that the first link pays
    """

    __slots__ = ("_copies", "payer", "size")

    def __init__(self, payer: Payer, size: int) -> None:
        """Calculates the price.

        size  bytes of the message
        """
        self.payer = payer
        self.size = RECORD_BYTES + (size if size <= LARGE_BYTES else COPIES * size)
        self._copies = 0

    def take(self) -> None:
        """Charges for one more link that holds the message."""
        self.payer.charge(RECORD_BYTES if self._copies else self.size)
        self._copies += 1

    def free(self) -> None:
        """Returns the charge of one link that no longer holds the message."""
        self._copies -= 1
        self.payer.charge(-RECORD_BYTES if self._copies else -self.size)


class Budgets:
    """All levels that hold something."""

    def __init__(self, limits: Limits, *, connection_bytes: int = CONNECTION_BYTES) -> None:
        """Makes the level of the router.

        connection_bytes  bytes that each connection takes
        """
        self.limits = limits
        self.connection_bytes = connection_bytes
        self.router = Level("router", "", limits.router)
        self._users: dict[str, Level] = {}
        self._hosts: dict[str, Level] = {}

    def levels_for(self, name: str, host: str, *, is_neighbour: bool = False) -> tuple[Level, ...]:
        """Returns the levels of a new connection, its own first. The level of its user follows when the user is known.

        name  of the connection
        host  its address, without the port
        is_neighbour  True for a router, whose connection carries messages of several users
        """
        if host not in self._hosts:
            self._hosts[host] = Level("host", host, self.limits.host)
        own = self.limits.neighbour if is_neighbour else self.limits.connection
        return Level("connection", name, own), self._hosts[host], self.router

    def user(self, name: str, *, is_neighbour: bool = False) -> Level:
        """Returns the level of a user.

        is_neighbour  as in levels_for. Each connection adds the same amount to the limit
        """
        if is_neighbour:
            name = f"router {name}"
        level = self._users.get(name)
        if level is None:
            level = self._users[name] = Level(
                "user", name, self.limits.routers_login if is_neighbour else self.limits.user
            )
        elif is_neighbour:
            level.grow(self.limits.routers_login)
        return level

    @property
    def user_count(self) -> int:
        return len(self._users)

    def forget(self, level: Level) -> None:
        """Removes a level that no account belongs to any more."""
        levels = {"user": self._users, "host": self._hosts}.get(level.kind)
        if levels is not None and levels.get(level.name) is level:
            del levels[level.name]

    def levels(self) -> Iterator[Level]:
        """Iterates over all levels: router, hosts, users, connections."""
        yield self.router
        yield from self._hosts.values()
        yield from self._users.values()
        for account in self.router.accounts:
            yield account.own
