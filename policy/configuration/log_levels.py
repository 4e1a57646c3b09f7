"""The modules and levels of the log, and the setting `enable`. Pure. Source: docs/spec/management.md §4."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

LogLevel = Literal["trace", "debug", "info", "notice", "warning", "error", "critical"]
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
# Their order gives the integer form of log.module.
MODULES = (
    *("ROUTER", "ROUTER_CORE", "ROUTER_HELLO", "ROUTER_LS", "ROUTER_MA", "MESSAGE", "SERVER", "AGENT", "AUTHSERVICE"),
    *("CONTAINER", "ERROR", "POLICY", "HTTP", "CONN_MGR", "PYTHON", "PROTOCOL", "DEFAULT"),
)

DEFAULT_ATTRIBUTES: Mapping[str, object] = MappingProxyType(
    {"enable": "info+", "includeTimestamp": True, "includeSource": False, "outputFile": "stderr"}
)

_SEPARATORS: Final = re.compile(r"[,;:\s]+")


class LogSettingError(ValueError):
    """A log setting that cannot be used."""


def parse_enable(text: str) -> frozenset[LogLevel] | None:
    """Returns the levels that `enable` names. None means the levels of DEFAULT.

    Errors  LogSettingError if a word is not a level, so that a typing error never silences a log.
    """
    words = [word for word in _SEPARATORS.split(text.lower()) if word]
    if words and all(word == "default" for word in words):
        return None
    enabled: set[LogLevel] = set()
    for word in words:
        level = word.removesuffix("+")
        at = next((index for index, each in enumerate(LEVELS) if each == level), None)
        if at is not None:
            enabled.update(LEVELS[at:] if level != word else LEVELS[at : at + 1])
        elif word != "none":
            raise LogSettingError(
                f"'{text[:200]}' is not a valid log level. Should be one of {{none, {', '.join(LEVELS)}}}."
            )
    return frozenset(enabled)
