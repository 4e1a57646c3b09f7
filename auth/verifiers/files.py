"""Users in a file: one `user:hash` a line, optionally followed by a blank and SCRAM keys. `#` begins a comment line.

Blocking: files are read and hashes computed here. Call `verify` off the event loop.

Owner and mode: the file must belong to root or to the user of the process, and no other user may write it. Its group
may read it (a service account that does not own it), but never all users. Hashes that others can read can be guessed
offline; hashes that others can write let them in.
"""

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import overload

from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    Answer,
    CheckPassword,
    FetchScramKeys,
    Recheck,
    ScramKeys,
    VerifyRequest,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.scram import HASHES
from auth.secrets import Secret
from auth.verifiers.disks import never_waits
from auth.verifiers.hashes import Argon2idCost, Cost, HashError, check_hash, decoy_hash, hash_password, verify_hash
from auth.verifiers.scram_keys import decoy_keys, make_scram_keys, read_scram_keys, shapes_of
from auth.verifiers.verifier import DEFAULT, HASHING_THREADS
from policy.files.regular import read_regular

# Stops a wrong path to a large file from filling memory; room for 100,000 users.
MAX_FILE_BYTES = 16 * 1024 * 1024

# Every login computes a hash of each cost in the file, see UserFile.verify. Stops a file collected from many programs
# from making each login, and so each attack, that expensive.
MAX_COSTS = 8

# Limit of SCRAM key shapes for which a decoy is drawn on the event loop, at 5 microseconds each. Stops a file collected
# from many programs from delaying all connections at each login: with more shapes, a thread draws.
MAX_QUICK_SHAPES = 8


class UserFileError(ValueError):
    """The file cannot be used. The text names file, line and remedy."""


