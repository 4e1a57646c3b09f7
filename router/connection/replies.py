"""The reply addresses of the messages that one connection receives: which of them count, and how old they are.

A sender chooses the reply-to of its message. The reply-to counts only if the sender itself has the right to that
address: it is the dynamic address of the sender's connection, or among the targets of that connection. So no client
makes a service write to an address where the client may not write itself. Addresses inside the router never count. A
reply-to from another router was judged there (router.connection.vouching).

Only connections whose settings, or those of a candidate policy, allow replies remember any and pay for it. Source:
docs/policy.md, Request and reply; docs/spec/policy-and-auth.md §3.16.
"""

from collections.abc import Callable
from typing import Final, Literal, Self

from policy.addressing.address import Address, Unclear
from policy.replies import ReplyMemory
from router.admission.connection_gate import ConnectionGate
from router.amqp.engine import message_bytes
from router.connection.vouching import exact_key, reply_address, reply_to_of
from router.core.attachments import Attachment
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink

# Avoids computing the key of a reply-to that comes again. Bounded, so that endless different texts cannot fill the
# memory.
MAX_KNOWN_TEXTS: Final = 1024
MAX_KNOWN_CHARACTERS: Final = 256

Compose = Callable[[InLink | None, int], bytes]


class Asker:
    """The owner of an engine on whose connection messages come."""

    gate: ConnectionGate

    @property
    def tenant(self) -> str | None:
        raise NotImplementedError


class Repliable(bytes):
    """A message on its way to its receiver. The receiver may reply after the message has left.

    key    of its reply-to in the table of addresses
    asker  id of the connection that it came on
    """

    key: str
    asker: int

    @classmethod
    def of(cls, payload: bytes, key: str, asker: int) -> Self:
        made = cls(payload)
        made.key, made.asker = key, asker
        return made


class Replies:
    """A connection's own addresses, and the addresses that it was asked to reply to.

    memory  None if neither the settings nor a candidate policy ask for it: then nothing is remembered
    """

    __slots__ = ("_attachment", "_core", "_dynamic", "_tenant", "memory")

    def __init__(self, core: Core, attachment: Attachment, tenant: str | None) -> None:
        """tenant  the tenant whose address space the connection uses"""
        self._core = core
        self._attachment = attachment
        self._tenant = tenant
        self.memory: ReplyMemory | None = None
        self._dynamic: dict[str, str] = {}  # the text of a reply-to → key of a dynamic address; this never changes

    def keep(self, window_s: int) -> bool:
        """Remembers reply addresses for `window_s` seconds, 0: not at all.

        Returns True if this turned the memory on or off.
        """
        memory = self.memory
        if memory is not None and window_s:
            memory.keep_s = window_s
            return False
        self.memory = ReplyMemory(window_s) if window_s else None
        self._attachment.hold_replies(0)
        return memory is not self.memory

    def owner(self, address: Address, *, is_ingress: bool) -> Literal["own", "other"] | None:
        """Returns the owner of a dynamic address; see Core.owner_of."""
        return self._core.owner_of(address, self._attachment, is_ingress=is_ingress)

    def reply_age(self, address: Address) -> float | None:
        """Returns the seconds since the connection received a message with this reply-to; None
        if none is remembered.
        """
        if self.memory is None:
            return None
        return self.memory.age(exact_key(self._core, address), self._core.clock())

    def watch(self, link: OutLink) -> None:
        """Remembers the reply-to of each message on the link from the time when the message leaves."""
        link.compose = self._marking(link.compose)
        link.on_sending = self._on_sending

    def _on_sending(self, payload: bytes) -> None:
        if isinstance(payload, Repliable) and self.memory is not None:
            self.memory.remember(payload.key, payload.asker, self._core.clock())
            self._attachment.hold_replies(self.memory.size_bytes)

    def _marking(self, compose: Compose | None) -> Compose:
        def mark(link: InLink | None, size: int) -> bytes:
            key = self._key_for(link, size) if link is not None else None
            payload = compose(link, size) if compose is not None else message_bytes(size)
            if link is None or key is None:
                return payload
            return Repliable.of(payload, key, link.attachment.connection_id)

        return mark

    def _resolve(self, text: str) -> Address | Unclear:
        return self._core.resolve(text, tenant=self._tenant)

    def _key_for(self, link: InLink, size: int) -> str | None:
        """Returns the key of the reply-to of the message in the buffer, which came on `link`; None if it does not
        count.
        """
        text = reply_to_of(size)
        if text is None:
            return None
        core = self._core
        if link.attachment.is_neighbour:
            named = reply_address(core, link, text, self._resolve)
            return exact_key(core, named) if named is not None else None
        known = self._dynamic.get(text)
        if known is not None:
            live = core.table.addresses.get(known)
            is_own = live is not None and live.made_by is not None and live.made_by.attachment is link.attachment
            return known if is_own else None
        asker = _asker_of(link)
        address = meant = core.resolve(text, tenant=self._tenant)
        if asker.tenant != self._tenant:
            meant = core.resolve(text, tenant=asker.tenant)
        if isinstance(address, Unclear) or isinstance(meant, Unclear):
            return None
        key = core.table.key(address, is_ingress=True)
        if meant is not address and core.table.key(meant, is_ingress=True) != key:
            return None  # sender and receiver mean different addresses by the text
        live = core.table.addresses.get(key)
        if live is not None and live.made_by is not None and live.made_by.attachment is link.attachment:
            if len(text) <= MAX_KNOWN_CHARACTERS:
                if len(self._dynamic) >= MAX_KNOWN_TEXTS:
                    self._dynamic.clear()
                self._dynamic[text] = key
            return key
        is_mobile = address.is_mobile and not address.name.startswith(("$", "_$"))  # prefixes of the router's own
        if not is_mobile or address.is_dynamic or (live is not None and live.subscribers):
            return None
        asker.gate.catch_up()
        return key if asker.gate.may_name(meant) else None


def _asker_of(link: InLink) -> Asker:
    asker = link.engine.owner
    assert isinstance(asker, Asker)
    return asker
