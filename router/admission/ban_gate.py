"""Where the daemon asks whether a peer is banned, and what is recorded when it is.

Pure. An attempt that costs the peer an authentication has an event of its own; sockets closed at accept are told once
and then by numbers. Source: docs/spec/policy-and-auth.md §3.15.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from policy.ban_set import MAX_AUTOMATIC, MAX_MANUAL, Ban, BanSet
from policy.decision import Reason, Rule
from policy.usage import UsageLedger
from router.admission.repeats import Repeats
from router.effects import Audit, Emit, log


class BanGate:
    """bans  in force; whoever owns the clock adds and removes them"""

    def __init__(self, bans: BanSet, ledger: UsageLedger, emit: Emit) -> None:
        self.bans = bans
        self._ledger = ledger
        self._emit = emit
        self._repeats: Repeats[str] = Repeats(MAX_MANUAL + MAX_AUTOMATIC)  # by the name of the ban

    def closes(self, *, connection_id: int, remote_host: str, connection_name: str, listener: str) -> bool:
        """Is this accepted socket to be closed before anything is done for it? Counts it as denied then.

        Attack: a banned host that goes on and on. A line and an event for each attempt would let it fill the disk, and
        the audit log's queue, so that other events are lost: there is one at first, and then one with a number for
        each round of `reports`.
        """
        ban = self.bans.of_host(remote_host)
        if ban is None:
            return False
        self._ledger.count_accept(False)
        self.bans.count_hit(ban)
        if self._repeats.count(ban.name, ban.name):
            self._log(f"DENY Connection '{remote_host}'", ban)
            self._audit(
                ban,
                {
                    "stage": "accept",
                    "connection": connection_id,
                    "connection_name": connection_name,
                    "listener": listener,
                    "remote_host": remote_host,
                },
            )
        return True

    def reports(self) -> Iterator[None]:
        """Tell what was refused and no event speaks of yet, one ban for each step. Begin at equal intervals."""
        for name, attempts in self._repeats.take():
            if (ban := self.bans.get(name)) is not None:
                self._report(ban, attempts)
            yield

    def remove(self, name: str) -> None:
        """Lift a ban; what it refused is told first. One that is not there any more is none."""
        ban = self.bans.remove(name)
        attempts = self._repeats.forget(name)
        if ban is not None and attempts:
            self._report(ban, attempts)

    def refuses(self, facts: Mapping[str, Any]) -> bool:
        """Is the peer of an accepted connection banned by now, or now that it is known who it is?

        facts  of the connection, as its audit events have them. Before stage `open` the user is only a claim
        """
        if not len(self.bans):
            return False
        user, remote_host = facts["user"], facts["remote_host"]
        is_known = facts["stage"] == "open"
        ban = self.bans.of_user(remote_host, user) if is_known else self.bans.of_host(remote_host)
        if ban is None:
            return False
        self.bans.count_hit(ban)
        what = "AMQP Open" if is_known else "login"
        self._log(f"DENY {what} for user '{user or ''}', rhost '{remote_host}'", ban)
        self._audit(ban, facts)
        return True

    def record_closing(self, ban: Ban, facts: Mapping[str, Any], *, stage: str) -> None:
        """A connection that was open when the ban came is closed. stage  how far it has come, as in audit events"""
        self.bans.count_hit(ban)
        self._log(f"[C{facts['connection']}] Connection '{facts['connection_name']}' is closed", ban)
        self._audit(ban, {**facts, "stage": stage})

    def _report(self, ban: Ban, attempts: int) -> None:
        self._log(f"DENY {attempts} more connections", ban)
        self._audit(ban, {"stage": "accept", "attempts": attempts})

    def _log(self, what: str, ban: Ban) -> None:
        log(self._emit, "POLICY", "info", f"{what} based on ban '{ban.name}': {ban.reason or 'no reason given'}")

    def _audit(self, ban: Ban, facts: Mapping[str, Any]) -> None:
        whom = ", ".join(str(each) for each in (ban.network, ban.user) if each is not None)
        rule = Rule(item=f"ban {ban.name}: {whom}")
        event = {"decision": "deny", "reason": Reason.BANNED.value, "rule": asdict(rule), "detail": ban.reason}
        self._emit(Audit(event={**event, **facts}))