class UserFile:
    """The users of one file, as they were when it was loaded."""

    __slots__ = ("_decoys", "_entries", "_hashes", "_scram", "_shapes", "mechanisms", "seed")

    def __init__(self, entries: Mapping[str, str], seed: bytes | None = None) -> None:
        """Prepares the users.

        entries  as `parse_users` returns them
        seed     of decoys; None: derived from the first entry
        """
        self._entries = dict(entries)
        self._hashes: dict[str, str] = {}
        self._scram: dict[str, dict[str, ScramKeys]] = {}  # by the hash's name, by user
        for user, entry in self._entries.items():
            self._hashes[user], *texts = entry.split()
            for hash_name, keys in map(read_scram_keys, texts):
                self._scram.setdefault(hash_name, {})[user] = keys
        self._shapes = {name: shapes_of(known.values()) for name, known in self._scram.items()}
        self.mechanisms = (*(f"SCRAM-{name}" for name in self.scram_hashes), "PLAIN")
        # Decoys have to stay the same over restarts: otherwise an attacker who asks before and after one recognises
        # them.
        first = next(iter(self._entries.items()), ("", ""))
        self.seed = seed if seed is not None else hashlib.sha256("".join(first).encode()).digest()
        costs = dict.fromkeys(check_hash(phc) for phc in self._hashes.values()) or (Argon2idCost(),)
        self._decoys = {cost: decoy_hash(cost) for cost in costs}

    @classmethod
    def load(cls, path: str, seed: bytes | None = None) -> "UserFile":
        """Reads the file. Errors: UserFileError.

        seed  of the file when it was read before: a change of the file must not change decoys, which would reveal them
        """
        return cls(parse_users(_read(path), path), seed)

    @property
    def users(self) -> tuple[str, ...]:
        """Returns the names, in the order of the file."""
        return tuple(self._hashes)

    @property
    def scram_hashes(self) -> tuple[str, ...]:
        """Returns the hashes for which some user has SCRAM keys, strongest first."""
        return tuple(name for name in HASHES if name in self._scram)

    def scram_keys(self, user: str, hash_name: str) -> ScramKeys:
        """Returns the user's keys, or decoys for a user without keys, so as not to reveal who exists."""
        # Also made for users that exist, so that the time reveals nothing.
        decoy = decoy_keys(self.seed, user, hash_name, self._shapes.get(hash_name, {}))
        return self._scram.get(hash_name, {}).get(user, decoy)

    def is_quick(self, hash_name: str) -> bool:
        """Returns whether `scram_keys` takes microseconds. It draws decoys among the shapes of the file's keys."""
        return len(self._shapes.get(hash_name, ())) <= MAX_QUICK_SHAPES

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Returns the different costs of the hashes: every login computes one hash of each."""
        return tuple(self._decoys)

    def verify(self, user: str, password: Secret) -> VerifyResult:
        """Checks a user's password. Never hashes more than MAX_PASSWORD_BYTES.

        Attack: to find out by the time of the answer which users exist. If a user's hash cost more or less than that of
        a made-up name, the time would show it. So each login computes one hash of each cost in the file, in the same
        order: the user's own, and decoys for the other costs.
        """
        size = len(password.reveal().encode("utf-8", "surrogatepass"))
        if not 0 < size <= MAX_PASSWORD_BYTES:
            return VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
        phc = self._hashes.get(user)
        hashes = dict(self._decoys)
        if phc is not None:
            hashes[check_hash(phc)] = phc  # in its decoy's place
        fits = {each: _fits(password, each) for each in hashes.values()}
        if phc is None:
            return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
        found = fits[phc]
        if isinstance(found, HashError):
            return VerifyResult(is_valid=False, detail=f"SASL(-1): generic failure: {found}")
        if not found:
            return VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
        return VerifyResult(is_valid=True)

    def proof(self, user: str) -> str | None:
        """Returns a value that differs for every entry that a user may have.

        None for an unknown user. Reveals no hash.
        """
        entry = self._entries.get(user)
        return None if entry is None else hashlib.sha256(entry.encode()).hexdigest()


def _fits(password: Secret, phc: str) -> bool | HashError:
    try:
        return verify_hash(password, phc)
    except HashError as fault:
        return fault


class UserFileVerifier:
    """Answers from a file that may change: the file is read again whenever it has changed.

    So a removed user is refused at once. If the file becomes unusable, every user is refused. May be called from
    several threads: the only state is one tuple, replaced as a whole.
    """

    __slots__ = ("_loaded", "_path", "name")

    threads = HASHING_THREADS

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Returns PLAIN, and SCRAM with the hashes for which the file, as last read, has keys."""
        return self._loaded[1].mechanisms

    @property
    def path(self) -> str:
        return self._path

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Returns the costs in the file as last read, see UserFile.costs."""
        return self._loaded[1].costs

    def __init__(self, path: str, name: str = DEFAULT) -> None:
        """Reads the file. Errors: UserFileError if it cannot be used now."""
        self.name = name
        self._path = path
        # The file as last read, and whether checking it for changes never blocks.
        self._loaded = (fingerprint(path), UserFile.load(path), never_waits(path))

    @overload
    def verify(self, request: CheckPassword) -> VerifyResult: ...
    @overload
    def verify(self, request: VerifyRequest) -> Answer: ...
    def verify(self, request: VerifyRequest) -> Answer:
        """Checks a password or an open connection's proof, or returns a user's SCRAM keys."""
        if not isinstance(request, CheckPassword | FetchScramKeys | Recheck):
            return unavailable("a file of users holds passwords only")
        loaded, users, _ = self._loaded
        try:
            current = fingerprint(self._path)
            if current != loaded:
                users = UserFile.load(self._path, users.seed)
                self._loaded = (current, users, never_waits(self._path))
        except UserFileError as fault:
            return unavailable(str(fault))
        if isinstance(request, Recheck):
            return VerifyResult(is_valid=users.proof(request.proof.user) == request.proof.value)
        if isinstance(request, FetchScramKeys):
            return self._scram_keys(users, request)
        result = users.verify(request.user, request.password)
        return replace(result, proof=self._proof(users, request.user)) if result.is_valid else result

    def recall(self, request: VerifyRequest) -> Answer | None:
        """Returns SCRAM keys if the file has not changed since it was read and checking this does not block.

        Else None.
        """
        loaded, users, is_quick = self._loaded
        if not isinstance(request, FetchScramKeys) or not is_quick or not users.is_quick(request.hash_name):
            return None
        try:
            if fingerprint(self._path) != loaded:
                return None
        except UserFileError:
            return None
        return self._scram_keys(users, request)

    def _scram_keys(self, users: UserFile, request: FetchScramKeys) -> ScramKeys:
        return replace(users.scram_keys(request.user, request.hash_name), proof=self._proof(users, request.user))

    def _proof(self, users: UserFile, user: str) -> Proof | None:
        value = users.proof(user)
        return Proof(verifier=self.name, user=user, value=value) if value is not None else None

    def close(self) -> None:
        """Does nothing: the verifier holds no connections."""


def parse_users(text: str, path: str) -> dict[str, str]:
    """Returns user -> PHC string that `check_hash` accepts, followed by SCRAM keys, separated by blanks.

    The hashes have at most MAX_COSTS different costs.

    path    only names the file in errors

    Errors  UserFileError with the line number, never with the line itself, which may be a password by mistake.
    """
    hashes: dict[str, str] = {}
    costs: set[Cost] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        user, colon, entry = line.strip().partition(":")
        where = f"{path}:{number}"
        if not colon:
            raise UserFileError(f"{where}: expected user:hash")
        check_user(user, where)
        if user in hashes:
            raise UserFileError(f"{where}: user '{user}' appears twice")
        try:
            phc, *scram = entry.split() or [""]
            costs.add(check_hash(phc))
            names = [read_scram_keys(text)[0] for text in scram]
            if len(set(names)) < len(names):
                raise HashError("SCRAM keys of one hash twice")
        except HashError as fault:
            raise UserFileError(f"{where}: {fault}") from None
        if len(costs) > MAX_COSTS:
            raise UserFileError(
                f"{where}: a hash of one more cost, and a file has {MAX_COSTS} different ones at most, since every "
                "login computes one of each: take this line out and set the user's password anew with qdpasswd"
            )
        hashes[user] = entry
    return hashes


def check_user(user: str, where: str) -> None:
    """Refuses a name that a line cannot hold or a client cannot log in with. Errors: UserFileError."""
    if not user or user != user.strip() or user.startswith("#") or ":" in user or not user.isprintable():
        raise UserFileError(
            f"{where}: a user name must be printable, without ':', not begin with '#' and not begin or end with a blank"
        )
    if len(user.encode("utf-8")) > MAX_USER_BYTES:
        raise UserFileError(f"{where}: a user name of more than {MAX_USER_BYTES} bytes")


def set_user(
    path: str,
    user: str,
    password: Secret,
    *,
    cost: Cost | None = None,
    scram: Sequence[str] = (),
    must_exist: bool = True,
) -> None:
    """Adds a user or replaces its password. Keeps everything else in the file, including comments.

    scram       the hashes for which SCRAM keys are stored beside the password's hash
    must_exist  false to create the file (mode 600) if it does not exist
    Errors      UserFileError, HashError, OSError. The file is replaced as a whole or not at all.
    """
    check_user(user, path)
    if not 0 < len(password.reveal().encode("utf-8")) <= MAX_PASSWORD_BYTES:
        raise UserFileError(f"{path}: a password must have 1 to {MAX_PASSWORD_BYTES} bytes")
    keys = (make_scram_keys(password, name) for name in scram)
    entry = " ".join((f"{user}:{hash_password(password, cost or Argon2idCost())}", *keys))
    with _locked(path):
        lines = _lines(path) if must_exist or Path(path).exists() else []
        places = [at for at, line in enumerate(lines) if _user_of(line) == user]
        if places:
            lines[places[0]] = entry
        else:
            lines.append(entry)
        _replace(path, lines)


def remove_user(path: str, user: str) -> None:
    """Removes a user from the file. Errors: UserFileError, also if the user does not exist; OSError."""
    with _locked(path):
        lines = _lines(path)
        kept = [line for line in lines if _user_of(line) != user]
        if len(kept) == len(lines):
            raise UserFileError(f"{path}: no user '{user}'")
        _replace(path, kept)


def read_private(path: str) -> bytes:
    """Reads a file with a safe owner and mode. They are checked on the open file, so that it cannot be exchanged.

    Errors  UserFileError, also if it has more than MAX_FILE_BYTES
    """
    try:
        return read_regular(path, MAX_FILE_BYTES, check=partial(_check_status, path))
    except OSError as fault:
        raise UserFileError(f"{path}: cannot be read: {fault.strerror}") from None


def fingerprint(path: str) -> tuple[int, int, int, int]:
    """Returns a value that differs for another file and after a change of this one. Its last item is the ctime in ns.

    Errors  UserFileError
    """
    try:
        status = os.stat(path)
    except OSError as fault:
        raise UserFileError(f"{path}: cannot be read: {fault.strerror}") from None
    # The change time also changes with owner and mode, and cannot be set back.
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def _read(path: str) -> str:
    content = read_private(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = content.count(b"\n", 0, fault.start) + 1
        raise UserFileError(f"{path}:{line}: not UTF-8 text") from None


def _check_status(path: str, status: os.stat_result) -> None:
    if status.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
        raise UserFileError(
            f"{path}: mode {stat.S_IMODE(status.st_mode):03o} lets others at the passwords in it; "
            f"make it private: chmod 600 {path}"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise UserFileError(
            f"{path}: belongs to uid {status.st_uid}, who could replace the passwords; "
            f"expected root or the user of this process: chown {os.geteuid()} {path}"
        )


def _lines(path: str) -> list[str]:
    text = _read(path)
    parse_users(text, path)
    return text.splitlines()


def _user_of(line: str) -> str | None:
    """Returns the user of a line that `parse_users` accepts. None for a comment or blank line."""
    stripped = line.strip()
    return None if not stripped or stripped.startswith("#") else stripped.partition(":")[0]


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Locks the folder, so that two writers do not lose each other's change."""
    try:
        folder = os.open(Path(path).resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as fault:
        raise UserFileError(f"{path}: its folder cannot be opened: {fault.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _replace(path: str, lines: list[str]) -> None:
    target = Path(path).resolve()  # a link stays a link
    mode, owner = 0o600, None
    if target.exists():
        status = target.stat()
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            if owner is not None and owner != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
