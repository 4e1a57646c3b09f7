"""The server side of each mechanism: a response in, the next step out.

Pure; a question to a user database is an `Ask`, its answer comes through `conclude`. PLAIN and EXTERNAL are
parsed here and not by pysasl, which admits empty passwords, lets UnicodeDecodeError escape and keeps the password as
plain text.

Authorization identities: a client may name one, but only its own. The peer accepts any for EXTERNAL and goes by the
authenticated name; we refuse another one everywhere, since a router has no rule by which one user may act as another.
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
    has_certificate  TLS has verified a client certificate, whether or not it gives a user
    is_encrypted     inside TLS
    asks_groups      an authenticator of the listener has the groups of users whom TLS has authenticated
    binding          (type, such as `tls-exporter`) → the data of that channel binding, RFC 5929 and 9266; None where
                     there is none of that type
    """

    external_user: str | None = None
    has_certificate: bool = False
    is_encrypted: bool = False
    asks_groups: bool = False
    binding: Callable[[str], bytes | None] = lambda _type: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Send this, then pass the answer to `respond`."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Have this verified, then pass the result to `conclude`."""

    request: MechanismRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """groups, proof, ends_at_s  as in auth.identity.Identity"""

    user: str
    groups: tuple[str, ...] = ()
    proof: Proof | None = None
    ends_at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """detail     for the log: it holds nothing the client wrote
    is_compared  false: the credentials were not looked at, and may do another time
    """

    detail: str
    is_compared: bool = True


Step = Challenge | Ask | Accepted | Refused


class ServerMechanism(Protocol):
    def respond(self, response: bytes | None) -> Step:
        """Take the initial response (None when absent) or the answer to the last challenge."""
        ...

    def conclude(self, result: Answer) -> Step:
        """Take the answer to the last `Ask`."""
        ...


# (mechanism name, the channel) → the mechanism, None when we have no such one.
MechanismFactory = Callable[[str, Channel], ServerMechanism | None]


class Anonymous:
    """Anybody, as the user `anonymous`; the trace information a client may send is ignored."""

    def respond(self, response: bytes | None) -> Step:
        return Accepted(user=ANONYMOUS_USER)

    def conclude(self, result: Answer) -> Step:
        return _unasked()


class External:
    """The user of the client certificate that TLS verified.

    An absent response is taken as an empty one; asking for it with an empty challenge, as RFC 4422 would, breaks AMQP
    clients that expect the outcome and gains nothing.

    asks_groups  where an authenticator has the groups of such users, it decides: whom it does not know is refused, and
                 nobody is let in without groups because it does not answer
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
    """authzid NUL user NUL password, verified elsewhere."""

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
    """Split a PLAIN response strictly, RFC 4616: two NULs exactly, UTF-8, nothing empty that must not be.

    The names are taken as written, without SASLprep: §8.5 wants the name the client wrote.
    """
    parts = response.split(b"\0")
    if len(parts) != 3:
        return _malformed()
    authzid, user, password = parts
    # An empty password is an anonymous bind to an LDAP server, which "succeeds"; no verifier ever sees one.
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
    """What follows from a verifier's answer; why_not for one that gives no reason."""
    if not result.is_valid:
        return Refused(detail=result.detail or why_not, is_compared=result.is_compared)
    return Accepted(user=result.user or user, groups=result.groups, proof=result.proof, ends_at_s=result.ends_at_s)


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: PLAIN wants authzid, user and password separated by NUL")


def _unasked() -> Refused:
    return Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
