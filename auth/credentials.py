"""The questions that a mechanism asks a verifier, and the answers. Values only."""

from dataclasses import dataclass, field

from auth.identity import Proof
from auth.secrets import Secret

# The texts of docs/spec/policy-and-auth.md §8.2; they go to the log, never to the client.
UNKNOWN_USER = "SASL(-13): user not found: Password verification failed"
WRONG_PASSWORD = "SASL(-13): authentication failure: Password verification failed"  # noqa: S105

# More than any real name or password. Hashing or logging this much costs little.
MAX_USER_BYTES = 1024
MAX_PASSWORD_BYTES = 4096

# More than a ticket with the groups of a large Windows domain, and less than the limit of a SASL frame.
MAX_TICKET_BYTES = 48 * 1024

# More than any real token: the tokens of large organisations list some hundred groups.
MAX_TOKEN_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPassword:
    """Asks whether this is the user's password. The answer is a VerifyResult.

    user      as the client wrote it: 1..MAX_USER_BYTES of UTF-8, printable
    password  1..MAX_PASSWORD_BYTES of UTF-8
    """

    user: str
    password: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchScramKeys:
    """Asks for a user's SCRAM keys. The answer is ScramKeys, or a VerifyResult that says "unavailable".

    user       as in CheckPassword
    hash_name  as in the mechanism's name: SHA-1, SHA-256, SHA-512
    """

    user: str
    hash_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckToken:
    """Asks whether a token is valid and to which user it belongs. The answer is a VerifyResult with the user.

    token  a bearer token of 1..MAX_TOKEN_BYTES
    user   the name that the client gave with the token, which must be the token's user; "" if it gave none
    """

    token: Secret
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTicket:
    """Passes on one message of a Kerberos exchange.

    The answer is a TicketStep, or a VerifyResult that ends the exchange.

    token    1..MAX_TICKET_BYTES
    user     "": Kerberos names the user, not the client
    context  of the last TicketStep; None for the first message
    is_last  the message chooses the security layer: RFC 4752 §3.1
    """

    token: bytes = field(repr=False)
    context: object = field(default=None, repr=False)
    is_last: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchGroups:
    """Asks for the groups of a user whom TLS has authenticated.

    The answer is a VerifyResult, invalid for an unknown user.
    """

    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Asks whether the credentials of an open connection are still valid. The answer is a VerifyResult.

    proof   the proof that the verifier gave at login
    groups  the groups that it gave at login. If one is gone or new, the credentials are no longer valid, because the
            policy decided on these groups
    """

    proof: Proof
    groups: tuple[str, ...] = ()


# All questions that a verifier may get. All except Recheck come from a mechanism.
MechanismRequest = CheckPassword | FetchScramKeys | CheckToken | CheckTicket | FetchGroups
VerifyRequest = MechanismRequest | Recheck


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The verdict of a verifier.

    is_valid     true only if the credentials were compared and are the user's
    is_compared  false: the verifier is overloaded or broken, so nothing is known about the credentials
    user         the name by which the verifier knows the user of a token; None: the name in the question
    groups       names that the authenticator vouches for (LDAP, tokens)
    detail       the reason for the log (UNKNOWN_USER, WRONG_PASSWORD, ...) if the credentials are not valid; else ""
    proof        identifies the credentials that were compared
    ends_at_s    end of the credentials, seconds since 1970 UTC; None: never
    """

    is_valid: bool
    user: str | None = None
    groups: tuple[str, ...] = ()
    detail: str = ""
    proof: Proof | None = None
    ends_at_s: float | None = None
    is_compared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramKeys:
    """The keys of RFC 5802 §3 for one user and hash.

    is_known  false: the user does not exist, and the keys are made up, always the same for one name. The exchange
              continues and fails as for a wrong password. Attack: to find out which users exist
    groups, proof  as in VerifyResult
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    is_known: bool
    groups: tuple[str, ...] = ()
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketStep:
    """The answer to one message of a Kerberos exchange that continues.

    context  to pass with the next message
    reply    the message for the client; may be empty
    offer    the security layers, once the client is known; None: the client has to send more first
    """

    context: object = field(repr=False)
    reply: bytes = field(repr=False)
    offer: bytes | None = field(repr=False)


Answer = VerifyResult | ScramKeys | TicketStep


def unavailable(why: str) -> VerifyResult:
    """Returns the result for a check in which nothing was compared.

    why  for the log
    """
    return VerifyResult(is_valid=False, is_compared=False, detail=f"verifier unavailable: {why}")
