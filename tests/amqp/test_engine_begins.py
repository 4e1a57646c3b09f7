"""Sessions and links that the router opens: a proton client answers them, and peers that answer wrongly."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
import pytest

from router.amqp.codec import decode
from router.amqp.engine import (
    CannotBegin,
    Engine,
    IncomingWire,
    OutgoingWire,
    Session,
    load_message,
    message_bytes,
)
from router.amqp.engine.connection import _begun_channel
from router.amqp.terminus import Condition, RemoteOpen, Terminus
from router.values import Array, Described, symbol

sys.path.insert(0, str(Path(__file__).parent.parent / "fuzz"))

import wire

BYE = Condition(name="amqp:x", description="bye")
INVALID, NOT_ALLOWED = "amqp:invalid-field", "amqp:not-allowed"


class House:
    """The engine's owner, and of what it begins: writes down what it gets."""

    def __init__(self, *, channel_max: int = 100) -> None:
        self.story: list[str] = []
        self.errors: list[Condition] = []
        self.written = bytearray()
        self.engine = Engine(
            self, self.written.extend, set(), container_id="QDR", max_frame_bytes=1 << 16, channel_max=channel_max,
            idle_timeout_ms=0,
        )  # fmt: skip

    def on_open(self, _remote: RemoteOpen) -> None:
        self.engine.open(properties={}, capabilities=Array(symbol, ()))

    def on_begin(self, session: Session) -> None:
        self.story.append("peer begins")
        session.accept(incoming_capacity_bytes=1 << 20)

    def on_end(self, session: Session) -> None:
        self.story.append(f"end {session.channel} {session.remote_condition or ''}".rstrip())

    def on_attach(self, link: IncomingWire | OutgoingWire) -> None:
        self.story.append(f"peer attaches {link.name}")
        link.accept()

    def on_detach(self, link: IncomingWire | OutgoingWire, *, is_closed: bool) -> None:
        self.story.append(f"detach {link.name} {link.remote_condition or ''}".rstrip())

    def on_close(self, _condition: Condition | None) -> None:
        self.story.append("close")

    def on_transport_error(self, condition: Condition) -> None:
        self.errors.append(condition)

    def crash(self, error: Exception) -> None:
        raise error

    def note_deliveries(self) -> None:
        pass

    # What a test does

    def begin(self) -> Session:
        session = self.engine.begin_session(self, incoming_capacity_bytes=1 << 20)
        session.on_answer = lambda: self.story.append(f"answer {session.channel}")
        self.engine.flush()
        return session

    def sends(self, session: Session, name: str = "out") -> OutgoingWire:
        link = session.attach_sender(name, self, source=Terminus(address="from"), target=Terminus(address="to"))
        self._attached(link)
        return link

    def receives(self, session: Session, name: str = "in") -> IncomingWire:
        source = Terminus(address="there", capabilities=("cap",), expiry_policy="never", distribution_mode="copy")
        link = session.attach_receiver(name, self, source=source, target=Terminus(address="here"))
        self._attached(link)
        return link

    def _attached(self, link: IncomingWire | OutgoingWire) -> None:
        link.on_answer = lambda: self.story.append(f"answer {link.name}")
        self.engine.flush()

    def say(self, *frames: bytes) -> None:
        self.engine.receive(b"".join(frames))
        self.engine.flush()

    @property
    def spoken(self) -> list[tuple[int, str, list[Any]]]:
        """(channel, performative, fields) of all that was written."""
        data, at, found = bytes(self.written), 8, []
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            if size > 8:
                body: Described = decode(data, at + 8)[0]
                found.append((int.from_bytes(data[at + 6 : at + 8], "big"), wire.NAMES[body.descriptor - 0x10],
                              body.value))  # fmt: skip
            at += size
        return found

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.spoken]

    @property
    def error(self) -> str | None:
        return self.errors[0].name if self.errors else None


def opened(*, channels: int = 100, **terms: Any) -> House:
    house = House(**terms)
    house.say(wire.HEADER, wire.frame(wire.open_(channels=channels)))
    return house


def answered(house: House, *, channel: int = 5, handle_max: int | None = None) -> Session:
    session = house.begin()
    house.say(wire.frame(wire.begin(session.channel, handle_max=handle_max), channel))
    return session


