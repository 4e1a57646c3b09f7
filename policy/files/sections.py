"""One section of a configuration or of a policy file, with the place of everything in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.attributes import Path, Place, SourceLocation

CONF_SUFFIX: Final = ".conf"
_ABOUT_POLICY: Final = ("vhost", "policy")
# A JSON file with one of these sections is a router's configuration; files of a policyDir never are.
_OF_ROUTERS: Final = frozenset({"router", "listener", "connector"})


def are_of_json_router(types: Iterable[str]) -> bool:
    """Returns whether these are the section types of a router's configuration in JSON."""
    return not _OF_ROUTERS.isdisjoint(types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section as written, in a `.conf` or as a pair in JSON.

    type        short type name, perhaps unknown
    attributes  in the order of the file; values are str from `.conf`, JSON values from JSON and nested maps
    source      the place of the section and of its attributes: ("port",), ("groups", "admin", "users")
    last_line   of its closing brace in a `.conf`; 0 in JSON
    repeats     (path, place) of names that occur a second time in one section or map of a `.conf`
    cut         attributes of a `.conf` whose value ends at a `#` that has no blank before it
    is_of_json_router  it is in a router's configuration in JSON, not in a policy file
    """

    type: str
    attributes: Mapping[str, object] = field(repr=False)
    source: SourceLocation
    last_line: int = 0
    repeats: tuple[tuple[Path, Place], ...] = ()
    cut: tuple[str, ...] = ()
    is_of_json_router: bool = False

    @property
    def refused_repeats(self) -> tuple[tuple[Path, Place], ...]:
        """Returns the repeated names that a router refuses: one of two rules would silently replace the other.

        If an attribute occurs twice in another section of a `.conf`, the last value counts, as in 1.20.
        """
        is_about_policy = self.type in _ABOUT_POLICY
        return tuple(each for each in self.repeats if is_about_policy or len(each[0]) > 1)

    @property
    def is_of_router(self) -> bool:
        """Returns whether it is in a router's configuration."""
        return self.is_of_json_router or (self.source.file or "").endswith(CONF_SUFFIX)
