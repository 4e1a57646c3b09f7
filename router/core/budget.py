"""Byte budgets: what the router holds on somebody's behalf, and how much of it he may have.

Everything that stays in memory because of a peer is charged to the account of its connection, and with it to the levels
above: the peer's user, its host and the router. A charge says how many bytes; what is given back is a negative one.

A level that is over its limit costs those alone who have more than their share of it, by steps:
  1. senders are held back: nothing of theirs is taken from the engine, and they get no credit
  2. new sessions and links are refused
  3. past the last step above the limit, the connection that has most is closed

Attack: messages to a receiver that grants no credit, links and sessions without end, a receiver that does not read or
does not settle. Each filled the memory of the router, whoever sent. Source: docs/security.md, byte budgets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from router.core.weights import COPIES, LARGE_BYTES

Kind = Literal["link", "connection", "user", "host", "router"]
BUDGET_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# A delivery in flight, beside its payload: the engine's object on both sides and the core's record.
RECORD_BYTES: Final = 2048
# An open connection: its engine, its layers and its buffers, those of TLS among them.
CONNECTION_BYTES: Final = 32 * 1024
MIB: Final = 1024 * 1024
# Where memory is short, connections that hold less are not closed: that would help nobody.
SHEDS_BYTES: Final = MIB
MAX_SESSION_BYTES: Final = 2**31 - 1
MAX_ADDRESS_BYTES: Final = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bytes that may be held for each link, connection, user, host, and in all. 0: no limit."""

    link: int = 16 * MIB
    connection: int = 64 * MIB
    user: int = 256 * MIB
    host: int = 512 * MIB
    router: int = 1024 * MIB

    @property
    def routers_login(self) -> int:
        """Of one login of routers, for each of its connections: one user that has all he may cannot fill it."""
        return 2 * self.user

    @property
    def neighbour(self) -> int:
        """Of a connection to another router."""
        return self.routers_login or self.connection


NO_LIMITS: Final = Limits(link=0, connection=0, user=0, host=0, router=0)


class Party(Protocol):
    """The connection that an account belongs to."""

    def hold_back(self, level: "Level", /) -> None:
        """Take nothing more from its senders."""
        ...

    def let_go(self) -> None:
        """Its senders may go on."""
        ...

    def crowd(self, *, is_crowded: bool) -> None:
        """Its receivers have too much that they neither read nor settle; or no longer."""
        ...

    def exhaust(self, level: "Level", /) -> None:
        """Close it: a level is far over its limit, and nobody has more."""
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

    limit   bytes; 0: none
    held    bytes, at present
    peak    the most that was held
    leaving of the bytes held: those of connections that are closed, which closing another does not free
    wide    so much of the limit is for bytes that are held beside its budget
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
        self.using = 0  # accounts that hold something
        self.accounts: dict[Account, None] = {}
        self.held_back: dict[Account, None] = {}
        self._resume = limit - limit // 8  # where those that were held back go on
        self._last = 2 * limit if kind == "connection" else limit + limit // 4  # the last step

    def take(self, account: "Account", size: int) -> None:
        """`account` holds `size` bytes more. It has added them to its own."""
        held = self.held = self.held + size
        if held > self.peak:
            self.peak = held
        if held > self.limit > 0:
            self._over(account)

    def give(self, size: int) -> None:
        """`size` bytes are free again."""
        self.held -= size
        if self.held_back and self.held <= self._resume:
            held_back, self.held_back = self.held_back, {}
            for account in held_back:
                account.leave_behind(self)

    def widen(self, size: int) -> None:
        """The limit, if there is one, is `size` bytes more."""
        if self.limit:
            self.limit += size
            self._resume += size
            self._last += size
            self.wide += size

    def grow(self, size: int) -> None:
        """As `widen`, for one connection more, or fewer."""
        if self.limit:
            self.widen(size)
            self.wide -= size

    def room_for(self, account: "Account") -> int:
        """Bytes that an account may add at its leisure: up to three quarters of the limit, or to its share of it.

        Attack: somebody fills three quarters, so that there is no room for what others may have.
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
        """Close the connection that holds most, as past the last step: memory is short. Returns its account.

        None: nobody holds what would help.
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
        """Of the router's bytes users have shares, of the others' connections, once what gone ones left is taken off.

        Attacks: one user's ten thousand connections, so that what each of another's holds is more than a share; a
        connection that sends its share and goes, again and again.
        """
        user = account.user
        if self.kind != "router" or user is None:
            kept, wide = (account.kept, self.wide) if self.kind == "user" else (0, 0)
            return (account.held - kept) * self.using > self.limit - wide - self.leaving
        share = self.limit // account.count_users()
        return user.held > share and account.held * user.using > share - user.leaving

    def _weight(self, account: "Account") -> tuple[int, int]:
        """The greatest goes first: of the user that holds most, the connection that does."""
        return account.user.held if account.user is not None else 0, account.held


