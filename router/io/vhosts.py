"""The vhosts in force: compiled from the configuration, changed by management, read anew from policyDir.

Whatever changes is compiled aside and swapped in whole; what does not compile changes nothing.
Sources: docs/spec/management.md §8.10, §2.4; docs/spec/policy-and-auth.md §1.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.hosts import Resolve
from policy.ruleset import PolicyError, Ruleset, VhostSource, compile_ruleset
from router.effects import Audit, Emit, log
from router.gate import Gate
from router.io.host_names import KnownNames, look_up, names_of
from router.management.config import ConfigError, Configuration, ConfiguredEntity, load_policy_dir
from router.management.entities import EntityStore, ManagementError
from router.management.schema import Schema

Written = tuple[Mapping[str, Any], VhostSource | None]  # a vhost's attributes, and where they stand


def compile_configured(configuration: Configuration, emit: Emit) -> Ruleset:
    """The ruleset of a configuration. Errors: PolicyError."""
    vhosts = [(entity.attributes, _source(entity)) for entity in configuration.of_type("vhost")]
    return compile_ruleset(configuration.policy, vhosts, resolve=_looked_up(vhosts, emit))


def _looked_up(vhosts: Sequence[Written], emit: Emit) -> Resolve:
    """The addresses of the names in the rules. May wait for name servers."""
    names = names_of(attributes for attributes, _ in vhosts)
    if names:
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        log(emit, "POLICY", "info", f"Looking up the host names of remoteHosts, {len(names)} in number: {shown}")
    return look_up(names)


def place_of(error: "PolicyError | ReloadError") -> str:
    """` (file:line)`, or nothing where that is not known."""
    return f" ({error.file}:{error.line})" if error.file is not None and error.line is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload of policyDir came to, in vhosts."""

    created: int
    updated: int
    deleted: int


class ReloadError(Exception):
    """policyDir as it is now cannot be used; the rules in force stay. file, line  None where that is not known"""

    def __init__(self, text: str, *, file: str | None = None, line: int | None = None) -> None:
        super().__init__(text)
        self.file = file
        self.line = line


def compile_folder(
    folder: str,
    schema: Schema,
    policy: Mapping[str, object],
    others: Sequence[Written] = (),
    *,
    attribute: str = "policyDir",
) -> tuple[Configuration, Ruleset]:
    """Read and compile a folder of policy files. Blocks: for the disk, and for name servers.

    policy     the attributes of the `policy` entity
    others     vhosts from elsewhere, which the ruleset has too
    attribute  the one of `policy` that names the folder
    Errors     ReloadError
    """
    try:
        fresh = load_policy_dir(folder, schema, attribute=attribute)
        vhosts = [*others, *((entity.attributes, _source(entity)) for entity in fresh.entities)]
        return fresh, compile_ruleset(policy, vhosts, resolve=look_up(names_of(each for each, _ in vhosts)))
    except ConfigError as error:
        raise ReloadError(error.reason, file=error.file, line=error.line) from None
    except PolicyError as error:
        raise ReloadError(str(error), file=error.file, line=error.line) from None


