"""Finds out whether a stream supports colours and clearing a line. Source: https://no-color.org."""

import os
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Returns whether the stream is a terminal that supports escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def is_colored(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR")
