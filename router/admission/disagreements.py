"""Counts and reports requests that a candidate policy would decide differently.

The counts are for management, the reports for the log and the audit log. The first of equal disagreements is reported
at once. `flush` reports its repetitions as one event. So a client that repeats a request a thousand times a second does
not write a thousand lines, and no disagreement is lost. Pure. Source: docs/policy.md, Shadow.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, cast

from policy.decision import Decision
from router.effects import Audit, AuditDecision, AuditEvent, Emit, LogLevel, log

Outcome = Literal["would_deny", "would_allow"]
MakeEvent = Callable[[AuditDecision], AuditEvent]

# The number of different disagreements reported separately between two flushes. Attack: a client that invents an
# address or a user name for each attempt. Disagreements beyond this number are reported as sums, without user, host and
# address.
MAX_TOLD: Final = 1000
# The number of requested vhost names without a policy that are counted by name. Attack: a client that invents names.
# Names beyond this number are counted together.
MAX_REQUESTED_NAMES: Final = 100
# One character more than a text of an audit event may have. So the memory until the flush is limited, and the audit log
# can see that a text was cut.
_MAX_KEPT_CHARS: Final = 1025

_DECISIONS: Final[Mapping[Outcome, AuditDecision]] = {"would_deny": "shadow_deny", "would_allow": "shadow_allow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A decided request and its user. Requests equal in all fields are one disagreement. `kept` limits the texts.

    vhost, candidate_vhost  selected by the policy in force, and by the candidate
    """

    stage: str
    user: str | None
    remote_host: str
    requested_vhost: str
    vhost: str | None
    candidate_vhost: str | None
    direction: str | None = None
    address: str | None = None


class Row(NamedTuple):
    """The key of a count. At most one of the vhosts is set, and neither beyond the limit of names."""

    outcome: Outcome
    reason: str
    candidate_reason: str
    vhost: str | None
    requested_vhost: str | None

    @property
    def identity(self) -> str:
        reason = self.candidate_reason if self.outcome == "would_deny" else self.reason
        if self.vhost is not None:
            place = f"vhost/{self.vhost}"
        elif self.requested_vhost is not None:
            place = f"requested/{self.requested_vhost}"
        else:
            place = "other"
        return f"shadowDisagreement/{self.outcome}/{reason}/{place}"


@dataclass(slots=True)
class _Told:
    """A reported event, and its repetitions.

    event    as it was reported the first time
    repeats  that are not reported yet
    """

    event: AuditEvent
    repeats: int = 0


