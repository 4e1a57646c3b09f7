"""The public keys for the signatures of tokens: a JWKS, from a file or from a server.

Blocking. Everything that concerns a server is limited: the time, the bytes, and how often it is asked, whatever tokens
arrive. Only the configured address is asked: no redirect, no proxy of the environment, no address in a token.
Sources: RFC 7517, RFC 7518 §6, RFC 7638; docs/spec/policy-and-auth.md §8.10.
"""

import hashlib
import http.client
import io
import json
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import jwt

from policy.files.regular import read_regular

# A set has a few keys, the longest of 2 KiB. Stops a server, or a wrong path, from filling the memory.
MAX_KEYS_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100

# For one fetch, from the connect to the last byte; stops a server that sends one byte a second.
FETCH_S: Final = 5.0
# Minimum time between two fetches. Attack: tokens that name unknown keys, each of which would cause a fetch.
FETCH_PAUSE_S: Final = 15.0
# How long keys stay valid while the server cannot be reached. Without a limit, the thief of a withdrawn key could keep
# it valid by blocking the server.
MAX_OUTAGE_S: Final = 3600.0

# Signature algorithm → type and curve of its keys. All are asymmetric: with a shared key, every verifier could sign,
# and a public key mistaken for a shared one would let anyone sign.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None]]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
_MEMBERS: Final = {"RSA": ("e", "kty", "n"), "EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x")}
# RFC 7518 §3.3. The maximum bounds the time of a verification, which grows with the size.
_RSA_BITS: Final = range(2048, 8192 + 1)


class KeysError(ValueError):
    """No usable keys are available. The text says why, and shows only the host of an address."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One public key.

    kid           None: it has none
    thumbprint    of RFC 7638
    by_algorithm  the key, by each algorithm that it can verify
    """

    kid: str | None
    thumbprint: str
    by_algorithm: Mapping[str, jwt.PyJWK]


class KeySet:
    """The signature keys of one JWKS."""

    def __init__(self, keys: tuple[TokenKey, ...]) -> None:
        self._keys = keys
        self._thumbprints = frozenset(key.thumbprint for key in keys)

    def find(self, kid: str | None, algorithm: str) -> TokenKey | None:
        """Returns the only key with that name and algorithm. None if there is none, or more than one."""
        fits = [key for key in self._keys if algorithm in key.by_algorithm and (kid is None or key.kid == kid)]
        return fits[0] if len(fits) == 1 else None

    def __contains__(self, thumbprint: object) -> bool:
        return thumbprint in self._thumbprints


def parse_keys(content: bytes) -> KeySet:
    """Returns the keys of a JWKS. Leaves out keys that are not supported public keys. Errors: KeysError."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise KeysError("not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise KeysError(f"not a JWKS: expected an object with at most {MAX_KEYS} 'keys'")
    keys = {key.thumbprint: key for key in map(_key, listed) if key is not None}
    if not keys:
        raise KeysError("no public key for signatures of RSA (2048 bits at least), EC or Ed25519 in it")
    return KeySet(tuple(keys.values()))


def _key(jwk: object) -> TokenKey | None:
    if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
        return None
    operations = jwk.get("key_ops", ["verify"])
    kid, kty = jwk.get("kid"), jwk.get("kty")
    if not isinstance(operations, list) or "verify" not in operations or not isinstance(kid, str | None):
        return None
    members = _MEMBERS.get(kty) if isinstance(kty, str) else None
    if members is None or not all(isinstance(jwk.get(member), str) for member in members):
        return None
    # Other members are ignored: a private key is not needed here.
    public = {member: jwk[member] for member in members}
    names = [
        name
        for name, (its_kty, curve) in ALGORITHMS.items()
        if its_kty == kty and curve in (None, jwk.get("crv")) and jwk.get("alg", name) == name
    ]
    try:
        made = {name: jwt.PyJWK(public, algorithm=name) for name in names}
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    sizes = {found.key.key_size for found in made.values() if kty == "RSA"}
    if not made or any(size not in _RSA_BITS for size in sizes):
        return None
    canonical = json.dumps(public, sort_keys=True, separators=(",", ":"))
    return TokenKey(kid, hashlib.sha256(canonical.encode()).hexdigest(), made)


class Keys(Protocol):
    """A source of keys."""

    def current(self, *, is_missed: bool = False) -> KeySet:
        """Returns the keys. May be called from several threads.

        is_missed  a token names a key that the last call did not return
        Errors     KeysError
        """
        ...


class KeyFile:
    """A JWKS in a file, which is read again when it has changed. Only its owner may write it."""

    def __init__(self, path: str) -> None:
        """Reads the file. Errors: KeysError if it cannot be used now."""
        self._path = path
        self._loaded = self._load()

    def current(self, *, is_missed: bool = False) -> KeySet:
        fingerprint, keys = self._loaded
        if self._fingerprint() != fingerprint:
            self._loaded = fingerprint, keys = self._load()
        return keys

    def _load(self) -> tuple[object, KeySet]:
        fingerprint = self._fingerprint()
        try:
            return fingerprint, parse_keys(read_regular(self._path, MAX_KEYS_BYTES, check=self._check))
        except OSError as fault:
            raise KeysError(f"{self._path}: cannot be read: {fault.strerror}") from None
        except KeysError as fault:
            raise KeysError(f"{self._path}: {fault}") from None

    def _fingerprint(self) -> object:
        try:
            status = os.stat(self._path)
        except OSError as fault:
            raise KeysError(f"{self._path}: cannot be read: {fault.strerror}") from None
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _check(self, status: os.stat_result) -> None:
        """Refuses a file that other users can write: they could sign tokens."""
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
            raise KeysError("others may write it: make it belong to root or this process' user, chmod go-w")


class KeyServer:
    """A JWKS at an address: fetched at the first token, and again when it is old or lacks a key."""

    def __init__(
        self,
        url: str,
        *,
        ca_file: str | None = None,
        is_http_permitted: bool = False,
        max_age_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the fetches.

        ca_file    PEM of the authorities to trust; None: the system's
        max_age_s  the keys are fetched again after this time, so a withdrawn key stays valid until then
        Errors     KeysError for an address or a file that cannot be used
        """
        self._fetch = partial(fetch, _address(url, is_http_permitted), _context(ca_file))
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._fault = "not asked yet"

    def current(self, *, is_missed: bool = False) -> KeySet:
        keys = self._keys
        if keys is None or is_missed or self._age_s >= self._max_age_s:
            # A caller whose cached keys are still usable does not wait for the refresh that another thread has started.
            # Every other caller waits for its result.
            waits = keys is None or is_missed or self._age_s >= MAX_OUTAGE_S
            if self._lock.acquire(blocking=waits, timeout=2 * FETCH_S if waits else -1):
                try:
                    self._ask()
                finally:
                    self._lock.release()
            keys = self._keys
        if keys is None or self._age_s >= max(MAX_OUTAGE_S, self._max_age_s):
            raise KeysError(f"the keys cannot be fetched: {self._fault}")
        return keys

    @property
    def _age_s(self) -> float:
        return self._clock() - self._fetched_at

    def _ask(self) -> None:
        if self._clock() - self._tried_at < FETCH_PAUSE_S:
            return
        try:
            self._keys = parse_keys(self._fetch())
            self._fetched_at = self._clock()
        except KeysError as fault:
            self._fault = str(fault)
        finally:
            self._tried_at = self._clock()


