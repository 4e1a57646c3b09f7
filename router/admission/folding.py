"""Sums up floods of refusals: within a budget of bytes each is written in full, past it they are only counted.

Pure: the clocks are arguments. Every refusal of a peer that is recorded passes this module, and its owners pay for the
record. After the login the owners are the connection and its user, before it the host. If the budget of an owner is
used up, its refusals of one sort are written as one event and one line. These contain their number, the first and last
time, and some of the names. The written and the counted refusals add up to all refusals. Source: docs/audit.md, Floods.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, cast

from policy.failures import counted_as
from router.admission.disagreements import kept
from router.admission.refusal_pace import RefusalPace
from router.admission.repeats import Repeats
from router.effects import Audit, AuditEvent, ConnectionMembers, Emit, FoldedMembers, Log, ManagementMembers, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The bytes that one owner's refusals may write, to the log and the audit log together.

    burst_bytes    at once, in full
    reserve_bytes  in addition, for the first refusal of a sort and for sums
    bytes_per_s    that are returned
    """

    burst_bytes: int
    reserve_bytes: int
    bytes_per_s: int


# Attack: one connection asks 20,000 times for something that it may not have, which filled 23 MB. So a connection
# writes 96 KiB at once and 450 kB an hour: about 50 refusals in full, and then one every ten seconds.
OF_CONNECTION: Final = Budget(burst_bytes=64 * 1024, reserve_bytes=32 * 1024, bytes_per_s=128)
# Attack: many connections of one user with a few refusals each, or a host without a login that sends nonsense and
# reconnects. So a user, or a host, writes 1088 KiB at once and 1.8 MB an hour, independent of its number of
# connections. That is about 700 refusals in full, as many as a fleet behind one address may cause in a bad minute.
OF_PARTY: Final = Budget(burst_bytes=1024 * 1024, reserve_bytes=64 * 1024, bytes_per_s=512)

# Attack: endless hosts, users or connections fill the memory with their budgets. Hosts beyond this number share one
# budget, and so do users. Connections beyond it use the budget of their user or host. Each kind has its own limit, so
# hosts without a login do not make users share.
MAX_OWNERS: Final = 4096
# Attack: the same with sums. Refusals beyond this number are summed up only by their sort. A sum takes at most 15 kB.
MAX_SUMS: Final = 1000
# Attack: 1,200 refusals in 5 s hide the important one, because a sum had the first 8 names. So a sum has the first
# name, the last, some random ones, and each name that was never refused before. The limit is in characters of JSON.
MAX_SAMPLE_CHARACTERS: Final = 64
MAX_NEW_CHARACTERS: Final = 6 * 1024
DRAWN: Final = 4
MAX_SAMPLES_CHARACTERS: Final = 8 * 1024  # of all names, as in the schema
# The number of names in the log line of a sum.
MAX_SHOWN: Final = 8
# The number of the latest refused names that are remembered, for all peers. Attack: endless names fill the memory. 2
# MB.
MAX_KNOWN: Final = 16_384

# Upper bounds: for an event, a sum and a line without their texts; for a whole line; for a character in JSON.
_EVENT_BYTES: Final = 900
_SUM_BYTES: Final = 1500
_LINE_BYTES: Final = 160
_MAX_LINE_BYTES: Final = 2048
_MAX_TEXT_CHARACTERS: Final = 1024
_BYTES_OF_CHARACTER: Final = 12
_NAME_BYTES: Final = 6  # per name, without its characters: its escaped quotes, a comma and a blank

# Stages in which only the host of a peer is known: its user is unknown, or only claimed.
_BEFORE_LOGIN: Final = frozenset({"accept", "header", "tls", "sasl"})
# Stages in which a refusal leaves the connection open, so that the refusals can repeat endlessly.
_ON_A_CONNECTION: Final = frozenset({"begin", "attach", "transfer", "management"})


class Owner(NamedTuple):
    kind: Literal["connection", "user", "host", "various"]
    name: str


class Sort(NamedTuple):
    """Refusals of an owner with the same sort are one sum. The peer cannot choose any member freely.

    vhost  the selected vhost, because sums are compared with its counters
    """

    stage: str
    reason: str
    vhost: str | None


Key = tuple[Owner, Sort]