class Client:
    """A proton client piped to the engine."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.connection, self.collector, self.transport = proton.Connection(), proton.Collector(), proton.Transport()
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.at = 0
        self.links: dict[str, Any] = {}
        self.bodies: list[bytes] = []
        self.is_answering = True
        self.pump()

    def pump(self) -> None:
        for _ in range(6):
            if (pending := self.transport.pending()) > 0:
                data = self.transport.peek(pending)
                assert data is not None
                self.transport.pop(len(data))
                self.house.engine.receive(data)
            self.house.engine.flush()
            if news := bytes(self.house.written[self.at :]):
                self.at += len(news)
                self.transport.push(news)
            while event := self.collector.peek():
                self.on(event)
                self.collector.pop()

    def on(self, event: Any) -> None:
        if not self.is_answering:
            return
        if event.type == proton.Event.SESSION_REMOTE_OPEN:
            event.session.open()
        elif event.type == proton.Event.SESSION_REMOTE_CLOSE:
            event.session.close()
        elif event.type == proton.Event.LINK_REMOTE_OPEN:
            link = self.links[event.link.name] = event.link
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.open()
        elif event.type == proton.Event.LINK_REMOTE_CLOSE:
            event.link.close()
        elif event.type == proton.Event.DELIVERY and event.delivery.readable:
            self.bodies.append(event.link.recv(1000))
            event.link.advance()
            event.delivery.settle()


def test_a_client_answers_what_the_router_opens() -> None:
    house = House()
    client = Client(house)
    session = house.begin()
    assert session.awaits_begin
    client.pump()
    assert house.story == ["answer 0"]
    out, into = house.sends(session), house.receives(session)
    client.pump()
    assert house.story[1:] == ["answer out", "answer in"]
    theirs = client.links["in"]
    assert theirs.is_sender
    assert (theirs.remote_source.address, theirs.remote_target.address) == ("there", "here")
    assert theirs.remote_source.expiry_policy == proton.Terminus.EXPIRE_NEVER
    assert theirs.remote_source.distribution_mode == proton.Terminus.DIST_MODE_COPY
    assert out.target is not None
    assert out.target.address == "to"
    assert into.source is not None
    assert into.source.capabilities == ("cap",)
    assert client.links["out"].remote_target.address == "to"
    messages_pass(house, client, out, into)
    out.close(is_peers_doing=False)
    client.pump()
    assert house.story[3:] == ["detach out"]
    session.close()
    client.pump()
    assert house.story[4:] == ["detach in", "end 0"]
    assert not house.engine.sessions
    assert not house.engine.links
    assert not house.errors


def messages_pass(house: House, client: Client, out: OutgoingWire, into: IncomingWire) -> None:
    came: list[bytes] = []

    def forward(_core: Any, _address: Any, delivery: Any, size: int) -> None:
        came.append(message_bytes(size))
        into.settle(delivery)

    into.forward = forward
    into.grant(10)
    client.links["out"].flow(10)
    client.pump()
    assert out.credit == 10
    out.settle(out.send(load_message(wire.message(3))))
    client.links["in"].delivery("t")
    client.links["in"].send(b"hello")
    client.links["in"].advance()
    client.pump()
    assert client.bodies == [wire.message(3)]
    assert came == [b"hello"]


def test_the_peer_ends_what_the_router_opened() -> None:
    house = opened()
    session = answered(house)
    house.sends(session, "a"), house.receives(session, "b")
    house.say(wire.frame(wire.attach("a", 0, is_receiver=True), 5))
    house.say(wire.frame(wire.detach(0, error=wire.error("q")), 5))
    house.say(wire.frame(wire.end(wire.error("amqp:x", "bye")), 5))
    assert house.story == ["answer 0", "answer a", "detach a q", "detach b", "end 0 amqp:x bye"]
    assert house.names[-2:] == ["detach", "end"]
    assert not house.engine.sessions
    assert not house.engine.links


def test_a_refused_attach_has_no_terminus() -> None:
    house = opened()
    link = house.sends(answered(house))
    refusal = wire.performative(wire.ATTACH, wire.text("out"), wire.uint(0), wire.TRUE, wire.NULL, wire.NULL, wire.NULL)
    house.say(wire.frame(refusal, 5))
    assert house.story[-1] == "answer out"
    assert link.target is None
    house.say(wire.frame(wire.detach(0), 5))
    assert house.story[-1] == "detach out"


def test_the_peers_own_sessions_are_as_before() -> None:
    """Begins cross: each side answers the other's, in either order."""
    house = opened()
    session = house.begin()
    house.say(wire.frame(wire.begin(), 0), wire.frame(wire.begin(0), 1))
    assert house.story == ["peer begins", "answer 0"]
    begins = [(channel, fields[0]) for channel, name, fields in house.spoken if name == "begin"]
    assert begins == [(0, None), (1, 0)]
    assert not session.awaits_begin


