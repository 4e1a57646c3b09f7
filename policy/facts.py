"""The inputs of a decision. Values only; the caller of `policy.decide` sets them.

Sources: docs/spec/policy-and-auth.md §3.
"""

from dataclasses import dataclass
from typing import Literal

from policy.addressing.address import Address, Unclear


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedAddresses:
    """Addresses that the authenticator grants. They replace a group's `sources` and `targets`, in the same syntax."""

    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """One client connection at the moment of the decision on its Open."""

    user: str | None  # authenticated name; None if the peer has none
    remote_host: str  # numeric IP address of the TCP peer, no port
    requested_vhost: str  # listener policyVhost, else the Open's hostname, else ""
    connection_name: str  # "ip:port", unique among live connections
    mechanism: str | None = None  # SASL mechanism, None without a SASL layer
    is_encrypted: bool = False
    groups: tuple[str, ...] = ()  # group names the authenticator vouches for
    granted: GrantedAddresses | None = None  # from the authenticator; None: the group's addresses apply
    now: float | None = None  # seconds since 1970 UTC; None: not known, so no group with a window is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Open connections of the selected vhost, without the one being decided."""

    total: int = 0
    of_user: int = 0
    of_host: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """One client-initiated Attach."""

    direction: Literal["send", "receive"]  # the client's direction on the link
    address: Address | Unclear | None  # of the target (send) or source (receive)
    is_dynamic: bool = False
    is_coordinator: bool = False
    capabilities: tuple[str, ...] = ()  # of that terminus
    open_links: int = 0  # client-initiated links of this direction already open on the connection
    # Set if the address has the form that the router generates: it belongs to this connection, or does not (any more).
    dynamic_address: Literal["own", "other"] | None = None
    reply_age_s: float | None = None  # since the last message with this reply-to was received; None: none is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """The properties of one message on an admitted link that a rule may check."""

    target: Address | Unclear | None = None  # only on anonymous links: the address of the message
    is_blank_target: bool = False  # the message names "" as its address, which no list allows
    user_id: bytes | None = None  # the user-id property
    dynamic_address: Literal["own", "other"] | None = None  # of `target`, as in LinkFacts
    reply_age_s: float | None = None  # of `target`, as in LinkFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementFacts:
    """One management request, after its operation and entity are known."""

    operation: str  # one of policy.rights.OPERATIONS
    entity_type: str  # short name
    attributes: tuple[str, ...] = ()  # canonical names of the attributes that it would set

    def __str__(self) -> str:
        listed = f"({', '.join(self.attributes)})" if self.attributes else ""
        return f"{self.operation} {self.entity_type}{listed}"
