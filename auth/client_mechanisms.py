"""The client side of each mechanism, and the choice among them.

Pure. Sources: docs/spec/policy-and-auth.md §8b; RFC 4616, RFC 4422 appendix A, RFC 4505, RFC 7628.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from auth.bearer import DUMMY, OAUTHBEARER, XOAUTH2
from auth.client_scram import Derive, MechanismFault, Scram
from auth.mechanisms import ANONYMOUS_USER
from auth.scram import BINDING, HASHES, mechanism_names
from auth.secrets import Secret


class ClientMechanism(Protocol):
    @property
    def name(self) -> str: ...

    def initial_response(self) -> bytes:
        """Returns the initial response of the sasl-init. Errors: MechanismFault."""
        ...

    def answer(self, challenge: bytes) -> bytes | Derive:
        """Returns the response to a challenge, or the computation that it needs. Errors: MechanismFault."""
        ...

    def derived(self, salted: bytes) -> bytes:
        """Returns the response, given the result of the last `Derive`."""
        ...

    def confirm(self, additional_data: bytes | None) -> None:
        """Checks that a successful outcome is genuine. Errors: MechanismFault."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The credentials that we can show.

    token            sent only inside TLS
    has_certificate  TLS has shown our certificate; without one EXTERNAL cannot succeed
    binding          (type) → the channel binding of that type, None without one
    """

    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    has_certificate: bool = False
    is_encrypted: bool = False
    binding: Callable[[str], bytes | None] = lambda _type: None


def choose(offered: Sequence[str], allowed: frozenset[str] | None, means: Means) -> ClientMechanism | None:
    """Returns the strongest mechanism in `offered` that we may and can use. Returns None if there is no such mechanism.

    offered  upper-case names
    allowed  upper-case names; None: any except SCRAM-SHA-1
    Errors   MechanismFault for credentials that the mechanism cannot carry
    """
    usable = [name for name in offered if allowed is None or name in allowed]
    if "EXTERNAL" in usable and means.has_certificate and means.is_encrypted:
        return _OneMessage("EXTERNAL", b"")
    username, password = means.username, means.password
    if username and password:
        binding = means.binding(BINDING) if means.is_encrypted else None
        for name, plus in _scram_names(is_sha1_named=allowed is not None, can_bind=binding is not None):
            if name in usable:
                return Scram(name, username, password, binding=binding, offers_plus=plus in offered)
    if means.token and means.is_encrypted:
        for name in (OAUTHBEARER, XOAUTH2):
            if name in usable:
                return _Bearer(name, username or "", means.token)
    if "PLAIN" in usable and username and password:
        return _Plain(username, password)
    if "ANONYMOUS" in usable:
        return _OneMessage("ANONYMOUS", ANONYMOUS_USER.encode())
    return None


def _scram_names(*, is_sha1_named: bool, can_bind: bool) -> Iterator[tuple[str, str]]:
    """Yields the names, strongest first, each together with its -PLUS form, which binds the channel."""
    hashes = [name for name in HASHES if name != "SHA-1" or is_sha1_named]
    forms = [mechanism_names(name) for name in hashes]
    if can_bind:
        yield from ((plus, plus) for plus, _ in forms)
    yield from ((bare, plus) for plus, bare in forms)


class _OneMessage:
    """A mechanism whose whole message fits in the init."""

    def __init__(self, name: str, message: bytes) -> None:
        self.name = name
        self._message = message

    def initial_response(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | Derive:
        raise MechanismFault(f"a challenge in {self.name}, which has none")

    def derived(self, salted: bytes) -> bytes:
        raise MechanismFault(f"nothing is derived in {self.name}")

    def confirm(self, additional_data: bytes | None) -> None:
        return


class _Plain(_OneMessage):
    def __init__(self, username: str, password: Secret) -> None:
        super().__init__("PLAIN", b"")
        self._username = username
        self._password = password

    def initial_response(self) -> bytes:
        try:
            parts = [self._username.encode("utf-8"), self._password.reveal().encode("utf-8")]
        except UnicodeEncodeError:
            raise MechanismFault("the user name or password is not valid Unicode text") from None
        if any(b"\0" in part for part in parts):
            raise MechanismFault("a user name or password with a NUL character cannot be sent with PLAIN")
        return b"\0" + b"\0".join(parts)


class _Bearer(_OneMessage):
    """OAUTHBEARER and XOAUTH2."""

    def __init__(self, name: str, username: str, token: Secret) -> None:
        super().__init__(name, b"")
        self._username = username
        self._token = token
        self._has_failed = False

    def initial_response(self) -> bytes:
        token = self._token.reveal()
        if not (token.isascii() and token.isprintable() and " " not in token and self._username.isprintable()):
            raise MechanismFault("the token or the user name has a character that cannot be sent")
        if self.name == XOAUTH2:
            header = f"user={self._username}"
        else:
            name = self._username.replace("=", "=3D").replace(",", "=2C")
            header = f"n,a={name}," if name else "n,,"
        return f"{header}\x01auth=Bearer {token}\x01\x01".encode()

    def answer(self, challenge: bytes) -> bytes | Derive:
        """Answers the server's error challenge.

        The server requires an answer before it sends the outcome (RFC 7628 §3.2.3).
        """
        if self._has_failed:
            raise MechanismFault(f"a second challenge in {self.name}")
        self._has_failed = True
        return DUMMY if self.name == OAUTHBEARER else b""

    def confirm(self, additional_data: bytes | None) -> None:
        if self._has_failed:
            raise MechanismFault("the server has refused the token, and says success")
