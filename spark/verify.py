"""`qdaudit verify` checks that a trail is what the router wrote. Needs neither Spark nor a JVM.

An independent implementation of docs/audit.md, The chain: it shares no code with the router that writes it. Signed
lines are checked in blocks, from one signed line to the next. Only if a block does not match, each of its lines is
checked, to find the changed one.
"""

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

WHOLE, TAMPERED, USAGE, UNREADABLE = 0, 1, 2, 3

_NOTHING_BEFORE: Final = "0" * 64
_SIGNED_FOR: Final = b"palisade audit line 1\n"
_MARK: Final = b',"signature":"'
# The audit log's own lines have one, before `previous`; in a JSON text it would be written as \\t.
_TAB: Final = b"\t"
_NAME: Final = re.compile(
    r"denials-(?P<stamp>\d{8}T\d{6}\.\d{6}Z)-(?P<router>[A-Za-z0-9._-]{1,64})-\d+\.jsonl(?P<packed>\.gz)?"
)
_END: Final = re.compile(rb',"previous":"([0-9a-f]{64})"(?:,"signature":"([0-9a-f]{128})")?\}\n\Z')
_SEQUENCE: Final = re.compile(
    rb'\A\{"schema_version":\d+,"event_id":"[0-9a-f]{32}","start":"([0-9a-f]{32})","sequence":(\d{1,19}),'
)
# Bytes read at a time: they stay in the processor's cache while they are searched, counted and hashed.
_READ_BYTES: Final = 256 * 1024
_PACKED_BYTES: Final = 64 * 1024
# Attack: an endless line fills the memory. The longest line that a router writes is under 150 kB.
_MAX_LINE_BYTES: Final = 1024 * 1024
# Attack: a forged file with thousands of findings hides the important one, and fills the memory.
_MAX_FINDINGS_OF_FILE: Final = 20
# Limits of the lines after the last signed one, in a running router's file: those of the router, which signs after 4096
# lines or 5 s, with room for queued events.
_MAX_UNSIGNED_LINES: Final = 16_384
_MAX_UNSIGNED_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault and its place.

    line      1-based; None: it concerns the whole file or folder
    sequence  of that line, if it can be read
    """

    file: str
    text: str
    line: int | None = None
    sequence: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.text}" if self.sequence is None else f"{place}: sequence {self.sequence}: {self.text}"


@dataclass(slots=True)
class _File:
    """One file, checked without the others.

    first        `previous` of its first line; None: it has none, because it is older than the chain
    digest       the value that the next file's first line has; None: there is no whole line
    rest         bytes after the last line feed
    lines        whole ones
    signed       how many of them have a valid signature
    block_at     where the last signed line begins, and how many lines precede it; 0, 0 if there is none
    head         the last line with a valid signature, and its number; b"", 0 if there is none
    last         the last whole line
    is_last_signed  validly
    deleted      `digest` -> name of files that its events say were deleted, and the number of the line that says so
    ended        the starts whose ends it has
    recovered    (name, bytes, sha256) of ends that its events say are not part of the chain
    """

    path: Path
    first: str | None = None
    digest: str | None = None
    rest: bytes = b""
    size: int = 0
    lines: int = 0
    signed: int = 0
    block_at: tuple[int, int] = (0, 0)
    head: tuple[bytes, int] = (b"", 0)
    last: bytes = b""
    is_last_signed: bool = False
    has_link: bool = True
    deleted: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    recovered: list[tuple[str, int, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)

    def find(self, text: str, line: int | None = None, content: bytes = b"") -> None:
        if len(self.findings) < _MAX_FINDINGS_OF_FILE:
            self.findings.append(Finding(file=self.path.name, text=text, line=line, sequence=sequence_of(content)))


@dataclass(slots=True)
class Verdict:
    """The result for a folder.

    heads    router -> the contents of its last signed line: file, line, start, sequence and `previous`
    lines    of each file, by its name without .gz; half a line at its end counts as one
    """

    events: int = 0
    files: int = 0
    signed: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heads: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


Keys = Mapping[str, Ed25519PublicKey]


class PublicKeyError(Exception):
    """A public key that cannot be used. The text names the file and the right form."""


def read_key(path: Path) -> tuple[str, Ed25519PublicKey]:
    """Returns a public key and its name, 16 hex digits. Errors: PublicKeyError."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise PublicKeyError(f"{path}: {error.strerror}") from None
    want = "it must be an Ed25519 public key in PEM, as of `openssl pkey -in KEY -pubout`"
    if b"PRIVATE KEY" in pem:
        raise PublicKeyError(f"{path}: is the private key, which belongs to the router alone; {want}")
    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise PublicKeyError(f"{path}: {want}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise PublicKeyError(f"{path}: {want}")
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:16], key


