"""`authServicePlugin`: known by name only. Source: docs/spec/management.md §6.5."""

from collections.abc import Mapping
from typing import Any

from router.effects import Emit, log
from router.management.owners import Owner


class SaslPlugins:
    """Listeners that refer to a plugin are refused, so that nobody is let in unasked."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def owner(self) -> Owner:
        return Owner(type="authServicePlugin", create=self.create, delete=self.delete)

    def create(self, attributes: Mapping[str, Any]) -> None:
        if attributes.get("authService"):
            text = "Attribute authService of entity authServicePlugin has been deprecated. Use host and port instead."
            log(self._emit, "CONN_MGR", "warning", text)
        self._names.add(attributes["name"])
        log(self._emit, "CONN_MGR", "info", f"Created SASL plugin config with name {attributes['name']}")

    def delete(self, attributes: Mapping[str, Any]) -> None:
        self._names.discard(attributes["name"])
