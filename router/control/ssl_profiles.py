"""`sslProfile`: the files that TLS needs, and which listeners and connectors have read them.

Source: docs/spec/management.md §8.3.
"""

from collections.abc import Mapping
from typing import Any

from auth.tls import TlsProfileError
from policy.files.regular import why_unreadable
from router.control.security import ProfileSource, SecurityError, TlsFiles
from router.effects import Emit, log
from router.management.owners import Owner
from router.management.requests import ManagementError


class SslProfiles:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._sources: dict[str, ProfileSource] = {}
        self._in_use: dict[str, TlsFiles] = {}  # by name of the listener or connector

    @property
    def owner(self) -> Owner:
        return Owner(type="sslProfile", create=self.create, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> None:
        """Errors: ManagementError."""
        try:
            self._sources[attributes["name"]] = ProfileSource(attributes, self._emit)
        except SecurityError as error:
            raise ManagementError(500, f"CError: {error}") from None
        log(self._emit, "CONN_MGR", "info", f"Created SSL Profile with name {attributes['name']} ")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        """Listeners keep the copy they took (§8.3)."""
        self._sources.pop(attributes["name"], None)

    def find(self, name: str, user: str) -> ProfileSource:
        """The profile that a user, such as `listener 0.0.0.0:5671`, names. Errors: ManagementError."""
        found = self._sources.get(name)
        if found is None:
            known = ", ".join(sorted(self._sources)) or "none is defined"
            raise ManagementError(400, f"{user}: no sslProfile named '{name}' (known: {known})", "sslProfile")
        return found

    def use(self, name: str, files: TlsFiles, user: str) -> None:
        """Reload the files from now on, until `release`; warn now where they cannot be used.

        name  of the listener or connector. Later only the first peer to connect would meet the problem
        """
        self._in_use[name] = files
        try:
            _ = files.context
        except TlsProfileError as error:
            missing = [f"{path}: {why}" for path in files.paths if (why := why_unreadable(path))]
            what = f" ({'; '.join(missing)})" if missing else ""
            text = f"{user}: TLS will fail until sslProfile {files.profile.name} can be used: {error}{what}"
            log(self._emit, "CONN_MGR", "warning", text)

    def release(self, name: str) -> None:
        self._in_use.pop(name, None)

    def reload(self) -> None:
        """Read the files of every sslProfile in use anew; what cannot be used stays as it was."""
        for name, files in self._in_use.items():
            try:
                files.reload()
            except (TlsProfileError, SecurityError) as error:
                text = f"Reload of sslProfile {files.profile.name} for {name} failed, what it had stays in use: {error}"
                log(self._emit, "CONN_MGR", "error", text)
