"""The questions of a mechanism to a verifier, and the answers. Values only."""

from dataclasses import dataclass, field

from auth.identity import Proof
from auth.secrets import Secret

# The texts of docs/spec/policy-and-auth.md §8.2; they go to the log, never to the client.
UNKNOWN_USER = "SASL(-13): user not found: Password verification failed"
WRONG_PASSWORD = "SASL(-13): authentication failure: Password verification failed"  # noqa: S105

# More than any real name or password, little enough that hashing or logging it costs an attacker's victim nothing.
MAX_USER_BYTES = 1024
MAX_PASSWORD_BYTES = 4096

# More than a ticket with the groups of a large Windows domain, and less than a SASL frame may have.
MAX_TICKET_BYTES = 48 * 1024

# More than any real token: those of large organisations list some hundred groups.
MAX_TOKEN_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPassword:
    """Is this the user's password? The answer is a VerifyResult.

    user      as the client wrote it: 1..MAX_USER_BYTES of UTF-8, printable
    password  1..MAX_PASSWORD_BYTES of UTF-8
    """

    user: str
    password: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchScramKeys:
    """What SCRAM knows a user's password by. The answer is ScramKeys, or a VerifyResult that is unavailable.

    user       as in CheckPassword
    hash_name  as in the mechanism's name: SHA-1, SHA-256, SHA-512
    """

    user: str
    hash_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckToken:
    """Whose token is this, and is it good? The answer is a VerifyResult with the user.

    token  a bearer token of 1..MAX_TOKEN_BYTES
    user   the name that the client gave beside it; "" where it gave none. The token's user has to be this one
    """

    token: Secret
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTicket:
    """One message of a Kerberos exchange. The answer is a TicketStep, or a VerifyResult that ends the exchange.

    token    1..MAX_TICKET_BYTES
    user     "": Kerberos says it, not the client
    context  of the last TicketStep; None for the first message
    is_last  the message chooses the security layer: RFC 4752 §3.1
    """

    token: bytes = field(repr=False)
    context: object = field(default=None, repr=False)
    is_last: bool = False
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchGroups:
    """The groups of a user whom TLS has authenticated. The answer is a VerifyResult; an unknown user is not valid."""

    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Do the credentials of an open connection still hold? The answer is a VerifyResult, valid as long as they do.

    proof   that the verifier gave when it let the user in
    groups  that it gave then; one that is gone, or new, ends them too: the policy decided on these
    """

    proof: Proof
    groups: tuple[str, ...] = ()


# Everything that a verifier may be asked: the sum of the classes above. All but Recheck are questions of a mechanism.
MechanismRequest = CheckPassword | FetchScramKeys | CheckToken | CheckTicket | FetchGroups
VerifyRequest = MechanismRequest | Recheck


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """is_valid  true only when the credentials were compared and are the user's
    is_compared  false: the verifier is overloaded or broken, which says nothing about the credentials
    user         the name that the verifier knows the user by, of a token; None: the name that was asked about
    groups       names the authenticator vouches for (LDAP, tokens)
    detail       why not, for the log (UNKNOWN_USER, WRONG_PASSWORD, ...); "" when valid
    proof        of what was compared
    ends_at_s    when the credentials end, seconds since 1970 UTC; None: never
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

    is_known  false: there is no such user, and the keys are made up, the same for the same name, so that the exchange
              goes on and fails as it does for a wrong password. Attack: to learn which users there are
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
    """A Kerberos exchange goes on.

    context  to be passed with the next message
    reply    what the client is to be told; may be empty
    offer    the security layers, once the client is known; None: it has more to say
    """

    context: object = field(repr=False)
    reply: bytes = field(repr=False)
    offer: bytes | None = field(repr=False)


Answer = VerifyResult | ScramKeys | TicketStep


def unavailable(why: str) -> VerifyResult:
    """The result where nothing was compared.

    why  for the log
    """
    return VerifyResult(is_valid=False, is_compared=False, detail=f"verifier unavailable: {why}")
