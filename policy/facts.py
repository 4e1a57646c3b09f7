"""The inputs of a decision. Values only; the caller of `policy.decide` fills them in.

Sources: docs/spec/policy-and-auth.md §3.
"""

from dataclasses import dataclass
from typing import Literal

from policy.addressing.address import Address, Unclear


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedAddresses:
    """Addresses that the authenticator grants: items as of a group's `sources` and `targets`, whose place they take."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """One client connection at the moment its Open is judged."""

    user: str | None  # authenticated name; None when the peer has none
    remote_host: str  # numeric IP address of the TCP peer, no port
    requested_vhost: str  # listener policyVhost, else the Open's hostname, else ""
    connection_name: str  # "ip:port", unique among live connections
    mechanism: str | None = None  # SASL mechanism, None without a SASL layer
    is_encrypted: bool = False
    groups: tuple[str, ...] = ()  # group names the authenticator vouches for
    granted: GrantedAddresses | None = None  # by the authenticator; None: the group's addresses hold
    now: float | None = None  # seconds since 1970 UTC; None: not known, and no group with a window is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Open connections of the selected vhost, before the one being judged is counted."""

    total: int = 0
    of_user: int = 0
    of_host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """One client-initiated Attach."""

    direction: Literal["send", "receive"]  # the client's, on the link
    address: Address | Unclear | None  # of the target (send) or source (receive)
    is_dynamic: bool = False
    is_coordinator: bool = False
    capabilities: tuple[str, ...] = ()  # of that terminus
    open_links: int = 0  # client-initiated links of this direction already open on the connection
    # Set where the address has the form of one the router makes up: it is this connection's, or it is not (any more).
    dynamic_address: Literal["own", "other"] | None = None
    reply_age_s: float | None = None  # since a message with this reply-to was received last; None: none is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """One message on an admitted link, as far as a rule may ask about it."""

    target: Address | Unclear | None = None  # anonymous links only: the address the message is for
    is_blank_target: bool = False  # the message names "" as its address, which no list allows
    user_id: bytes | None = None  # the user-id property
    dynamic_address: Literal["own", "other"] | None = None  # of `target`, as in LinkFacts
    reply_age_s: float | None = None  # of `target`, as in LinkFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementFacts:
    """One management request, once its operation and entity are known."""

    operation: str  # one of policy.rights.OPERATIONS
    entity_type: str  # short name
    attributes: tuple[str, ...] = ()  # canonical names of those it would set

    def __str__(self) -> str:
        listed = f"({', '.join(self.attributes)})" if self.attributes else ""
        return f"{self.operation} {self.entity_type}{listed}"
