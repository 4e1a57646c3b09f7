"""The single `router` entity. Source: docs/spec/management.md §6.4, §6.5."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from policy.configuration.kinds.kind import Attributes, Kind, Row, misconfigured
from policy.configuration.schema import EntityType
from policy.configuration.unique_names import RuleError

MAX_ROUTER_ID_CHARACTERS: Final = 127
MAX_PROGRESS_TIMEOUT_S: Final = 86400
MAX_SHUTDOWN_TIMEOUT_S: Final = 3600

# Polling for longer than a sleep and a wake-up take gains nothing.
MAX_BUSY_POLL_US: Final = 1000

BYTE_BUDGETS: Final = ("linkByteBudget", "connectionByteBudget", "userByteBudget", "hostByteBudget", "routerByteBudget")
MIN_BYTE_BUDGET: Final = 64 * 1024  # less would refuse a single message

DEFAULT_AUDIT_FILE_BYTES: Final = 64 * 1024 * 1024
# Attack: a file that a single event fills. The record of its deletion is an event too.
MIN_AUDIT_FILE_BYTES: Final = 64 * 1024
MAX_AUDIT_BYTES: Final = 1 << 50
MAX_AUDIT_FILES: Final = 1_000_000
MAX_AUDIT_DAYS: Final = 36_500
# Attack, or a mistake: so short that the folder fills with files.
MIN_AUDIT_FILE_S: Final = 60
MAX_AUDIT_FILE_S: Final = 31 * 86400
# Limits on what a neighbour can make the router store and do (router.linkstate.limits). Each has a minimum, with which
# a small network still works, and a maximum.
NETWORK_LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "maxAddressesPerRouter": (1, 1_000_000),
    "maxAddressesPerNeighbor": (1, 10_000_000),
    "maxAddressBytesPerNeighbor": (64 * 1024, 1 << 30),
    "maxControlMessageBytes": (64 * 1024, 64 * 1024 * 1024),
    "maxControlMessageRate": (16, 1_000_000),
}
AREA: Final = "0"  # the only area
EVERY_ROUTER: Final = "all"  # in an address, in place of a router's id
# Totals of entities that are not in the agent's view (§6.5).
_AGENT_ZEROS: Final = ("addrCount", "linkCount", "nodeCount")


class RouterKind(Kind):
    is_passive_in_file = True  # the router is created from it
    is_in_both_views = True
    forbidden = frozenset({"CREATE", "DELETE"})

    def completed(self, attributes: dict[str, object]) -> dict[str, object]:
        return {**attributes, "area": attributes.get("area", AREA)}

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        return f"router/{attributes['id']}"

    def agent_row(self, attributes: dict[str, object], live: Row) -> dict[str, object]:
        return {**attributes, **dict.fromkeys(_AGENT_ZEROS, 0), "blockedLinkCount": live.get("linksBlocked", 0)}

    def core_row(self, entity_type: EntityType, configured: Row, live: Row) -> Row:
        row = {**configured, **live}
        return {**row, "name": row.get("id"), "identity": "1", "type": entity_type.long_name}

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        router_id = str(attributes.get("id", ""))
        if len(router_id) > MAX_ROUTER_ID_CHARACTERS:
            text = f'Router ID "{router_id[:200]}" exceeds the maximum allowed length'
            raise misconfigured(f"{text} ({MAX_ROUTER_ID_CHARACTERS} characters)", "id")
        for character in router_id:
            if unicodedata.category(character)[0] in "CZ":
                visible, whole = (text if text.isprintable() else ascii(text)[1:-1] for text in (character, router_id))
                raise RuleError(
                    f"Router id attribute containing character '{visible}' in id '{whole}' is disallowed.",
                    "id",
                    kind="Python: AttributeError",
                )
        if "/" in router_id or router_id == EVERY_ROUTER:
            # In `_topo/0/ID/name` a '/' would end the id, and the other text means every router.
            why = f"it stands in addresses, so that it can have no '/' and not be '{EVERY_ROUTER}'"
            raise misconfigured(f"Router id '{router_id}' is disallowed: {why}", "id")
        sasl_name = str(attributes.get("saslConfigName") or "qdrouterd")
        if "/" in sasl_name:
            text = f"saslConfigName '{sasl_name[:200]}': expected a file name without folder and without .conf"
            raise misconfigured(text, "saslConfigName")
        for directory in management_directories(attributes):
            if not directory.startswith("/") or directory == "/":
                text = f"managementDirs are absolute paths of directories below /, not '{directory[:200]}'"
                raise misconfigured(text, "managementDirs")
        busy_poll = attributes.get("busyPollMicroseconds", 0)
        if not isinstance(busy_poll, int) or not 0 <= busy_poll <= MAX_BUSY_POLL_US:
            text = f"busyPollMicroseconds is 0 to {MAX_BUSY_POLL_US}, not {busy_poll}"
            raise misconfigured(text, "busyPollMicroseconds")
        for name in BYTE_BUDGETS:
            budget = attributes.get(name, 0)
            if not isinstance(budget, int) or budget < 0 or 0 < budget < MIN_BYTE_BUDGET:
                text = f"{name} is 0, for no limit, or at least {MIN_BYTE_BUDGET} bytes, not {budget}"
                raise misconfigured(text, name)
        for name, (least, most) in NETWORK_LIMITS.items():
            if not least <= int(str(attributes.get(name, least))) <= most:
                raise misconfigured(f"{name} is {least} to {most}, not {attributes[name]}", name)
        for name in ("maxHandshakes", "maxHandshakesPerHost"):
            if int(str(attributes.get(name) or 0)) < 0:
                raise misconfigured(f"{name} must be 0 or more", name)
        seconds = attributes.get("messageProgressTimeout", 0)
        if not isinstance(seconds, int) or not 0 <= seconds <= MAX_PROGRESS_TIMEOUT_S:
            text = f"messageProgressTimeout is a number of seconds from 0 to {MAX_PROGRESS_TIMEOUT_S}, not {seconds}"
            raise misconfigured(text, "messageProgressTimeout")
        seconds = attributes.get("shutdownTimeout", 0)
        if not isinstance(seconds, int) or not 0 <= seconds <= MAX_SHUTDOWN_TIMEOUT_S:
            text = f"shutdownTimeout is a number of seconds from 0 to {MAX_SHUTDOWN_TIMEOUT_S}, not {seconds}"
            raise misconfigured(text, "shutdownTimeout")
        audit_limits(attributes)
        if (style := attributes.get("timestampFormat")) is not None:
            try:
                datetime(2000, 1, 1, tzinfo=UTC).strftime(str(style))
            except ValueError as error:
                raise misconfigured(f"timestampFormat is a strftime format: {error}", "timestampFormat") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """The limits of the files of the audit log; None: no limit."""

    max_file_bytes: int
    max_file_s: int | None
    max_files: int | None
    max_bytes: int | None
    max_age_days: int | None


def audit_limits(attributes: Mapping[str, object]) -> AuditLimits:
    """Returns the limits in the router's attributes auditMax…. Errors: RuleError."""

    def limit(name: str, least: int, most: int = MAX_AUDIT_BYTES) -> int | None:
        value = int(str(attributes.get(name) or 0))
        if value and not least <= value <= most:
            raise misconfigured(f"{name} must be {least} to {most}, or 0 for no limit", name)
        return value or None

    max_file_bytes = limit("auditMaxFileBytes", MIN_AUDIT_FILE_BYTES) or DEFAULT_AUDIT_FILE_BYTES
    return AuditLimits(
        max_file_bytes=max_file_bytes,
        max_file_s=limit("auditMaxFileSeconds", MIN_AUDIT_FILE_S, MAX_AUDIT_FILE_S),
        # At least the file being written, which is never deleted, and one more.
        max_files=limit("auditMaxFiles", 2, MAX_AUDIT_FILES),
        max_bytes=limit("auditMaxBytes", 2 * max_file_bytes),
        max_age_days=limit("auditMaxAgeDays", 1, MAX_AUDIT_DAYS),
    )


def management_directories(attributes: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the directories in the attribute managementDirs: management may name files below them."""
    written = str(attributes.get("managementDirs") or "")
    return tuple(each for each in (item.strip() for item in written.split(",")) if each)
