"""Runs the routing protocol of an interior router: gives it events, and carries out its effects.

Effects that change the routing of messages are carried out in their order. Those that concern ten thousand addresses
are carried out in slices, and messages pass between the slices. Long messages of this router are also written in
slices.

Source: docs/spec/network.md §5, §7.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.addressing.address import AREA, Address, resolve
from router.core.budget import Account
from router.core.control_addresses import CONTROL_KEYS
from router.core.network import Network
from router.core.remotes import Trunk
from router.effects import ConnectionMembers, Emit, Log, Refused, audit_event, log
from router.linkstate.effects import (
    AddressesChanged,
    AddressesCharged,
    Effect,
    FloodControl,
    NameOfAnother,
    RadiusChanged,
    RouterChanged,
    RouterGone,
    RouterRow,
    SendControl,
)
from router.linkstate.limits import MAX_ROUTERS, Limits
from router.linkstate.machine import Machine, ReceivedControl
from router.linkstate.settings import Settings
from router.network.envelope import (
    Unreadable,
    encode_control,
    encode_control_in_steps,
    forwarded,
    is_long,
    read_envelope,
)
from router.network.intake import READ_AT_ONCE_BYTES, Arrived, Intake

# The number of addresses mapped or unmapped at once: this takes about a tenth of a millisecond.
ADDRESSES_AT_ONCE: Final = 16
_AREA_PREFIX: Final = f"{AREA}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A connection between routers.

    router  the router that uses it; None until it has sent something
    """

    tag: int
    connection_id: int
    cost: int
    container: str
    router: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """How many idle streaming links a connection keeps, and how others are closed (network §10.6)."""

    every_s: int = 30
    spare: int = 128
    at_once: int = 10


POOL: Final = Pool()
TEST_HOOKS: Final = Pool(every_s=5, spare=2)  # qdrouterd --test-hooks


