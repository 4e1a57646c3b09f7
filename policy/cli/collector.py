"""Verbs that read much and end do without the garbage collector."""

import argparse
import gc
from collections.abc import Callable
from functools import wraps

_Run = Callable[[argparse.Namespace], int]


def without_collector(run: _Run) -> _Run:
    """`run` of a verb that ends, which does not wait for garbage to be looked for.

    Thousands of vhosts are millions of values without a cycle among them, which the collector goes through again and
    again: a quarter of the time.
    """

    @wraps(run)
    def wrapped(options: argparse.Namespace) -> int:
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return run(options)
        finally:
            if is_collecting:
                gc.enable()

    return wrapped
