"""The vhosts in force: compiled from the configuration, changed by management, read again from policyDir.

A change is compiled first and then replaces the rules as a whole. A change that does not compile changes nothing.
Sources: docs/spec/management.md §8.10, §2.4; docs/spec/policy-and-auth.md §1.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from policy.analysis.pattern_notes import pattern_notes
from policy.hosts import Resolve
from policy.ruleset import PolicyError, Ruleset, Vhost, assemble_ruleset, compile_ruleset
from router.admission.connection_gate import Gate
from router.control.policy_reader import FolderReader, OvertakenError, ReadFolder, ReadVhost, ReloadError, key_of
from router.effects import Audit, AuditEvent, Emit, log
from router.io.folder_watch import FolderWatch, scan
from router.io.host_names import KnownNames, look_up, names_of
from router.management.config import Configuration, ConfiguredEntity, is_policy_file
from router.management.entities import EntityStore
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError

# Maximum number of changed vhosts that the record of a reload names, and of characters of each name.
MAX_NAMES: Final = 10
MAX_NAME_CHARACTERS: Final = 60


def compile_configured(configuration: Configuration, emit: Emit) -> Ruleset:
    """Returns the ruleset of a configuration. Errors: PolicyError."""
    entities = configuration.of_type("vhost")
    vhosts = [(entity.attributes, entity.source) for entity in entities]
    return compile_ruleset(configuration.policy, vhosts, resolve=_looked_up(entities, emit))


def _looked_up(vhosts: Sequence[ConfiguredEntity], emit: Emit) -> Resolve:
    """Returns the addresses of the host names in the rules. May wait for name servers."""
    names = names_of(entity.attributes for entity in vhosts)
    if names:
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        log(emit, "POLICY", "info", f"Looking up the host names of remoteHosts, {len(names)} in number: {shown}")
    return look_up(names)


def tell_of(ruleset: Ruleset, vhost: Vhost, emit: Emit) -> None:
    """Logs the warnings and notes on a vhost that comes into force, for its author."""
    for text in ruleset.vhost_warnings[vhost.name]:
        log(emit, "POLICY", "warning", text)
    for note in pattern_notes(ruleset, (vhost,)):
        log(emit, note.module, note.level, note.text)


def place_of(error: "PolicyError | ReloadError") -> str:
    """Returns ` (file:line)` of the error, or "" if it is not known."""
    return f" ({error.file}:{error.line})" if error.file is not None and error.line is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The outcome of a reload of policyDir, in numbers of vhosts."""

    created: int
    updated: int
    deleted: int


def _digest_of(ruleset: Ruleset, name: str) -> bytes | None:
    vhost = ruleset.vhosts.get(name)
    return vhost.digest if vhost is not None else None