def sequence_of(line: bytes) -> int | None:
    found = _SEQUENCE.match(line)
    return int(found[2]) if found else None


def _blocks(path: Path, at: int) -> Iterator[bytes]:
    """Yields the content from byte `at` on. Errors: OSError, EOFError, zlib.error, as of gzip."""
    with open(_descriptor(path), "rb") as file, gzip.open(file) if path.suffix == ".gz" else file as content:
        content.seek(at)
        while block := content.read(_READ_BYTES):
            yield block


def _descriptor(path: Path) -> int:
    """Opens a regular file. Errors: OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "is no regular file")
    return fd


@contextlib.contextmanager
def _filling(path: Path) -> Iterator[Callable[[memoryview], int]]:
    """Yields a function that fills a buffer with the next bytes, and returns 0 at the end.

    Errors  OSError, EOFError, zlib.error
    """
    with open(_descriptor(path), "rb", buffering=0) as file:
        yield _Unpacked(file).read_into if path.suffix == ".gz" else file.readinto


class _Unpacked:
    """The content of a compressed file. Checks length and CRC-32. Several members are joined, as by gzip."""

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._packed = b""
        self._is_between = True  # between two members, or before the first

    def read_into(self, buffer: memoryview) -> int:
        found = b""
        while not found:
            if not self._packed:
                self._packed = self._file.read(_PACKED_BYTES)
                if not self._packed and self._is_between:
                    return 0
                if not self._packed:
                    raise EOFError("the compressed file ends in the middle")
            if self._is_between:
                self._packed = self._packed.lstrip(b"\0")
                if not self._packed:
                    continue
            self._is_between = False
            found = self._inflate.decompress(self._packed, len(buffer))
            self._packed = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._packed, self._is_between = self._inflate.unused_data, True
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        buffer[: len(found)] = found
        return len(found)


def _lines(path: Path, at: int, number: int) -> Iterator[tuple[int, bytes]]:
    """Yields the whole lines from byte `at` on, the first with number + 1."""
    rest = b""
    for block in _blocks(path, at):
        rest += block
        *whole, rest = rest.split(b"\n")
        for line in whole:
            number += 1
            yield number, line + b"\n"


def check_file(path: Path, keys: Keys) -> _File:
    """Checks a file by itself: its blocks, its signatures, its statements about others."""
    file = _File(path)
    try:
        _Reader(file, keys).read()
    except (OSError, EOFError, zlib.error) as error:
        file.find(f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return file


class _Reader:
    """Reads a file from one signed line to the next."""

    def __init__(self, file: _File, keys: Keys) -> None:
        self._file = file
        self._keys = keys
        self._running = hashlib.sha256()
        self._is_begun = False
        self._at = 0  # the file offset of the block being read

    def read(self) -> None:
        file = self._file
        buffer = bytearray(_MAX_LINE_BYTES + _READ_BYTES)
        filled = 0
        with _filling(file.path) as fill, memoryview(buffer) as view:
            while count := fill(view[filled : filled + _READ_BYTES]):
                end = buffer.rfind(b"\n", filled, filled + count) + 1
                filled += count
                if end:
                    self._take(buffer, view, end)
                    self._at += end
                    view[: filled - end] = view[end:filled]
                    filled -= end
                if filled > _MAX_LINE_BYTES:
                    file.find(f"a line of more than {_MAX_LINE_BYTES} bytes", file.lines + 1)
                    return
        file.rest, file.size = bytes(buffer[:filled]), self._at
        if file.lines:
            file.digest = self._running.hexdigest()

    def _take(self, data: bytearray, view: memoryview, end: int) -> None:
        """Takes whole lines: those of data up to `end`.

        view  of data
        """
        file, begin = self._file, 0
        if not self._is_begun:
            first = bytes(data[: data.find(b"\n") + 1])
            found = _END.search(first)
            file.first = found[1].decode() if found else None
            file.has_link = found is not None
        counted = 0  # `lines` is counted up to here
        found_at = data.find(_TAB, 0, end)
        while found_at >= 0:
            start, stop = data.rfind(b"\n", 0, found_at) + 1, data.find(b"\n", found_at) + 1
            line = bytes(data[start:stop])
            file.lines += self._count(data, counted, start)
            counted = start
            self._note_line(line, file.lines + 1)
            if _MARK in line:
                if start > begin:
                    self._running.update(view[begin:start])
                    self._is_begun = True
                self._check_signed(line, self._at + start)
                begin = counted = stop
            found_at = data.find(_TAB, stop, end)
        file.lines += self._count(data, counted, end)
        if begin < end:
            self._running.update(view[begin:end])
            self._is_begun = True
            file.is_last_signed = False
            file.last = bytes(data[data.rfind(b"\n", 0, end - 1) + 1 : end])

    @staticmethod
    def _count(data: bytearray, begin: int, end: int) -> int:
        # Eight times as fast as data.count(b"\n", begin, end), which checks each byte separately.
        return end - begin - len(data[begin:end].replace(b"\n", b""))

    def _check_signed(self, line: bytes, at: int) -> None:
        """Checks a line with a signature and, by its `previous`, all lines since the signed line before."""
        file = self._file
        found = _END.search(line)
        is_good = False
        if found is None or found[2] is None:
            file.find("was changed: a signature in the wrong place", file.lines + 1, line)
        else:
            if self._is_begun and found[1].decode() != self._running.hexdigest():
                self._locate(file.lines + 1)
            is_good = self._is_signature_good(line, found)
        file.lines += 1
        file.signed += is_good
        file.is_last_signed = is_good
        file.last = line
        if is_good:
            file.seen.add(found[1].decode() if found else "")
            file.head = (line, file.lines)
        file.block_at = (at, file.lines - 1)
        self._running = hashlib.sha256(line)
        self._is_begun = True

    def _is_signature_good(self, line: bytes, found: "re.Match[bytes]") -> bool:
        file = self._file
        if not self._keys:
            return False
        signed = line[: line.rfind(_MARK)]
        try:
            event = json.loads(line)
            key = self._keys.get(event["signer"])
        except (ValueError, KeyError, TypeError, RecursionError):
            file.find("was changed: it is signed and no event", file.lines + 1, line)
            return False
        if key is None:
            text = f"is signed by another key, {str(event['signer'])[:16]!r}: give that too, where it was the router's"
            file.find(text, file.lines + 1, line)
            return False
        try:
            key.verify(bytes.fromhex(found[2].decode()), _SIGNED_FOR + signed)
        except InvalidSignature:
            file.find("was changed: its signature is not the key's", file.lines + 1, line)
            return False
        router = re.sub(r"[^A-Za-z0-9._-]", "_", str(event.get("router")))[:64] or "_"
        name = _NAME.fullmatch(file.path.name)
        if name is not None and name["router"] != router:
            file.find(f"is of the router {router!r}, which the file's name is not", file.lines + 1, line)
            return False
        return True

    def _locate(self, signed: int) -> None:
        """Finds the first wrong line before the signed one, line number `signed`, whose block does not match."""
        at, before = self._file.block_at
        if not locate(self._file, at, before, signed):  # the file changed while it was read
            self._file.find("was changed, or lines before it were", signed)

    def _note_line(self, line: bytes, number: int) -> None:
        """Stores what a line of the audit log's own says about other files, and about starts."""
        file = self._file
        try:
            event = json.loads(line)
            if event["stage"] == "audit" and event["reason"] == "log_closed":
                file.ended.add(str(event["start"]))
            elif event["stage"] == "audit" and event["reason"] == "file_deleted":
                file.deleted[str(event["deleted"].get("digest"))] = str(event["deleted"]["file"]), number
            elif event["stage"] == "audit" and event["reason"] == "end_recovered":
                found = event["recovered"]
                file.recovered.append((str(found["file"]), int(found["bytes"]), str(found["sha256"])))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return


