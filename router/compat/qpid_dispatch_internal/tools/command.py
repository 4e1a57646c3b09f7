"""The command lines of qdstat and qdmanage. Source: docs/spec/management.md §9.1, §10.1, §11."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from router.tools import qdmanage, qdstat
from router.tools.command import Parser, run

__all__ = ["UsageError", "_qdmanage_parser", "_qdstat_parser", "main", "parse_args_qdstat"]


class UsageError(Exception):
    """A command line that cannot be understood."""


def _qdstat_parser(_manager: object = None) -> Parser:
    return qdstat.parser()


def _qdmanage_parser(_operations: object = None) -> Parser:
    return qdmanage.parser()


def parse_args_qdstat(_manager: object = None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Exits with status 2, after saying why, for a wrong command line."""
    made = qdstat.parser()
    given, unknown = made.parse_all(argv)
    made.refuse_unknown(unknown)
    return given


def main(action: Callable[[Sequence[str]], Any], argv: Sequence[str] | None = None) -> int:
    """Run `action` with the command line. Returns the exit status: 1 for any failure, of which one line is printed."""
    given = sys.argv if argv is None else argv

    def act() -> None:
        action(given)

    try:
        return run(act)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
