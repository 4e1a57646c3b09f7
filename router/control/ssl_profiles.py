"""`sslProfile`: the files of TLS, the listeners and connectors that use them, and reading the files again.

Files are read again on SIGHUP, when a file has changed, and on UPDATE. New connections use the latest files. Files that
cannot be used change nothing. Sources: docs/spec/management.md §8.3; docs/spec/policy-and-auth.md §6.7.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from auth.tls import TlsProfileError
from policy.configuration.references import profile_problem
from policy.files.regular import why_unreadable
from router.control.security import Made, ProfileSource, SecurityError, Seen, TlsFiles, entries
from router.effects import Audit, AuditEvent, Effect, Emit, log
from router.io.aside import ANSWER_S, Aside
from router.io.folder_watch import FolderWatch, Scan
from router.management.owners import Owner
from router.management.query import Rows
from router.management.requests import ManagementError

# Time before the end of a certificate from which the log warns, once a day.
REMIND_S: Final = 30 * 86400.0
DAY_S: Final = 86400.0

# (files as they are used now, name of the listener or connector): called when new connections use other files
Adopted = Callable[[TlsFiles, str], None]


# The listeners and connectors that use an sslProfile, by name, each with its TLS settings.
_Uses = list[tuple[str, TlsFiles]]


@dataclass(slots=True)
class _Reading:
    """One sslProfile that is read again, with its source as it was before."""

    source: ProfileSource
    uses: _Uses
    seen: Seen
    again: ProfileSource | None = None
    made: list[Made] = field(default_factory=list)
    error: str | None = None
    effects: list[Effect] = field(default_factory=list)

    def read(self) -> None:
        """Reads the files, in a thread; the result is kept here."""
        try:
            again = self.source.read_again(self.effects.append)
            self.made = [files.prepared(again) for _, files in self.uses]
            self.again = again
        except (TlsProfileError, SecurityError) as error:
            self.error = str(error)


class SslProfiles:
    def __init__(self, emit: Emit, wall_clock: Callable[[], float] = time.time) -> None:
        """wall_clock  seconds since 1970 UTC"""
        self._emit = emit
        self._wall_clock = wall_clock
        self._sources: dict[str, ProfileSource] = {}
        self._in_use: dict[str, Sequence[TlsFiles]] = {}  # by name of the listener or connector
        self._aside = Aside()
        self._remind_at: float | None = None  # monotonic seconds
        self.on_adopted: Adopted = lambda _files, _name: None
        self.watch = FolderWatch(self._scan_all, partial(self._read_anew, is_forced=False), read_at_ns=time.time_ns())

    @property
    def owner(self) -> Owner:
        rows = Rows(self.rows)
        return Owner(type="sslProfile", rows=rows, create=self.create, update=self.update, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Creates a profile. Errors: ManagementError."""
        try:
            source = ProfileSource(attributes, self._emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        self._sources[attributes["name"]] = source
        log(self._emit, "CONN_MGR", "info", f"Created SSL Profile with name {attributes['name']} ")

    def update(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Changes a profile for the next connections of its users. Errors: ManagementError; then nothing has changed.

        Users that took their copy from a deleted profile of the same name keep it.
        """
        name = after["name"]
        source = self._sources[name]
        uses = next(uses for each, uses in self._all() if each is source)
        try:
            again = ProfileSource(after, self._emit)
            made = [files.prepared(again) for _, files in uses]
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        except TlsProfileError as error:
            raise ManagementError(400, f"sslProfile '{name}' stays as it was: {error}{_faults(again)}") from None
        self._adopt(source, again, uses, made)
        log(self._emit, "CONN_MGR", "info", f"Updated SSL Profile with name {name} ")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        """Deletes a profile; listeners keep the copy that they took (§8.3)."""
        self._sources.pop(attributes["name"], None)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        for name, source in list(self._sources.items()):
            if source.certificate_ends_at_s is not None:
                left_s = source.certificate_ends_at_s - self._wall_clock()
                yield {"name": name, "daysToExpiry": int(left_s // DAY_S)}

    def find(self, name: str, user: str) -> ProfileSource:
        """Returns the profile that a user, such as `listener 0.0.0.0:5671`, names. Errors: ManagementError."""
        found = self._sources.get(name)
        if found is None:
            raise ManagementError(400, profile_problem(user, name, self._sources) or "", "sslProfile")
        return found

    def use(self, name: str, files: Sequence[TlsFiles], user: str, *, is_required: bool = False) -> None:
        """Reloads the files from now on, until `release`; warns now if they cannot be used.

        name         of the listener or connector. Without a warning only the first peer would see the problem
        is_required  no peer can log in without TLS. Errors: ManagementError if the files cannot be used
        """
        self._in_use[name] = files
        for each in files:
            if each.trusted_file:
                each.source.seen |= entries(each.trusted_file)
            try:
                _ = each.context
            except TlsProfileError as error:
                what = f"{error}{_faults(each.source)}"
                if is_required:
                    self.release(name)
                    text = f"{user}: sslProfile {each.profile.name} cannot be used, and requireSsl is on: {what}"
                    raise ManagementError(400, text, "sslProfile") from None
                until = f"TLS will fail until sslProfile {each.profile.name} can be used"
                log(self._emit, "CONN_MGR", "warning", f"{user}: {until}: {what}")

    def release(self, name: str) -> None:
        self._in_use.pop(name, None)

    # Reading the files again

    async def reload(self) -> None:
        """Reads the files of every sslProfile again on SIGHUP, changed or not."""
        await self._read_anew(is_forced=True)

    async def _read_anew(self, *, is_forced: bool) -> bool:
        """Reads the changed files again, or all. Returns True if the disk has answered."""
        try:
            readings = await self._aside.run(partial(self._readings, is_forced=is_forced))
        except TimeoutError:
            text = f"Reload of sslProfiles: the files could not be read within {ANSWER_S:g} s; what they had stays"
            log(self._emit, "CONN_MGR", "error", text)
            return False
        for each in readings:
            self._take(each)
        return True

    def _readings(self, *, is_forced: bool) -> list[_Reading]:
        """Reads the profiles, in a thread."""
        readings = []
        for source, uses in self._all():
            seen = _scan(source, uses)
            if is_forced or not seen <= source.seen:
                reading = _Reading(source, uses, seen)
                reading.read()
                readings.append(reading)
        return readings

    def _take(self, reading: _Reading) -> None:
        """Uses what was read, on the loop, unless another profile has replaced this one."""
        source, name = reading.source, reading.source.profile.name
        if not any(each is source for each, _ in self._all()):
            return
        has_changed = not reading.seen <= source.seen
        source.seen = reading.seen
        for effect in reading.effects:
            self._emit(effect)
        users = ", ".join(sorted({user for user, _ in reading.uses})) or "nobody"
        if reading.again is None:
            why = f"{reading.error}{_faults(source)}"
            text = f"Reload of sslProfile {name} for {users} failed, what it had stays in use: {why}"
            log(self._emit, "CONN_MGR", "error", text)
            if has_changed:
                self._record("deny", text)
            return
        self._adopt(source, reading.again, reading.uses, reading.made)
        if has_changed and reading.uses:
            text = f"Reload of sslProfile {name} for {users}: new connections use its files as they are now"
            log(self._emit, "CONN_MGR", "info", text)
            self._record("allow", text)

    def _adopt(self, source: ProfileSource, again: ProfileSource, uses: _Uses, made: Sequence[Made]) -> None:
        name = source.profile.name
        if self._sources.get(name) is source:
            self._sources[name] = again
        again.seen |= _scan(again, uses)
        for (user, files), each in zip(uses, made, strict=True):
            if files.source is source and any(files is one for one in self._in_use.get(user, ())):
                files.adopt(each)
                self.on_adopted(files, user)
        for user, files in _late(self._all(), source):  # came while the files were read
            with suppress(TlsProfileError):
                files.adopt(files.prepared(again))
                self.on_adopted(files, user)
        self._remind(again)

    def _record(self, decision: str, text: str) -> None:
        event: AuditEvent = {"stage": "tls", "decision": "deny", "reason": "tls_configuration", "detail": text[:1024]}
        if decision == "allow":
            event["decision"], event["reason"] = "allow", "allowed"
        self._emit(Audit(event=event))

    def _all(self) -> list[tuple[ProfileSource, _Uses]]:
        """Returns the sources that can still be used, each with its users."""
        found: dict[int, tuple[ProfileSource, _Uses]] = {
            id(source): (source, []) for source in list(self._sources.values())
        }
        for name, use in list(self._in_use.items()):
            for files in use:
                source = files.source
                found.setdefault(id(source), (source, []))[1].append((name, files))
        return list(found.values())

    def _scan_all(self) -> Scan:
        """Returns the state of all files. Runs in a thread."""
        return tuple(sorted({entry for source, uses in self._all() for entry in _scan(source, uses)}))

    # The end of certificates

    def on_second(self, now: float) -> None:
        """Warns about certificates once a day.

        now  monotonic seconds
        """
        if self._remind_at is None or now >= self._remind_at:
            self._remind_at = now + DAY_S
            for source, _ in self._all():
                self._remind(source)

    def _remind(self, source: ProfileSource) -> None:
        """Warns that the certificate, or a revocation list, has ended or will end soon."""
        now, name, profile = self._wall_clock(), source.profile.name, source.profile
        end_s = source.certificate_ends_at_s
        if end_s is not None and end_s - now <= REMIND_S:
            days = int((end_s - now) // DAY_S)
            when = f"in {days} days" if days > 1 else "in a day" if days == 1 else "in less than a day"
            what = f"expires {when}" if end_s > now else "has expired: peers refuse it"
            log(self._emit, "CONN_MGR", "warning", f"sslProfile {name}: the certificate in {profile.cert_file} {what}")
        if source.lists_end_at_s is not None and source.lists_end_at_s <= now:
            text = f"a revocation list in {profile.crl_file} has expired: certificates of its authority are refused"
            log(self._emit, "CONN_MGR", "error", f"sslProfile {name}: {text}")


def _scan(source: ProfileSource, uses: _Uses) -> Seen:
    """Returns the state of the files that a profile and its users read."""
    found = source.scan()
    for _, files in uses:
        if files.trusted_file:
            found |= entries(files.trusted_file)
    return found


def _late(all_uses: list[tuple[ProfileSource, _Uses]], source: ProfileSource) -> _Uses:
    return next((uses for each, uses in all_uses if each is source), [])


def _faults(source: ProfileSource) -> str:
    """Returns the faults of its files, in brackets."""
    # Imported here, because most starts need no reader of keys.
    from auth.tls_files import file_faults

    found = [*file_faults(source.profile)]
    others = (path for path in source.paths if not os.path.isdir(path) and not any(path in text for text in found))
    found += [f"{path}: {why}" for path in others if (why := why_unreadable(path))]
    return f" ({'; '.join(found)})" if found else ""
