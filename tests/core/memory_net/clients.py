"""One proton connection, connected to a connection of the router."""

import itertools
from typing import TYPE_CHECKING, Any

import proton
from proton import Collector, Delivery, Endpoint, Event, Terminus, Transport

from memory_net.ends import Receiver, Refusable, Sender
from memory_net.frames import Frame, frames
from memory_net.record import Record
from router.amqp.buffers import READ_BUFFER
from router.connection.terms import Listener

if TYPE_CHECKING:
    from memory_net.net import Net

# Numbers of unread bytes at which asyncio calls pause_writing and resume_writing.
SOCKET_HIGH_BYTES, SOCKET_LOW_BYTES = 512 * 1024, 128 * 1024


class Client(Refusable):
    """One proton connection and the router's Connection at the other end."""

    def __init__(self, net: "Net", listener: Listener, name: str, hostname: str | None) -> None:
        self.net = net
        self.name = name
        self.collector = Collector()
        self.connection = proton.Connection()
        self.session: proton.Session = self.connection.session()
        self.connection.container = name
        if hostname is not None:
            self.connection.hostname = hostname
        self.connection.collect(self.collector)
        self.transport = Transport()
        self.transport.bind(self.connection)
        self.inbox = bytearray()  # bytes from the router that the client has not read yet
        self._recorded, self._uttered = Record(), Record()
        self.is_reading = True
        self.is_dead = False
        self.router_closed = False
        self.condition: proton.Condition | None = None
        self.ends: dict[Any, Sender | Receiver] = {}
        self.router = net.accept(listener, self)
        # A container answers links that the router attaches: accepts them, or refuses them with this error.
        self.attached_by_router: list[Sender | Receiver] = []
        self.refusal_of_links: proton.Condition | None = None
        self.made_address: str | None = None  # address of nodes that it makes for dynamic termini
        self.session_bytes: int | None = None  # maximum unread bytes in the router's sessions
        self._is_paused = False
        self._names = itertools.count(1)

    @property
    def recorded(self) -> bytearray:
        """Everything that the router wrote."""
        return self._recorded.whole()

    @property
    def uttered(self) -> bytearray:
        """Everything that the client wrote."""
        return self._uttered.whole()

    # Functions of the router's socket

    def write(self, data: bytes) -> None:
        if self.is_dead:
            return
        self.inbox += data
        self._recorded.add(data)
        if len(self.inbox) > SOCKET_HIGH_BYTES and not self._is_paused:
            self._is_paused = True
            self.router.set_blocked(True, lambda: len(self.inbox))

    def close_socket(self) -> None:
        self.router_closed = True

    # Functions for tests

    def open(self) -> "Client":
        self.connection.open()
        self.session.open()
        return self

    def sender(self, address: str | None, *, name: str | None = None, session: Any = None, **terms: Any) -> Sender:
        """`terms`  target={"dynamic": True, ...}, source={...}, snd_settle_mode=..., rcv_settle_mode=..."""
        link = (session or self.session).sender(name or f"s{next(self._names)}")
        link.source.address = f"from-{self.name}"
        if address is not None:
            link.target.address = address
        end = Sender(self, link)
        self._attach(end, terms)
        return end

    def receiver(
        self,
        address: str | None,
        *,
        credit: int = 0,
        accepts: bool = False,
        name: str | None = None,
        session: Any = None,
        **terms: Any,
    ) -> Receiver:
        link = (session or self.session).receiver(name or f"r{next(self._names)}")
        if address is not None:
            link.source.address = address
        link.target.address = f"to-{self.name}"
        end = Receiver(self, link, accepts=accepts)
        self._attach(end, terms)
        if credit:
            end.flow(credit)
        return end

    def _attach(self, end: Any, terms: dict[str, Any]) -> None:
        link = end.link
        for which in ("source", "target"):
            for key, value in terms.pop(which, {}).items():
                if key in ("capabilities", "properties", "filter", "outcomes"):
                    getattr(link, which).__getattribute__(key).put_object(value)
                else:
                    setattr(getattr(link, which), key, value)
        for key, value in terms.items():
            setattr(link, key, value)
        link.open()
        self.ends[link] = end

    def stop_reading(self) -> None:
        """Stops reading, so that the router's socket fills up."""
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def kill(self) -> None:
        """Leaves without a Close; bytes that were not read yet are lost in both directions."""
        if not self.is_dead:
            self.is_dead = True
            self.inbox.clear()
            self.router.on_lost()
            self.net.work.finish()

    def close(self) -> None:
        self.connection.close()

    def frames(self, name: str | None = None) -> list[Frame]:
        """Returns the router's frames, without its TLS and SASL."""
        return [frame for frame in frames(bytes(self.recorded)) if name is None or frame.name == name]

    @property
    def is_closed_by_router(self) -> bool:
        return self.router_closed

    # Pumping

    def push_to_router(self) -> bool:
        """Makes one read of at most `net.read_bytes`. Returns True when something moved."""
        if self.router.has_more and not self.is_dead:
            self.go_on()
            return True
        size = 0 if self.is_dead or self.router.waits_for_room else self.transport.pending()
        if size <= 0 or self.router_closed:
            return False
        data = self.transport.peek(min(size, self.net.read_bytes))
        assert data is not None
        self.transport.pop(len(data))
        self.say(data)
        return True

    def say(self, data: bytes) -> None:
        """Passes bytes to the router as if they had come from the socket."""
        self._uttered.add(data)
        begin = self.router.lay()
        READ_BUFFER[begin : begin + len(data)] = data
        self.router.receive_read(len(data))
        self.net.work.finish()
        while self.router.has_more and not self.net.is_sliced:
            self.go_on()

    def go_on(self) -> None:
        """Gives the connection another turn for what the router has already read."""
        self.router.resume()
        self.net.work.finish()

    def pull_from_router(self) -> bool:
        if not self.is_reading or self.is_dead or not self.inbox:
            return False
        chunk = bytes(self.inbox[: 64 * 1024])
        del self.inbox[: len(chunk)]
        self._take(chunk)
        if self._is_paused and len(self.inbox) < SOCKET_LOW_BYTES:
            self._is_paused = False
            self.router.set_blocked(False)
            self.net.work.finish()
        return True

    def _take(self, data: bytes) -> None:
        while data:
            room = self.transport.capacity()
            if room <= 0:
                break
            self.transport.push(data[:room])
            data = data[room:]
            self._work_off_events()
        self._work_off_events()

    def _work_off_events(self) -> None:
        while (event := self.collector.peek()) is not None:
            self._on_event(event)
            self.collector.pop()

    def _on_event(self, event: Any) -> None:
        kind = event.type
        if kind == Event.DELIVERY:
            self._on_delivery(event.delivery)
        elif kind in (Event.LINK_REMOTE_DETACH, Event.LINK_REMOTE_CLOSE):
            end = self.ends.get(event.link)
            if end is not None:
                end.is_detached = True
                end.was_closed = kind == Event.LINK_REMOTE_CLOSE
                end.condition = event.link.remote_condition
                if end.was_closed:
                    event.link.close()
                else:
                    event.link.detach()
        elif kind == Event.CONNECTION_REMOTE_CLOSE:
            self.condition = self.connection.remote_condition
            self.connection.close()
        elif kind == Event.SESSION_REMOTE_OPEN and event.session.state & Endpoint.LOCAL_UNINIT:
            if self.session_bytes is not None:
                event.session.incoming_capacity = self.session_bytes
            event.session.open()
        elif kind == Event.LINK_REMOTE_OPEN and event.link.state & Endpoint.LOCAL_UNINIT:
            self._answer_attach(event.link)
        elif kind == Event.SESSION_REMOTE_CLOSE:
            event.session.close()

    def _answer_attach(self, link: Any) -> None:
        end = Receiver(self, link, accepts=True) if link.is_receiver else Sender(self, link)
        self.ends[link] = end
        self.attached_by_router.append(end)
        if self.refusal_of_links is None:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            local = link.target if link.is_receiver else link.source
            if local.dynamic and self.made_address is not None:
                local.address = self.made_address
        else:
            (link.target if link.is_receiver else link.source).type = Terminus.UNSPECIFIED
        link.open()
        if self.refusal_of_links is not None:
            link.condition = self.refusal_of_links
            link.close()
        elif isinstance(end, Receiver):
            end.flow(100)

    def _on_delivery(self, delivery: Delivery) -> None:
        end = self.ends.get(delivery.link)
        if isinstance(end, Receiver):
            if delivery.readable:
                end._on_readable(delivery)
            else:
                for item in end.received:
                    if item._delivery == delivery:
                        item.states.append(int(delivery.remote_state))
                        item.came_settled = delivery.settled
        elif isinstance(end, Sender) and delivery.updated:
            sending = end._by_tag.get(delivery.tag)
            if sending is not None and not sending.is_settled_here:
                sending._on_update()