class Account:
    """What is held on behalf of one connection.

    held      bytes, of every sort
    base      of these, what the connection itself takes: who holds no more has no share of what is held
    waiting   of these, what waits for its receivers to read or settle it
    addresses of these, what the addresses of other routers take that it told of
    kept      of these, what came from other routers and waits for its receivers
    is_open   the connection can still be closed
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
        """is_neighbour  the peer is a router: its links carry the messages of many, whom no limit of one may stop"""
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
        """How many users there are."""
        return self._budgets.user_count

    def session_bytes(self, number: int) -> int:
        """What the `number`th session of the connection may send before it is taken, at most.

        What was granted comes after the senders are held back, too: all of it has to fit under the last step.

        A neighbour's first sessions have as much as each other. A window holds frames, whatever their size: one smaller
        than the credit of a link would let a neighbour that is far away send no more in a round trip.
        """
        limits = [self._limit, *(level.limit for level in self.levels[1:])]
        least = min((limit for limit in limits if limit), default=0)
        if not least:
            return MAX_SESSION_BYTES
        if self._is_neighbour:
            return min((self.limits.connection or least) // 16, least // (4 * number))
        return least // (8 * number)

    def has_much_room(self) -> bool:
        """Is every level less than half full? What need not be held is held only then."""
        return all(level.held * 2 < level.limit for level in self.levels if level.limit)

    def may_keep_more(self) -> bool:
        """May more come of what its links have credit for and nobody takes, so that the session's others go on?

        Up to three quarters of its own limit, while the other levels are less than half full.
        """
        own, *others = self.levels
        is_below = not own.limit or own.held * 4 < own.limit * 3
        return is_below and all(level.held * 2 < level.limit for level in others if level.limit)

    def join(self, level: Level) -> None:
        """From now on, and for what it holds already, it is one of this level's."""
        self.levels = (*self.levels, level)
        level.accounts[self] = None
        if level.kind == "user":
            self.user = level
        if self.held > self.base:
            level.using += 1
        if self.held:
            level.take(self, self.held)

    def charge_connection(self) -> None:
        """The connection is there, with all that it takes when nothing is said on it.

        It comes out of the budgets of its user, its host and the router: its own is for what is held on it.
        Attack: connections without end that say nothing. Each took 30 to 60 kB, charged to nobody.
        """
        self.held = self.base = self._budgets.connection_bytes
        for level in self.levels[1:]:
            level.take(self, self.base)

    def charge(self, size: int) -> None:
        """`size` bytes more are held; fewer, where it is negative."""
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
        """The addresses of other routers that it told of take `size` bytes now.

        They come out of the budgets of its user, its host and the router. Its own is for messages: a neighbour that has
        told of all it may tell of can still send.
        """
        more = size - self.addresses
        self.addresses = size
        self._charge_others(more)

    def keep(self, size: int) -> None:
        """`size` bytes more, or fewer, are held of what came from other routers for its receivers.

        They are beside its own budget and its user's.

        Attack: messages from other routers to slow receivers of a user, by somebody else. They filled his budget: what
        he sent was held back, and where he had many connections one of them was closed.
        """
        self.kept += size
        self.own.widen(size)
        if self.user is not None:
            self.user.widen(size)
        self.charge(size)

    def level_without_room(self, size: int) -> Level | None:
        """The level, if there is one, that has no room to keep `size` bytes more."""
        for level in self.levels[1:]:
            if level.limit and level.room_for(self) < size:
                return level
        return None

    def _charge_others(self, more: int) -> None:
        """`more` bytes come out of the budgets of the user, the host and the router, not out of its own."""
        if more > 0:
            self.own.widen(more)
        self.charge(more)
        if more < 0:
            self.own.widen(more)

    def room_for_addresses(self) -> int:
        """Bytes that addresses may take which it tells of from now on, or the others are left out."""
        return min((level.room_for(self) for level in self.levels[1:] if level.limit), default=MAX_ADDRESS_BYTES)

    def wait(self, size: int) -> None:
        """As `charge`, of what its receivers have to read or settle."""
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
        """The connection is about to go: closing it again would free nothing."""
        if self.is_open:
            self.is_open = False
            for level in self.levels:
                level.leaving += self.held

    def close(self) -> None:
        """The connection is gone. What is still held for it goes on to be counted."""
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
    """Pays for what is held: a sender's link, a receiver's, or an account."""

    def charge(self, size: int, /) -> None: ...


