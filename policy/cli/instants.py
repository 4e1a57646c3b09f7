"""The option --at: the instant for which a verb evaluates a policy."""

import argparse
from typing import Any

from policy.attributes import InvalidValue
from policy.windows import read_instant


def add_at_option(parser: Any, help_: str) -> None:
    """Adds the option. options.at is in seconds since 1970 UTC, None if the option was not given."""
    parser.add_argument("--at", metavar="TIME", type=_instant, help=f"{help_}, such as 2026-12-31T18:00:00+01:00")


def _instant(text: str) -> float:
    try:
        return read_instant(text)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