@dataclass(frozen=True, slots=True)
class _Address:
    is_tls: bool
    host: str
    port: int
    target: str  # of the request line


_NO_URL: Final = "the address of the keys is no URL, expected https://HOST/PATH"


def _address(url: str, is_http_permitted: bool) -> _Address:
    # The text is left out if it may contain a password.
    shown = "" if "@" in url or not url.isprintable() else f"'{url[:200]}': "
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise KeysError(f"keysUrl: {_NO_URL}") from None
    if not (url.isascii() and url.isprintable()) or " " in url or not parts.hostname or parts.fragment or port == 0:
        raise KeysError(f"keysUrl: {shown}{_NO_URL}")
    if "@" in parts.netloc:
        raise KeysError(
            "keysUrl: the address of the keys has a password in it, which everybody could read: take it out"
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_http_permitted):
        raise KeysError(
            f"keysUrl: {shown}the address of the keys has to begin with https://: over http whoever is on the way can "
            "put keys of his own into it (where nobody is, keysOverHttp: yes permits it)"
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = parts.scheme == "https"
    return _Address(is_tls, parts.hostname, port or (443 if is_tls else 80), target)


def _context(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise KeysError(f"keysCaFile {ca_file}: cannot be used as the authorities to trust, expected PEM") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def fetch(address: _Address, context: ssl.SSLContext) -> bytes:
    """Fetches the content of an address by GET. Errors: KeysError."""
    deadline = time.monotonic() + FETCH_S
    try:
        with closing(_connect(address, context, deadline)) as connection:
            host = f"[{address.host}]" if ":" in address.host else address.host
            connection.settimeout(_left_s(deadline))
            connection.sendall(
                f"GET {address.target} HTTP/1.1\r\nHost: {host}:{address.port}\r\nAccept: application/json\r\n"
                "Accept-Encoding: identity\r\nUser-Agent: palisade-router\r\nConnection: close\r\n\r\n".encode("ascii")
            )
            received = _Received(b"".join(_pieces(connection, deadline)))
        response = http.client.HTTPResponse(received)  # type: ignore[arg-type] # it calls nothing but makefile
        response.begin()
        if response.status != http.client.OK:
            raise KeysError(f"{address.host} answers {response.status}; a redirect is not followed")
        return response.read()
    except http.client.HTTPException:
        raise KeysError(f"{address.host} does not speak HTTP") from None
    except TimeoutError:
        raise KeysError(f"{address.host} has not answered within {FETCH_S:g} s") from None
    except ssl.SSLError as fault:
        raise KeysError(
            f"{address.host}: TLS failure: {getattr(fault, 'verify_message', '') or fault.reason}"
        ) from None
    except OSError as fault:
        raise KeysError(f"{address.host}: {fault.strerror or 'no such host'}") from None


def _connect(address: _Address, context: ssl.SSLContext, deadline: float) -> socket.socket:
    """Connects to the first address of the host that answers."""
    last: OSError = OSError("no such host")
    for found in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        try:
            plain = socket.create_connection(found[4][:2], timeout=_left_s(deadline))  # type: ignore[arg-type]
        except OSError as fault:
            last = fault
            continue
        if not address.is_tls:
            return plain
        try:
            plain.settimeout(_left_s(deadline))
            return context.wrap_socket(plain, server_hostname=address.host)
        except BaseException:
            plain.close()
            raise
    raise last


def _pieces(connection: socket.socket, deadline: float) -> Iterator[bytes]:
    size = 0
    while True:
        connection.settimeout(_left_s(deadline))
        piece = connection.recv(16 * 1024)
        if not piece:
            return
        size += len(piece)
        if size > MAX_KEYS_BYTES:
            raise KeysError(f"more than {MAX_KEYS_BYTES} bytes")
        yield piece


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Received:
    """A whole response, in place of the socket that http.client would read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> Any:
        return io.BytesIO(self._data)
