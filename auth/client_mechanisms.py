"""The client side of each mechanism, and which one to take.

Pure. Sources: docs/spec/policy-and-auth.md §8b; RFC 4616, RFC 4422 appendix A, RFC 4505.
"""

from collections.abc import Sequence
from typing import Protocol

from auth.mechanisms import ANONYMOUS_USER
from auth.secrets import Secret


class MechanismFault(ValueError):
    """The server's messages do not fit the mechanism, or the credentials cannot be put into it."""


class ClientMechanism(Protocol):
    @property
    def name(self) -> str: ...

    def initial_response(self) -> bytes:
        """The initial response of the sasl-init. Errors: MechanismFault."""
        ...

    def answer(self, challenge: bytes) -> bytes:
        """The response to a challenge. Errors: MechanismFault."""
        ...

    def confirm(self, additional_data: bytes | None) -> None:
        """Check that a successful outcome may be believed. Errors: MechanismFault."""
        ...


def choose(
    usable: Sequence[str], *, username: str | None, password: Secret | None, has_certificate: bool
) -> ClientMechanism | None:
    """The strongest of the upper-case names in `usable` that we can carry through; None when there is none.

    has_certificate  TLS has shown a certificate of ours; without one EXTERNAL cannot succeed
    """
    if "EXTERNAL" in usable and has_certificate:
        return _OneMessage("EXTERNAL", b"")
    if "PLAIN" in usable and username and password:
        return _Plain(username, password)
    if "ANONYMOUS" in usable:
        return _OneMessage("ANONYMOUS", ANONYMOUS_USER.encode())
    return None


class _OneMessage:
    """A mechanism that says all it has to say in the init."""

    def __init__(self, name: str, message: bytes) -> None:
        self.name = name
        self._message = message

    def initial_response(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes:
        raise MechanismFault(f"a challenge in {self.name}, which has none")

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