class Vhosts:
    """The owner of the rules in force: the only one who swaps `gate.ruleset`."""

    def __init__(
        self,
        configuration: Configuration,
        schema: Schema,
        store: EntityStore,
        gate: Gate,
        emit: Emit,
        on_change: Callable[[Ruleset], None],
    ) -> None:
        """on_change  is told which rules were in force until now"""
        self.names = KnownNames()
        self._policy = configuration.policy
        self._schema = schema
        self._store = store
        self._gate = gate
        self._emit = emit
        self._on_change = on_change
        self._folder = str(configuration.policy["policyDir"] or "")
        self._from_folder: dict[str, Mapping[str, Any]] = {}  # identity -> attributes as they were read
        self._sources: dict[str, VhostSource] = {}  # identity -> place, while it is as the file has it
        self._changes = self._failures = 0
        self._reading = asyncio.Lock()  # a signal may come while a change of the folder is being read
        for entity in configuration.of_type("vhost"):
            identity = str(entity.attributes["identity"])
            self._sources[identity] = _source(entity)
            if entity.file not in (None, configuration.path):
                self._from_folder[identity] = entity.attributes
        self._count(gate.ruleset)

    def _count(self, ruleset: Ruleset) -> None:
        for name in ruleset.vhosts:
            self._gate.ledger.ensure_vhost(name)

    def _log(self, text: str) -> None:
        log(self._emit, "POLICY", "info", text)

    def counters(self) -> Mapping[str, int]:
        """The statistics of the `policy` entity that are about changes of the rules."""
        return {"policyChanges": self._changes, "policyChangeFailures": self._failures}

    def _put_in_force(self, ruleset: Ruleset) -> None:
        before, self._gate.ruleset = self._gate.ruleset, ruleset
        self._changes += ruleset.digest != before.digest
        self._count(ruleset)
        self._on_change(before)

    def _refuse(self, what: str, error: PolicyError | ReloadError) -> None:
        """A change cannot be used: it changes nothing, and nobody can overlook it."""
        self._failures += 1
        text = f"{what} failed, the rules in force stay: {error}{place_of(error)}"
        log(self._emit, "POLICY", "error", text)
        event = {
            "stage": "policy",
            "decision": "deny",
            "reason": "invalid_policy",
            "detail": text,
            "rule": {"file": error.file, "line": error.line} if error.file is not None else None,
            "ruleset_digest": self._gate.ruleset.digest,
        }
        self._emit(Audit(event=event))

    # Management

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Errors: ManagementError; nothing has changed then."""
        self._change(attributes, "Created")

    def update(self, _before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self._change(after, "Updated")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        try:
            ruleset = self._gate.ruleset.without_vhost(str(attributes["hostname"]))
        except PolicyError as error:
            raise self._refused(attributes, error) from None
        self._put_in_force(ruleset)
        self._sources.pop(str(attributes["identity"]), None)

    def _change(self, attributes: Mapping[str, Any], verb: str) -> None:
        try:
            ruleset = self._gate.ruleset.with_vhost(attributes, resolve=self.names)
        except PolicyError as error:
            raise self._refused(attributes, error) from None
        self._put_in_force(ruleset)
        self._sources.pop(str(attributes["identity"]), None)
        self._log(f"{verb} policy rules for vhost {attributes['hostname']}")

    def _refused(self, attributes: Mapping[str, Any], error: PolicyError) -> ManagementError:
        self._refuse(f"Change of vhost '{attributes['hostname']}' by management", error)
        return ManagementError(500, f"PolicyError: {error}")

    # policyDir

    @property
    def has_folder(self) -> bool:
        return bool(self._folder)

    async def reload(self) -> None:
        """Read policyDir anew. Its files win over what management made of their vhosts since.

        Reading and compiling happen in a thread, the swap on the loop. What cannot be used changes nothing.
        """
        async with self._reading:
            try:
                done = await self._reloaded()
            except ReloadError as error:
                self._refuse("Reload of policyDir", error)
                return
        text = f"Reload of policyDir: {done.created} vhosts created, {done.updated} updated, {done.deleted} deleted"
        self._log(text)

    async def _reloaded(self) -> Reloaded:
        """Errors: ReloadError; nothing has changed then."""
        while True:
            before = self._gate.ruleset
            others = [
                (dict(attributes), self._sources.get(str(attributes["identity"])))
                for attributes in self._store.attributes("vhost")
                if str(attributes["identity"]) not in self._from_folder
            ]
            fresh, ruleset = await asyncio.to_thread(self._compile, others)
            if self._gate.ruleset is before:
                return self._take(fresh, ruleset)
            # Management changed a vhost meanwhile: once more, with that.

    def _compile(self, others: Sequence[Written]) -> tuple[Configuration, Ruleset]:
        return compile_folder(self._folder, self._schema, self._policy, others)

    def _take(self, fresh: Configuration, ruleset: Ruleset) -> Reloaded:
        by_identity = {str(entity.attributes["identity"]): entity for entity in fresh.entities}
        before = {
            identity: dict(entity.attributes)
            for identity in self._from_folder
            if (entity := self._store.find(identity=identity)) is not None
        }
        try:
            self._store.exchange(before, fresh.entities)
        except ManagementError as error:
            raise ReloadError(error.description) from None
        self._put_in_force(ruleset)
        for each in fresh.early_logs:
            self._emit(each)
        for text in ruleset.warnings:
            log(self._emit, "POLICY", "warning", text)
        for identity in self._from_folder:
            self._sources.pop(identity, None)
        self._sources |= {identity: _source(entity) for identity, entity in by_identity.items()}
        self._from_folder = {identity: entity.attributes for identity, entity in by_identity.items()}
        return Reloaded(
            created=sum(identity not in before for identity in by_identity),
            updated=sum(
                identity in before and before[identity] != entity.attributes for identity, entity in by_identity.items()
            ),
            deleted=sum(identity not in by_identity for identity in before),
        )


def _source(entity: ConfiguredEntity) -> VhostSource:
    return VhostSource(
        file=entity.file,
        line=entity.line,
        lines={(*path,): line for path, line in entity.attribute_lines.items()},
    )
