"""The questions of a mechanism to a verifier, and the answer. Values only."""

from dataclasses import dataclass

from auth.secrets import Secret

# The texts of docs/spec/policy-and-auth.md §8.2; they go to the log, never to the client.
UNKNOWN_USER = "SASL(-13): user not found: Password verification failed"
WRONG_PASSWORD = "SASL(-13): authentication failure: Password verification failed"  # noqa: S105

# More than any real name or password, little enough that hashing or logging it costs an attacker's victim nothing.
MAX_USER_BYTES = 1024
MAX_PASSWORD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPassword:
    """Is this the user's password?

    user      as the client wrote it: 1..MAX_USER_BYTES of UTF-8, printable
    password  1..MAX_PASSWORD_BYTES of UTF-8
    """

    user: str
    password: Secret


# Everything that a mechanism may ask of a verifier: the sum of the classes above.
VerifyRequest = CheckPassword


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """is_valid  true only when the password was compared and is the user's
    is_compared  false: the verifier is overloaded or broken, which says nothing about the credentials
    groups    names the authenticator vouches for (LDAP, tokens)
    detail    why not, for the log (UNKNOWN_USER, WRONG_PASSWORD, ...); "" when valid
    proof     of the compared entry: another one, or none, when the user's password is changed or the user removed
    """

    is_valid: bool
    groups: tuple[str, ...] = ()
    detail: str = ""
    proof: str | None = None
    is_compared: bool = True


def unavailable(why: str) -> VerifyResult:
    """The result where nothing was compared.

    why  for the log
    """
    return VerifyResult(is_valid=False, is_compared=False, detail=f"verifier unavailable: {why}")
