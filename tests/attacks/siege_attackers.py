"""The attackers of the campaign: `python siege_attackers.py PORT SECONDS SEED`. All of them run at once.

Each attacker is a generator that sends a little at each step; the steps run in rotation. The attackers come from their
own addresses, with one user's password or without any. They behave like the attacks in this folder.
"""

import itertools
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator

import wire
from orders import LIBERTIES, scenario

Turn = Iterator[None]
PIECE = 15_000
USER, PASSWORD = "mallory", "mallory's"
AT_ONCE = 16


def login(user: str = USER, password: str = PASSWORD) -> bytes:
    response = wire.binary(f"\0{user}\0{password}".encode())
    init = wire.performative(0x41, wire.symbol("PLAIN"), response)
    return b"AMQP\x03\x01\x00\x00" + wire.frame(init, kind=1) + wire.HEADER


class Conversation:
    """A socket that never waits. `say` yields until all of it is with the kernel, or the router has closed."""

    def __init__(self, port: int, host: str, *, reads: bool = True) -> None:
        self.socket = socket.socket()
        self.socket.bind((host, 0))
        self.reads = reads
        self.is_over = False
        try:
            self.socket.settimeout(1)
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.is_over = True
        self.socket.setblocking(False)

    def say(self, data: bytes, patience_s: float = 2.0) -> Turn:
        ends = time.monotonic() + patience_s
        while data and not self.is_over and time.monotonic() < ends:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.is_over = True
            self.listen()
            yield

    def listen(self) -> None:
        while self.reads and not self.is_over:
            try:
                self.is_over = not self.socket.recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                self.is_over = True

    def close(self) -> None:
        self.socket.close()


class Siege:
    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.chance = random.Random(seed)
        self.numbers = itertools.count()
        self.begun: dict[str, int] = {}

    def stranger(self, *, reads: bool = True) -> Conversation:
        return Conversation(self.port, f"127.0.1.{self.chance.randrange(2, 250)}", reads=reads)

    def member(self, *, reads: bool = True) -> Conversation:
        return Conversation(self.port, f"127.0.2.{self.chance.randrange(2, 6)}", reads=reads)

    def session(self) -> bytes:
        opened = wire.open_("mallory", "localhost", channels=1000)
        return login() + wire.frame(opened) + wire.frame(wire.begin(incoming=1 << 30))

    # Without a password

    def silence(self) -> Turn:
        peer = self.stranger()
        yield from peer.say(b"AMQP"[: self.chance.randrange(5)])
        for _ in range(200):
            yield
        peer.close()

    def noise(self) -> Turn:
        peer = self.stranger()
        yield from peer.say(self.chance.randbytes(self.chance.randrange(1, 3000)))
        peer.close()

    def wrong_password(self) -> Turn:
        peer = self.stranger()
        yield from peer.say(login("alice", str(self.chance.random())))
        for _ in range(self.chance.randrange(3)):
            yield
        peer.close()

    # With one

    def frames(self) -> Turn:
        """Random frames of up to four peers, honest and not."""
        made = scenario(f"siege{self.chance.random()}", LIBERTIES)
        peers: dict[int, Conversation] = {}
        for step in made.steps:
            if made.kinds[step.peer] == "server":
                continue
            if step.what == "join":
                peers[step.peer] = self.member()
                yield from peers[step.peer].say(login().removesuffix(wire.HEADER))
            elif step.what == "say" and step.peer in peers:
                # The scenario's own greeting says SASL ANONYMOUS: what follows the AMQP header counts.
                yield from peers[step.peer].say(step.data[step.data.find(wire.HEADER) :] or step.data)
        for peer in peers.values():
            peer.close()

    def unread_messages(self) -> Turn:
        peer = self.member()
        yield from peer.say(
            self.session()
            + wire.frame(wire.attach("r", 20, is_receiver=True, address="evil.full"))
            + b"".join(wire.frame(wire.attach(f"s{at}", at, is_receiver=False, address="evil.full")) for at in range(4))
        )
        for number in range(400):
            payload = wire.message(60_000)
            for at in range(0, len(payload), PIECE):
                is_last = at + PIECE >= len(payload)
                part = payload[at : at + PIECE]
                yield from peer.say(wire.frame(wire.transfer(number % 4, number, part, is_last=is_last)))
            if peer.is_over:
                break
        for _ in range(100):
            yield
        peer.close()

    def unsettled_messages(self) -> Turn:
        """To a receiver that reads all and settles nothing."""
        peer = self.member()
        receiver = wire.frame(wire.attach("r", 20, is_receiver=True, address="evil.kept")) + wire.frame(
            wire.flow(20, credit=9999)
        )
        senders = (wire.frame(wire.attach(f"s{at}", at, is_receiver=False, address="evil.kept")) for at in range(4))
        yield from peer.say(self.session() + receiver + b"".join(senders))
        for number in range(400):
            yield from peer.say(wire.frame(wire.transfer(number % 4, number, wire.message(PIECE))))
            if peer.is_over:
                break
        for _ in range(100):
            yield
        peer.close()

    def many_links(self) -> Turn:
        peer = self.member()
        yield from peer.say(self.session())
        for handle in range(3000):
            name, address = f"{handle}{'n' * 1000}", f"evil.{handle}{'a' * 1000}"
            yield from peer.say(wire.frame(wire.attach(name, handle, is_receiver=True, address=address)))
            if peer.is_over:
                break
        peer.close()

    def denied_links(self) -> Turn:
        peer = self.member()
        yield from peer.say(self.session())
        for number in range(3000):
            attach = wire.attach(f"d{number}", 5, is_receiver=True, address=f"forbidden.{number}")
            yield from peer.say(wire.frame(attach) + wire.frame(wire.detach(5)))
            if peer.is_over:
                break
        peer.close()

    def unread_answers(self) -> Turn:
        peer = self.member(reads=False)
        yield from peer.say(self.session())
        pair = wire.frame(wire.begin(), 1) + wire.frame(wire.end(), 1)
        for _ in range(200):
            yield from peer.say(pair * 100, patience_s=0.2)
        peer.close()

    def endless_message(self) -> Turn:
        peer = self.member()
        yield from peer.say(self.session() + wire.frame(wire.attach("s", 0, is_receiver=False, address="evil.long")))
        yield from peer.say(wire.frame(wire.attach("r", 1, is_receiver=True, address="evil.long")))
        for _ in range(500):
            yield from peer.say(wire.frame(wire.transfer(0, 0, bytes(PIECE), is_last=False)), patience_s=0.2)
        peer.close()

    def play(self, seconds: float) -> None:
        kinds: tuple[Callable[[], Turn], ...] = (
            self.silence, self.noise, self.wrong_password, self.frames, self.unread_messages,
            self.unsettled_messages, self.many_links, self.denied_links, self.unread_answers, self.endless_message,
        )  # fmt: skip
        ends = time.monotonic() + seconds
        turns: list[Turn] = []
        while time.monotonic() < ends:
            while len(turns) < AT_ONCE:
                kind = self.chance.choice(kinds)
                self.begun[kind.__name__] = self.begun.get(kind.__name__, 0) + 1
                turns.append(kind())
            turns = [turn for turn in turns if next(turn, self) is None]
            time.sleep(0.001)  # a turn's pause: the machine is the honest clients' as well
        for turn in turns:
            del turn
        print(self.begun)


if __name__ == "__main__":
    Siege(int(sys.argv[1]), int(sys.argv[3])).play(float(sys.argv[2]))
