"""`ban`: manual bans, from management requests and the file. Source: docs/spec/management.md §8.12."""

from collections.abc import Mapping
from typing import Any, Final

from policy.ban_set import Ban, BanError, parse_ban
from policy.configuration.kinds.kind import Attributes, Kind
from policy.configuration.schema import EntityType
from policy.configuration.unique_names import RuleError

# Attributes that only the router sets. The file may not give them either: an operator who writes `expires` there would
# expect the ban to end.
_OF_THE_ROUTER: Final = ("origin", "created", "expires", "hits")


class BanKind(Kind):
    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        return f"ban/{attributes.get('name') or number}"

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        for name in _OF_THE_ROUTER:
            if name in attributes:
                raise RuleError(f"{entity_type.long_name}: '{name}' is set by the router", name)
        try:
            ban_of(attributes, 0.0)
        except BanError as error:
            raise RuleError(f"{entity_type.long_name}: {error}", error.attribute) from None


def ban_of(attributes: Mapping[str, Any], now: float) -> Ban:
    """Returns the ban that a validated `ban` entity describes. Errors: BanError."""
    return parse_ban(
        str(attributes.get("name") or ""),
        attributes.get("remoteHost"),
        attributes.get("user"),
        attributes.get("seconds"),
        now,
        reason=attributes.get("reason") or "",
    )
