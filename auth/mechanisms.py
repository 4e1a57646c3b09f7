"""The server side of each mechanism. Each response from the client yields the next step.

Pure. A question to a user database is an `Ask`; its answer comes through `conclude`. PLAIN and EXTERNAL are parsed
here and not by pysasl. pysasl accepts empty passwords, raises UnicodeDecodeError and keeps the password as plain text.

A client may give an authorization identity, but only its own. The peer accepts any for EXTERNAL and uses the
authenticated name. We refuse a different one for all mechanisms: a router has no rule by which one user may act as
another.
Sources: RFC 4616 (PLAIN), RFC 4422 appendix A (EXTERNAL), RFC 4505 (ANONYMOUS);
docs/spec/policy-and-auth.md §8.1, §8.5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    Answer,
    CheckPassword,
    FetchGroups,
    MechanismRequest,
    VerifyResult,
)
from auth.identity import Proof
from auth.secrets import Secret

ANONYMOUS_USER = "anonymous"

NOT_OWN_AUTHZID = "SASL(-13): authentication failure: Requested identity not authenticated identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The connection below SASL.

    external_user    of the client certificate that TLS verified; None without one
    has_certificate  TLS has verified a client certificate, even if it yields no user
    is_encrypted     inside TLS
    asks_groups      an authenticator of the listener has the groups of users whom TLS has authenticated
    binding          (type, such as `tls-exporter`) → the data of that channel binding, RFC 5929 and 9266; None if the
                     channel has no binding of that type
    """

    external_user: str | None = None
    has_certificate: bool = False
    is_encrypted: bool = False
    asks_groups: bool = False
    binding: Callable[[str], bytes | None] = lambda _type: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Send this to the client, then pass the answer to `respond`."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Have a verifier answer this, then pass the result to `conclude`."""

    request: MechanismRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The client is authenticated.

    groups, proof, ends_at_s  as in auth.identity.Identity
    """

    user: str
    groups: tuple[str, ...] = ()
    proof: Proof | None = None
    ends_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The client is not authenticated.

    detail       for the log; contains nothing that the client wrote
    is_compared  false: the credentials were not checked, and may be accepted another time
    """

    detail: str
    is_compared: bool = True


Step = Challenge | Ask | Accepted | Refused


class ServerMechanism(Protocol):
    def respond(self, response: bytes | None) -> Step:
        """Takes the initial response (None when absent) or the answer to the last challenge."""
        ...

    def conclude(self, result: Answer) -> Step:
        """Takes the answer to the last `Ask`."""
        ...


# (mechanism name, the channel) → the mechanism, None if there is no such mechanism.
MechanismFactory = Callable[[str, Channel], ServerMechanism | None]


class Anonymous:
    """Accepts every client, as the user `anonymous`. Ignores the trace information that a client may send."""

    def respond(self, response: bytes | None) -> Step:
        return Accepted(user=ANONYMOUS_USER)

    def conclude(self, result: Answer) -> Step:
        return _unasked()


class External:
    """Accepts the user of the client certificate that TLS verified.

    An absent response counts as an empty one. RFC 4422 would request it with an empty challenge. That gains nothing and
    breaks AMQP clients that expect the outcome.

    asks_groups  an authenticator has the groups of such users and decides. It refuses users that it does not know. If
                 it does not answer, the user is refused too, and never accepted without groups
    """

    def __init__(self, user: str | None, *, asks_groups: bool = False) -> None:
        self._user = user
        self._asks_groups = asks_groups

    def respond(self, response: bytes | None) -> Step:
        if not self._user:
            return Refused(detail="SASL(-13): authentication failure: no verified client certificate")
        if response and response != self._user.encode("utf-8", "surrogatepass"):
            return Refused(detail=NOT_OWN_AUTHZID)
        return Ask(request=FetchGroups(user=self._user)) if self._asks_groups else Accepted(user=self._user)

    def conclude(self, result: Answer) -> Step:
        if not self._user or not self._asks_groups or not isinstance(result, VerifyResult):
            return _unasked()
        return _concluded(result, self._user, UNKNOWN_USER)


class Plain:
    """Reads `authzid NUL user NUL password`, which a verifier then checks."""

    def __init__(self) -> None:
        self._user: str | None = None
        self._was_challenged = False

    def respond(self, response: bytes | None) -> Step:
        if response is None:
            if self._was_challenged:
                return _malformed()
            self._was_challenged = True
            return Challenge(data=b"")
        parsed = parse_plain(response)
        if isinstance(parsed, CheckPassword):
            self._user = parsed.user
            return Ask(request=parsed)
        return parsed

    def conclude(self, result: Answer) -> Step:
        if self._user is None or not isinstance(result, VerifyResult):
            return _unasked()
        return _concluded(result, self._user, WRONG_PASSWORD)


def parse_plain(response: bytes) -> CheckPassword | Refused:
    """Parses a PLAIN response strictly, RFC 4616: exactly two NULs, UTF-8, and no empty user or password.

    The names are taken as written, without SASLprep: §8.5 requires the name that the client wrote.
    """
    parts = response.split(b"\0")
    if len(parts) != 3:
        return _malformed()
    authzid, user, password = parts
    # To an LDAP server, an empty password is an anonymous bind, which "succeeds". No verifier ever gets one.
    if not user or not password:
        return Refused(detail="SASL(-13): authentication failure: empty user name or password")
    if len(user) > MAX_USER_BYTES or len(password) > MAX_PASSWORD_BYTES:
        return Refused(detail="SASL(-13): authentication failure: user name or password too long")
    if authzid and authzid != user:
        return Refused(detail=NOT_OWN_AUTHZID)
    try:
        name, text = user.decode("utf-8"), password.decode("utf-8")
    except UnicodeDecodeError:
        return _malformed()
    # Stops a name with line breaks or terminal escapes from forging log lines and audit reports.
    if not name.isprintable():
        return Refused(detail="SASL(-13): authentication failure: unprintable character in user name")
    return CheckPassword(user=name, password=Secret(text))


def _concluded(result: VerifyResult, user: str, why_not: str) -> Accepted | Refused:
    """Turns a verifier's answer into a step.

    why_not  is the detail if the answer gives none
    """
    if not result.is_valid:
        return Refused(detail=result.detail or why_not, is_compared=result.is_compared)
    return Accepted(user=result.user or user, groups=result.groups, proof=result.proof, ends_at_s=result.ends_at_s)


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: PLAIN wants authzid, user and password separated by NUL")


def _unasked() -> Refused:
    return Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