def test_the_peer_may_attach_on_a_session_of_ours() -> None:
    """It is as uncounted as the session: the owner decides."""
    house = opened()
    session = answered(house)
    house.say(wire.frame(wire.attach("x", 0, is_receiver=False), 5))
    assert house.story[-1] == "peer attaches x"
    assert not session.is_counted


def begin(remote: int | None, channel: int) -> bytes:
    return wire.frame(wire.begin(remote), channel)


@pytest.mark.parametrize(
    ("frames", "condition"),
    [
        ((begin(1, 5),), INVALID),  # one that we have not begun
        ((begin(65535, 5),), INVALID),
        ((begin(0, 5), begin(0, 6)), INVALID),  # twice
        ((begin(0, 5), begin(0, 5)), INVALID),
        ((begin(None, 5), begin(0, 5)), NOT_ALLOWED),  # on a channel in use
        ((begin(0, 5), begin(None, 5)), NOT_ALLOWED),
        ((begin(0, 5), wire.frame(wire.end(), 5), begin(0, 5)), INVALID),  # after its End
        ((begin(0, 5), wire.frame(wire.end(), 5), wire.frame(wire.end(), 5)), NOT_ALLOWED),
        ((wire.frame(wire.end(), 0),), NOT_ALLOWED),  # our channel is not the peer's
        ((wire.frame(wire.attach("x", 0, is_receiver=True), 0),), NOT_ALLOWED),
        ((begin(0, 101),), "amqp:connection:framing-error"),
    ],
)
@pytest.mark.parametrize("is_hasty", [True, False])
def test_a_wrong_answer_closes_the_connection(is_hasty: bool, frames: tuple[bytes, ...], condition: str) -> None:
    house = opened()
    house.begin()
    for piece in (frames,) if is_hasty else [(frame,) for frame in frames]:
        house.say(*piece)
    assert house.error == condition
    assert house.names[-1] == "close"


def test_an_answer_before_our_begin_is_none() -> None:
    """While the peer does not read, the Begin has not left, and no channel is known."""
    house = opened()
    house.engine.set_blocked(True)
    session = house.begin()
    assert session.channel is None
    assert house.names == ["open"]
    house.say(begin(0, 5))
    assert house.error is None  # it is looked at when there is room: see Intake.waits_for_room
    house.engine.set_blocked(False)
    house.engine.flush()
    assert house.names[:2] == ["open", "begin"]
    house.engine.resume()
    house.engine.flush()
    assert house.story == ["answer 0"]


def test_a_begin_waits_until_there_is_room_whatever_the_peer_says() -> None:
    house = opened()
    house.engine.set_blocked(True)
    sessions = [house.begin(), house.begin()]
    house.say(wire.frame(wire.begin(), 0), wire.EMPTY_FRAME)
    house.engine.drain()
    assert house.names == ["open"]
    house.engine.set_blocked(False)
    house.engine.flush()
    assert [session.channel for session in sessions] == [0, 1]
    assert house.names.count("begin") == 2


def test_the_socket_is_full_between_two_begins() -> None:
    house = opened()
    sessions = [house.engine.begin_session(house, incoming_capacity_bytes=0) for _ in range(2)]
    written = house.written

    def write(data: bytes) -> None:
        written.extend(data)
        house.engine.set_blocked(True)

    house.engine.write = write
    house.engine.flush()
    assert [session.channel for session in sessions] == [0, None]
    house.engine.set_blocked(False)
    house.engine.flush()
    assert [session.channel for session in sessions] == [0, 1]
    assert house.names.count("begin") == 2


def test_a_session_is_begun_as_soon_as_the_connection_is_open() -> None:
    """Our Open leaves before the Begin, whatever else is to be written."""
    house = House()

    def on_open(_remote: RemoteOpen) -> None:
        house.engine.open(properties={}, capabilities=Array(symbol, ()))
        session = house.engine.begin_session(house, incoming_capacity_bytes=0)
        session.on_answer = lambda: house.story.append(f"answer {session.channel}")

    house.on_open = on_open  # type: ignore[method-assign]
    house.say(wire.HEADER, wire.frame(wire.open_()), wire.frame(wire.begin(), 3))
    house.say(begin(0, 5))
    assert house.story == ["peer begins", "answer 0"]
    assert house.names[:2] == ["open", "begin"]


