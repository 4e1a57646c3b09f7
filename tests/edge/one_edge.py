"""One edge, E1, whose interior routers are the test: what it is told, and what it does."""

from router.edge.effects import AttachLink, Decided, DetachLink, Effect, SendMessage, UseSender
from router.edge.limits import Limits
from router.edge.machine import EdgeMachine
from router.edge.messages import Message
from router.edge.proxies import LocalAddress
from router.effects import Log

STARTED_AT = 0x1122334455667788


class OneEdge:
    """links  every link asked for, in order; effects  since `forget`"""

    def __init__(self, limits: Limits | None = None) -> None:
        self.machine = EdgeMachine("E1", started_at=STARTED_AT, limits=limits)
        self.now = 1000.0
        self.links: list[AttachLink] = []
        self.effects: list[Effect] = []

    def take(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.links += [effect for effect in effects if isinstance(effect, AttachLink)]

    def forget(self) -> None:
        self.effects.clear()
        self.links.clear()

    def open(self, connection: int = 7) -> None:
        self.take(self.machine.connection_opened(connection))

    def close(self, connection: int = 7) -> None:
        self.take(self.machine.connection_closed(connection))

    def up(self, connection: int = 7) -> None:
        """The connection is open, and the interior has answered every link and given it credit."""
        self.open(connection)
        for link in list(self.links):
            self.answer(link)

    def answer(self, link: AttachLink, credit: int = 250) -> None:
        made = f"amqp:/_topo/0/INT/temp.{link.link}" if link.source is not None and link.source.is_dynamic else None
        self.take(self.machine.link_attached(link.link, self.now, made))
        if link.is_sender:
            self.take(self.machine.credit_changed(link.link, credit, self.now))

    def link(self, service: str) -> AttachLink:
        return next(link for link in reversed(self.links) if link.service == service)

    def of(self, key: str, *, is_sender: bool) -> AttachLink:
        return next(link for link in reversed(self.links) if link.key == key and link.is_sender is is_sender)

    def address(
        self, key: str, *, receives: bool = False, sends: bool = False, phases: tuple[int, int] = (0, 0)
    ) -> None:
        first, last = phases
        self.take(
            self.machine.address_changed(
                LocalAddress(key=key, has_receivers=receives, has_senders=sends, ingress_phase=first, egress_phase=last)
            )
        )

    def hear(self, service: str, message: Message) -> None:
        self.take(self.machine.received(self.link(service).link, message, self.now))

    def track(self, key: str, is_used: bool) -> None:
        self.hear("tracking", Message(body=[key, is_used]))

    def wait(self, seconds: int) -> None:
        """Ticks, one each second."""
        for _ in range(seconds):
            self.now += 1
            self.take(self.machine.tick(self.now))

    @property
    def logs(self) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, Log)]

    @property
    def sent(self) -> list[SendMessage]:
        return [effect for effect in self.effects if isinstance(effect, SendMessage)]

    @property
    def detached(self) -> list[int]:
        return [effect.link for effect in self.effects if isinstance(effect, DetachLink)]

    @property
    def used(self) -> list[tuple[int, bool]]:
        return [(effect.link, effect.is_used) for effect in self.effects if isinstance(effect, UseSender)]

    @property
    def decided(self) -> list[tuple[int, str]]:
        return [(effect.token, effect.answer) for effect in self.effects if isinstance(effect, Decided)]