_NAMES: Final = ("entity_type", "entity_name", "entity_identity")
_DETAILED: Final = frozenset({"trace", "debug"})
_NO_LINE: Final = Log(module="POLICY", level="info", text="")


class _Purse:
    """The rest of one owner's budget."""

    __slots__ = ("_at", "_budget", "_left")

    def __init__(self, budget: Budget, now: float) -> None:
        self._budget = budget
        self._left: float = budget.burst_bytes
        self._at = now

    def affords(self, size: int, now: float, *, with_reserve: bool = False) -> bool:
        """Returns True if the budget has `size` bytes left. A larger size needs the whole budget."""
        budget = self._budget
        if now > self._at:
            self._left = min(budget.burst_bytes, self._left + (now - self._at) * budget.bytes_per_s)
            self._at = now
        if with_reserve:
            return self._left + budget.reserve_bytes >= min(size, budget.reserve_bytes)
        return self._left >= min(size, budget.burst_bytes)

    def pay(self, size: int) -> None:
        self._left = max(self._left - size, -self._budget.reserve_bytes)

    def is_full(self, now: float) -> bool:
        return self.affords(self._budget.burst_bytes, now)


class _Table:
    """The owners of one kind.

    various  represents owners for whom there is no room
    """

    __slots__ = ("budget", "purses", "repeats", "various")

    def __init__(self, kind: str, budget: Budget) -> None:
        self.budget = budget
        self.purses: dict[Owner, _Purse] = {}
        self.repeats: Repeats[Key] = Repeats(MAX_SUMS)
        self.various = Owner("various", kind)

    def enter(self, owner: Owner, now: float) -> Owner:
        """Returns the owner, or `various`, and makes sure that it has a purse."""
        if owner not in self.purses:
            owner = owner if len(self.purses) < MAX_OWNERS else self.various
            self.purses.setdefault(owner, _Purse(self.budget, now))
        return owner


class _Names:
    """The names that the refused peers wanted or claimed. Cut to MAX_SAMPLE_CHARACTERS."""

    __slots__ = ("_count", "_drawn", "_first", "_last", "_new")

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None
        # Names that were never refused before, in JSON. As separate texts, hundreds of them would take ten times as
        # much.
        self._new = ""
        self._drawn: list[str] = []
        self._count = 0

    def add(self, name: str, choose: Callable[[int], int], *, is_new: bool) -> None:
        """Adds a name.

        choose  as in Folding
        """
        if self._first is None:
            self._first = name
        self._last = name
        if is_new and len(self._new) + len(written := f"{json.dumps(name)}, ") <= MAX_NEW_CHARACTERS:
            self._new += written
        self._count += 1
        if len(self._drawn) < DRAWN:
            self._drawn.append(name)
        elif (place := choose(self._count)) < DRAWN:  # so each name has the same chance to stay
            self._drawn[place] = name

    def all(self) -> list[str]:
        """Returns each name once, the first one first. In JSON they are no longer than MAX_SAMPLES_CHARACTERS."""
        if self._first is None or self._last is None:
            return []
        others = dict.fromkeys([self._first, *self._drawn, self._last])
        room = MAX_SAMPLES_CHARACTERS - sum(map(_json_characters, others))
        new = []
        for name in json.loads(f"[{self._new[:-2]}]"):
            room -= _json_characters(name)
            if room >= 0:
                new.append(name)
        return list(dict.fromkeys([self._first, *new, *others]))


def _json_characters(name: str) -> int:
    return len(json.dumps(name)) + 2


@dataclass(slots=True)
class _Sum:
    """Refusals that are counted and not yet written.

    members  the members that are equal in all their events
    owners   that pay for the sum
    line     a log line of the first refusal
    what     as in Refused
    times    wall clock, seconds
    """

    members: dict[str, Any]
    owners: tuple[Owner, ...]
    line: Log
    what: str
    first_s: float
    last_s: float
    names: _Names = field(default_factory=_Names)

    def add(self, members: Mapping[str, Any], now_s: float) -> None:
        own = self.members
        # Most members are the same objects in consecutive refusals, and need no comparison.
        for name in [
            name for name, value in own.items() if (other := members.get(name)) is not value and _kept(other) != value
        ]:
            if name == "management":
                own[name] = _common(own[name], members[name])
            else:
                del own[name]
        self.last_s = now_s

    @property
    def size(self) -> int:
        """The size of its line and its event, as in `_size`."""
        texts = [value[:_MAX_TEXT_CHARACTERS] for value in self.members.values() if isinstance(value, str)]
        sizes = [_bytes(name) + _NAME_BYTES for name in self.names.all()]
        return _SUM_BYTES + sum(map(_bytes, texts)) + sum(sizes) + sum(sizes[:MAX_SHOWN])

    def swallow(self, other: "_Sum", choose: Callable[[int], int]) -> None:
        """Adds all refusals of another sum.

        choose  as in Folding
        """
        self.add(other.members, max(self.last_s, other.last_s))
        self.first_s = min(self.first_s, other.first_s)
        for name in other.names.all():
            self.names.add(name, choose, is_new=True)