def locate(file: _File, at: int, before: int, until: int | None = None) -> bool:
    """Finds the first line, from byte `at` on, that does not match the lines before it.

    before  how many lines precede `at`
    until   the number of the last line to check; None: all
    Returns  whether there is one
    """
    running = None
    earlier: bytes = b""
    for number, line in _lines(file.path, at, before):
        found = _END.search(line)
        if found is None:
            file.find("was changed: it does not end as a line of the chain", number, line)
            return True
        if running is not None and found[1].decode() != running.hexdigest():
            file.find(_why(earlier, line), number - 1, earlier)
            return True
        if running is None or found[2] is not None:
            running = hashlib.sha256(line)
        else:
            running.update(line)
        earlier = line
        if until is not None and number >= until:
            break
    return False


def _why(one: bytes, other: bytes) -> str:
    """Explains why, of two consecutive lines, the second does not continue the first."""
    first, second = _SEQUENCE.match(one), _SEQUENCE.match(other)
    if first is not None and second is not None and first[1] == second[1]:
        low, high = int(first[2]), int(second[2])
        if high > low + 1:
            return f"lines are missing after it, or it was changed: the next is sequence {high}"
        if high <= low:
            return f"lines were moved or put in here: the next is sequence {high}"
    return "was changed, or lines after it were changed, put in or taken out"


