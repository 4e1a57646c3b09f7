"""Auto links: links that the router attaches to containers for an address of this router.

An auto link waits for connections of the role route-container that have the configured name or container id. It
attaches one link to each. If a container refuses, the router asks again. Sources: docs/spec/routing.md §14.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from policy.addressing.address import Address
from router.amqp.engine import CannotBegin, IncomingWire, OutgoingWire, Session
from router.amqp.terminus import Condition, Terminus
from router.connection.meetings import Meetings
from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.effects import Emit, log

Status = Literal["inactive", "attaching", "failed", "active"]

# Seconds until the next attempt after a container has refused or ended a link.
FIRST_RETRY_S: Final = 2.0
RETRY_S: Final = 5.0

_LINK_NAME: Final = "qdlink.{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Identifies the connections of an auto link: by the name of a connector or listener, or by the container id."""

    kind: Literal["connection", "container"]
    text: str


@dataclass(slots=True, kw_only=True, eq=False)
class AutoLink:
    """One configured auto link and its state.

    name        as it appears in the log
    place       None: it is never attached
    is_in       messages come from the container
    phase       of the address
    external    the address at the container
    last_error  the description of the container's last refusal or end of the link, or the reason why it was not asked
    link        identity of the link that was attached last
    """

    name: str
    place: Place | None
    address: Address
    is_in: bool
    phase: int
    external: str
    status: Status = "inactive"
    last_error: str | None = None
    link: int | None = None
    runs: "dict[Container, Run]" = field(default_factory=dict)


class Container(Protocol):
    """An open connection to a container (router.connection.peer_container)."""

    places: tuple[Place, ...]

    def with_session(self, call: Callable[[Session], None], failed: Callable[[Condition | None], None]) -> None:
        """Calls `call` with an open session, now or later; calls `failed` with the reason if no session is possible."""
        ...

    def bind(self, wire: IncomingWire | OutgoingWire, address: Address, phase: int) -> InLink | OutLink:
        """Binds a link that the container has accepted, so that messages can pass."""
        ...

    def drop(self, wire: IncomingWire | OutgoingWire) -> None:
        """Drops a link that either side has ended."""
        ...

    def end_link(self, wire: IncomingWire | OutgoingWire) -> None:
        """Detaches the link without an error."""
        ...


class Run:
    """One auto link on one connection."""

    __slots__ = ("_auto", "_container", "_core", "_is_first_retry", "_on_failed", "_wire")

    def __init__(self, auto: AutoLink, container: Container, core: Core, on_failed: Callable[[AutoLink], None]) -> None:
        self._on_failed = on_failed
        self._auto = auto
        self._container = container
        self._core = core
        self._wire: IncomingWire | OutgoingWire | None = None
        self._is_first_retry = True

    def begin(self) -> None:
        self._auto.status = "attaching"
        self._container.with_session(self._attach, self._failed)

    def _attach(self, session: Session) -> None:
        auto = self._auto
        if auto.runs.get(self._container) is not self:
            return  # deleted before the session was open
        name = _LINK_NAME.format(self._core.random_name())
        there, nowhere = Terminus(address=auto.external), Terminus()
        try:
            if auto.is_in:
                self._wire = session.attach_receiver(name, self, source=there, target=nowhere)
            else:
                self._wire = session.attach_sender(name, self, source=nowhere, target=there)
        except CannotBegin as error:
            self._failed(Condition(name="amqp:not-allowed", description=str(error)))
            return
        self._wire.on_answer = self._on_answer

    def _on_answer(self) -> None:
        wire, auto = self._wire, self._auto
        assert wire is not None
        terminus = wire.source if auto.is_in else wire.target
        if terminus is None or not terminus.address:
            return  # refused: the Detach follows
        auto.status, auto.last_error = "active", None
        self._is_first_retry = True
        auto.link = self._container.bind(wire, auto.address, auto.phase).identity

    def on_detach(self, wire: IncomingWire | OutgoingWire, *, is_closed: bool) -> None:
        """Handles a Detach from the container, which refuses the link or ends it."""
        self._container.drop(wire)
        self._wire = None
        self._failed(wire.remote_condition)

    def _failed(self, condition: Condition | None = None) -> None:
        auto = self._auto
        if auto.runs.get(self._container) is not self:
            return
        auto.status = "failed"
        auto.last_error = condition.description if condition is not None else None
        self._on_failed(auto)
        self._core.set_timer(self, self._core.clock() + (FIRST_RETRY_S if self._is_first_retry else RETRY_S))
        self._is_first_retry = False

    def on_timer(self, _now: float) -> None:
        self.begin()

    def end(self, *, is_connection_gone: bool) -> None:
        """Ends the run: the auto link was deleted, or its connection is gone together with the link."""
        self._core.set_timer(self, None)
        wire, self._wire = self._wire, None
        if wire is not None and not is_connection_gone:
            self._container.end_link(wire)


class AutoLinks:
    """The configured auto links, and the open connections to containers."""

    def __init__(self, core: Core, emit: Emit) -> None:
        self._core = core
        self._emit = emit
        self._meetings: Meetings[AutoLink, Container] = Meetings(core.work, self._activate, self._deactivate)
        self.count = 0

    def add(self, auto: AutoLink) -> None:
        """Attaches the auto link to every connection that it matches."""
        self.count += 1
        self._core.table.hold(auto.address, auto.phase)
        if auto.place is not None:
            self._meetings.add(auto, auto.place)

    def remove(self, auto: AutoLink) -> None:
        self.count -= 1
        if auto.place is not None:
            self._meetings.remove(auto, auto.place)
        self._core.table.let_go(auto.address, auto.phase)

    def opened(self, container: Container) -> None:
        """Attaches links to a new connection of the role route-container, in turns: there may be thousands."""
        self._meetings.opened(container)

    def lost(self, container: Container) -> None:
        """Forgets a connection that is gone, together with its links."""
        self._meetings.lost(container)

    def _activate(self, auto: AutoLink, container: Container) -> None:
        self._log("Activated", "", auto)
        run = auto.runs[container] = Run(auto, container, self._core, self._on_failed)
        run.begin()

    def _deactivate(self, auto: AutoLink, container: Container, is_connection_gone: bool) -> None:
        auto.runs.pop(container).end(is_connection_gone=is_connection_gone)
        auto.status = "active" if auto.runs else "inactive"
        self._log("Deactivated", "", auto)

    def _on_failed(self, auto: AutoLink) -> None:
        self._log("Activation Failed.", f" {auto.last_error or ''}", auto)

    def _log(self, what: str, why: str, auto: AutoLink) -> None:
        assert auto.place is not None
        text = f"Auto Link {what}{why} '{auto.name}' on {auto.place.kind} {auto.place.text}"
        log(self._emit, "ROUTER_CORE", "info", text)
