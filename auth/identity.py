"""The identity of an authenticated peer. It is fixed before the first AMQP frame and never changes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Identifies the credentials that a verifier compared, so that it can check later whether they still hold.

    verifier  name of the verifier, as configured
    user      the user by whom the verifier knows the credentials
    value     changes or disappears when the credentials are changed or the user is removed; cannot be used to guess
              them
    """

    verifier: str
    user: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The addresses that an authentication service grants. Items are as in a policy group's sources and targets."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user of a connection, and how it was authenticated.

    user              name as policy sees it; None if there is none (TLS without SASL and certificate)
    mechanism         SASL mechanism that succeeded, None without a SASL layer
    is_authenticated  true after any successful SASL exchange, including ANONYMOUS
    groups            names that the authenticator vouches for (LDAP, tokens)
    proof             of the verifier; None if no verifier was asked
    ends_at_s         end of the credentials, seconds since 1970 UTC; None: never
    grants            replace the policy group's own addresses; None: the group's addresses apply
    """

    user: str | None
    mechanism: str | None = None
    is_authenticated: bool = False
    groups: tuple[str, ...] = ()
    proof: Proof | None = None
    ends_at_s: float | None = None
    grants: Grants | None = None

    @property
    def login(self) -> str | None:
        """Returns the user who logged in or proved its identity by a certificate. None for an anonymous peer."""
        return self.user if self.user not in (None, "", "anonymous") and self.mechanism != "ANONYMOUS" else None