def test_the_channel_of_a_begin_is_read_from_what_is_written() -> None:
    answers = wire.frame(wire.begin(7), 0) + wire.frame(wire.begin(8), 1)
    assert _begun_channel(memoryview(answers + wire.frame(wire.begin(), 2) + b"rest")) == 2
    assert _begun_channel(memoryview(answers)) is None
    assert _begun_channel(memoryview(b"")) is None
    assert _begun_channel(memoryview(wire.frame(wire.flow()) + wire.frame(wire.begin(), 2))) is None


def test_an_answer_to_a_promise_is_refused() -> None:
    """The guard by itself: what is not written yet cannot be answered."""
    house = opened()
    house.engine.intake.guard.promise_session()
    house.say(begin(0, 5))
    assert house.error == INVALID


def test_sessions_begun_at_once_have_channels_of_their_own() -> None:
    house = opened()
    sessions = [house.engine.begin_session(house, incoming_capacity_bytes=0) for _ in range(3)]
    house.engine.flush()
    assert [session.channel for session in sessions] == [0, 1, 2]
    house.say(begin(2, 0), begin(0, 1))
    assert [session.awaits_begin for session in sessions] == [False, True, False]


def test_a_session_that_is_closed_before_its_answer_ends_behind_it() -> None:
    house = opened()
    session = house.begin()
    session.close(BYE)
    house.engine.flush()
    assert house.names == ["open", "begin", "flow"]
    other = house.begin()
    assert other.channel == 1  # the first one's is not free
    house.say(begin(0, 5))
    assert house.names[-1] == "end"
    assert house.story == []
    with pytest.raises(CannotBegin):
        house.sends(session)
    house.say(wire.frame(wire.end(), 5))
    assert house.story == ["end 0"]
    assert list(house.engine.sessions.values()) == [other]


def test_a_channel_of_ours_is_used_again() -> None:
    """Its new session may be answered before the old one has been ended by the peer."""
    house = opened()
    first = answered(house, channel=5)
    first.close()
    house.engine.flush()
    second = house.begin()
    assert second.channel == 0
    house.say(begin(0, 6), wire.frame(wire.end(), 5))
    assert house.story == ["answer 0", "answer 0", "end 0"]
    house.receives(second)
    house.say(wire.frame(wire.attach("in", 0, is_receiver=False), 6))
    assert house.story[-1] == "answer in"
    assert house.error is None


def test_a_link_that_is_closed_before_its_answer() -> None:
    house = opened()
    session = answered(house)
    link = house.sends(session)
    link.close(is_peers_doing=False)
    house.engine.flush()
    with pytest.raises(CannotBegin, match="has a link 'out' already"):
        house.sends(session)
    house.say(wire.frame(wire.attach("out", 0, is_receiver=True), 5), wire.frame(wire.detach(0), 5))
    assert house.story == ["answer 0", "detach out"]
    assert not house.engine.links
    again = house.sends(session)
    house.say(wire.frame(wire.attach("out", 0, is_receiver=True), 5))
    assert house.story[-1] == "answer out"
    assert house.engine.links == {again.link: again}
    assert house.error is None


def test_a_session_is_closed_before_its_links_are_answered() -> None:
    house = opened()
    session = answered(house)
    house.sends(session)
    session.close()
    house.engine.flush()
    house.say(wire.frame(wire.attach("out", 0, is_receiver=True), 5), wire.frame(wire.end(), 5))
    assert house.story == ["answer 0", "detach out", "end 0"]
    assert not house.engine.links
    assert house.error is None


def test_an_attach_of_another_name_or_direction_is_the_peers_own() -> None:
    house = opened()
    house.sends(answered(house))
    house.say(wire.frame(wire.attach("other", 0, is_receiver=True), 5))
    house.say(wire.frame(wire.attach("out", 1, is_receiver=False), 5))
    assert house.story[1:] == ["peer attaches other", "peer attaches out"]
    house.say(wire.frame(wire.attach("out", 2, is_receiver=True), 5))
    assert house.story[3:] == ["answer out"]
    assert house.error is None


@pytest.mark.parametrize("handle", [0, 1])
def test_an_attach_is_answered_once(handle: int) -> None:
    house = opened()
    house.sends(answered(house))
    house.say(*(wire.frame(wire.attach("out", number, is_receiver=True), 5) for number in (0, handle)))
    assert house.story[1:] == ["answer out"]
    assert house.error == ("amqp:session:handle-in-use" if handle == 0 else INVALID)


@pytest.mark.parametrize(
    "body",
    [wire.transfer(0, 0, b"x"), wire.flow(0, credit=1), wire.flow(0, count=0), wire.detach(0)],
    ids=["transfer", "flow", "sender's flow", "detach"],
)
def test_frames_on_a_link_before_its_answer_are_refused(body: bytes) -> None:
    house = opened()
    house.receives(answered(house))
    house.say(wire.frame(body, 5))
    assert house.error == INVALID


