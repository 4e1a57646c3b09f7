"""The identity of an authenticated peer. Fixed before the first AMQP frame and never changed after."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """user        name as policy sees it; None when there is none (TLS without SASL and certificate)
    mechanism      SASL mechanism that succeeded, None without a SASL layer
    is_authenticated  true after any successful SASL exchange, ANONYMOUS included
    groups         names the authenticator vouches for (LDAP, tokens)
    """

    user: str | None
    mechanism: str | None = None
    is_authenticated: bool = False
    groups: tuple[str, ...] = ()
