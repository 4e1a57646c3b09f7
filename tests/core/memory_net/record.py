"""The bytes that one side of a connection has written, for tests that look at bytes."""

from typing import Final

# Floods write hundreds of MB that no test looks at, and copying them is a tenth of the work.
MAX_BYTES: Final = 4 * 1024 * 1024


class Record:
    """All bytes, or none if there are too many: a test never sees a part of what was written."""

    __slots__ = ("_is_whole", "_written")

    def __init__(self) -> None:
        self._written = bytearray()
        self._is_whole = True

    def add(self, data: bytes) -> None:
        if not self._is_whole:
            return
        if len(self._written) + len(data) > MAX_BYTES:
            self._is_whole = False
            self._written = bytearray()
        else:
            self._written += data

    def whole(self) -> bytearray:
        """Returns all bytes since the record was made. Fails if there were too many."""
        assert self._is_whole, f"more than {MAX_BYTES} bytes were written: they are not kept"
        return self._written
