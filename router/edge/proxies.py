"""The addresses of an edge router on its uplink. Source: docs/spec/network.md §14.4, §14.5.

An address with a receiver on the edge has a receiver on the uplink, so that the interior becomes a destination of it.
An address with a sender on the edge has a sender on the uplink. This is bound to the address only while the interior
reports that there is a receiver elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from router.edge.effects import AttachLink, DetachLink, Effect, End, UseSender
from router.edge.limits import LINK_CREDIT

FALLBACK_PHASE = "F"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAddress:
    """A mobile address of the edge, in its current state. Links of the uplink itself do not count.

    key            of class M, with its phase
    has_receivers  True if a local link receives from it
    has_senders    True if a local link sends to it, and no in-process consumer takes its messages
    """

    key: str
    has_receivers: bool
    has_senders: bool
    ingress_phase: int = 0
    egress_phase: int = 0

    @property
    def text(self) -> str:
        return self.key[2:]


class Proxy:
    """One address, and its links on the uplink.

    A link that the interior refused stays None until the address is gone here and comes again, or another uplink takes
    over. Otherwise the refusals and attaches would repeat forever.
    """

    __slots__ = ("address", "has_been_in", "has_been_out", "receiver", "sender", "sender_is_attached", "sender_is_used")

    def __init__(self, address: LocalAddress) -> None:
        self.address = address
        self.clear()

    def clear(self) -> None:
        """Forgets the links, because there is no uplink."""
        self.receiver: int | None = None
        self.sender: int | None = None
        self.has_been_in = self.has_been_out = False  # the link was requested since it is needed
        self.sender_is_attached = self.sender_is_used = False


class Proxies:
    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._uplink: int | None = None
        self._proxies: dict[str, Proxy] = {}
        self._by_link: dict[int, Proxy] = {}

    # The uplink

    def uplink_active(self, connection: int) -> list[Effect]:
        self.uplink_lost()
        self._uplink = connection
        return [effect for proxy in self._proxies.values() for effect in self._follow(proxy)]

    def uplink_lost(self) -> None:
        """Forgets the links of the uplink that is gone."""
        self._uplink = None
        self._by_link.clear()
        for proxy in self._proxies.values():
            proxy.clear()

    # Local addresses

    def changed(self, address: LocalAddress) -> list[Effect]:
        """Updates an address. One that is gone has neither receivers nor senders."""
        proxy = self._proxies.get(address.key)
        if proxy is None:
            if not (address.has_receivers or address.has_senders):
                return []
            proxy = self._proxies[address.key] = Proxy(address)
        proxy.address = address
        effects = self._follow(proxy)
        if not (address.has_receivers or address.has_senders):
            del self._proxies[address.key]
        return effects

    def _follow(self, proxy: Proxy) -> list[Effect]:
        return [*self._follow_receivers(proxy), *self._follow_senders(proxy)] if self._uplink is not None else []

    def _follow_receivers(self, proxy: Proxy) -> Iterator[Effect]:
        if not proxy.address.has_receivers:
            proxy.has_been_in = False
            if proxy.receiver is not None:
                del self._by_link[proxy.receiver]
                yield DetachLink(link=proxy.receiver)
                proxy.receiver = None
        elif not proxy.has_been_in:
            end = _end(proxy.address, is_sender=False)
            if end is not None:
                proxy.has_been_in = True
                proxy.receiver = self._number(proxy)
                yield self._attach(proxy.receiver, proxy, end, is_sender=False)

    def _follow_senders(self, proxy: Proxy) -> Iterator[Effect]:
        if not proxy.address.has_senders:
            proxy.has_been_out = False
            if proxy.sender is not None:
                del self._by_link[proxy.sender]
                if proxy.sender_is_used:
                    yield UseSender(link=proxy.sender, is_used=False)
                yield DetachLink(link=proxy.sender)
                self._forget_sender(proxy)
        elif not proxy.has_been_out:
            end = _end(proxy.address, is_sender=True)
            if end is not None:
                proxy.has_been_out = True
                proxy.sender = self._number(proxy)
                yield self._attach(proxy.sender, proxy, end, is_sender=True)

    def _number(self, proxy: Proxy) -> int:
        number = next(self._numbers)
        self._by_link[number] = proxy
        return number

    def _attach(self, link: int, proxy: Proxy, end: End, *, is_sender: bool) -> AttachLink:
        assert self._uplink is not None
        return AttachLink(
            connection=self._uplink,
            link=link,
            session="endpoint",
            is_sender=is_sender,
            source=End() if is_sender else end,
            target=end if is_sender else End(),
            credit=0 if is_sender else LINK_CREDIT,
            key=proxy.address.key,
        )

    # The interior's side

    def attached(self, link: int) -> None:
        proxy = self._by_link.get(link)
        if proxy is not None and proxy.sender == link:
            proxy.sender_is_attached = True

    def detached(self, link: int) -> bool:
        """Handles that the interior refused or closed a link. Returns True if it belonged to an address."""
        proxy = self._by_link.pop(link, None)
        if proxy is None:
            return False
        if proxy.receiver == link:
            proxy.receiver = None
        else:
            self._forget_sender(proxy)
        return True

    @staticmethod
    def _forget_sender(proxy: Proxy) -> None:
        proxy.sender = None
        proxy.sender_is_attached = proxy.sender_is_used = False

    def track(self, key: str, *, is_used: bool) -> list[Effect]:
        """Handles the interior's report on receivers elsewhere. Ignores an address without a sender on the uplink."""
        proxy = self._proxies.get(key)
        if proxy is None or proxy.sender is None or not proxy.sender_is_attached or proxy.sender_is_used is is_used:
            return []
        proxy.sender_is_used = is_used
        return [UseSender(link=proxy.sender, is_used=is_used)]


def _end(address: LocalAddress, *, is_sender: bool) -> End | None:
    """Returns the terminus that names the address; None: its phase needs no link."""
    phase = address.key[1]
    if phase == FALLBACK_PHASE:
        return End(address=address.text, capability="qd.fallback")
    number, first, last = int(phase), address.ingress_phase, address.egress_phase
    if last == 0:
        return End(address=address.text)
    if not first <= number <= last:
        return None
    if number == (first if is_sender else last):
        return End(address=address.text)
    return End(address=address.text, capability=f"qd.waypoint.{number if is_sender else number + 1}")
