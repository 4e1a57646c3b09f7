"""The `policy` entity: the global settings of policy. Source: docs/spec/management.md §6.5."""

from typing import Final

from policy.attributes import InvalidValue
from policy.ban_set import BanError
from policy.configuration.kinds.kind import Attributes, Kind, misconfigured
from policy.configuration.schema import EntityType
from policy.failures import read_failure_rule, read_max_delay
from policy.rights import read_rights

MAX_WATCH_SECONDS: Final = 86400
MAX_REFUSAL_RATE: Final = 1_000_000


class PolicyKind(Kind):
    is_passive_in_file = True  # the rules are compiled before anything else

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        return "policy/None"

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        if int(str(attributes["maxConnections"])) < 0:
            raise misconfigured("maxConnections must be >= 0", "maxConnections")
        if not 0 <= int(str(attributes["policyDirWatchSeconds"])) <= MAX_WATCH_SECONDS:
            text = f"policyDirWatchSeconds must be 0 to {MAX_WATCH_SECONDS}"
            raise misconfigured(text, "policyDirWatchSeconds")
        if not 1 <= int(str(attributes["revalidateInterval"])) <= MAX_WATCH_SECONDS:
            raise misconfigured(f"revalidateInterval must be 1 to {MAX_WATCH_SECONDS}", "revalidateInterval")
        if not 0 <= int(str(attributes["maxRefusalRate"])) <= MAX_REFUSAL_RATE:
            raise misconfigured(f"maxRefusalRate must be 0 to {MAX_REFUSAL_RATE}", "maxRefusalRate")
        try:
            read_rights(attributes["networkManagement"])
        except InvalidValue as error:
            raise misconfigured(f"networkManagement {error}", "networkManagement") from None
        try:
            read_failure_rule(attributes)
            read_max_delay(attributes)
        except BanError as error:
            raise misconfigured(str(error), error.attribute) from None