def test_links_of_ours_are_judged_as_others() -> None:
    house = opened()
    session = answered(house)
    house.sends(session)
    house.say(wire.frame(wire.attach("out", 0, is_receiver=True), 5), wire.frame(wire.transfer(0, 0, b"x"), 5))
    assert house.error == NOT_ALLOWED  # on a link on which the peer receives


def test_no_session_is_begun_where_there_is_no_channel() -> None:
    house = opened(channels=1)
    house.begin()
    house.begin()
    with pytest.raises(CannotBegin, match="no channel"):
        house.begin()
    house.say(begin(None, 0))
    assert house.error == NOT_ALLOWED  # we could not answer: no channel of ours is left


def test_a_channel_is_free_again_when_our_end_has_left() -> None:
    house = opened(channels=0)
    answered(house, channel=0)
    with pytest.raises(CannotBegin):
        house.begin()
    house.say(wire.frame(wire.end(), 0))
    house.engine.intake.guard.written()
    assert house.begin().channel == 0


def test_no_link_is_attached_where_the_answer_leaves_no_handle() -> None:
    house = opened()
    session = answered(house, handle_max=1)
    house.sends(session, "a"), house.sends(session, "b")
    with pytest.raises(CannotBegin, match="no handle"):
        house.sends(session, "c")
    house.say(*(wire.frame(wire.attach("ab"[handle], handle, is_receiver=True), 5) for handle in (0, 1)))
    assert house.error is None
    house.say(wire.frame(wire.attach("c", 2, is_receiver=True), 5))
    assert house.error == NOT_ALLOWED


def test_an_answered_link_uses_one_handle() -> None:
    house = opened()
    house.sends(answered(house, handle_max=1), "a")
    house.say(*(wire.frame(wire.attach(name, at, is_receiver=True), 5) for at, name in enumerate("ab")))
    assert house.story[1:] == ["answer a", "peer attaches b"]
    assert house.error is None


def test_an_attach_in_the_other_direction_needs_a_handle() -> None:
    house = opened()
    house.sends(answered(house, handle_max=0))
    house.say(wire.frame(wire.attach("out", 0, is_receiver=False), 5))
    assert house.error == NOT_ALLOWED


def test_links_that_were_not_answered_end_with_their_session() -> None:
    """The peer's channel begins anew without them."""
    house = opened()
    house.sends(answered(house, handle_max=0))
    house.say(wire.frame(wire.end(), 5), wire.frame(wire.begin(handle_max=0), 5))
    house.say(wire.frame(wire.attach("own", 0, is_receiver=True), 5))
    assert house.story[-2:] == ["peer begins", "peer attaches own"]
    with pytest.raises(CannotBegin, match="not open"):
        house.engine.intake.guard.promise_link(0, b"x", peer_sends=True)
    assert house.error is None


def not_open(house: House) -> House:
    return house


def closed(house: House) -> House:
    house.say(wire.HEADER, wire.frame(wire.open_()))
    house.engine.close()
    return house


def refused(house: House) -> House:
    house.say(wire.HEADER, wire.frame(wire.open_()), wire.frame(wire.end(), 9))
    return house


def left(house: House) -> House:
    house.say(wire.HEADER, wire.frame(wire.open_()), wire.frame(wire.close()))
    return house


@pytest.mark.parametrize("state", [not_open, closed, refused, left])
def test_nothing_is_begun_on_a_connection_that_is_not_open(state: Callable[[House], House]) -> None:
    with pytest.raises(CannotBegin, match="not open"):
        state(House()).begin()


def test_nothing_is_attached_before_the_answer_or_after_the_end() -> None:
    house = opened()
    session = house.begin()
    with pytest.raises(CannotBegin, match="session is not open"):
        house.sends(session)
    house.say(begin(0, 5), wire.frame(wire.end(), 5))
    with pytest.raises(CannotBegin, match="session is not open"):
        house.sends(session)


def test_a_session_promised_when_the_connection_is_closed_is_not_begun() -> None:
    house = opened()
    house.engine.set_blocked(True)
    house.begin()
    house.engine.close()
    house.engine.set_blocked(False)
    house.engine.flush()
    assert house.names == ["open", "close"]
    house.engine.free()


def test_a_session_that_the_peer_began_takes_no_link_of_ours() -> None:
    house = opened()
    house.say(begin(None, 0))
    (session,) = house.engine.sessions.values()
    with pytest.raises(CannotBegin):
        house.sends(session)
