"""The treatment of one connection's messages: inspected, logged, remembered and paced, as its settings ask.

It is chosen when a link attaches, and again when the settings change, so that a link pays only for what it needs.
Sources: docs/spec/routing.md §11, §21; docs/spec/policy-and-auth.md §3.9, §3.16.
"""

from collections.abc import Callable

from policy.addressing.address import Address, Unclear
from router.admission.connection_gate import ConnectionGate
from router.amqp.message_text import message_text
from router.connection.edge_messages import uplink_composer, without_route
from router.connection.inspection import (
    composer,
    inspector,
    observed,
    observed_sending,
    outside,
    reply_inspector,
    router_for,
    wire_of,
)
from router.connection.replies import Replies
from router.connection.surroundings import Surroundings
from router.connection.terms import ConnectionTerms
from router.connection.vouching import vouch_for_client, vouch_for_edge
from router.core.attachments import Attachment
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.rates import Rates
from router.core.routed import RoutedIn, RoutedOut
from router.core.selection import AnonymousInLink
from router.effects import log


class PeerMessages:
    """The treatment of one connection's messages.

    replies  the messages that ask this connection for a reply; None before its Open
    """

    def __init__(
        self,
        terms: ConnectionTerms,
        gate: ConnectionGate,
        surroundings: Surroundings,
        attachment: Attachment,
        resolve: Callable[[str], Address | Unclear],
    ) -> None:
        """resolve  returns the address that the peer means by a text"""
        self.replies: Replies | None = None
        self._terms = terms
        self._gate = gate
        self._core = surroundings.core
        self._emit = surroundings.emit
        self._attachment = attachment
        self._resolve = resolve

    def follow_rates(self) -> None:
        """Sets how much the connection may send in a second, by its present settings."""
        settings = self._gate.settings
        rates = Rates(messages=settings.max_message_rate, bytes=settings.max_byte_rate) if settings else Rates()
        self._core.set_rates(self._attachment, rates)

    def follow_replies(self, tenant: str | None) -> None:
        """Remembers reply addresses for as long as the settings, or those of a candidate policy, ask for.

        tenant  the tenant whose address space the connection uses
        """
        if self.replies is None:
            self.replies = self._gate.addresses = Replies(self._core, self._attachment, tenant)
        if self.replies.keep(self._gate.reply_window_s):
            for link in self._attachment.out_links:
                self.choose_composition(link)

    def choose_inspection(self, link: InLink) -> None:
        """Sets the inspection of each message on an incoming link. On a routed link, only the size counts."""
        link.max_message_bytes = self._gate.watched_message_bytes
        if isinstance(link, RoutedIn):
            return
        link.vouch = self._vouch_for(link)
        replies_to = self._target_of_replies(link)
        # A message of an edge names its address in its annotations. Without it, the look-up of its `to` refuses the
        # message.
        names_itself = isinstance(link, AnonymousInLink) and not self._attachment.is_edge
        may_be_opaque = replies_to is None and not names_itself and not self._may_refuse_messages
        inspect = inspector(link, self._gate, strips=self._terms.strips_in, may_be_opaque=may_be_opaque)
        if replies_to is not None:
            inspect = reply_inspector(link, inspect, self._gate, replies_to)
        if self._terms.role == "edge":
            inspect = without_route(link, inspect)
        if self._terms.message_components:
            inspect = observed(inspect, self._message_log("Received", link))
        if isinstance(link, AnonymousInLink):
            route = router_for(link, inspect, self._gate, self._core, self._resolve)
            link.route = route if self._terms.reaches_in_process else outside(link, route, self._gate)
        else:
            link.inspect = inspect

    def _vouch_for(self, link: InLink) -> Callable[[str], str] | None:
        """Returns a function that judges reply-tos on the link.

        None if the messages come from another router, which has judged them, and if there is no other router.
        """
        core = self._core
        if (core.network is None and core.uplink is None) or self._attachment.is_trunk:
            return None
        if not self._attachment.is_edge:
            return vouch_for_client(link, core, self._gate, self._resolve)
        return vouch_for_edge(link, core, self._gate, self._resolve) if core.uplink is None else None

    @property
    def _may_refuse_messages(self) -> bool:
        """Returns True if a message may be refused for its user-id or its size. A candidate policy refuses none."""
        settings = self._gate.settings
        return settings is not None and (not settings.allow_user_id_proxy or settings.max_message_size > 0)

    def _target_of_replies(self, link: InLink) -> Address | None:
        """Returns the target of a link that was attached to reply, else None.

        Each of its messages is judged, because the right to reply ends after some time.
        """
        target = link.wire.named
        if self.replies is None or self.replies.memory is None or target is None or self._gate.is_listed(target):
            return None
        if self._core.owner_of(target, self._attachment, is_ingress=True) == "own":
            return None
        return target

    def choose_composition(self, link: OutLink) -> None:
        """Sets the treatment of each message before it leaves on a link. On a routed link, messages stay unchanged."""
        if isinstance(link, RoutedOut):
            return
        attachment, stamp = self._attachment, None
        if not self._terms.strips_out:
            is_interiors = self._core.uplink is None
            vouches = attachment.is_edge and attachment.vouches
            stamp = composer(self._core.router_id, vouches=vouches) if is_interiors else uplink_composer(attachment)
        link.compose = stamp
        link.on_sending = None
        if self._terms.message_components:
            link.compose = observed_sending(link.compose, self._message_log("Sent", link))
        if self.replies is not None and self.replies.memory is not None:
            self.replies.watch(link)

    def _message_log(self, verb: str, link: InLink | OutLink) -> Callable[[bytes], None]:
        """Returns a function that logs the messages of a link as messageLoggingComponents asks (routing §21)."""
        wire = wire_of(link)
        source, target = (terminus.address if terminus is not None else None for terminus in (wire.source, wire.target))
        where = f"on link '{wire.name}' ({source or ''} -> {target or ''})"

        def see(head: bytes) -> None:
            text = message_text(head, self._terms.message_components)
            log(self._emit, "MESSAGE", "trace", f"[C{self._attachment.connection_id}]: {verb} {text} {where}")

        return see
