"""Shows the progress of a verb on a terminal if it takes longer than a second. Writes nothing elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Final, TypeVar

from policy.cli.style import is_terminal

_Each = TypeVar("_Each")

DELAY_S: Final = 1.0
_INTERVAL_S: Final = 0.1


class Progress:
    def __init__(self, began: float | None) -> None:
        """Prepares the display.

        began  monotonic seconds; None: no terminal
        """
        self._next = None if began is None else began + DELAY_S
        self._is_shown = False

    def __call__(self, what: str, elements: Iterable[_Each], /) -> Iterator[_Each]:
        """Yields the elements, and shows how many have passed."""
        if self._next is None:
            yield from elements
            return
        total = f" of {len(elements)}" if isinstance(elements, Sized) else ""
        for done, element in enumerate(elements):
            if (now := time.monotonic()) >= self._next:
                self._show(f"{what}: {done}{total}")
                self._next = now + _INTERVAL_S
            yield element

    def clear(self) -> None:
        """Removes the line before other output."""
        if self._is_shown:
            self._show("")

    def _show(self, text: str) -> None:
        self._is_shown = bool(text)
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Progress]:
    """Yields a progress line that disappears when the block ends."""
    found = Progress(time.monotonic() if is_terminal(sys.stderr) else None)
    try:
        yield found
    finally:
        found.clear()