# Files of one router, one after another


def _join(files: Sequence[_File], verdict: Verdict, keys: Keys, *, is_running: bool) -> None:
    deleted = _deleted(files, keys)
    recovered = {(name, size, digest) for file in files for name, size, digest in file.recovered}
    before: _File | None = None
    for file in files:
        if file.rest:
            key = (_plain(file.path.name), len(file.rest), hashlib.sha256(file.rest).hexdigest())
            if key not in recovered and file is files[-1] and is_running:
                verdict.notes.append(f"{file.path.name}: ends with {len(file.rest)} bytes that are no whole line, yet")
            elif key not in recovered:
                where = "no later line says that it was left there by a router that was killed"
                file.find(f"ends with {len(file.rest)} bytes that are no line, and {where}", file.lines + 1)
        if not file.lines:
            continue
        if before is None:
            _check_beginning(file, deleted, verdict)
        elif file.first != before.digest and not _continues_without_rest(before, file, recovered):
            _explain_break(before, file)
        before = file
    if before is not None:
        _check_end(before, files, verdict, keys, is_running=is_running)


def _deleted(files: Sequence[_File], keys: Keys) -> dict[str, str]:
    """Returns what lines of the trail say was deleted.

    Attack: a person cuts off the beginning of a trail that is said to be running, and adds a line at its end that
    reports the deletion. So such a line counts only with a signature after it.
    """
    at = max((nth for nth, file in enumerate(files) if file.signed), default=-1)
    return {
        digest: name
        for nth, file in enumerate(files)
        for digest, (name, number) in file.deleted.items()
        if not keys or nth < at or (nth == at and number <= file.head[1])
    }


def _check_beginning(file: _File, deleted: Mapping[str, str], verdict: Verdict) -> None:
    if not file.has_link:
        verdict.notes.append(f"{file.path.name}: is older than the chain, which covers the last such file alone")
    elif file.first in deleted:
        name = deleted[str(file.first)]
        verdict.notes.append(
            f"{file.path.name}: the chain begins here; {name} and those before it were deleted on record"
        )
    elif file.first != _NOTHING_BEFORE:
        file.find(
            "files before it are missing, and no line of the trail that is vouched for says that they were deleted", 1
        )


def _continues_without_rest(before: _File, file: _File, recovered: set[tuple[str, int, str]]) -> bool:
    """Returns whether this file repeats lines from the end of the file before, and says so."""
    for name, size, digest in recovered:
        if name != _plain(before.path.name) or not 0 < size <= before.size:
            continue
        running, rest = _digest_until(before, before.size - size)
        if running == file.first and hashlib.sha256(rest).hexdigest() == digest:
            return True
    return False


def _digest_until(file: _File, size: int) -> tuple[str, bytes]:
    """Returns the `digest` of the first `size` bytes, and the bytes after them."""
    running, at, rest = hashlib.sha256(), 0, b""
    for _, line in _lines(file.path, 0, 0):
        at += len(line)
        if at > size:
            rest += line
        elif (found := _END.search(line)) is not None and found[2] is not None:
            running = hashlib.sha256(line)
        else:
            running.update(line)
    return running.hexdigest(), rest + file.rest


