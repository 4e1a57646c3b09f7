"""The identity of an authenticated peer. Fixed before the first AMQP frame and never changed after."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a verifier has compared for an open connection, by which it can be asked again later.

    verifier  name of the verifier, as configured
    user      whom it knows
    value     another one, or none, when the user's credentials are changed or the user removed; nothing to guess at
    """

    verifier: str
    user: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The addresses that an authentication service grants: items as of a policy group's sources and targets."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """user        name as policy sees it; None when there is none (TLS without SASL and certificate)
    mechanism      SASL mechanism that succeeded, None without a SASL layer
    is_authenticated  true after any successful SASL exchange, ANONYMOUS included
    groups         names the authenticator vouches for (LDAP, tokens)
    proof          of the verifier; None where none was asked
    ends_at_s      when the credentials end, seconds since 1970 UTC; None: never
    grants         in the place of the policy group's own addresses; None: those hold
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
        """The user who has logged in, or proved who it is by a certificate; None: an anonymous peer."""
        return self.user if self.user not in (None, "", "anonymous") and self.mechanism != "ANONYMOUS" else None
