"""One AMQP peer: handles its Open, Begin, Attach, Detach, End and Close.

`peer_open` exchanges the Opens, `peer_links` has sessions and links, `peer_messages` has their messages, and
`peer_redecision` judges open connections again. Sources: docs/spec/routing.md §1, §5; docs/spec/policy-and-auth.md §3.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, Final, Protocol

from auth.identity import Identity
from policy.addressing.address import Address, Unclear
from router.admission.connection_gate import ConnectionGate, Refusal
from router.amqp.engine import Engine, Session
from router.amqp.terminus import Condition, RemoteOpen
from router.connection.hosting import Hosting
from router.connection.inspection import condition_of
from router.connection.peer_links import PeerLinks, Wire
from router.connection.peer_messages import PeerMessages
from router.connection.peer_open import VOUCHING, Opening, describe_map
from router.connection.peer_redecision import ask_candidate, redecide, redecide_hosting
from router.connection.replies import Asker
from router.connection.surroundings import Surroundings
from router.connection.terms import ConnectionTerms
from router.core.attachments import Attachment, BudgetStep
from router.core.budget import Kind, Level
from router.core.core import Core
from router.effects import RouterReason, log
from router.faults import fault_text

# Seconds between two records of a connection at its byte budget, which may reach and leave it again and again.
BUDGET_RECORD_S: Final = 60
# Words for the record: what the router does not do at each step.
_NOT_DONE: Final[dict[BudgetStep, str]] = {
    "held_back": "more from its senders",
    "not_sent_to": "more to its receivers",
    "not_kept": "what other routers send to its receivers, and has to wait: it is released",
    "closed": "AMQP connection",
}


class Carrier(Protocol):
    """The connection that carries a peer (router.connection.stack).

    opened  called after the Open was admitted
    fail    (condition, reason code): logs and audits a failure, then closes
    crash   handles an exception that escaped while this connection was served
    shut    writes what is pending, then closes the socket
    """

    def opened(self) -> None: ...
    def fail(self, condition: Condition, reason: RouterReason) -> None: ...
    def crash(self, error: Exception) -> None: ...
    def shut(self) -> None: ...


class Names:
    """Finds the addresses that one peer means.

    tenant  the peer's mobile addresses are in this tenant's address space; None: in the common one
    """

    __slots__ = ("_core", "tenant")

    def __init__(self, core: Core) -> None:
        self._core = core
        self.tenant: str | None = None

    def resolve(self, text: str) -> Address | Unclear:
        """Returns the address that the peer means by a text."""
        return self._core.resolve(text, tenant=self.tenant)


class Peer(Asker):
    """Handles the engine's events (Owner) for one connection whose peer is a client."""

    links_kind: ClassVar[type[PeerLinks]] = PeerLinks
    own_sessions: ClassVar[int] = 0  # number of sessions that the router begins

    def __init__(
        self,
        *,
        terms: ConnectionTerms,
        identity: Identity,
        security: Mapping[str, Any],
        opening: Opening,
        gate: ConnectionGate,
        surroundings: Surroundings,
        carrier: Carrier,
        write: Callable[[bytes], None],
    ) -> None:
        """security  the connection entity's isEncrypted, sslProto, sslCipher, sslSsf, ssl
        opening   decides which side sends its Open first
        write     takes the bytes for the peer
        """
        self.terms = terms
        self.identity = identity
        self.security = security
        self.gate = gate
        self.surroundings = surroundings
        self.core = core = surroundings.core
        self.crash = carrier.crash
        self._opening = opening
        self._carrier = carrier
        self.remote: RemoteOpen | None = None
        self.is_open = False
        self.names = Names(core)
        self.close_condition: Condition | None = None  # the error of the peer's Close, or of our Close
        self.summary = ""  # summary of the Open for the log and connectionMsg
        self.opened_at_s = 0
        self._recorded_at_s: dict[tuple[Kind, BudgetStep], int] = {}
        self.last_delivery_s: int | None = None
        self._losing: Iterator[None] | None = None  # removes the peer's links, one with each step
        self._parting: Iterator[None] = iter(())  # the same for links of other connections that are routed to the peer
        self._delivery_total = 0
        self.engine = Engine(
            self,
            write,
            core.work.touched,
            container_id=core.router_id,
            max_frame_bytes=terms.max_frame_bytes,
            # On an accepted connection the router's own sessions come on top of channelMax; on an outgoing one they
            # share it.
            channel_max=min(terms.channel_max + (0 if opening.is_outgoing else self.own_sessions), 32767),
            idle_timeout_ms=terms.idle_timeout_s * 1000,
            is_server=not opening.is_outgoing,
        )
        self.engine.intake.begin_turn = core.work.begin_turn
        self.attachment = Attachment(
            connection_id=gate.connection_id,
            engine=self.engine,
            capacity=terms.capacity,
            budgets=core.budgets,
            work=core.work,
            host=gate.counted_host,
            role=terms.role,
        )
        self.engine.account = self.attachment.account
        self.attachment.on_budget = self._on_budget
        self.messages = PeerMessages(terms, gate, surroundings, self.attachment, self.names.resolve)
        self.links = self.links_kind(
            terms, gate, surroundings, self.engine, self.attachment, self.messages, self.names.resolve, carrier.shut
        )
        self.hosting = Hosting(self.links)

    @property
    def is_active(self) -> bool:
        """Returns True if the connection is in use. Stand-by connections of an edge router are not in use."""
        return True

    @property
    def is_outgoing(self) -> bool:
        """Returns True if the router made the connection."""
        return self._opening.is_outgoing

    @property
    def tenant(self) -> str | None:
        """The tenant; see Names."""
        return self.names.tenant

    # Owner

    def begin(self) -> None:
        """Begins AMQP: sends the router's Open if the router sends its Open first."""
        self._opening.begin(self)

    def on_open(self, remote: RemoteOpen) -> None:
        self.remote = remote
        refusal = self._opening.judge(self, remote)
        if refusal is not None:
            self._close(refusal)
            return
        self.attachment.vouches = self.attachment.is_neighbour and VOUCHING in remote.offered_capabilities
        owner = self.core.budgets.user(self._budget_owner(), is_neighbour=self.attachment.is_neighbour)
        self.attachment.account.join(owner)
        self.names.tenant = self._tenant()
        self.links.container = remote.container_id
        self.messages.follow_rates()
        self.messages.follow_replies(self.tenant)
        self.is_open = True
        self.opened_at_s = self.core.work.now_s
        self.summary = (
            f"Connection Opened: dir={'out' if self.is_outgoing else 'in'} host={self.gate.connection_name} "
            f"vhost={self.tenant or ''} "
            f"encrypted={self.security['sslProto'] or 'no'} auth={self.identity.mechanism or 'no'} "
            f"user={self.identity.user if self.identity.user is not None else '(null)'} "
            f"container_id={remote.container_id}"
        )
        self._log(f"{self.summary} props={describe_map(remote.properties)}")
        self._carrier.opened()

    def _budget_owner(self) -> str:
        """Returns the owner of the byte budget: the user, the host of a peer without a login, or the connector of a
        broker.
        """
        identity = self.identity
        if self.is_outgoing:
            return f"connector {self.terms.name}"
        return identity.login or f"anonymous from {self.gate.counted_host}"

    def _tenant(self) -> str | None:
        """Returns the tenant by the connection's present settings; None if it shares the common address space."""
        if not self.terms.is_multi_tenant or self.remote is None:
            return None
        settings = self.gate.settings
        return (settings.vhost if settings is not None and settings.is_of_vhost else self.remote.hostname) or None

    def on_begin(self, session: Session) -> None:
        if self.is_open and self._may_stay():
            self.links.begin(session)

    def on_end(self, session: Session) -> None:
        self.links.end(session)

    def on_attach(self, wire: Wire) -> None:
        if self.is_open and wire.session.is_counted and self._may_stay():
            self.links.attach(wire)
        else:
            wire.ignore()

    def on_detach(self, wire: Wire, *, is_closed: bool) -> None:
        self.links.detached(wire, is_closed=is_closed)

    def on_close(self, condition: Condition | None) -> None:
        self.close_condition = condition
        self.engine.close()
        self._carrier.shut()

    def on_transport_error(self, condition: Condition) -> None:
        reason: RouterReason = "idle_timeout" if "idle-timeout" in condition.description else "malformed_frame"
        self._carrier.fail(condition, reason)

    def set_blocked(self, is_blocked: bool, unsent_bytes: Callable[[], int]) -> None:
        """Called when the socket's buffer becomes full, or has room again. unsent_bytes() wait in it."""
        self.attachment.unsent_bytes = unsent_bytes
        self.engine.set_blocked(is_blocked)
        self.attachment.count_blocked(is_blocked=is_blocked)
        self.core.set_blocked(self.attachment, is_blocked=is_blocked)

    def tick(self, now: float) -> float | None:
        """Runs the idle timers. Returns the time of the next call; None for never.

        now  monotonic seconds
        """
        deadline_ms = self.engine.tick(int(now * 1000))
        self.core.work.touched.add(self.engine)
        # Half of the time: proton notices traffic only when it is asked, so the router asks twice in each period.
        return now + max((deadline_ms / 1000 - now) / 2, 0.2) if deadline_ms else None

    def note_deliveries(self) -> None:
        """Called about once a second while the connection is busy: updates lastDlvSeconds
        without a cost per message.
        """
        attachment = self.attachment
        total = sum(link.delivery_count for link in (*attachment.in_links, *attachment.out_links))
        if total != self._delivery_total:
            self._delivery_total = total
            self.last_delivery_s = self.core.work.now_s

    # Judging an open connection again

    def _may_stay(self) -> bool:
        """Called before the peer gets anything new. Closes a connection that policy denies now, and returns False."""
        self.gate.catch_up()
        if not self.gate.is_denied and self._tenant() != self.tenant:
            self.gate.refuse_move()
        if self.gate.refusal is None:
            return True
        self._close(self.gate.refusal)
        return False

    def redecide(self) -> Iterator[None]:
        """Judges the connection and all its links by the rules in force, and ends what they deny.

        The caller may pause at every step.
        """
        if self.is_open and not self.engine.is_deaf and self._may_stay() and self.gate.is_redecided:
            self.messages.follow_rates()
            self.messages.follow_replies(self.tenant)
            yield
            yield from redecide(self.links)
            yield from redecide_hosting(self.links, self.hosting, self.surroundings.link_routes)

    def ask_candidate(self, now: float) -> Iterator[None]:
        """Asks a new candidate policy about the connection and all its links. Ends nothing.

        now  seconds since 1970 UTC. The caller may pause at every step.
        """
        candidate = self.gate.shadow
        if self.is_open and not self.engine.is_deaf and candidate is not None and candidate.judge_again(now):
            self.messages.follow_replies(self.tenant)
            yield
            yield from ask_candidate(self.links, candidate)

    def keep_within_limits(self) -> None:
        """Closes the connection if the gate has no room for it."""
        if self.is_open and not self.engine.is_deaf and not self.gate.keep_within_limits():
            assert self.gate.refusal is not None
            self._close(self.gate.refusal)

    # Bytes

    def _on_budget(self, level: Level, step: BudgetStep) -> None:
        """Handles a level over its limit, which costs the connection something. Records each step once a minute."""
        self.attachment.held_back_count += step in ("held_back", "not_sent_to")
        now_s = self.core.work.now_s
        if step == "closed":
            if self.engine.is_deaf:
                return
            refusal = self.links.refuse_over_budget(level, "transfer", _NOT_DONE[step])
            self.break_off(condition_of(refusal))
            self._carrier.shut()
        elif now_s - self._recorded_at_s.get((level.kind, step), -BUDGET_RECORD_S) >= BUDGET_RECORD_S:
            self._recorded_at_s[level.kind, step] = now_s
            self.links.refuse_over_budget(level, "transfer", _NOT_DONE[step])

    # The end

    def _close(self, refusal: Refusal) -> None:
        self.links.take_no_more()
        self.close_condition = condition_of(refusal)
        self.engine.close(self.close_condition)
        self.core.work.touched.add(self.engine)
        self._carrier.shut()

    def break_off(self, condition: Condition) -> None:
        """Sends Close with an error, and ignores what the peer still sends."""
        if not self.engine.is_freed:
            self.engine.stop_listening()
            self.engine.close(condition)

    def retire(self) -> None:
        """Stops messages to the peer's links, and ignores what the peer still sends: the connection is about to be
        closed.

        The senders of messages on its links learn the outcomes in turns.
        """
        if self._losing is None:
            lost = self.links.cut_off()
            self._losing = self._lose(chain(self.links.losing_routed(), map(self.links.losing, lost)))
            self.engine.stop_listening()
            self.core.work.later(self._losing)
            self.surroundings.link_routes.lost(self.hosting)
            self._parting = self._lose(self.hosting.losing())
            self.core.work.begin(self._parting)

    def end(self) -> None:
        """Called once, when the socket is closed: releases everything, in turns."""
        try:
            self.retire()
        finally:
            self.engine.fall_silent()
            self.core.work.touched.discard(self.engine)
            self.core.work.later(self._give_back())

    def _lose(self, each: Iterator[Iterator[None]]) -> Iterator[None]:
        for steps in each:
            try:
                yield from steps
            except Exception as error:  # the end of the connection has already been reported
                connection_id = self.gate.connection_id
                log(self.surroundings.emit, "ERROR", "error", f"[C{connection_id}] {fault_text(error)}")
            yield

    def _give_back(self) -> Iterator[None]:
        """INVARIANT: the links are gone before the engine's objects are released, because the
        links use these objects.
        """
        if self._losing is not None:
            yield from self._losing
        yield from self._parting
        if self.is_open:
            self._log("Connection Closed")
        yield from self.engine.freeing()
        self.attachment.close()
        self.links.come_apart()

    def _log(self, text: str) -> None:
        log(self.surroundings.emit, "ROUTER_CORE", "info", f"[C{self.gate.connection_id}] {text}")