def _explain_break(before: _File, file: _File) -> None:
    if not file.has_link:
        if before.has_link:
            file.find("has no chain, though it follows a file that has: it was put in, or all of it was changed", 1)
        return
    if before.findings:
        return  # the fault inside that file is reported already, and causes this one
    if file.first == _NOTHING_BEFORE:
        text = f"the chain begins anew: {before.path.name} or files after it were not there when the router started"
        file.find(text, 1)
        return
    if before.has_link and locate(before, *before.block_at):
        return
    what = f"its last line was changed, or what follows it is missing: {file.path.name} does not continue it"
    before.find(what, before.lines, before.last)


def _check_end(file: _File, files: Sequence[_File], verdict: Verdict, keys: Keys, *, is_running: bool) -> None:
    """Checks the last file, whose end no other file proves."""
    if not file.findings and file.has_link and not file.is_last_signed:
        locate(file, *file.block_at)
    if file.findings:
        return
    # A file may have been deleted, and that recorded, after the mark of the end.
    last = _SEQUENCE.match(file.last)
    is_closed = last is not None and any(last[1].decode() in each.ended for each in files[-2:])
    if not keys:
        if not is_closed and not is_running:
            file.find("the trail has no end: the router runs (--running), was killed, or lines are missing", file.lines)
        return
    if file.is_last_signed:
        if not is_closed and not is_running:
            text = "the trail has no end: the router runs (--running), was killed, or lines after it are missing"
            file.find(text, file.lines, file.last)
        return
    if not any(each.signed for each in files):
        file.find("not one line of the trail is signed: whoever can write the files may have made it up", file.lines)
        return
    signed_in = next(each for each in reversed(files) if each.signed)
    after = sum(each.lines for each in files[files.index(signed_in) + 1 :])
    first_unsigned = signed_in.block_at[1] + 2
    after += signed_in.lines - signed_in.block_at[1] - 1
    text = f"{after} lines after the last signed one, {signed_in.path.name}:{first_unsigned - 1}, are not vouched for"
    if not is_running:
        file.find(text, file.lines, file.last)
        return
    # Attack: lines with a future time would count as recent forever.
    is_now = signed_in is file and abs(_age_s(file)) <= _MAX_UNSIGNED_S
    if after > _MAX_UNSIGNED_LINES or not is_now:
        file.find(
            f"{text}, and are not the latest minute's, which a router that runs may leave so", file.lines, file.last
        )
        return
    verdict.notes.append(f"{file.path.name}: {text}, yet")


def _age_s(file: _File) -> float:
    """Returns the seconds from the first unsigned line to now."""
    at, before = file.block_at
    for number, line in _lines(file.path, at, before):
        if number <= before + 1:
            continue
        try:
            return time.time() - datetime.fromisoformat(json.loads(line)["time"]).timestamp()
        except (ValueError, KeyError, TypeError, RecursionError):
            return float("inf")
    return 0.0


def _plain(name: str) -> str:
    return name.removesuffix(".gz")


def verify(
    folder: Path, keys: Keys, *, is_running: bool = False, seen: Sequence[str] = (), jobs: int | None = None
) -> Verdict:
    """Checks the trails of all routers in a folder.

    keys        by name; empty: signatures are not checked
    is_running  the routers run: the ends may be open
    seen        `previous` of signed lines that existed earlier
    jobs        files at a time
    Errors      OSError: the folder cannot be read
    """
    verdict = Verdict()
    paths: list[Path] = []
    names = sorted(os.listdir(folder))
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            if name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
                verdict.findings.append(Finding(file=name, text="is not the name of a router's audit file"))
            continue
        if found["packed"] and _plain(name) in names:
            verdict.notes.append(f"{name}: is passed over, for {_plain(name)} is there")
            continue
        paths.append(folder / name)

    def router_of(path: Path) -> str:
        found = _NAME.fullmatch(path.name)
        return found["router"] if found else ""

    paths.sort(key=lambda path: (router_of(path), _plain(path.name)))
    if not paths:
        # Attack: in a trail that was removed completely, every remaining line is valid.
        text = "holds no audit file: where it is a router's audit directory, its trail was taken away, or never begun"
        verdict.findings.append(Finding(file=str(folder), text=text))
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        files = list(pool.map(lambda path: check_file(path, keys), paths))
    for router, group in groupby(files, lambda file: router_of(file.path)):
        each = list(group)
        _join(each, verdict, keys, is_running=is_running)
        _note_head(router, each, verdict)
    for file in files:
        verdict.findings += file.findings
    known = {digest for file in files for digest in file.seen}
    for digest in seen:
        if digest not in known:
            text = f"no signed line has previous {digest}, which one had: the trail was cut, or is another one"
            verdict.findings.append(Finding(file=str(folder), text=text))
    verdict.lines = {_plain(file.path.name): file.lines + bool(file.rest) for file in files}
    verdict.events, verdict.files = sum(file.lines for file in files), len(files)
    verdict.signed = sum(file.signed for file in files)
    return verdict