class Host:
    """The host of the protocol machine.

    Management reads `rows`, `own_links`, `neighbours` and `last_topology_change`.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        network: Network,
        emit: Emit,
        clock: Callable[[], float],
        facts_of: Callable[[int], ConnectionMembers],
        limits: Limits | None = None,
        pool: Pool = POOL,
    ) -> None:
        """Connects the machine with the network.

        clock  monotonic seconds
        facts_of  (connection id) → its facts, in the form for an audit event
        """
        self._facts_of = facts_of
        self._pool = pool
        self._trim_at = 0.0
        self.settings = settings
        self.limits = limits or Limits()
        self.rows: dict[str, RouterRow] = {}
        self._network = network
        self._emit = emit
        self._clock = clock
        self._work = network.core.work
        self._machine = Machine(settings, self.limits, self._room)
        self._node = network.node
        self._received: Arrived | None = None  # the control message that the machine is handling
        self._in_order: deque[Iterator[None]] = deque()
        self._is_at_work = False
        self._long_sends = 0  # the number of these in `_in_order`
        self._paying: dict[int, tuple[Account, int]] = {}  # by payer: the bytes that its account was charged
        self._spent: Counter[tuple[int, str]] = Counter()  # by link, in this second
        self._intake = Intake(self, self._work, self.limits.control_message_values)
        network.host = self
        network.control_message_bytes = self.limits.control_message_bytes
        text = f"id={settings.router_id} instance={settings.instance} max_routers={MAX_ROUTERS}"
        log(emit, "ROUTER", "info", f"Router Engine Instantiated: {text}")

    # What management reads

    @property
    def own_links(self) -> dict[str, int]:
        """This router's neighbours, and the costs of its links to them."""
        return self._machine.peers()

    @property
    def last_topology_change(self) -> float | None:
        """Monotonic seconds; None: there has been no change."""
        return self._machine.last_topology_change

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Returns the connections to other routers, including those on which no router has sent anything yet."""
        return tuple(
            Neighbour(
                tag=trunk.tag,
                connection_id=trunk.attachment.connection_id,
                cost=trunk.cost,
                container=trunk.container,
                router=trunk.neighbour,
            )
            for trunk in self._network.trunks.values()
        )

    # Events

    def on_second(self, now: float) -> None:
        """Runs the tick of the protocol. `now` is in monotonic seconds."""
        self._spent.clear()
        self._carry_out(self._machine.tick(now))
        if now >= self._trim_at:
            self._trim_at = now + self._pool.every_s
            self._network.trim(self._pool.spare, self._pool.at_once)
        self._work.finish()

    def link_up(self, trunk: Trunk) -> None:
        self._carry_out(self._machine.link_up(trunk.tag, trunk.cost, self._clock(), trunk.admitted))

    def link_lost(self, tag: int) -> None:
        self._carry_out(self._machine.link_lost(tag, self._clock()))

    def disconnected(self, tag: int) -> None:
        """Drops everything that arrived on a connection that is closing."""
        self._intake.disconnected(tag)

    def address_appeared(self, key: str, hint: int) -> None:
        self._carry_out(self._machine.address_appeared(key, hint))

    def address_gone(self, key: str) -> None:
        self._carry_out(self._machine.address_gone(key))

    def on_control(self, tag: int, payload: bytes) -> None:
        """Handles a control message that arrived on a connection. Checks the limits before it decodes anything."""
        if len(payload) > self.limits.control_message_bytes:
            self.complain(tag, f"a control message of {len(payload)} bytes is over the limit")
            return
        account = self._account(tag)
        if account is not None and account.behind and len(payload) > READ_AT_ONCE_BYTES:
            # It would be held, here or for a neighbour. The router asks for its contents again later.
            if self._may(tag, "complaints", self.limits.complaints_per_link_and_tick):
                text = f"A control message of {len(payload)} bytes is dropped: link_tag={tag} is held back"
                log(self._emit, "ROUTER", "warning", text)
            return
        try:
            envelope = read_envelope(payload)
            address = resolve(envelope.to, router_id=self.settings.router_id)
            if not isinstance(address, Address):
                raise Unreadable("its address is none")
            if address.key in CONTROL_KEYS:
                trunk = self._network.trunks.get(tag)
                if trunk is not None and self._may(tag, "own", self.limits.messages_per_link_and_tick):
                    self._intake.take(Arrived(tag, payload, address.key, envelope.trace), trunk.attachment.account)
            else:
                self._pass_on(tag, payload, address, envelope.trace)
        except Unreadable as error:
            self.complain(tag, str(error))

    @property
    def is_busy(self) -> bool:
        return bool(self._in_order)

    def hear(self, arrived: Arrived, properties: Any, body: Any) -> None:
        """Handles a control message for this router, which has been read."""
        received = ReceivedControl(
            link=arrived.tag,
            key=arrived.key,
            properties=properties,
            body=body,
            trace=tuple(node.removeprefix(_AREA_PREFIX) for node in arrived.trace),
        )
        before, self._received = self._received, arrived
        try:
            self._carry_out(self._machine.receive(received, self._clock()))
        finally:
            self._received = before

    def _pass_on(self, tag: int, payload: bytes, address: Address, trace: tuple[str, ...]) -> None:
        """Forwards a control message for another router.

        Attack: a message that goes round in a circle; more messages than this router's links can carry.
        """
        router = self._network.routers.get(address.key[1:]) if address.key[0] == "R" else None
        if router is None or router.trunk is None or self._node in trace or len(trace) > MAX_ROUTERS:
            return
        if router.trunk.tag != tag and self._may(tag, "others", self.limits.messages_per_link_and_tick):
            self._network.send_control(router.trunk.tag, forwarded(payload, self._node), self._account(tag))

    def _may(self, tag: int, what: str, limit: int) -> bool:
        self._spent[tag, what] += 1
        return self._spent[tag, what] <= limit

    def complain(self, tag: int, why: str) -> None:
        if self._may(tag, "complaints", self.limits.complaints_per_link_and_tick):
            log(self._emit, "ROUTER", "error", f"Exception in raw message processing: link_tag={tag}: {why}")

    # Effects

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Log():
                    self._emit(effect)
                case NameOfAnother():
                    self._tell(effect)
                case SendControl(links=links, to=to, opcode=opcode, body=body):
                    if links:
                        self._send_own(links, to, opcode, body)
                case FloodControl(links=links):
                    if self._received is not None:
                        self._flood(links, self._received)
                case RadiusChanged(radius=radius):
                    self._network.radius = radius
                case AddressesCharged(link=link, payer=payer, held=held):
                    self._charge(link, payer, held)
                case RouterChanged() | RouterGone() | AddressesChanged():
                    self._in_order.append(self._applying(effect))
        if not self._is_at_work and (self._in_order or self._machine.has_work):
            self._is_at_work = True
            steps = self._working()
            if next(steps, steps) is None:
                self._work.later(steps)

    def _tell(self, found: NameOfAnother) -> None:
        """Reports that a neighbour speaks in the name of a router to which it does not lead."""
        trunk = self._network.trunks.get(found.link)
        if trunk is None:
            return
        facts = self._facts_of(trunk.attachment.connection_id)
        text = (
            f"Messages of router {found.router} from router {found.neighbour}, which does not lead to it, are ignored"
        )
        lines = (Log(module="ROUTER", level="warning", text=f"[C{trunk.attachment.connection_id}] {text}"),)
        event = audit_event("transfer", "deny", "router_id_not_allowed", facts, {"detail": text})
        self._emit(Refused(stage="transfer", facts=facts, lines=lines, event=event))

    def _room(self, tag: int) -> int:
        """Returns the bytes that addresses announced by a neighbour may still take."""
        account = self._account(tag)
        return account.room_for_addresses() if account is not None else 0

    def _charge(self, tag: int, payer: int, held: int) -> None:
        """Charges for the addresses announced on a connection, which may be gone. They now hold `held` bytes."""
        account, before = self._paying.pop(payer, (None, 0))
        if account is None:
            account = self._account(tag)
            if account is None:
                return
        account.hold_addresses(account.addresses + held - before)
        if held:
            self._paying[payer] = account, held

    def _send_own(self, links: tuple[int, ...], to: str, opcode: str, body: dict[str, Any]) -> None:
        """Sends a message after all earlier long ones, except HELLO.

        Otherwise a neighbour would see an advertisement of their contents first, and ask for them.
        """
        if is_long(body):
            self._long_sends += 1
            self._in_order.append(self._sending_long(links, to, opcode, body))
        elif self._long_sends and opcode != "HELLO":
            self._in_order.append(self._sending(links, encode_control(self._node, to, opcode, body)))
        else:
            self._send(links, encode_control(self._node, to, opcode, body))

    def _sending_long(self, links: tuple[int, ...], to: str, opcode: str, body: dict[str, Any]) -> Iterator[None]:
        try:
            payload = yield from encode_control_in_steps(self._node, to, opcode, body)
        finally:
            self._long_sends -= 1
        self._send(links, payload)

    def _flood(self, links: tuple[int, ...], arrived: Arrived) -> None:
        """Passes a message on, after its addresses have a way here: other routers would send to them at once.

        Attack: long messages, faster than a distant neighbour reads. The neighbour's connection ends because of the
        bytes that wait there.
        """
        payload, payer = forwarded(arrived.payload, self._node), self._account(arrived.tag)
        if self._in_order:
            self._in_order.append(self._sending(links, payload, payer))
        else:
            self._send(links, payload, payer)

    def _account(self, tag: int) -> Account | None:
        trunk = self._network.trunks.get(tag)
        return trunk.attachment.account if trunk is not None else None

    def _sending(self, links: tuple[int, ...], payload: bytes, payer: Account | None = None) -> Iterator[None]:
        self._send(links, payload, payer)
        yield from ()

    def _send(self, links: tuple[int, ...], payload: bytes, payer: Account | None = None) -> None:
        for tag in links:
            self._network.send_control(tag, payload, payer)

    def _working(self) -> Iterator[None]:
        """Applies changes in their order, then continues the computation of paths while there is work."""
        try:
            while self._in_order or self._machine.has_work:
                while self._in_order:
                    for _ in self._in_order[0]:
                        yield
                    self._in_order.popleft()
                if self._machine.has_work:
                    self._carry_out(self._machine.work())
                    yield
        finally:
            self._is_at_work = False
            self._intake.go_on()

    def _applying(self, effect: RouterChanged | RouterGone | AddressesChanged) -> Iterator[None]:
        network = self._network
        match effect:
            case RouterChanged(row=row):
                self.rows[row.id] = row
                network.set_router(
                    row.id, tag=row.path, link=row.link, cost=row.cost or 0, origins=row.valid_origins or ()
                )
            case RouterGone(id=router):
                self.rows.pop(router, None)
                network.drop_router(router)
            case AddressesChanged(router=router, mapped=mapped, unmapped=unmapped):
                for at, key in enumerate(unmapped, 1):
                    network.unmap(router, key)
                    if at % ADDRESSES_AT_ONCE == 0:
                        yield
                for at, (key, hint) in enumerate(mapped, 1):
                    network.map(router, key, hint)
                    if at % ADDRESSES_AT_ONCE == 0:
                        yield


def limits_of(attributes: Mapping[str, object]) -> Limits:
    """Returns the limits for a neighbour, from the validated attributes of the `router` entity."""

    def number(name: str) -> int:
        return int(str(attributes[name]))

    return Limits(
        control_message_bytes=number("maxControlMessageBytes"),
        messages_per_link_and_tick=number("maxControlMessageRate"),
        addresses_per_router=number("maxAddressesPerRouter"),
        addresses_per_link=number("maxAddressesPerNeighbor"),
        address_bytes_per_link=number("maxAddressBytesPerNeighbor"),
    )


def settings_of(router_id: str, instance: int, attributes: Mapping[str, object]) -> Settings:
    """Returns the protocol's settings, from the validated attributes of the `router` entity."""

    def seconds(name: str) -> int:
        return int(str(attributes[name]))

    return Settings(
        router_id=router_id,
        instance=instance,
        hello_interval_s=seconds("helloIntervalSeconds"),
        hello_max_age_s=seconds("helloMaxAgeSeconds"),
        ra_interval_s=seconds("raIntervalSeconds"),
        ra_interval_flux_s=seconds("raIntervalFluxSeconds"),
        remote_ls_max_age_s=seconds("remoteLsMaxAgeSeconds"),
    )