def _read_on(_connection_id: int, _seconds: float) -> None:
    """Holds no connection back: the default."""


class Folding:
    """Records refusals, and sums up floods of them.

    pace   how often a party is refused
    pause  (number of a connection, seconds): stops reading from a connection that was refused too often, for this time
    """

    def __init__(
        self,
        emit: Emit,
        clock: Callable[[], float] = lambda: 0.0,
        wall_clock: Callable[[], float] = lambda: 0.0,
        choose: Callable[[int], int] = lambda _count: 0,
    ) -> None:
        """Sets up full budgets for all owners.

        clock       monotonic seconds
        wall_clock  seconds since 1970 UTC
        choose      n → a random number of 0 to n - 1 that no peer can predict
        """
        self._emit = emit
        self._clock = clock
        self._wall_clock = wall_clock
        self._choose = choose
        self._known: dict[int, None] = {}  # refused names, by their hash
        self._connections = _Table("connection", OF_CONNECTION)
        self._users = _Table("user", OF_PARTY)
        self._hosts = _Table("host", OF_PARTY)
        self._sums: dict[Key, _Sum] = {}
        self._of_connection: dict[Owner, set[Key]] = {}
        self._flooding: set[Owner] = set()  # owners of sums since the round before the last
        self.pace = RefusalPace()
        self.pause: Callable[[int, float], None] = _read_on

    # Refusals

    def record(self, refused: Refused) -> None:
        """Writes a refusal, or counts it if the budget of one of its owners is used up."""
        now = self._clock()
        owners = self._owners(refused, now)
        name = _name(refused)
        is_new = name is not None and self._is_new(name)
        if refused.stage in _ON_A_CONNECTION and (number := refused.facts.get("connection")) is not None:
            pause_s = self.pace.pause_s(owners[-1], now)
            if pause_s:
                self.pause(number, pause_s)
        size = _size(refused.lines, refused.event)
        spent = [owner for owner in owners if not self._purse(owner).affords(size, now)]
        if not spent:
            self._write(refused, owners, size)
            return
        # The widest owner whose budget is used up: a thousand connections of a user make one sum, not a thousand.
        key = self._count((spent[-1], _sort(refused)))
        if key is None:
            if self._afford_reserve(owners, size, now):
                self._write(refused, owners, size)
                return
            key = self._count((spent[-1], _sort(refused)))
            assert key is not None
        self._add(key, refused, owners, name, is_new=is_new)

    def report_accepted(self, line: Log, facts: ConnectionMembers) -> None:
        """Logs an accepted connection of a host, which is no refusal.

        For a host whose refusals are summed up, only counts it.
        """
        owner = _host(facts)
        refused = Refused(stage="accept", facts=facts, lines=(line,), what="more connections of the host")
        if owner not in self._flooding or (key := self._count((owner, _sort(refused)))) is None:
            self._emit(line)
        else:
            self._add(key, refused, (owner,), None)

    def forget(self, connection_id: int) -> None:
        """Writes the sums of a connection that has ended, or adds them to its user's sums if the budget is used up."""
        own = Owner("connection", str(connection_id))
        self._connections.purses.pop(own, None)
        self._flooding.discard(own)
        for key in self._of_connection.pop(own, ()):
            number, summed = self._connections.repeats.forget(key), self._sums.pop(key, None)
            if summed is None:
                continue
            party = summed.owners[-1]
            summed.owners = (party,)
            if self._afford_reserve(summed.owners, summed.size, self._clock()):
                self._say(key, summed, number)
                continue
            table = self._table(party)
            to = table.repeats.add((party, key[1]), (table.various, key[1]), number)
            self._flooding.add(to[0])
            if to in self._sums:
                self._sums[to].swallow(summed, self._choose)
            else:
                self._sums[to] = summed

    # Sums

    def reports(self, *, is_end: bool = False) -> Iterator[None]:
        """Writes the sums for which their owners' budgets have room, one in each step. Call at equal intervals.

        is_end  True to write all sums
        """
        tables = (self._connections, self._users, self._hosts)
        for table in tables:
            for key, number in table.repeats.take(lambda key: is_end or self._may_report(key)):
                self._say(key, self._sums.pop(key), number)
                yield
        self._flooding = {owner for table in tables for owner, _ in table.repeats}
        now = self._clock()
        self.pace.forget_idle(now)
        for table in tables:
            for owner in [owner for owner, purse in table.purses.items() if purse.is_full(now)]:
                if owner not in self._flooding:
                    del table.purses[owner]
            yield

    def _may_report(self, key: Key) -> bool:
        summed = self._sums[key]
        return self._afford_reserve(summed.owners, summed.size, self._clock())

    def _say(self, key: Key, summed: _Sum, number: int) -> None:
        """Writes a sum."""
        names = summed.names.all()
        samples = json.dumps(names)
        first, last = _moment(summed.first_s), _moment(summed.last_s)
        owner, sort = key
        for each in summed.owners:
            if (purse := self._table(each).purses.get(each)) is not None:
                purse.pay(summed.size)
        shown = f": {', '.join(map(repr, names[:MAX_SHOWN]))}" if names else ""
        members = summed.members
        where = f"[C{owner.name}] " if owner.kind == "connection" else ""
        whose = f"of various {owner.name}s" if owner.kind == "various" else f"of {owner.kind} '{owner.name}'"
        verb = "ALLOW" if members.get("decision") == "allow" else "DENY"
        what = summed.what or f"{verb} {sort.stage} {sort.reason}"
        text = f"{where}{number} times from {first} to {last}, not told one by one, {whose}: {what}{shown}"
        self._emit(Log(module=summed.line.module, level=summed.line.level, text=text))
        if summed.what:
            return
        folded: FoldedMembers = {"first": first, "last": last, "owner": owner.kind, "samples": samples}
        detail = "the same again and again, not written one by one: `folded` has the times, and some of the names"
        event = {**members, "attempts": number, "folded": folded, "detail": detail}
        self._emit(Audit(event=cast(AuditEvent, event)))

    # Within

    def _owners(self, refused: Refused, now: float) -> tuple[Owner, ...]:
        """Returns the owners that pay for a refusal, the connection first."""
        facts, stage = refused.facts, refused.stage
        user, mechanism = facts.get("user"), facts.get("mechanism")
        is_known = user and mechanism not in (None, "ANONYMOUS") and stage not in _BEFORE_LOGIN
        party = self._users.enter(Owner("user", str(user)), now) if is_known else self._hosts.enter(_host(facts), now)
        if stage in _ON_A_CONNECTION and (number := facts.get("connection")) is not None:
            own = Owner("connection", str(number))
            if own in self._connections.purses or len(self._connections.purses) < MAX_OWNERS:
                return self._connections.enter(own, now), party
        return (party,)

    def _table(self, owner: Owner) -> _Table:
        match owner.name if owner.kind == "various" else owner.kind:
            case "connection":
                return self._connections
            case "user":
                return self._users
            case _:
                return self._hosts

    def _purse(self, owner: Owner) -> _Purse:
        return self._table(owner).purses[owner]

    def _afford_reserve(self, owners: tuple[Owner, ...], size: int, now: float) -> bool:
        """Returns True if all owners can pay from their reserve. An owner without a purse has its whole reserve."""
        purses = (self._table(owner).purses.get(owner) for owner in owners)
        return all(purse is None or purse.affords(size, now, with_reserve=True) for purse in purses)

    def _write(self, refused: Refused, owners: tuple[Owner, ...], size: int) -> None:
        for owner in owners:
            self._purse(owner).pay(size)
        for line in refused.lines:
            self._emit(line)
        if refused.event is not None:
            self._emit(Audit(event=refused.event, time_s=refused.time_s))

    def _count(self, key: Key) -> Key | None:
        """Counts a refusal. Returns the key that it is counted under, or None if it is the first one recently."""
        table = self._table(key[0])
        crowd = (table.various, key[1])
        is_first = table.repeats.count(key, crowd)
        key = key if key in table.repeats else crowd
        self._flooding.add(key[0])
        if key[0].kind == "connection":
            self._of_connection.setdefault(key[0], set()).add(key)
        return None if is_first else key

    def _is_new(self, name: str) -> bool:
        """Returns True if this name was not refused recently, and remembers it."""
        key = hash(name)
        if key in self._known:
            return False
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key] = None
        return True

    def _add(
        self, key: Key, refused: Refused, owners: tuple[Owner, ...], name: str | None, *, is_new: bool = False
    ) -> None:
        """Adds a counted refusal to its sum.

        is_new  True if its name was never refused before
        """
        now_s = self._wall_clock()
        event = refused.event
        members: Mapping[str, Any] = event if event is not None else refused.facts
        summed = self._sums.get(key)
        if summed is None:
            own = {name: _kept(value) for name, value in members.items()}
            line = next((line for line in refused.lines if line.level not in _DETAILED), _NO_LINE)
            if key[0] not in owners:  # the sum is for several owners
                table = self._table(key[0])
                table.purses.setdefault(key[0], _Purse(table.budget, self._clock()))
                owners = (key[0],)
            summed = self._sums[key] = _Sum(
                members=own, owners=owners, line=line, what=refused.what, first_s=now_s, last_s=now_s
            )
        else:
            summed.add(members, now_s)
        if name is not None:
            summed.names.add(name, self._choose, is_new=is_new)