def _note_head(router: str, files: Sequence[_File], verdict: Verdict) -> None:
    for file in reversed(files):
        line, number = file.head
        found, sequence = _END.search(line), _SEQUENCE.match(line)
        if found is not None and sequence is not None:
            verdict.heads[router] = {
                "file": file.path.name,
                "line": number,
                "start": sequence[1].decode(),
                "sequence": int(sequence[2]),
                "previous": found[1].decode(),
            }
            return


# The command


def add_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("folder", metavar="FOLDER", type=Path, help="a router's audit directory")
    verb.add_argument(
        "--key",
        metavar="PUBLIC",
        type=Path,
        action="append",
        default=[],
        help="public key of auditSigningKey, in PEM; again for an earlier key",
    )
    verb.add_argument("--unsigned", action="store_true", help="check the chain alone, which whoever writes can forge")
    verb.add_argument("--running", action="store_true", help="the routers run: their trails need no end yet")
    verb.add_argument(
        "--seen",
        metavar="DIGEST",
        action="append",
        default=[],
        type=_seen,
        help="a digest that an earlier run printed must be in the trail: whoever cuts a trail cuts it off",
    )
    verb.add_argument("--jobs", metavar="N", type=_jobs, help="files at a time (as many as there are processors)")
    verb.add_argument("--format", choices=("text", "json"), default="text", help="of what is printed (text)")


def _seen(text: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no SHA-256: 64 of 0-9 and a-f")
    return text


def _jobs(text: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,2}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 999")
    return int(text)


def run(arguments: argparse.Namespace, show: Callable[[str], object] = print) -> int:
    """Runs the command and returns the exit status."""
    if bool(arguments.key) == arguments.unsigned:
        print("qdaudit: give --key PUBLIC, or --unsigned to check the chain without its signatures", file=sys.stderr)
        return USAGE
    if arguments.seen and not arguments.key:
        print("qdaudit: --seen is about signed lines: give --key PUBLIC", file=sys.stderr)
        return USAGE
    try:
        keys = dict(read_key(path) for path in arguments.key)
        verdict = verify(arguments.folder, keys, is_running=arguments.running, seen=arguments.seen, jobs=arguments.jobs)
    except PublicKeyError as error:
        print(f"qdaudit: --key {error}", file=sys.stderr)
        return UNREADABLE
    except OSError as error:
        print(f"qdaudit: {arguments.folder}: cannot be read: {error.strerror}", file=sys.stderr)
        return UNREADABLE
    if arguments.format == "json":
        show(json.dumps(_as_json(verdict), indent=2))
    else:
        for text in _as_text(verdict):
            show(text)
    return TAMPERED if verdict.findings else WHOLE


def _as_json(verdict: Verdict) -> dict[str, object]:
    findings = [
        {"file": each.file, "line": each.line, "sequence": each.sequence, "text": each.text}
        for each in verdict.findings
    ]
    return {
        "is_whole": not findings,
        "events": verdict.events,
        "files": verdict.files,
        "signed": verdict.signed,
        "findings": findings,
        "notes": verdict.notes,
        "heads": verdict.heads,
    }


def _as_text(verdict: Verdict) -> Iterator[str]:
    for finding in verdict.findings:
        yield f"FOUND {_printable(str(finding))}"
    for note in verdict.notes:
        yield f"note: {_printable(note)}"
    counts = f"{verdict.events} lines of {verdict.files} files, {verdict.signed} of them signed"
    yield f"{counts}: {f'{len(verdict.findings)} findings' if verdict.findings else 'whole'}"
    for router, head in verdict.heads.items():
        where = f"{head['file']}:{head['line']}, sequence {head['sequence']}"
        yield f"{router}: last signed line {where}; for --seen of a later run: {head['previous']}"


def _printable(text: str) -> str:
    """Returns a printable name. File names may contain any characters."""
    return "".join(each if each.isprintable() else "?" for each in text)
