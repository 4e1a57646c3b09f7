"""Values that name something on the router's host: files, folders, programs, environment variables.

The author of such a value can make the router read or write what only the router may. Such values come from the
configuration file. Over management they come only from requesters with the right `host`, and name only places below the
directories of `router.managementDirs`. The schema marks the attributes (`names`). Source: docs/policy.md, Rights of
management.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from policy.configuration.kinds import kind_of
from policy.configuration.schema import Attribute, EntityType, ValidationError
from policy.decision import Reason
from policy.rights import HOST, ManagementRights
from router.management.query import Row
from router.management.requests import NotAllowedError

# Values of an output that are not files.
STREAMS: Final = frozenset({"stderr", "stdout", "syslog"})
FILE, ENVIRONMENT = "file", "env"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """A value that names something.

    key      the name in the request, which may be an old name of the attribute
    before   the text before the path
    is_path  False: it names an environment variable
    """

    key: str
    attribute: Attribute
    path: str
    before: str = ""
    is_path: bool = True


class HostValues:
    """Judges values that name something on the router's host.

    directories  files may be named below these; empty: nowhere
    protected    nothing below these may be named, wherever they are: a writer there could change the rules
    is_governed  vhost policy is on. If it is off, and no directories are set, every value is accepted, as in 1.20
    """

    def __init__(
        self, directories: Iterable[str] = (), protected: Iterable[str] = (), *, is_governed: bool = False
    ) -> None:
        self._directories = tuple(map(os.path.realpath, directories))
        self._protected = tuple(map(os.path.realpath, protected))
        self._is_governed = is_governed

    def judged(
        self, entity_type: EntityType, given: Mapping[str, object], before: Row | None, rights: ManagementRights
    ) -> dict[str, object]:
        """Returns `given` with every path replaced by the path that was judged, so that no symlink is followed twice.

        given   by the names that the request uses
        before  the present entity; a value that it already has names nothing new
        Errors  NotAllowedError
        """
        result = dict(given)
        if not rights.has_host:
            _refuse_grants(entity_type, given, before)
        if not self._is_governed and not self._directories:
            return result
        for named in _named(entity_type, given):
            known = None if before is None or named.attribute.is_secret else before.get(named.attribute.name)
            if known is not None and known == given[named.key]:
                continue
            result[named.key] = named.before + self._judged(named, rights)
        return result

    def _judged(self, named: _Named, rights: ManagementRights) -> str:
        what = f"'{named.attribute.name}' names {_what(named)}"
        if not rights.has_host:
            raise _refusal(f"{what}: that is for the configuration file, or wants the right '{HOST}'")
        if not named.is_path:
            return named.path
        real = os.path.realpath(named.path) if os.path.isabs(named.path) and "\0" not in named.path else None
        if real is None or not any(_is_below(real, each) for each in self._directories):
            raise _refusal(f"{what} that is not below a directory of router.managementDirs")
        if any(_is_below(real, each) or real == each for each in self._protected):
            raise _refusal(f"{what} where the router keeps its rules and records")
        return real


def _refuse_grants(entity_type: EntityType, given: Mapping[str, object], before: Row | None) -> None:
    """Refuses a change of a vhost that has a group with the right `host`, unless the requester has it.

    Attack: a user who may change vhosts gives himself the right. Or he adds himself to the group that has it. Or he
    removes himself from another group, and so gets into the group for all users. Errors: NotAllowedError
    """
    kind = kind_of(entity_type)
    for name in chain(kind.host_groups(given), kind.host_groups(before or {})):
        text = f"group '{name[:200]}' has the right '{HOST}', so that only who has it may change its vhost"
        raise _refusal(text)


def _what(named: _Named) -> str:
    if not named.is_path:
        return "an environment variable"
    return {"folder": "a folder", "program": "a program"}.get(named.attribute.names or "", "a file")


def _refusal(text: str) -> NotAllowedError:
    return NotAllowedError(text, Reason.HOST_VALUE_NOT_ALLOWED)


def _named(entity_type: EntityType, given: Mapping[str, object]) -> Iterator[_Named]:
    """Yields the values in `given` that name something on the host."""
    for key, value in given.items():
        attribute = entity_type.attributes.get(entity_type.canonical_names.get(key, key))
        if attribute is None or attribute.names is None or value is None:
            continue
        try:
            text = str(attribute.convert(value, entity_type.long_name))
        except ValidationError:  # the request gets this error as its answer before the value has an effect
            continue
        if attribute.names == "password":
            form, colon, rest = text.partition(":")
            if colon and form in (FILE, ENVIRONMENT):
                yield _Named(key=key, attribute=attribute, path=rest, before=f"{form}:", is_path=form == FILE)
        elif text and not (attribute.names == "output" and text in STREAMS):
            yield _Named(key=key, attribute=attribute, path=text)


def _is_below(path: str, directory: str) -> bool:
    return path != directory and os.path.commonpath((path, directory)) == directory