class Charge:
    """The bytes of one message that waits on one or more links: paid once, and a record for each.

    A large one's are here and in the engine's buffer, which stays as it is until the sender's delivery is settled.

    size  bytes that the first link costs
    """

    __slots__ = ("_copies", "payer", "size")

    def __init__(self, payer: Payer, size: int) -> None:
        """size  of the message"""
        self.payer = payer
        self.size = RECORD_BYTES + (size if size <= LARGE_BYTES else COPIES * size)
        self._copies = 0

    def take(self) -> None:
        """One link more holds it."""
        self.payer.charge(RECORD_BYTES if self._copies else self.size)
        self._copies += 1

    def free(self) -> None:
        """One link holds it no longer."""
        self._copies -= 1
        self.payer.charge(-RECORD_BYTES if self._copies else -self.size)


class Budgets:
    """Every level that holds something."""

    def __init__(self, limits: Limits, *, connection_bytes: int = CONNECTION_BYTES) -> None:
        """connection_bytes  that each connection takes"""
        self.limits = limits
        self.connection_bytes = connection_bytes
        self.router = Level("router", "", limits.router)
        self._users: dict[str, Level] = {}
        self._hosts: dict[str, Level] = {}

    def levels_for(self, name: str, host: str, *, is_neighbour: bool = False) -> tuple[Level, ...]:
        """The levels of a new connection, its own first. Its user's follows when that is known.

        name  of the connection
        host  its address, without the port
        is_neighbour  of a router, by which several users' messages are on their way
        """
        if host not in self._hosts:
            self._hosts[host] = Level("host", host, self.limits.host)
        own = self.limits.neighbour if is_neighbour else self.limits.connection
        return Level("connection", name, own), self._hosts[host], self.router

    def user(self, name: str, *, is_neighbour: bool = False) -> Level:
        """is_neighbour  as of levels_for: one connection more is there, which has as much as the others"""
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
        """Nobody belongs to the level any more."""
        levels = {"user": self._users, "host": self._hosts}.get(level.kind)
        if levels is not None and levels.get(level.name) is level:
            del levels[level.name]

    def levels(self) -> Iterator[Level]:
        """Every level there is: router, hosts, users, connections."""
        yield self.router
        yield from self._hosts.values()
        yield from self._users.values()
        for account in self.router.accounts:
            yield account.own
