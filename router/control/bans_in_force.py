"""The bans in force: made by hand (over management and in the file) and by rule. A ban with `seconds` ends after them.

Sources: docs/spec/policy-and-auth.md §3.15; docs/spec/management.md §8.12.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from policy.ban_set import Ban, BanError, Network
from policy.configuration.kinds.ban import ban_of
from policy.failures import FailureCounter, FailureRule, read_allow_list, read_max_delay
from policy.hosts import parse_address
from router.admission.connection_gate import CONNECTION_REFUSED
from router.admission.guessing import Guesses
from router.connection.accepted import Connection
from router.connection.inspection import condition_of
from router.control.router import Router
from router.effects import Audit, AuditEvent, Emit, LogLevel, log
from router.io.turns import Slices
from router.management.config import ConfiguredEntity
from router.management.entities import EntityStore
from router.management.owners import Owner
from router.management.query import PagedRows
from router.management.requests import ManagementError

# Number of bans that end in one second, and of connections that are checked for a new ban before the loop may route
# messages again. Without it a ban of a network with ten thousand connections would delay all others and overrun the
# audit log's queue. Because of that queue it is a number and not a time.
SLICE: Final = 200


class Bans:
    """The owner of the bans. All methods are called on the loop.

    rule    the failures that lead to a ban; None: no failures do
    choose  see FailureCounter
    """

    def __init__(
        self,
        router: Router,
        store: EntityStore,
        rule: FailureRule | None,
        emit: Emit,
        choose: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        self._router = router
        self._store = store
        self._rule = rule
        self._emit = emit
        self._gate = router.gate.bans
        self._set = self._gate.bans
        self._failures: FailureCounter | None = None
        if rule is not None:
            self._set.spared = rule.allowed
            self._failures = FailureCounter(rule, choose)
        self._is_by_rule = False  # while an automatic ban passes through the store

    # Entities

    @property
    def owner(self) -> Owner:
        rows = PagedRows(self.page, self.find, self.find_by_name)
        return Owner(type="ban", rows=rows, create=self.create, delete=self.delete)

    @property
    def count(self) -> int:
        """The number of bans in force."""
        return len(self._set)

    def create(self, attributes: Mapping[str, Any]) -> dict[str, object]:
        """Makes a ban, which is in force when this returns.

        Open connections that it matches are closed after the request was answered. Returns the attributes that a
        request does not contain. Errors: ManagementError.
        """
        seconds, made_at = attributes.get("seconds"), datetime.now(UTC)
        try:
            ban = replace(ban_of(attributes, self._router.clock()), is_automatic=self._is_by_rule)
            self._set.add(ban)
        except BanError as error:
            raise ManagementError(400, f"{attributes['type']}: {error}") from None
        lasting = f"for {seconds} seconds" if seconds is not None else "for good"
        text = f"Ban '{ban.name}' of {_whom(ban)} {lasting}: {ban.reason or 'no reason given'}"
        self._log("notice", text)
        if ban.is_automatic:  # a ban made by hand is a change by management, which has its own record
            self._record(ban, text)
        if not ban.is_automatic:
            asyncio.get_running_loop().call_soon(self._close, ban, list(self._router.connections))
        shown: dict[str, object] = {"origin": "automatic" if ban.is_automatic else "manual", "created": _text(made_at)}
        return shown | ({"expires": _text(made_at + timedelta(seconds=seconds))} if seconds is not None else {})

    def delete(self, attributes: Mapping[str, Any]) -> None:
        ban = self._set.get(str(attributes["name"]))
        if ban is None:
            return
        self._gate.remove(ban.name)
        has_ended = ban.until <= self._router.clock()
        text = f"Ban '{ban.name}' of {_whom(ban)} {'has ended' if has_ended else 'is lifted'}"
        self._log("info", text)
        if has_ended or ban.is_automatic:
            self._record(ban, text)

    def page(self, offset: int) -> Iterator[Mapping[str, Any]]:
        """Returns the live values of the bans from number `offset` on, by name."""
        names = (str(each["name"]) for each in islice(self._store.attributes("ban"), offset, None))
        return ({"name": name, "hits": self._set.hits(name)} for name in names)

    def find(self, identity: str) -> Mapping[str, Any] | None:
        """Returns the live values of the ban of this identity."""
        entity = self._store.find(identity=identity)
        return self.find_by_name(str(entity.attributes["name"])) if entity is not None else None

    def find_by_name(self, name: str) -> Mapping[str, Any] | None:
        return {"name": name, "hits": self._set.hits(name)} if self._set.get(name) is not None else None

    # Connections that are already open. A ban by rule leaves them alone: otherwise other clients with the same address
    # would lose their connections because of one client without the password. Connections before their Open meet the
    # ban there.

    def _close(self, ban: Ban, numbers: Iterable[int]) -> None:
        """Closes the connections that the ban matches.

        `numbers` are the connections that existed when the ban was made.
        """
        Slices(self._closing(ban, numbers), self._router.work.finish, seconds=0)

    def _closing(self, ban: Ban, numbers: Iterable[int]) -> Iterator[None]:
        for count, number in enumerate(numbers, 1):
            if self._set.get(ban.name) is not ban:
                return
            connection = self._router.connections.get(number)
            if isinstance(connection, Connection) and not connection.is_closed and _holds_for(ban, connection):
                self._gate.record_closing(ban, connection.gate.facts(), stage=connection.audit_stage)
                connection.expel(condition_of(CONNECTION_REFUSED))
            if count % SLICE == 0:
                yield

    # Failures

    def note_failure(self, host: str) -> None:
        """Counts a failed login of a peer at `host`. Too many failures ban the host."""
        if self._failures is None or self._rule is None:
            return
        network = self._failures.note(host, self._router.clock())
        if network is not None:
            self._ban(network, self._rule)

    def _ban(self, network: Network, rule: FailureRule) -> None:
        name = f"automatic-{_shown(network)}"
        known = self._set.get(name)
        if known is not None and known.is_automatic:
            return  # the login that fails now had been accepted before the ban
        if (displaced := self._set.displaced()) is not None:
            self._log("warning", f"Too many automatic bans: '{displaced.name}' makes way")
            self._remove(displaced)
        while self._store.find(name=name) is not None:  # another ban already has this name
            name += "'"
        reason = f"{rule.limit} failures within {rule.window_s} seconds"
        long_name = self._store.schema.types["ban"].long_name
        attributes = {"name": name, "identity": f"ban/{name}", "type": long_name, "remoteHost": _shown(network),
                      "seconds": rule.ban_s, "reason": reason}  # fmt: skip
        self._is_by_rule = True
        try:
            self._store.load((ConfiguredEntity(type="ban", attributes=attributes),))
        finally:
            self._is_by_rule = False

    # Time

    def on_second(self, now: float) -> None:
        """Ends the bans whose time is over. To be called once a second."""
        for ban in islice(self._set.due(now), SLICE):
            self._remove(ban)

    def _remove(self, ban: Ban) -> None:
        entity = self._store.find(name=ban.name)
        if entity is not None:
            self._store.delete(entity)

    def _record(self, ban: Ban, text: str) -> None:
        event: AuditEvent = {"stage": "policy", "decision": "allow", "reason": "allowed", "detail": text}
        event["rule"] = {"item": f"ban {ban.name}"}
        if ban.network is not None:
            event["remote_host"] = str(ban.network.network_address)
        event["user"] = ban.user
        self._emit(Audit(event=event))

    def _log(self, level: LogLevel, text: str) -> None:
        log(self._emit, "POLICY", level, text)


def guesses_of(policy: Mapping[str, object]) -> Guesses:
    """Makes Guesses from the checked attributes of the `policy` entity."""
    return Guesses(read_max_delay(policy), read_allow_list(policy), secrets.token_bytes(16), secrets.randbelow)


def _holds_for(ban: Ban, connection: Connection) -> bool:
    return ban.matches(parse_address(connection.gate.remote_host), connection.gate.identity.user)


def _shown(network: Network) -> str:
    """Returns a network as text; a network of one address as that address."""
    return str(network.network_address if network.num_addresses == 1 else network)


def _whom(ban: Ban) -> str:
    user = f"user '{ban.user}'" if ban.user is not None else ""
    return " at ".join(each for each in (user, _shown(ban.network) if ban.network is not None else "") if each)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")
