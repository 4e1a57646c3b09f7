"""`log` and `logStats`: the settings and counters of the log's modules. Source: docs/spec/management.md §4."""

from policy.configuration.kinds.kind import Attributes, Kind, misconfigured
from policy.configuration.log_levels import DEFAULT_ATTRIBUTES, LogSettingError, parse_enable
from policy.configuration.schema import EntityType


class LogKind(Kind):
    is_passive_in_file = True  # the settings of the file apply before the first log line

    def completed(self, attributes: dict[str, object]) -> dict[str, object]:
        return {**DEFAULT_ATTRIBUTES, **attributes} if attributes["module"] == "DEFAULT" else attributes

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        return f"log/{attributes['module']}"

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        if attributes.get("outputFile") == "":
            raise misconfigured("Failed to open log file ''", "outputFile")
        if (enable := attributes.get("enable")) is not None:
            try:
                parse_enable(str(enable))
            except LogSettingError as error:
                raise misconfigured(str(error), "enable") from None


class LogStatsKind(Kind):
    def may_have(self, attribute: str, value: str) -> bool:
        """Returns whether an entity may have the value. The name is the module's, not the identity (§6.4)."""
        return attribute == "name" or super().may_have(attribute, value)
