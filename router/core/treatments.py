"""Configured addresses (`router.config.address`): find the treatment of an address.

`router.management` checks whether an entity is valid. Sources: docs/spec/routing.md §3.3, §4.
"""

from collections.abc import Mapping
from typing import Any, Final

from policy.addressing.patterns import PatternTree, configured_tokens, split_tokens
from router.core.addresses import Distribution, Treatment

_DISTRIBUTIONS: Final[dict[str, Distribution]] = {
    "multicast": "multicast",
    "closest": "closest",
    "balanced": "balanced",
    "unavailable": "unavailable",
}

# The number of remembered answers. Attack: endless distinct addresses would fill the memory.
MAX_REMEMBERED: Final = 4096
MAX_REMEMBERED_CHARACTERS: Final = 1024


class AddressBook:
    """The configured treatments, found by best match. Live addresses keep their first treatment."""

    def __init__(self, default_distribution: str = "balanced") -> None:
        self._default = Treatment(distribution=_DISTRIBUTIONS[default_distribution])
        self._treatments: dict[str, Treatment] = {}  # normalised pattern → treatment
        self._tree: PatternTree | None = None  # built at the first question: a file adds a thousand at once
        self._remembered: dict[str, Treatment] = {}

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Adds one validated `address` entity, whose prefix or pattern is new."""
        priority = attributes.get("priority")
        self._treatments[_form(attributes)] = Treatment(
            distribution=_DISTRIBUTIONS.get(attributes.get("distribution") or "balanced", "balanced"),
            ingress_phase=int(attributes.get("ingressPhase") or 0),
            egress_phase=int(attributes.get("egressPhase") or 0),
            priority=-1 if priority is None else int(priority),
            has_fallback=bool(attributes.get("fallback")) and attributes.get("distribution") != "unavailable",
        )
        self._is_stale()

    def remove(self, attributes: Mapping[str, Any]) -> None:
        self._treatments.pop(_form(attributes), None)
        self._is_stale()

    def _is_stale(self) -> None:
        self._tree = None
        self._remembered.clear()

    def treatment_of(self, address: str) -> Treatment:
        """Returns the treatment of a normalised mobile address: the best match, else the router's default."""
        found = self._remembered.get(address)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            found = self.configured(address) or self._default
            if len(address) <= MAX_REMEMBERED_CHARACTERS:
                self._remembered[address] = found
        return found

    def configured(self, address: str) -> Treatment | None:
        """Returns the best match, or None if nothing is configured for the address."""
        if self._tree is None:
            self._tree = PatternTree((split_tokens(pattern), pattern) for pattern in self._treatments)
        pattern = self._tree.find(split_tokens(address))
        return self._treatments[pattern] if pattern is not None else None


def _form(attributes: Mapping[str, Any]) -> str:
    """Returns the key of an entity.

    Two entities that match the same have equal keys, and management refuses the second.
    """
    return "/".join(configured_tokens(attributes.get("prefix"), attributes.get("pattern")))