class Vhosts:
    """The owner of the rules in force: only this class replaces `gate.ruleset`."""

    def __init__(
        self,
        configuration: Configuration,
        store: EntityStore,
        gate: Gate,
        emit: Emit,
        on_change: Callable[[Ruleset], None],
    ) -> None:
        """on_change  receives the rules that were in force until now"""
        self.names = KnownNames()
        self._policy = configuration.policy
        self._store = store
        self._gate = gate
        self._emit = emit
        self._on_change = on_change
        self._folder = str(configuration.policy["policyDir"] or "")
        self._reader = FolderReader(self._folder, "policyDir")
        self._from_folder: dict[str, ReadVhost] = {}  # by identity, as they were read
        self._changes = self._failures = 0
        self._changed_at_s = time.monotonic()
        self._reading = asyncio.Lock()  # a signal may come while a change of the folder is being read
        for entity in configuration.of_type("vhost"):
            identity = str(entity.attributes["identity"])
            if entity.source.file not in (None, configuration.path):
                vhost = gate.ruleset.vhosts[str(entity.attributes["hostname"])]
                warnings = gate.ruleset.vhost_warnings[vhost.name]
                self._from_folder[identity] = ReadVhost(key_of(entity, vhost), entity, vhost, warnings)
        self._count(gate.ruleset)

    def _count(self, ruleset: Ruleset) -> None:
        for name in ruleset.vhosts:
            self._gate.ledger.ensure_vhost(name)

    def _log(self, text: str) -> None:
        log(self._emit, "POLICY", "info", text)

    def _put_in_force(self, ruleset: Ruleset) -> None:
        before, self._gate.ruleset = self._gate.ruleset, ruleset
        if ruleset.digest != before.digest:
            self._changes += 1
            self._changed_at_s = time.monotonic()
        self._count(ruleset)
        self._on_change(before)

    def _refuse(self, what: str, error: PolicyError | ReloadError) -> None:
        """Reports a change that cannot be used, in the log and in the audit. The change has no effect."""
        self._failures += 1
        text = f"{what} failed, the rules in force stay: {error}{place_of(error)}"
        log(self._emit, "POLICY", "error", text)
        event: AuditEvent = {
            "stage": "policy",
            "decision": "deny",
            "reason": "invalid_policy",
            "detail": text,
            "rule": {"file": error.file, "line": error.line} if error.file is not None else None,
            "ruleset_digest": self._gate.ruleset.digest,
        }
        self._emit(Audit(event=event))

    def _record_reload(self, before: Ruleset, after: Ruleset) -> None:
        """Records which rules a reload changed. The author of the change is not known here."""
        names = sorted({*before.vhosts, *after.vhosts})
        others = [name for name in names if _digest_of(before, name) != _digest_of(after, name)]
        shown = ", ".join(f"'{name[:MAX_NAME_CHARACTERS]}'" for name in others[:MAX_NAMES])
        more = f" and {len(others) - MAX_NAMES} more" if len(others) > MAX_NAMES else ""
        text = f"Reload of policyDir: the rules of {shown}{more} are others than before, when the digest was"
        event: AuditEvent = {
            "stage": "policy",
            "decision": "allow",
            "reason": "allowed",
            "detail": f"{text} {before.digest}",
            "ruleset_digest": after.digest,
        }
        self._emit(Audit(event=event))

    # Management

    @property
    def owners(self) -> tuple[Owner, ...]:
        return (
            Owner(type="vhost", create=self.create, update=self.update, delete=self.delete),
            Owner(type="policy", rows=Rows(self.policy_rows)),
        )

    def in_force(self) -> dict[str, int]:
        """Returns the numbers of /metrics about the ruleset in force."""
        age_s = int(time.monotonic() - self._changed_at_s)
        return {"policyGeneration": self._changes + 1, "policyAge": age_s, "policyFailures": self._failures}

    def policy_rows(self) -> Iterator[Mapping[str, Any]]:
        changes = {"policyChanges": self._changes, "policyChangeFailures": self._failures}
        yield {**self._policy, **self._gate.ledger.policy_counters(), **changes}

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Creates a vhost. Errors: ManagementError; nothing has changed then."""
        self._change(attributes, "Created")

    def update(self, _before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self._change(after, "Updated")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        try:
            ruleset = self._gate.ruleset.without_vhost(str(attributes["hostname"]))
        except PolicyError as error:
            raise self._refused(attributes, error) from None
        self._put_in_force(ruleset)

    def _change(self, attributes: Mapping[str, Any], verb: str) -> None:
        try:
            ruleset = self._gate.ruleset.with_vhost(attributes, resolve=self.names)
        except PolicyError as error:
            raise self._refused(attributes, error) from None
        self._put_in_force(ruleset)
        tell_of(ruleset, ruleset.vhosts[str(attributes["hostname"])], self._emit)
        self._log(f"{verb} policy rules for vhost {attributes['hostname']}")

    def _refused(self, attributes: Mapping[str, Any], error: PolicyError) -> ManagementError:
        self._refuse(f"Change of vhost '{attributes['hostname']}' by management", error)
        return ManagementError(500, f"PolicyError: {error}")

    # policyDir

    @property
    def has_folder(self) -> bool:
        return bool(self._folder)

    def watch(self, read_at_ns: int) -> FolderWatch:
        """Returns a watch of the folder, which reloads it after a change.

        read_at_ns  see FolderWatch
        """
        return FolderWatch(partial(scan, self._folder, is_policy_file), self.reload, read_at_ns=read_at_ns)

    def hurry(self) -> None:
        """Ends a read that takes long, because another reload is wanted."""
        self._reader.hurry()

    async def reload(self) -> bool:
        """Reads policyDir again. Its files replace changes that management has made to their vhosts.

        A process reads and compiles; the rules are replaced on the loop. A folder that cannot be used changes nothing.
        A running read that takes long is ended, because it reads an older state. Returns False if another attempt may
        help.
        """
        self.hurry()
        async with self._reading:
            try:
                done = await self._reloaded()
            except OvertakenError as error:
                self._refuse("Reload of policyDir", error)
                return True  # the newer read is waiting
            except ReloadError as error:
                self._refuse("Reload of policyDir", error)
                return not error.may_pass
        text = f"Reload of policyDir: {done.created} vhosts created, {done.updated} updated, {done.deleted} deleted"
        self._log(text)
        return True

    async def _reloaded(self) -> Reloaded:
        """Reads the folder and puts its vhosts in force. Errors: ReloadError; nothing has changed then."""
        known = {read.key: read for read in self._from_folder.values()}
        fresh = await self._reader.read(known)
        # No other task runs from here on: the ruleset in force contains what management has changed during the read.
        in_force = self._gate.ruleset
        mine = {read.vhost.name for read in self._from_folder.values()}
        others = [(vhost, in_force.vhost_warnings[name]) for name, vhost in in_force.vhosts.items() if name not in mine]
        try:
            ruleset = assemble_ruleset(self._policy, [*others, *((read.vhost, read.warnings) for read in fresh.vhosts)])
        except PolicyError as error:
            raise ReloadError(str(error), file=error.file, line=error.line) from None
        return self._take(fresh, ruleset)

    def _take(self, fresh: ReadFolder, ruleset: Ruleset) -> Reloaded:
        """Puts the read vhosts in force, and updates the entities that management shows if they differ."""
        coming = {str(read.entity.attributes["identity"]): read for read in fresh.vhosts}
        shown = {identity: self._store.find(identity=identity) for identity in {**self._from_folder, **coming}}
        going = {identity for identity in self._from_folder if shown[identity] is not None}
        same = {
            identity
            for identity in going & coming.keys()
            if (entity := shown[identity]) is not None and entity.attributes == coming[identity].entity.attributes
        }
        made = [read.entity for identity, read in coming.items() if identity not in same]
        try:
            self._store.exchange(going - same, made)
        except ManagementError as error:
            raise ReloadError(error.description) from None
        before = self._gate.ruleset
        self._put_in_force(ruleset)
        if ruleset.digest != before.digest:
            self._record_reload(before, ruleset)
        for each in fresh.logs:
            self._emit(each)
        known = {read.key for read in self._from_folder.values()}
        for read in fresh.vhosts:
            if read.key not in known:
                tell_of(ruleset, read.vhost, self._emit)
        self._from_folder = coming
        return Reloaded(
            created=len(coming.keys() - going),
            updated=len(going & coming.keys()) - len(same),
            deleted=len(going - coming.keys()),
        )