def _host(facts: ConnectionMembers) -> Owner:
    """Returns the host of a peer, for IPv6 its /64. For a connection that the router made, returns its destination."""
    host = facts.get("remote_host") or ""
    try:
        network = counted_as(host)
    except ValueError:
        return Owner("host", host or facts.get("listener") or "")
    return Owner("host", host if network.prefixlen == network.max_prefixlen else str(network))


def _sort(refused: Refused) -> Sort:
    event = refused.event
    if event is None:
        return Sort(refused.stage, refused.what, None)
    return Sort(event["stage"], event["reason"], event.get("vhost"))


def _name(refused: Refused) -> str | None:
    """Returns what the peer wanted, or claimed to be, in the form for a sum."""
    name = _full_name(refused)
    return name[:MAX_SAMPLE_CHARACTERS] if isinstance(name, str) else None


def _full_name(refused: Refused) -> object:
    event = refused.event
    if event is None:
        return None
    if (management := event.get("management")) is not None:
        return management.get("entity_name") or management.get("entity_type") or management["operation"]
    if event.get("address") is not None:
        return event.get("address")
    return event.get("user") if refused.stage in _BEFORE_LOGIN else event.get("requested_vhost")


def _kept(value: object) -> object:
    return kept(value) if isinstance(value, str) else value


