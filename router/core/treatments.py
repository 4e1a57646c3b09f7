"""Configured addresses (`router.config.address`): which treatment an address string gets.

Sources: docs/spec/routing.md §3.3, §4; docs/spec/management.md §8.6 (texts and order of the checks).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.patterns import PatternTree, normalise_tokens, split_tokens
from router.core.addresses import Distribution, Treatment

_DISTRIBUTIONS: Final[dict[str, Distribution]] = {
    "multicast": "multicast",
    "closest": "closest",
    "balanced": "balanced",
    "unavailable": "unavailable",
}

# Remembered answers; stops endless distinct addresses from growing the memory.
MAX_REMEMBERED: Final = 4096


class AddressError(ValueError):
    """The entity cannot be created; the text is the statusDescription."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredAddress:
    """One `address` entity."""

    identity: str
    name: str | None
    prefix: str | None
    pattern: str | None
    treatment: Treatment
    tokens: tuple[str, ...]

    def row(self) -> Mapping[str, Any]:
        treatment = self.treatment
        return {
            "name": self.name,
            "identity": self.identity,
            "type": "org.apache.qpid.dispatch.router.config.address",
            "prefix": self.prefix,
            "distribution": treatment.distribution,
            "waypoint": (treatment.ingress_phase, treatment.egress_phase) == (0, 1),
            "ingressPhase": treatment.ingress_phase,
            "egressPhase": treatment.egress_phase,
            "pattern": self.pattern,
            "priority": treatment.priority,
            "fallback": False,
            "enableFallback": False,
        }


def _text(attributes: Mapping[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise AddressError(f"{key.capitalize()} must be a non-empty string type")
    return value


def _phases(attributes: Mapping[str, Any]) -> tuple[int, int]:
    ingress, egress = attributes.get("ingressPhase"), attributes.get("egressPhase")
    if ingress is None and egress is None:
        return (0, 1) if attributes.get("waypoint") else (0, 0)
    if ingress is None or egress is None or not (0 <= int(ingress) <= 9 and 0 <= int(egress) <= 9):
        raise AddressError("Phase values must be between 0 and 9")
    return int(ingress), int(egress)


class AddressBook:
    """All configured addresses of one router, in the order they were made."""

    def __init__(self, default_distribution: Distribution = "balanced") -> None:
        self._default = Treatment(distribution=default_distribution)
        self._entries: dict[str, ConfiguredAddress] = {}  # identity → entry
        self._by_pattern: dict[str, ConfiguredAddress] = {}
        self._tree = PatternTree(())
        self._remembered: dict[str, Treatment] = {}

    def __iter__(self) -> Iterator[ConfiguredAddress]:
        return iter(self._entries.values())

    def add(self, attributes: Mapping[str, Any], *, identity: str) -> ConfiguredAddress:
        """Make an entity. Existing live addresses keep their treatment. Errors: AddressError."""
        name = attributes.get("name")
        if name is not None and any(entry.name == name for entry in self._entries.values()):
            raise AddressError("Name conflicts with an existing entity")
        has_fallback = bool(attributes.get("enableFallback") or attributes.get("fallback"))
        has_prefix, has_pattern = attributes.get("prefix") is not None, attributes.get("pattern") is not None
        if not has_prefix and not has_pattern:
            raise AddressError("Either a 'prefix' or 'pattern' attribute must be provided")
        if has_prefix and has_pattern:
            raise AddressError("Cannot specify both a 'prefix' and a 'pattern' attribute")
        prefix, pattern = _text(attributes, "prefix"), _text(attributes, "pattern")
        tokens = split_tokens((prefix or pattern or "").strip("./"))
        if not tokens:
            raise AddressError(f"{'Prefix' if prefix is not None else 'Pattern'} invalid - no tokens")
        phases = _phases(attributes)
        if has_fallback and phases != (0, 0):
            raise AddressError(
                "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
            )
        priority = attributes.get("priority")
        if priority is not None and not -1 <= int(priority) <= 9:
            raise AddressError("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")
        normal = normalise_tokens([*tokens, "#"] if prefix is not None else tokens)
        if "/".join(normal) in self._by_pattern:
            raise AddressError("Already exists")
        entry = ConfiguredAddress(
            identity=identity,
            name=name,
            prefix=prefix.strip("./") if prefix is not None else None,
            pattern=pattern.strip("./") if pattern is not None else None,
            treatment=Treatment(
                distribution=_DISTRIBUTIONS.get(attributes.get("distribution") or "balanced", "balanced"),
                ingress_phase=phases[0],
                egress_phase=phases[1],
                priority=-1 if priority is None else int(priority),
            ),
            tokens=normal,
        )
        self._entries[identity] = entry
        self._by_pattern["/".join(normal)] = entry
        self._rebuild()
        return entry

    def find(self, *, identity: str | None = None, name: str | None = None) -> ConfiguredAddress | None:
        if identity is not None:
            return self._entries.get(identity)
        return next((entry for entry in self._entries.values() if entry.name == name), None)

    def remove(self, entry: ConfiguredAddress) -> None:
        del self._entries[entry.identity]
        del self._by_pattern["/".join(entry.tokens)]
        self._rebuild()

    def _rebuild(self) -> None:
        self._tree = PatternTree((entry.tokens, pattern) for pattern, entry in self._by_pattern.items())
        self._remembered.clear()

    def treatment_of(self, address: str) -> Treatment:
        """The treatment of a normalised mobile address: best match, else the router's default."""
        found = self._remembered.get(address)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            pattern = self._tree.find(split_tokens(address))
            found = self._by_pattern[pattern].treatment if pattern is not None else self._default
            self._remembered[address] = found
        return found
