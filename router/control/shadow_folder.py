"""shadowPolicyDir: the candidate policy, read from its folder at start, on SIGHUP and when it changes.

Reading runs in the background: a folder that cannot be read, or a name server that does not answer, delays nothing. As
with policyDir, what cannot be used changes nothing: the last usable candidate is still asked, and the error is shown.
Source: docs/policy.md, Shadow.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from policy.ruleset import PolicyError, Ruleset, assemble_ruleset
from router.admission.candidate import Shadow
from router.admission.connection_gate import Gate
from router.connection.stack import Stack
from router.control.policy_reader import FolderReader, ReadVhost, ReloadError
from router.control.vhosts import place_of
from router.effects import Audit, AuditEvent, Emit, LogLevel, log
from router.faults import fault_text
from router.io.folder_watch import FolderWatch, scan
from router.io.turns import take, turn
from router.management.config import is_policy_file
from router.management.owners import Owner
from router.management.query import Rows

SHADOW_DIR: Final = "shadowPolicyDir"  # attribute of the `policy` entity
SHADOW_TYPES: Final = ("shadowPolicy", "shadowDisagreement")
# Seconds between two reports of repeated disagreements.
FLUSH_S: Final = 60.0
_MAX_NAMED: Final = 5


class ShadowFolder:
    """The candidate's folder. All methods are called on the loop."""

    def __init__(
        self,
        policy: Mapping[str, object],
        shadow: Shadow,
        gate: Gate,
        connections: Mapping[int, Stack],
        emit: Emit,
    ) -> None:
        """policy     the attributes of the `policy` entity; the candidate uses them too, and is always enabled
        connections  all connections, the oldest first
        """
        self._folder = str(policy[SHADOW_DIR])
        self._reader = FolderReader(self._folder, SHADOW_DIR)
        self._policy = {**policy, "enableVhostPolicy": True}
        self._known: tuple[ReadVhost, ...] = ()
        self._shadow = shadow
        self._gate = gate
        self._connections = connections
        self._emit = emit
        self._error: str | None = None  # why the present folder cannot be used
        self._wants_reload = False
        self._loading: asyncio.Task[None] | None = None
        self._tasks = [asyncio.create_task(self._flush_for_ever())]
        scanned = partial(scan, self._folder, is_policy_file)
        self._watch = FolderWatch(scanned, self._changed, read_at_ns=time.time_ns())
        if every_s := int(str(policy["policyDirWatchSeconds"])):
            self._tasks.append(asyncio.create_task(self._watch.run(every_s, self._watching_failed)))
        self.reload()

    def reload(self) -> None:
        """Reads the folder again in the background, and asks its candidate from then on."""
        self._wants_reload = True
        self._reader.hurry()
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            while self._wants_reload:  # a reload was asked for during the read: once more
                self._wants_reload = False
                await self._watch.take()
                try:
                    ruleset = await self._read()
                except ReloadError as error:
                    self._fail(f"{error}{place_of(error)}", error)
                else:
                    await self._try(ruleset)
        except Exception as error:  # our own fault, which must not affect routing
            self._fail(fault_text(error))
        finally:
            self._loading = None

    async def _read(self) -> Ruleset:
        """Reads the folder and makes its ruleset. Errors: ReloadError"""
        fresh = await self._reader.read({read.key: read for read in self._known})
        try:
            ruleset = assemble_ruleset(self._policy, ((read.vhost, read.warnings) for read in fresh.vhosts))
        except PolicyError as error:
            raise ReloadError(str(error), file=error.file, line=error.line) from None
        self._known = fresh.vhosts
        return ruleset

    async def stop(self) -> None:
        """Stops, and reports the disagreements that have not been reported yet."""
        for task in (*self._tasks, *([self._loading] if self._loading is not None else [])):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._shadow.disagreements.flush()

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            with self._shadow.guard("policy"):
                await _in_slices(self._shadow.disagreements.flushing())

    async def _changed(self) -> bool:
        self.reload()
        return True

    def _watching_failed(self, error: Exception) -> None:
        log(self._emit, "ERROR", "error", f"Watching {SHADOW_DIR}: {fault_text(error)}")

    async def _try(self, ruleset: Ruleset) -> None:
        self._error = None
        await _in_slices(self._shadow.disagreements.flushing())  # before `use`, which would do it without pauses
        if not self._shadow.use(ruleset):
            self._log("info", "Candidate policy: no rule has changed")
            return
        for text in ruleset.warnings:
            self._log("warning", f"Candidate policy: {text}")
        self._log(
            "info",
            f"Candidate policy of {SHADOW_DIR} '{self._folder}': {len(ruleset.vhosts)} vhosts, digest "
            f"{ruleset.digest}; it is asked beside the policy in force and not enforced",
        )
        missing = [name for name in self._gate.ruleset.vhosts if name not in ruleset.vhosts]
        if missing:
            named = ", ".join(f"'{name}'" for name in missing[:_MAX_NAMED])
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            self._log("info", f"Candidate policy: it has no vhost {named}{more}, which the policy in force has")
        await _in_slices(self._ask_again(time.time()))

    def _ask_again(self, now: float) -> Iterator[None]:
        """Asks the new candidate about open connections, sessions and links, one at each step."""
        for connection in list(self._connections.values()):
            with self._shadow.guard("open"):
                yield from connection.ask_candidate(now)

    def _fail(self, text: str, error: ReloadError | None = None) -> None:
        self._error = text
        rest = "none is asked" if self._shadow.ruleset is None else "the last that could is asked on"
        detail = f"Candidate policy of {SHADOW_DIR} cannot be used, {rest}: {text}"
        self._log("error", detail)
        event: AuditEvent = {
            "stage": "policy",
            "decision": "shadow_error",
            "reason": "invalid_policy",
            "detail": detail,
            "ruleset_digest": self._gate.ruleset.digest,
            "shadow": {
                "reason": "invalid_policy",
                "file": error.file if error is not None else None,
                "line": error.line if error is not None else None,
                "count": 1,
            },
        }
        self._emit(Audit(event=event))

    def _log(self, level: LogLevel, text: str) -> None:
        log(self._emit, "POLICY", level, text)

    # Management

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The owners of SHADOW_TYPES."""
        rows = (self._policy_rows, self._disagreement_rows)
        return tuple(Owner(type=name, rows=Rows(make)) for name, make in zip(SHADOW_TYPES, rows, strict=True))

    def _policy_rows(self) -> Iterator[Mapping[str, Any]]:
        shadow, ruleset = self._shadow, self._shadow.ruleset
        if self._error is None:
            state = "loading" if ruleset is None else "active"
        else:
            state = "unusable" if ruleset is None else "stale"
        yield {
            "name": "shadowPolicy",
            "identity": "shadowPolicy",
            "folder": self._folder,
            "state": state,
            "error": self._error,
            "digest": ruleset.digest if ruleset is not None else None,
            "vhostCount": len(ruleset.vhosts) if ruleset is not None else None,
            "connectionCount": sum(connection.settings is not None for connection in shadow.connections),
            "decisions": shadow.decisions,
            "wouldDeny": shadow.disagreements.total("would_deny"),
            "wouldAllow": shadow.disagreements.total("would_allow"),
            "errors": shadow.faults,
        }

    def _disagreement_rows(self) -> Iterator[Mapping[str, Any]]:
        for row, count in self._shadow.disagreements.rows():
            yield {
                "name": row.identity,
                "identity": row.identity,
                "outcome": row.outcome,
                "vhost": row.vhost,
                "requestedVhost": row.requested_vhost,
                "reason": row.reason,
                "candidateReason": row.candidate_reason,
                "count": count,
            }


async def _in_slices(steps: Iterator[None]) -> None:
    while take(steps, turn()):
        await asyncio.sleep(0)
