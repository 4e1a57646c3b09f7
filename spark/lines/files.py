"""The files of an audit folder, and parts of them: plain, gzip or Zstandard, whole lines only.

A file is identified by its name without .gz or .zst, and a place in it by its uncompressed bytes. So reading continues
at the same place in a file that was closed and compressed after half of it had been read.
"""

import gzip
import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

LINES = ".jsonl"
LOGS = ".log"
PACKED = (".gz", ".zst")
# Bytes that are read and validated together.
BLOCK_BYTES = 4 * 1024 * 1024
# A last line without a line feed is taken after its file has not changed for this time: then it is torn, not growing.
STILL_S = 60
_LOOK_BYTES = 64 * 1024
# Bytes of one line that are kept; the rest is skipped. Stops a file without line feeds from taking all memory.
MAX_HELD_BYTES = 16 * 1024 * 1024


class TornFileError(Exception):
    """A compressed file that ends early or is not compressed. The text says which file, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file.

    name  without .gz or .zst; size and mtime_ns are of the file on disk
    """

    name: str
    path: Path
    size: int
    mtime_ns: int

    @property
    def is_packed(self) -> bool:
        return self.path.suffix in PACKED


def audit_files(folder: Path, kinds: tuple[str, ...] = (LINES,)) -> tuple[list[Found], list[str]]:
    """Returns the files with lines, in the order of their names, and the names of other entries.

    kinds   LINES, LOGS; log files may have a number after their suffix (`router.log.1`)
    Errors  OSError, if the folder cannot be read.
    """
    found: dict[str, Found] = {}
    others: list[str] = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name
        try:
            there = path.stat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(there.st_mode) or not _is_of(name, kinds) or not _is_text(name):
            others.append(path.name)
            continue
        one = Found(name=name, path=path, size=there.st_size, mtime_ns=there.st_mtime_ns)
        # While a closed file is being compressed, both versions exist; the plain one is complete.
        if name not in found or found[name].is_packed:
            found[name] = one
    return list(found.values()), others


def _is_text(name: str) -> bool:
    """Returns whether the table can hold a name. Attack: one name with other bytes ends every run."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_of(name: str, kinds: tuple[str, ...]) -> bool:
    if name.endswith(LINES):
        return LINES in kinds
    stem, dot, number = name.rpartition(".")
    return LOGS in kinds and (name.endswith(LOGS) or (bool(dot) and number.isdigit() and stem.endswith(LOGS)))


def end_of_lines(file: Found, start: int, *, now_s: float) -> int:
    """Returns where a plain file's last whole line ends; `start` if none ends after it.

    A tail without a line feed counts as a line after the file has not changed for STILL_S.
    """
    if now_s - file.mtime_ns / 1e9 >= STILL_S:
        return max(file.size, start)
    with suppress(FileNotFoundError), file.path.open("rb") as stream:
        at = file.size
        while at > start:
            begin = max(start, at - _LOOK_BYTES)
            stream.seek(begin)
            last = stream.read(at - begin).rfind(b"\n")
            if last >= 0:
                return begin + last + 1
            at = begin
    return start


def blocks(path: Path, start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that begin from `start` to before `end`, in blocks: where a block begins, and its bytes.

    Every line has its line feed; one is added to the last line of a file if needed. `start` and `end` may be inside a
    line:
    a line that contains `start` belongs to the part before.
    start, end  uncompressed bytes; end None is the end of the file
    path        without .gz or .zst if the file may have been compressed meanwhile
    Errors      TornFileError; OSError.
    """
    try:
        with _opened(path) as stream:
            yield from _blocks(stream, start, end)
    except (EOFError, gzip.BadGzipFile, pa.ArrowInvalid) as error:
        raise TornFileError(f"not one whole compressed file: {error}") from error
    except OSError as error:
        if error.errno is None:  # raised by Arrow's decompressor
            raise TornFileError(f"not one whole compressed file: {error}") from error
        raise


def _blocks(stream: IO[bytes], start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    at, rest = start, b""
    if start:
        # One byte earlier: a line feed there means that a line begins at `start`.
        _skip(stream, start - 1)
        at, rest = _past_line(stream, start - 1)
    while end is None or at < end:
        part = stream.read(BLOCK_BYTES)
        held = rest + part
        if not held:
            return
        if not part and not held.endswith(b"\n"):
            held += b"\n"
        stop = held.rfind(b"\n") + 1
        if end is not None and at + stop > end:
            # The line that contains `end`, or ends there, is the last.
            stop = held.find(b"\n", max(0, end - at - 1)) + 1
        if stop:
            yield at, held[:stop]
        elif len(held) > MAX_HELD_BYTES:
            yield at, held[:MAX_HELD_BYTES] + b"\n"
            at, rest = _past_line(stream, at + len(held))
            continue
        at, rest = at + stop, held[stop:]


def _past_line(stream: IO[bytes], at: int) -> tuple[int, bytes]:
    """Reads on to the end of a line. Returns where the next begins, and what was read of it."""
    while True:
        part = stream.read(_LOOK_BYTES)
        feed = part.find(b"\n")
        if feed >= 0 or not part:
            return at + feed + 1, part[feed + 1 :]
        at += len(part)


def _skip(stream: IO[bytes], count: int) -> None:
    if stream.seekable():
        stream.seek(count)
        return
    while count > 0:
        part = stream.read(min(count, BLOCK_BYTES))
        if not part:
            return
        count -= len(part)


def _opened(path: Path) -> IO[bytes]:
    """Opens a file, compressed or not. Errors: FileNotFoundError, if no form of it exists."""
    for one in (path, *(path.with_name(path.name + suffix) for suffix in PACKED)):
        if one.exists():
            break
    if one.suffix == ".gz":
        return gzip.open(one, "rb")  # type: ignore[return-value]
    if one.suffix == ".zst":
        # Reads several frames, as `zstd --long` and appending writers produce.
        return io.BufferedReader(_Packed(pa.input_stream(os.fspath(one), compression="zstd")), BLOCK_BYTES)
    return one.open("rb")


class _Packed(io.RawIOBase):
    """Wraps Arrow's stream of a compressed file as a Python stream."""

    def __init__(self, stream: "pa.NativeFile") -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        part = self._stream.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._stream.close()
        super().close()
