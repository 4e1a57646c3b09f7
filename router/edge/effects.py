"""The effects that the machines request. `router.connection` carries them out in their order.

A connection is identified by its number, and a link by the number that the machine chose when it requested the Attach.
"""

from dataclasses import dataclass
from typing import Literal

from router.edge.messages import Message
from router.effects import Log

# The links of services have their own session (network §14.2).
SessionName = Literal["endpoint", "core"]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A source or target. None instead of it is a null terminus.

    address     None: no address
    capability  one symbol; None: no capability
    """

    address: str | None = None
    capability: str | None = None
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachLink:
    """Attach a link on a connection.

    is_sender  True if this router sends on it
    credit     for a receiver: granted when it is attached, and one returned with each delivery
    service    the machine's use of it; None: the core binds it, to `key` or as the anonymous uplink
    key        of the address that it is for
    """

    connection: int
    link: int
    session: SessionName
    is_sender: bool
    source: End | None
    target: End | None
    credit: int = 0
    service: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachLink:
    """Close a link of this router."""

    link: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSender:
    """Bind an attached sender to its address, as one of its receivers, or unbind it (`is_used` False)."""

    link: int
    is_used: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Send a message of this router's own on a link that has credit."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectMessage:
    """Reject the message that was just received. Without this effect it is accepted."""

    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The treatment of an attach that was looked up.

    local     as an address of this router
    forward   on the uplink
    no_route  refused: it is a link route without a container
    """

    token: int
    answer: Literal["local", "forward", "no_route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConnection:
    """Close the connection's socket, without an AMQP error."""

    connection: int


Effect = AttachLink | DetachLink | UseSender | SendMessage | RejectMessage | Decided | CloseConnection | Log
