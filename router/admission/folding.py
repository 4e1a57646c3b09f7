"""Folds floods of refusals: within a budget of bytes each is written in full, past it they are counted and summed up.

Pure: the clocks are arguments. Whatever a peer is refused, and leaves a trace of, passes here. Its owner pays for it:
after the login the connection and its user, before it the host. Where an owner's budget is spent, its refusals of one
sort are written as one event and one line, with their number, the first and last time, and some of the names. What is
written and what is counted add up to what was refused. Source: docs/audit.md, Floods.
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
    """What one owner's refusals may write, to the log and the audit log together.

    burst_bytes    at once, in full
    reserve_bytes  beyond that, for the first refusal of a sort and for sums
    bytes_per_s    that come back
    """

    burst_bytes: int
    reserve_bytes: int
    bytes_per_s: int


# Attack: one connection stays and asks 20,000 times for what it may not have, which filled 23 MB. So a connection
# writes 96 KiB at once and 450 kB an hour: some 50 refusals in full, and from then on one in ten seconds.
OF_CONNECTION: Final = Budget(burst_bytes=64 * 1024, reserve_bytes=32 * 1024, bytes_per_s=128)
# Attack: many connections of one user with a few refusals each; a host without a login that says nonsense, and comes
# again. So a user, or a host, writes 1088 KiB at once and 1.8 MB an hour, however many connections it makes: some 700
# refusals in full, as many as a fleet behind one address may come to in a bad minute.
OF_PARTY: Final = Budget(burst_bytes=1024 * 1024, reserve_bytes=64 * 1024, bytes_per_s=512)

# Attack: endless hosts, users or connections, to fill the memory with their budgets. Hosts beyond so many share one, so
# do users; connections have that of their user or host. Each kind has room of its own: hosts without a login do not
# make users share.
MAX_OWNERS: Final = 4096
# Attack: as many, with sums. Those beyond are summed up by their sort alone. One takes 15 kB at worst.
MAX_SUMS: Final = 1000
# Attack: 1,200 refusals in 5 s hide the one that mattered, since a sum had the first 8 names. So it has the first name
# and the last, some that are drawn, and each that was never refused before, as far as so many characters of JSON go.
MAX_SAMPLE_CHARACTERS: Final = 64
MAX_NEW_CHARACTERS: Final = 6 * 1024
DRAWN: Final = 4
MAX_SAMPLES_CHARACTERS: Final = 8 * 1024  # of all, as the schema has it
# Names of a sum that its line in the log shows.
MAX_SHOWN: Final = 8
# Names that are known to have been refused, of everybody, the latest. Attack: endless names, to fill the memory: 2 MB.
MAX_KNOWN: Final = 16_384

# Upper bounds: of an event, of a sum and of a line without their texts; of a whole line; of a character in JSON.
_EVENT_BYTES: Final = 900
_SUM_BYTES: Final = 1500
_LINE_BYTES: Final = 160
_MAX_LINE_BYTES: Final = 2048
_MAX_TEXT_CHARACTERS: Final = 1024
_BYTES_OF_CHARACTER: Final = 12
_NAME_BYTES: Final = 6  # of a name beside its characters: its quotes, which are escaped, a comma and a blank

# Stages in which a peer is nobody but its host: its user is unknown, or a claim.
_BEFORE_LOGIN: Final = frozenset({"accept", "header", "tls", "sasl"})
# Stages in which a refusal leaves the connection open, so that it may go on and on.
_ON_A_CONNECTION: Final = frozenset({"begin", "attach", "transfer", "management"})


class Owner(NamedTuple):
    kind: Literal["connection", "user", "host", "various"]
    name: str


class Sort(NamedTuple):
    """Refusals of an owner that are equal in this are one sum. No member is a peer's choice.

    vhost  that was selected: it has counters that sums are held against
    """

    stage: str
    reason: str
    vhost: str | None


Key = tuple[Owner, Sort]

_NAMES: Final = ("entity_type", "entity_name", "entity_identity")
_DETAILED: Final = frozenset({"trace", "debug"})
_NO_LINE: Final = Log(module="POLICY", level="info", text="")


class _Purse:
    """What is left of one owner's budget."""

    __slots__ = ("_at", "_budget", "_left")

    def __init__(self, budget: Budget, now: float) -> None:
        self._budget = budget
        self._left: float = budget.burst_bytes
        self._at = now

    def affords(self, size: int, now: float, *, with_reserve: bool = False) -> bool:
        """Whatever is larger than the budget takes all of it."""
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

    various  stands for those that there is no room for
    """

    __slots__ = ("budget", "purses", "repeats", "various")

    def __init__(self, kind: str, budget: Budget) -> None:
        self.budget = budget
        self.purses: dict[Owner, _Purse] = {}
        self.repeats: Repeats[Key] = Repeats(MAX_SUMS)
        self.various = Owner("various", kind)

    def enter(self, owner: Owner, now: float) -> Owner:
        """The owner, or `various`, with a purse."""
        if owner not in self.purses:
            owner = owner if len(self.purses) < MAX_OWNERS else self.various
            self.purses.setdefault(owner, _Purse(self.budget, now))
        return owner


class _Names:
    """What those wanted who were refused, or claimed to be. Cut to MAX_SAMPLE_CHARACTERS."""

    __slots__ = ("_count", "_drawn", "_first", "_last", "_new")

    def __init__(self) -> None:
        self._first: str | None = None
        self._last: str | None = None
        # Those that nobody was refused before, in JSON: as hundreds of texts they would take ten times as much.
        self._new = ""
        self._drawn: list[str] = []
        self._count = 0

    def add(self, name: str, choose: Callable[[int], int], *, is_new: bool) -> None:
        """choose  as of Folding"""
        if self._first is None:
            self._first = name
        self._last = name
        if is_new and len(self._new) + len(written := f"{json.dumps(name)}, ") <= MAX_NEW_CHARACTERS:
            self._new += written
        self._count += 1
        if len(self._drawn) < DRAWN:
            self._drawn.append(name)
        elif (place := choose(self._count)) < DRAWN:  # so that each of them all is as likely to stay
            self._drawn[place] = name

    def all(self) -> list[str]:
        """Each once, in JSON no longer than MAX_SAMPLES_CHARACTERS. The first one first."""
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

    members  of their events that all agree in
    owners   who pay for the sum
    line     a log line of the first of them
    what     as of Refused
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
        # Most members are the same objects from one refusal to the next: those need no look.
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
        """As `_size`, of its line and its event."""
        texts = [value[:_MAX_TEXT_CHARACTERS] for value in self.members.values() if isinstance(value, str)]
        sizes = [_bytes(name) + _NAME_BYTES for name in self.names.all()]
        return _SUM_BYTES + sum(map(_bytes, texts)) + sum(sizes) + sum(sizes[:MAX_SHOWN])

    def swallow(self, other: "_Sum", choose: Callable[[int], int]) -> None:
        """choose  as of Folding"""
        self.add(other.members, max(self.last_s, other.last_s))
        self.first_s = min(self.first_s, other.first_s)
        for name in other.names.all():
            self.names.add(name, choose, is_new=True)


def _read_on(_connection_id: int, _seconds: float) -> None:
    """Nobody holds a connection back."""


class Folding:
    """pace   how often a party is refused
    pause  (number of a connection, seconds): it has been refused too often, and is not to be read for so long
    """

    def __init__(
        self,
        emit: Emit,
        clock: Callable[[], float] = lambda: 0.0,
        wall_clock: Callable[[], float] = lambda: 0.0,
        choose: Callable[[int], int] = lambda _count: 0,
    ) -> None:
        """clock       monotonic seconds
        wall_clock  seconds since 1970 UTC
        choose      n → a number of 0 to n - 1, drawn so that no peer can foresee it
        """
        self._emit = emit
        self._clock = clock
        self._wall_clock = wall_clock
        self._choose = choose
        self._known: dict[int, None] = {}  # names that were refused, by their hash
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
        """Write a refusal, or count it where its owners have had enough written."""
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
        # The widest whose budget is spent: a user's thousand connections leave one sum, not a thousand.
        key = self._count((spent[-1], _sort(refused)))
        if key is None:
            if self._afford_reserve(owners, size, now):
                self._write(refused, owners, size)
                return
            key = self._count((spent[-1], _sort(refused)))
            assert key is not None
        self._add(key, refused, owners, name, is_new=is_new)

    def report_accepted(self, line: Log, facts: ConnectionMembers) -> None:
        """A host makes a connection, which is no refusal: a line, but for a host whose refusals are being summed up."""
        owner = _host(facts)
        refused = Refused(stage="accept", facts=facts, lines=(line,), what="more connections of the host")
        if owner not in self._flooding or (key := self._count((owner, _sort(refused)))) is None:
            self._emit(line)
        else:
            self._add(key, refused, (owner,), None)

    def forget(self, connection_id: int) -> None:
        """A connection has ended: write its sums, or have its user's sums take them where he has had enough written."""
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
        """Write the sums that their owners' budgets have room for, one for each step. Begin at equal intervals.

        is_end  write all
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
        """Write a sum."""
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
        """Who pay for a refusal, the connection first."""
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
        """Whoever has no purse, or none any more, has all of it."""
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
        """Count a refusal. Returns the key that it is counted under, None where it is the first of it lately."""
        table = self._table(key[0])
        crowd = (table.various, key[1])
        is_first = table.repeats.count(key, crowd)
        key = key if key in table.repeats else crowd
        self._flooding.add(key[0])
        if key[0].kind == "connection":
            self._of_connection.setdefault(key[0], set()).add(key)
        return None if is_first else key

    def _is_new(self, name: str) -> bool:
        """Was nobody refused it lately? From now on somebody was."""
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
        """Add a refusal that is counted to its sum. is_new  its name was never refused before"""
        now_s = self._wall_clock()
        event = refused.event
        members: Mapping[str, Any] = event if event is not None else refused.facts
        summed = self._sums.get(key)
        if summed is None:
            own = {name: _kept(value) for name, value in members.items()}
            line = next((line for line in refused.lines if line.level not in _DETAILED), _NO_LINE)
            if key[0] not in owners:  # it stands for many
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
    """The host of a peer, of IPv6 its /64; of a connection that the router made the place it went to."""
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
    """What the peer wanted, or claimed to be, as far as a sum shows it."""
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
    """Two requests as one."""
    is_same = one["operation"] == other["operation"]
    common: ManagementMembers = {"operation": one["operation"] if is_same else "various", "status": one["status"]}
    same = {name: one.get(name) for name in _NAMES if one.get(name) == other.get(name)}
    return cast(ManagementMembers, {**common, **same})


def _size(lines: Sequence[Log], event: AuditEvent | None) -> int:
    """At most so many bytes are written for it."""
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
    """RFC 3339; None for what is no time."""
    try:
        return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
