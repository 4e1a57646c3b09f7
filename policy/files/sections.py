"""One section of a configuration or of a policy file, with the place of everything in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.attributes import Path, Place, SourceLocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section as written, in a `.conf` or as a pair in JSON.

    type        short type name; unknown names come through
    attributes  in the order of the file; values are str from `.conf`, JSON values from JSON and nested maps
    source      the place of the section and of its attributes: ("port",), ("groups", "admin", "users")
    last_line   of its closing brace in a `.conf`; 0 in JSON
    repeats     (path, place) of names that stand in one section or map of a `.conf` a second time
    """

    type: str
    attributes: Mapping[str, object] = field(repr=False)
    source: SourceLocation
    last_line: int = 0
    repeats: tuple[tuple[Path, Place], ...] = ()
