"""The hash chain over the lines of an audit log, and its signatures.

Each line ends with `previous`: the SHA-256 of the bytes before it in its file. The hash starts at the last signed line
among them, or at the beginning of the file. The first line of a file has the value that the next line of the previous
file would have. So a line that is changed, removed, added or moved does not fit the next line. Signed lines
(checkpoints, the end of a start) also end with an Ed25519 signature. An attacker who can write the files but does not
have the key cannot make one. docs/audit.md, The chain, is the definition. `qdaudit verify` (spark.verify) implements it
separately.
"""

import gzip
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

NOTHING_BEFORE: Final = "0" * 64
# No text of a peer can contain it: quotation marks inside a JSON string are escaped.
SIGNATURE_MARK: Final = b',"signature":"'
# Part of every signed text, so that a signature for another purpose is not valid here, and ours is not valid elsewhere.
SIGNED_FOR: Final = b"palisade audit line 1\n"
# An upper bound for the end of a line that is added here.
LINKS_BYTES: Final = len('"previous":""') + 64 + len(',"signature":""') + 128 + 2
_READ_BYTES: Final = 1024 * 1024
_MAX_KEY_BYTES: Final = 16 * 1024


# With a signing key: one signature for this number of lines, or this time after the first of them. An attacker can cut
# off this much unnoticed while the router runs. A signature costs as much as two lines.
CHECKPOINT_LINES = 4096
CHECKPOINT_S = 5.0


class SigningKeyError(Exception):
    """A signing key that cannot be used. The text names the file and what it should be."""


class Signed(bytes):
    """A line to be signed if there is a key."""


class Signer:
    """An Ed25519 key.

    name  identifies the key: 16 hex digits of the SHA-256 of the public key
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.name = hashlib.sha256(public).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Signer({self.name})"

    def sign(self, line: bytes) -> str:
        """Signs a line. Returns 128 hex digits.

        line  without the signature
        """
        return self._key.sign(SIGNED_FOR + line).hex()


def read_signer(path: Path) -> Signer:
    """Returns the Ed25519 key of a PEM file. Errors: SigningKeyError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SigningKeyError(f"{path}: {error.strerror}") from None
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise SigningKeyError(f"{path}: no regular file")
        if state.st_mode & 0o077:
            raise SigningKeyError(f"{path}: others may use it; make it 0600 with chmod go-rwx")
        if state.st_uid not in (os.geteuid(), 0):
            raise SigningKeyError(f"{path}: is neither the router's user's nor root's")
        pem = os.read(fd, _MAX_KEY_BYTES)
    except OSError as error:
        raise SigningKeyError(f"{path}: {error.strerror}") from None
    finally:
        os.close(fd)
    want = "it must be an Ed25519 key in PEM without a password, as of `openssl genpkey -algorithm ed25519`"
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SigningKeyError(f"{path}: {want}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(f"{path}: {want}")
    return Signer(key)


class Hash(Protocol):
    """A hash object of hashlib."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...
    def copy(self) -> "Hash": ...


@dataclass(slots=True)
class Chain:
    """The state of the chain: the `previous` of the next line.

    signer  None: no line is signed
    """

    signer: Signer | None = None
    before: str = NOTHING_BEFORE  # for the first line of the file
    running: Hash | None = None  # over the file since its last signed line; None: the file has no line

    @property
    def digest(self) -> str:
        return self.running.hexdigest() if self.running is not None else self.before

    def linked(self, line: bytes) -> bytes:
        """Returns the line in the form to be written next."""
        whole = b'%b,"previous":"%b"' % (line[:-2], self.digest.encode())
        if self.signer is not None and isinstance(line, Signed):
            whole = b'%b%b%b"' % (whole, SIGNATURE_MARK, self.signer.sign(whole).encode())
        return whole + b"}\n"

    def took(self, line: bytes, whole: bytes) -> None:
        """Notes that a line is written, in the form `whole`."""
        if self.running is None or (self.signer is not None and isinstance(line, Signed)):
            self.running = hashlib.sha256(whole)
        else:
            self.running.update(whole)

    def begin_file(self) -> None:
        self.before, self.running = self.digest, None

    def copy(self) -> "Chain":
        running = self.running.copy() if self.running is not None else None
        return Chain(self.signer, self.before, running)


class Checkpoints:
    """Decides when the next checkpoint is due. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._unsigned = 0  # lines on disk since the last signed one
        self._since = 0.0
        self._is_taken = False  # a checkpoint is waiting to be written

    def note(self, written: Iterable[bytes], now: float) -> None:
        for line in written:
            if isinstance(line, Signed):
                self._unsigned, self._is_taken = 0, False
            else:
                self._since = self._since if self._unsigned else now
                self._unsigned += 1

    def take(self, now: float, *, is_last: bool = False) -> bool:
        """Returns True if a checkpoint is due. The caller must then make it.

        is_last  True: one is due if any line is not signed
        """
        if self._is_taken or not self._unsigned:
            return False
        self._is_taken = is_last or self._unsigned >= CHECKPOINT_LINES or now - self._since >= CHECKPOINT_S
        return self._is_taken

    def wait_s(self, now: float) -> float | None:
        """Returns the seconds until one is due; None: no line waits for one."""
        return self._since + CHECKPOINT_S - now if self._unsigned and not self._is_taken else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Bytes at the end of a file that are no part of the chain: half a line, or lines that are written again.

    sha256  64 hex digits
    """

    file: str
    size: int
    sha256: str


def end_of(path: Path) -> tuple[str | None, Rest | None]:
    """Returns how a closed file ends: the `previous` for the next file, or None if it has no line; and a torn line.

    Reads all of the file. Errors: OSError, EOFError, zlib.error, as raised by gzip
    """
    running: Hash = hashlib.sha256()
    is_empty = True
    rest = b""
    for block in _blocks(path):
        whole, is_whole, rest = (rest + block).rpartition(b"\n")
        if not is_whole:
            continue
        whole += b"\n"
        is_empty = False
        mark = whole.rfind(SIGNATURE_MARK)
        if mark < 0:
            running.update(whole)
        else:
            running = hashlib.sha256(whole[whole.rfind(b"\n", 0, mark) + 1 :])
    torn = Rest(file=path.name, size=len(rest), sha256=hashlib.sha256(rest).hexdigest()) if rest else None
    return None if is_empty else running.hexdigest(), torn


def first_previous(path: Path) -> str | None:
    """Returns `previous` of a file's first line; None if it has none, or cannot be read."""
    try:
        line = next(_blocks(path), b"").partition(b"\n")[0]
    except (OSError, EOFError):
        return None
    found = re.search(rb'"previous":"([0-9a-f]{64})"(?:,"signature":"[0-9a-f]{128}")?\}\Z', line)
    return found[1].decode() if found else None


def _blocks(path: Path) -> Iterator[bytes]:
    """Iterates over the blocks of a file. Follows no link, and reads only regular files."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no regular file")
        with gzip.open(file) if path.suffix == ".gz" else file as content:
            while block := content.read(_READ_BYTES):
                yield block
