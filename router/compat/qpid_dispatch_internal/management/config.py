"""A configuration file, parsed and checked. Source: docs/spec/management.md §1, §11."""

from collections.abc import Iterable
from typing import Any

from policy.configuration.schema import load_schema
from router.management.config import Configuration, load_config
from router.management.grammar import parse_config

_NAME = "lines.conf"


class Config:
    """A configuration file as `qdrouterd` would understand it."""

    def __init__(self, filename: str | None = None) -> None:
        """Errors: router.management.grammar.ConfigError."""
        self._loaded: Configuration | None = load_config(filename, load_schema()) if filename else None

    @staticmethod
    def _parse(lines: Iterable[str]) -> list[list[Any]]:
        """`[section, {attribute: text}]` for each section, as written."""
        sections = parse_config("\n".join(line.rstrip("\n") for line in lines), path=_NAME)
        return [[section.type, dict(section.attributes)] for section in sections]

    def load(self, lines: Iterable[str]) -> None:
        """Take in the lines of a `.conf` file. Errors: router.management.grammar.ConfigError."""
        text = "\n".join(line.rstrip("\n") for line in lines)
        self._loaded = load_config(_NAME, load_schema(), read_text=lambda _: text)

    def by_type(self, type: str) -> list[dict[str, Any]]:
        """The attributes of all entities of a type, in the order of the file; defaults filled in."""
        if self._loaded is None:
            return []
        short_name = load_schema().type(type).short_name
        return [dict(entity.attributes) for entity in self._loaded.of_type(short_name)]