def _common(one: ManagementMembers, other: ManagementMembers) -> ManagementMembers:
    """Merges two requests into one."""
    is_same = one["operation"] == other["operation"]
    common: ManagementMembers = {"operation": one["operation"] if is_same else "various", "status": one["status"]}
    same = {name: one.get(name) for name in _NAMES if one.get(name) == other.get(name)}
    return cast(ManagementMembers, {**common, **same})


def _size(lines: Sequence[Log], event: AuditEvent | None) -> int:
    """Returns an upper bound of the bytes that are written for a refusal."""
    size = sum(_LINE_BYTES + min(_MAX_LINE_BYTES, _bytes(line.text[:_MAX_LINE_BYTES])) for line in lines)
    if event is None:
        return size
    size += _EVENT_BYTES
    for text in (*event.values(), *(event.get("rule") or {}).values()):
        if isinstance(text, str):
            text = text[:_MAX_TEXT_CHARACTERS]
            size += len(text) if text.isascii() and text.isprintable() else _BYTES_OF_CHARACTER * len(text)
    management = event.get("management")
    return size + (sum(len(str(value)) for value in management.values()) if management is not None else 0)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() and text.isprintable() else _BYTES_OF_CHARACTER * len(text)


def _moment(time_s: float) -> str | None:
    """Returns the time in RFC 3339 form, or None if it is no valid time."""
    try:
        return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
