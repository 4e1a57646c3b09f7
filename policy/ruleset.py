"""The rules in force, compiled: an immutable value that is replaced as a whole.

Pure: `resolve`, an argument, looks up host names. A compilation that fails changes nothing.
Source: docs/spec/policy-and-auth.md §1.1, §2.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from policy.addressing.patterns import PatternTree, normalise, split_tokens
from policy.attributes import InvalidValue, PolicyError, SourceLocation, read_integer
from policy.groups import MAX_VALUE
from policy.hosts import Resolve
from policy.vhosts import Vhost, compile_vhost

__all__ = ["PolicyError", "Ruleset", "SourceLocation", "Vhost", "assemble_ruleset", "compile_ruleset"]

DEFAULT_MAX_CONNECTIONS = 65535
DEFAULT_VHOST = "$default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruleset:
    """The `policy` entity and every vhost.

    default_vhost  name of the vhost that is used if no other matches; "" for none
    vhosts         hostname -> vhost
    owners         hostname or alias -> hostname
    tree           hostnames and aliases as patterns; None without enableVhostNamePatterns
    warnings       texts for the log: of the policy, then of each vhost
    boundaries     when groups start and stop being valid, seconds since 1970 UTC, ascending; decisions may change at
                   such an instant, and not in between
    digest         sha256 in hexadecimal over the rules with host names resolved; independent of order and place
    """

    is_enabled: bool
    max_connections: int
    max_message_size: int
    uses_name_patterns: bool
    default_vhost: str
    vhosts: Mapping[str, Vhost] = field(repr=False)
    owners: Mapping[str, str] = field(repr=False)
    tree: PatternTree | None = field(repr=False, compare=False)
    vhost_warnings: Mapping[str, tuple[str, ...]] = field(repr=False)
    policy_warnings: tuple[str, ...]
    boundaries: tuple[float, ...] = field(repr=False)
    digest: str

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.policy_warnings + tuple(text for texts in self.vhost_warnings.values() for text in texts)

    def select_vhost(self, requested: str) -> Vhost | None:
        """Returns the vhost that governs a connection which asks for `requested` (§2.7). None: no policy, so deny."""
        name = requested if self.tree is None else self.find_pattern(requested)
        if name is not None and (owner := self.owners.get(name)) is not None:
            return self.vhosts[owner]
        return self.vhosts.get(self.default_vhost) if self.default_vhost else None

    def find_pattern(self, requested: str) -> str | None:
        """Returns the name or alias that matches best (§2.7), with enableVhostNamePatterns. None if none matches.

        Names of only separators match nothing. A blank name is not a pattern, and matches a blank request.
        """
        if self.tree is None:
            return None
        return requested if not requested and requested in self.owners else self.tree.find(split_tokens(requested))

    def with_vhost(
        self, attributes: Mapping[str, object], source: SourceLocation | None = None, *, resolve: Resolve
    ) -> "Ruleset":
        """Returns this ruleset with a vhost added, or replaced if one of that name exists. Raises PolicyError.

        Cost  proportional to the number of vhosts; use compile_ruleset to load many.
        """
        vhost, texts = compile_vhost(attributes, source, resolve=resolve)
        names = _Names(self.uses_name_patterns)
        for other in self.vhosts.values():
            if other.name != vhost.name:
                names.claim(other)
        names.claim(vhost)
        vhosts = {**self.vhosts, vhost.name: vhost}
        return _assembled(self, vhosts, names, {**self.vhost_warnings, vhost.name: texts})

    def without_vhost(self, hostname: str) -> "Ruleset":
        """Returns this ruleset without a vhost and its aliases. Raises PolicyError if there is no such vhost."""
        if hostname not in self.vhosts:
            raise PolicyError(f"Policy '{hostname}' does not exist")
        vhosts = {name: vhost for name, vhost in self.vhosts.items() if name != hostname}
        names = _Names(self.uses_name_patterns)
        for vhost in vhosts.values():
            names.claim(vhost)
        return _assembled(self, vhosts, names, {name: self.vhost_warnings[name] for name in vhosts})


def compile_ruleset(
    policy: Mapping[str, object],
    vhosts: Iterable[tuple[Mapping[str, object], SourceLocation | None]],
    *,
    resolve: Resolve,
) -> Ruleset:
    """Compiles the attributes of the `policy` entity and of every `vhost`.

    policy   absent attributes have their defaults; {} is a router without a policy section
    vhosts   attribute maps as written, each with its place if there is one
    resolve  host name -> numeric addresses; raises OSError
    Errors   PolicyError, for the first fault
    """
    return assemble_ruleset(
        policy, (compile_vhost(attributes, source, resolve=resolve) for attributes, source in vhosts)
    )


def assemble_ruleset(policy: Mapping[str, object], vhosts: Iterable[tuple[Vhost, tuple[str, ...]]]) -> Ruleset:
    """Does the same as compile_ruleset for compiled vhosts, each with its warning texts. Errors: PolicyError"""
    is_enabled = _flag(policy, "enableVhostPolicy")
    uses_name_patterns = _flag(policy, "enableVhostNamePatterns")
    max_message_size = _number(policy, "maxMessageSize", 0)
    policy_warnings = []
    if max_message_size and not is_enabled:
        policy_warnings.append("Policy maxMessageSize has no effect because enableVhostPolicy is false")
    compiled: dict[str, Vhost] = {}
    warnings: dict[str, tuple[str, ...]] = {}
    names = _Names(uses_name_patterns)
    for vhost, texts in vhosts:
        if vhost.name in compiled:
            raise _error(f"Policy '{vhost.name}' is defined more than once", vhost.source)
        names.claim(vhost)
        compiled[vhost.name], warnings[vhost.name] = vhost, texts
    default_vhost = policy.get("defaultVhost")
    base = Ruleset(
        is_enabled=is_enabled,
        max_connections=_number(policy, "maxConnections", DEFAULT_MAX_CONNECTIONS),
        max_message_size=max_message_size,
        uses_name_patterns=uses_name_patterns,
        default_vhost=DEFAULT_VHOST if default_vhost is None else str(default_vhost),
        vhosts={},
        owners={},
        tree=None,
        vhost_warnings={},
        policy_warnings=tuple(policy_warnings),
        boundaries=(),
        digest="",
    )
    return _assembled(base, compiled, names, warnings)


class _Names:
    """The hostnames and aliases of a ruleset under construction, each claimed by one vhost."""

    def __init__(self, uses_name_patterns: bool) -> None:
        self.owners: dict[str, str] = {}  # hostname or alias -> hostname
        self.normalised: set[str] | None = set() if uses_name_patterns else None

    def claim(self, vhost: Vhost) -> None:
        """Claims the names of a vhost. Raises PolicyError if another vhost has one of them."""
        name = vhost.name
        if (owner := self.owners.get(name)) is not None:
            text = f"Policy is creating vhost '{name}' but that name is already an alias for vhost '{owner}'"
            raise _error(text, vhost.source)
        for alias in vhost.aliases:
            owner = self.owners.get(alias)
            if owner == alias:
                text = f"Policy for vhost '{name}' defines alias '{alias}' which conflicts with an existing vhost named"
                raise _error(f"{text} '{alias}'", vhost.source, "aliases")
            if owner is not None:
                text = f"Policy for vhost '{name}' alias '{alias}' conflicts with existing alias for vhost '{owner}'"
                raise _error(text, vhost.source, "aliases")
        for text in (name, *vhost.aliases):
            if self.normalised is not None:
                if (pattern := normalise(text)) in self.normalised:
                    problem = f"alias '{text}' optimized pattern conflicts with existing pattern"
                    raise _error(f"Policy for vhost '{name}' {problem}", vhost.source)
                self.normalised.add(pattern)
            self.owners[text] = name


def _assembled(
    base: Ruleset, vhosts: Mapping[str, Vhost], names: _Names, warnings: Mapping[str, tuple[str, ...]]
) -> Ruleset:
    """Returns `base` with other vhosts, and everything that depends on them."""
    settings = (
        *(base.is_enabled, base.max_connections, base.max_message_size),
        *(base.uses_name_patterns, base.default_vhost),
    )
    digest = hashlib.sha256(json.dumps(settings).encode())
    for vhost_digest in sorted(vhost.digest for vhost in vhosts.values()):
        digest.update(vhost_digest)
    patterns = ((tokens, name) for name in names.owners if (tokens := split_tokens(name)))
    tree = PatternTree(patterns) if base.uses_name_patterns else None
    return replace(
        base,
        vhosts=vhosts,
        owners=names.owners,
        tree=tree,
        vhost_warnings=warnings,
        boundaries=tuple(sorted({edge for vhost in vhosts.values() for edge in vhost.boundaries})),
        digest=digest.hexdigest(),
    )


def _error(text: str, source: SourceLocation | None, *path: str | int) -> PolicyError:
    if source is None:
        return PolicyError(text)
    return PolicyError(text, file=source.file, line=source.line_of(path))


def _flag(policy: Mapping[str, object], key: str) -> bool:
    """Returns a boolean of the `policy` entity, false if absent. Accepts the same words as the management schema."""
    value = policy.get(key, False)
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in ("yes", "true", "on"):
        return True
    if word in ("no", "false", "off"):
        return False
    raise PolicyError(f"policy {key}: Invalid Boolean value {value!r}")


def _number(policy: Mapping[str, object], key: str, default: int) -> int:
    try:
        return read_integer(policy[key], MAX_VALUE) if key in policy else default
    except InvalidValue as error:
        text = f"{key} must be >= 0" if "below minimum" in str(error) else f"policy {key}: {error}"
        raise PolicyError(text) from None