class Disagreements:
    """Counts since the candidate was loaded, and events that must still be reported."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._counts: dict[Row, int] = {}
        self._requested: set[str] = set()
        self._told: dict[object, _Told] = {}
        self._sums: dict[object, _Told] = {}
        self._due: deque[_Told] = deque()

    def note(self, subject: Subject, *, is_denied: bool, real: Decision, own: Decision, event: MakeEvent) -> None:
        """Records one disagreement.

        is_denied  True if the candidate denies and the policy in force allows; False if it is the other way round
        real, own  the decisions of the policy in force and of the candidate
        event      makes the audit event of a decision; `shadow.count` is filled in
        """
        outcome: Outcome = "would_deny" if is_denied else "would_allow"
        row = self._row(outcome, subject, real, own)
        self._counts[row] = self._counts.get(row, 0) + 1
        self.tell(_DECISIONS[outcome], (subject, real.reason, own.reason), row, event)

    def tell(self, decision: AuditDecision, key: object, sum_key: object, event: MakeEvent) -> None:
        """Reports an event now, or with the next flush if an equal one has been reported.

        key      equal for equal events
        sum_key  equal for events that are reported together past MAX_TOLD. Clients cannot increase the number of these
                 keys
        """
        told = self._told.get((decision, key))
        if told is not None:
            told.repeats += 1
            return
        made = event(decision)
        if len(self._told) < MAX_TOLD:
            self._told[decision, key] = _Told(_bounded(made))
            self._say(made, 1)
            return
        summed = self._sums.get((decision, sum_key))
        if summed is None:
            summed = self._sums[decision, sum_key] = _Told(_anonymous(made))
        summed.repeats += 1

    def flush(self) -> None:
        """Reports the events that repeated since the last flush.

        Other events are reported at once if they occur again.
        """
        for _ in self.flushing():
            pass

    def flushing(self) -> Iterator[None]:
        """Does `flush` with one event in each step. The next flush reports the rest if the caller stops early."""
        told, sums = self._told, self._sums
        self._told = {key: _Told(each.event) for key, each in told.items() if each.repeats}
        self._sums = {}
        self._due += (each for each in (*told.values(), *sums.values()) if each.repeats)
        while self._due:
            each = self._due.popleft()
            self._say(each.event, each.repeats)
            yield

    def clear(self) -> None:
        """Starts all counts again for another candidate. Call `flush` before."""
        self._counts.clear()
        self._requested.clear()
        self._told.clear()

    def rows(self) -> Iterator[tuple[Row, int]]:
        """Iterates over the rows and their counts. A row added meanwhile may be missing."""
        return iter(list(self._counts.items()))

    def total(self, outcome: Outcome) -> int:
        return sum(count for row, count in self._counts.items() if row.outcome == outcome)

    def _row(self, outcome: Outcome, subject: Subject, real: Decision, own: Decision) -> Row:
        vhost = subject.candidate_vhost if subject.candidate_vhost is not None else subject.vhost
        requested = None
        if vhost is None:
            name = subject.requested_vhost
            if name in self._requested or len(self._requested) < MAX_REQUESTED_NAMES:
                self._requested.add(name)
                requested = name
        return Row(outcome, real.reason.value, own.reason.value, vhost, requested)

    def _say(self, event: AuditEvent, count: int) -> None:
        self._emit(Audit(event={**event, "shadow": {**event["shadow"], "count": count}}))
        level: LogLevel = "info" if event["decision"] in _DECISIONS.values() else "error"
        log(self._emit, "POLICY", level, _text(event, count))


def kept(text: str) -> str:
    """Returns the part of a text that is kept."""
    return text[:_MAX_KEPT_CHARS]


def _bounded(event: AuditEvent) -> AuditEvent:
    return cast(AuditEvent, {key: kept(value) if isinstance(value, str) else value for key, value in event.items()})


def _anonymous(event: AuditEvent) -> AuditEvent:
    """Returns the event for a sum, without the members that differ among its events."""
    return {
        "stage": event["stage"],
        "decision": event["decision"],
        "reason": event["reason"],
        "ruleset_digest": event.get("ruleset_digest"),
        "vhost": event.get("vhost"),
        "direction": event.get("direction"),
        "shadow": {
            **event["shadow"],
            "item": None,
            "file": None,
            "line": None,
            "total": None,
            "of_user": None,
            "of_host": None,
        },
        "detail": f"various users, hosts and addresses, beyond the {MAX_TOLD} told one by one",
    }


def _text(event: AuditEvent, count: int) -> str:
    """Returns `[C7] SHADOW DENY attach 'a' for user 'u', rhost 'h', vhost 'v': candidate no_vhost (…), in force …`."""
    shadow = event["shadow"]
    connection = f"[C{event['connection']}] " if event.get("connection") is not None else ""
    again = f", {count} times since this was last said" if count > 1 else ""
    if event["decision"] == "shadow_error":
        return f"{connection}SHADOW ERROR {event['stage']}: {event['detail']}{again}"
    verdict = "DENY" if event["decision"] == "shadow_deny" else "ALLOW"
    address = f" '{event['address']}'" if event.get("address") is not None else ""
    who = event["detail"]
    if "user" in event:
        vhost = shadow["vhost"] if shadow["vhost"] is not None else event["requested_vhost"]
        who = f"user '{event['user'] or ''}', rhost '{event['remote_host']}', vhost '{vhost}'"
    place = f", {shadow['file']}:{shadow['line']}" if shadow["file"] and shadow["line"] else ""
    rule = f" ({shadow['item']}{place})" if shadow["item"] else ""
    why = f"candidate {shadow['reason']}{rule}, in force {event['reason']}"
    return f"{connection}SHADOW {verdict} {event['stage']}{address} for {who}: {why}{again}"
