"""`vhost`: the rules of policy for connections. Source: docs/spec/management.md §6.5, §8.10."""

from collections.abc import Iterator, Mapping
from typing import Final

from policy.attributes import InvalidValue
from policy.configuration.kinds.kind import Attributes, Kind
from policy.configuration.schema import EntityType, ValidationError
from policy.rights import MANAGEMENT_KEY, read_rights

LONG_NAME: Final = "org.apache.qpid.dispatch.vhost"


class VhostKind(Kind):
    is_passive_in_file = True  # all vhosts of the file are compiled at once

    def implied(self, given: Attributes) -> dict[str, object]:
        """Returns the attributes. A vhost with only a name gets it as its hostname."""
        for name, value in given.items():
            if isinstance(value, bool) and name != "allowUnknownUser":
                # A mistake: true is not a name, and as a limit it would be 1.
                raise ValidationError(f"{LONG_NAME}: Attribute '{name}' must not be {str(value).lower()}", name)
        result = dict(given)
        if all(result.get(name) is None for name in ("hostname", "id")) and result.get("name") is not None:
            result["hostname"] = result["name"]
        return result

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        return f"vhost/{attributes['hostname']}"

    def host_groups(self, attributes: Attributes) -> Iterator[str]:
        groups = attributes.get("groups")
        for name, settings in groups.items() if isinstance(groups, Mapping) else ():
            if _has_host(settings):
                yield str(name)


def _has_host(settings: object) -> bool:
    written = settings.get(MANAGEMENT_KEY) if isinstance(settings, Mapping) else None
    try:
        return written is not None and read_rights(written).has_host
    except InvalidValue:  # the request is refused with this error before it has any effect
        return False
