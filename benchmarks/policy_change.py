"""The effect of a policy change on the messages that it still permits.

    python -m benchmarks.policy_change [--connections 1000] [--rate 20000] [--vhosts 50] [--seconds 3]

A router with `onPolicyChange: enforce` has many open connections. Some of them send and receive at a steady rate. Then
the rules change several times: first nothing that is open is denied; then a share of the links and connections is
denied; then a vhost changes by management; then all other vhosts change. Every message carries its number and its due
time, so that the longest delay and every loss are seen. The same is measured before and after without a change, to show
the effect of other work on the machine.

Runs on 127.0.0.1, on a port that the system chooses. Stops by itself, after about six times `--seconds` and the time
for connecting. Exit status 1 if a message was lost, or if a message beside a change was more than 50 ms later than any
message without one.
"""

import argparse
import json
import selectors
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.crowd import raise_file_limit
from benchmarks.processes import Process
from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

PAIRS: Final = 20  # connections that send, and as many that receive, together at the full rate
LOST_LINK: Final = 0.1  # shares of the connections that the third change denies a link, and that it closes
CLOSED: Final = 0.1
TICK_S: Final = 0.005
TARGET_S: Final = 0.050
SETTLE_S: Final = 20.0  # limit for the last messages

CONFIGURATION: Final = """
router {{
    id: changing
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    onPolicyChange: enforce
    policyDirWatchSeconds: 0
    policyDir: {folder}/policy
}}
log {{
    module: DEFAULT
    enable: info+
    outputFile: {folder}/router.log
}}
listener {{
    name: clear
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    idleTimeoutSeconds: 120
}}
"""
_BODY: Final = struct.Struct(">Qd")
_PADDING: Final = bytes(84)
_TRANSFER, _FLOW = 0x14, 0x13


def vhost(hostname: str, *addresses: str, hosts: str = "127.0.0.1") -> list[object]:
    """Returns a vhost that permits every user these addresses."""
    group = {"users": "*", "remoteHosts": hosts, "sources": [*addresses], "targets": [*addresses]}
    group |= {"allowDynamicSource": "true"}
    aliases = {"aliases": "127.0.0.1"} if "$management" in addresses else {}
    return ["vhost", {"hostname": hostname, **aliases, "groups": {"everybody": group}}]


def ballast(count: int, word: str) -> list[object]:
    """Returns rules that govern no connection here: 10 users and 40 items each, which contain `word`."""
    made: list[object] = []
    for number in range(count):
        groups = {
            f"g{group}": {
                "users": [f"user-{number}-{group}-{each}" for each in range(5)],
                "remoteHosts": "10.0.0.0-10.255.255.255",
                "sources": [f"{word}{number}.{group}.{each}" for each in range(20)],
            }
            for group in range(2)
        }
        made.append(["vhost", {"hostname": f"ballast-{number}", "groups": groups}])
    return made


class Sender:
    """One connection that sends, as fast as requested and as its credit allows."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.sent = 0
        self.limit = 0  # deliveries for which credit was granted
        self.waiting: deque[tuple[int, float]] = deque()
        self.input = bytearray()

    def due(self, first: int, count: int, now: float) -> None:
        self.waiting.extend((number, now) for number in range(first, first + count))

    def send(self) -> None:
        out = bytearray()
        while self.waiting and self.sent < self.limit:
            number, due = self.waiting.popleft()
            identity = self.sent.to_bytes(4, "big")
            fields = b"\x43\x70" + identity + b"\xa0\x04" + identity + b"\x43\x42"
            body = _BODY.pack(number, due) + _PADDING
            payload = b"\x00\x53\x75\xa0" + bytes([len(body)]) + body
            frame = b"\x00\x53\x14\xc0" + bytes([len(fields) + 1, 5]) + fields + payload
            out += (len(frame) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + frame
            self.sent += 1
        if out:
            self.socket.sendall(out)

    def receive(self) -> None:
        self.take(wire.frames(self.input, self.socket.recv(65536)))
        self.send()

    def take(self, frames: Iterable[wire.Frame]) -> None:
        for frame in frames:
            if frame.code == _FLOW:
                fields = frame.fields()
                if len(fields) > 6 and fields[6] is not None:
                    self.limit = int(fields[5] or 0) + int(fields[6])  # type: ignore[call-overload]


class Receiver:
    """One connection that receives and accepts messages."""

    def __init__(self, connected: socket.socket, arrived: Callable[[int, float], None]) -> None:
        self.socket = connected
        self.arrived = arrived
        self.count = 0
        self.last = -1
        self.is_ordered = True
        self.input = bytearray()

    def receive(self) -> None:
        first = self.count
        for frame in wire.frames(self.input, self.socket.recv(262144)):
            if frame.code == _TRANSFER:
                number, due = _BODY.unpack_from(frame.data, len(frame.data) - len(_PADDING) - _BODY.size)
                self.arrived(number, due)
                self.is_ordered &= number > self.last
                self.last = number
                self.count += 1
        if self.count > first:
            self.socket.sendall(wire.accepted(first, self.count - 1))


@dataclass(slots=True)
class Phase:
    """A period of time and the delays, in seconds, of the messages that were due in it."""

    name: str
    delays: list[float] = field(default_factory=list)
    due: int = 0
    account: str = ""

    def row(self) -> str:
        ordered = sorted(self.delays)
        at = [ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000 for share in (0.5, 0.99, 0.999, 1.0)]
        lost = self.due - len(self.delays)
        return f"{self.name:44} {self.due:8} {lost:5} {at[0]:8.1f} {at[1]:8.1f} {at[2]:8.1f} {at[3]:8.1f}{self.account}"

    @property
    def longest(self) -> float:
        return max(self.delays)


class Traffic:
    """Messages at a steady rate through PAIRS addresses, until the end of the steps."""

    def __init__(self, senders: Sequence[Sender], receivers: Sequence[socket.socket], rate: int) -> None:
        self.senders = senders
        self.receivers = [Receiver(each, self.arrived) for each in receivers]
        self.each = max(int(rate * TICK_S / len(senders)), 1)
        self.phases: list[Phase] = []
        self.phase_of: list[Phase] = []  # of every message, by its number

    def arrived(self, number: int, due: float) -> None:
        self.phase_of[number].delays.append(time.perf_counter() - due)

    @property
    def is_complete(self) -> bool:
        return all(len(phase.delays) == phase.due for phase in self.phases)

    def run(self, steps: Sequence[tuple[str, Callable[[], None] | None]], seconds: float, house: "House") -> None:
        """Runs the steps.

        steps  (name, the action meanwhile), each for `seconds`
        """
        selector = selectors.DefaultSelector()
        ends: list[Sender | Receiver] = [*self.senders, *self.receivers]
        for end in ends:
            selector.register(end.socket, selectors.EVENT_READ, end)
        for name, action in steps:
            phase = Phase(name)
            self.phases.append(phase)
            house.begin_account()
            started = time.perf_counter()
            doing = threading.Timer(seconds / 3, action) if action is not None else None
            if doing is not None:
                doing.start()
            self._keep_up(selector, phase, started + seconds)
            if doing is not None:
                doing.join()
            phase.account = house.account()
        end_at = time.perf_counter() + SETTLE_S
        while not self.is_complete and time.perf_counter() < end_at:
            self._read(selector, 0.05)

    def _keep_up(self, selector: selectors.DefaultSelector, phase: Phase, until: float) -> None:
        tick = time.perf_counter()
        while (now := time.perf_counter()) < until:
            if now < tick:
                self._read(selector, tick - now)
                continue
            tick += TICK_S
            for sender in self.senders:
                first = len(self.phase_of)
                sender.due(first, self.each, now)
                self.phase_of.extend([phase] * self.each)
                phase.due += self.each
                sender.send()

    def _read(self, selector: selectors.DefaultSelector, patience_s: float) -> None:
        for key, _ in selector.select(patience_s):
            key.data.receive()


def ended(connections: Sequence[socket.socket], inputs: Sequence[bytearray]) -> tuple[int, int]:
    """Returns (links detached, connections closed) by the router since the last call."""
    detached = closed = 0
    for each, kept in zip(connections, inputs, strict=True):
        data = bytearray()
        with suppress(BlockingIOError):
            while piece := each.recv(65536):
                data += piece
        codes = [frame.code for frame in wire.frames(kept, bytes(data))]
        detached += codes.count(wire.DETACH)
        closed += codes.count(wire.CLOSE)
    return detached, closed


class House:
    """A router, its policy files, and the connections to it."""

    def __init__(self, folder: Path, vhosts: int, *, keeps_accounts: bool) -> None:
        self.folder = folder
        self._accounts = folder / "accounts" if keeps_accounts else None
        (folder / "policy").mkdir()
        self._vhosts = vhosts
        self._write("ballast.json", ballast(vhosts, "a"))
        both = ("a.*", "b.*")
        rules = [vhost("stays", *both, "$management"), vhost("loses", *both), vhost("goes", *both)]
        self._write("rules.json", rules)
        (folder / "router.conf").write_text(CONFIGURATION.format(folder=folder))
        module = ["benchmarks.watched", str(self._accounts)] if self._accounts is not None else ["router.io.daemon"]
        self.process = Process([sys.executable, "-m", *module, "-c", str(folder / "router.conf")])
        self.log = folder / "router.log"
        self.port = self._port()

    def _port(self) -> int:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for line in self.log.read_text().splitlines() if self.log.exists() else ():
                if "Listening on 127.0.0.1:" in line:
                    return int(line.partition("Listening on 127.0.0.1:")[2].split(" ")[0])
            time.sleep(0.05)
        raise OSError(f"the router did not begin to listen: {self.process.tail()}")

    def _write(self, name: str, rules: Sequence[object]) -> None:
        fresh = self.folder / "rules.new"
        fresh.write_text(json.dumps(rules))
        fresh.rename(self.folder / "policy" / name)

    def change(self, *rules: object) -> Callable[[], None]:
        """Returns an action that changes the rules of the open connections."""

        def act() -> None:
            self._write("rules.json", rules)
            self.process.signal(signal.SIGHUP)

        return act

    def change_ballast(self) -> None:
        """Changes every vhost that no connection uses."""
        self._write("ballast.json", ballast(self._vhosts, "b"))
        self.process.signal(signal.SIGHUP)

    def manage(self) -> None:
        """Changes a vhost by management."""
        options = ConnectionOptions(host="127.0.0.1", port=self.port, timeout_s=30.0)
        with ManagementClient(SocketTransport(options)) as client:
            client.update({"maxConnections": 60000}, type="org.apache.qpid.dispatch.vhost", name="vhost/goes")

    def begin_account(self) -> None:
        if self._accounts is not None:
            self.process.signal(signal.SIGUSR1)

    def account(self) -> str:
        """Returns the longest turn of the router's loop, in processor and wall time, and turns of over 5 ms."""
        if self._accounts is None:
            return ""
        before = self._accounts.read_text().count("\n") if self._accounts.exists() else 0
        self.process.signal(signal.SIGUSR2)
        while not self._accounts.exists() or len(lines := self._accounts.read_text().splitlines()) == before:
            time.sleep(0.01)
        found = json.loads(lines[-1])
        return f" {found['cpu_ms']:8.1f} {found['wall_ms']:8.1f} {found['over_5_ms']:6} {found['gc_ms'][2]:8.1f}"

    def ended(self, connections: Sequence[socket.socket], losing: int, closing: int) -> tuple[int, int]:
        """Counts like `ended`, until the expected numbers are reached, and checks that no more follow."""
        inputs = [bytearray() for _ in connections]
        for each in connections:
            each.setblocking(False)
        detached = closed = 0
        deadline = time.monotonic() + SETTLE_S
        while (detached, closed) != (losing, closing) and time.monotonic() < deadline:
            more_detached, more_closed = ended(connections, inputs)
            detached, closed = detached + more_detached, closed + more_closed
            time.sleep(0.05)
        more_detached, more_closed = ended(connections, inputs)
        return detached + more_detached, closed + more_closed

    def lines(self, text: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if text in line]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run.

    detached, closed  links and connections that the router ended; losing, closing: those that it should end
    passes            over all connections, as the router's log counts them
    """

    phases: Sequence[Phase]
    is_complete: bool
    is_ordered: bool
    detached: int
    losing: int
    closed: int
    closing: int
    passes: int

    @property
    def is_right(self) -> bool:
        """Returns whether all messages arrived in order, and exactly the denied links and connections ended."""
        is_ended = (self.detached, self.closed) == (self.losing, self.closing)
        return self.is_complete and self.is_ordered and is_ended

    @property
    def added_delay(self) -> float:
        """Returns by how many seconds the longest delay beside a change exceeds that without one."""
        usual = max(phase.longest for phase in (self.phases[0], self.phases[-1]))
        return max(phase.longest for phase in self.phases[1:-1]) - usual


def measure(
    folder: Path, *, connections: int, rate: int, vhosts: int, seconds: float, keeps_accounts: bool = False
) -> Outcome:
    """Starts a router in the folder, connects, and changes the rules four times. Ends everything afterwards."""
    with ExitStack() as stack:
        house = House(folder, vhosts, keeps_accounts=keeps_accounts)
        stack.callback(house.process.stop)

        def connect(hostname: str, *links: bytes) -> socket.socket:
            connected = stack.enter_context(socket.create_connection(("127.0.0.1", house.port), 30))
            connected.sendall(wire.anonymous(hostname) + b"".join(links))
            wire.until_attached(connected, len(links), bytearray())
            return connected

        def connect_sender(number: int) -> Sender:
            connected = stack.enter_context(socket.create_connection(("127.0.0.1", house.port), 30))
            connected.sendall(wire.anonymous("stays") + wire.sender(f"a.{number}", 0))
            sender = Sender(connected)
            sender.take(wire.until_attached(connected, 1, sender.input))
            return sender

        receivers = [connect("stays", wire.receiver(f"a.{n}", 0)) for n in range(PAIRS)]
        for each in receivers:
            each.sendall(wire.credit(0, 10_000_000))
        senders = [connect_sender(number) for number in range(PAIRS)]
        losing, closing = int(connections * LOST_LINK), int(connections * CLOSED)
        loses = [connect("loses", wire.receiver("a.x", 0), wire.receiver("b.x", 1)) for _ in range(losing)]
        goes = [connect("goes", wire.receiver("a.y", 0)) for _ in range(closing)]
        quiet = [connect("stays", wire.receiver("a.z", 0)) for _ in range(connections - 2 * PAIRS - losing - closing)]
        more, both = ("a.*", "b.*", "c.*", "$management"), ("a.*", "b.*")
        kept = [vhost("stays", *more), vhost("loses", *both), vhost("goes", *both)]
        denied = [vhost("stays", *more), vhost("loses", "a.*"), vhost("goes", "a.*", hosts="10.0.0.1")]
        traffic = Traffic(senders, receivers, rate)
        steps = (
            ("nothing", None),
            ("reload, nothing that is open is denied", house.change(*kept)),
            (f"reload, {losing} links and {closing} connections are denied", house.change(*denied)),
            ("a vhost changes by management", house.manage),
            (f"reload, {vhosts} other vhosts have changed", house.change_ballast),
            ("nothing", None),
        )
        traffic.run(steps, seconds, house)
        detached, closed = house.ended([*loses, *goes, *quiet], losing, closing)
        return Outcome(
            phases=traffic.phases,
            is_complete=traffic.is_complete,
            is_ordered=all(receiver.is_ordered for receiver in traffic.receivers),
            detached=detached,
            losing=losing,
            closed=closed,
            closing=closing,
            passes=len(house.lines("Open connections decided again")),
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.policy_change",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=20_000, help="messages per second")
    parser.add_argument("--vhosts", type=int, default=50, help="vhosts that are only compiled: 10 users, 40 items each")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each of the six stretches")
    watched = "the router's loop keeps account of its turns (not on uvloop)"
    parser.add_argument("--accounts", action="store_true", help=watched)
    options = parser.parse_args()
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="palisade-change-") as name:
        found = measure(
            Path(name),
            connections=options.connections,
            rate=options.rate,
            vhosts=options.vhosts,
            seconds=options.seconds,
            keeps_accounts=options.accounts,
        )
    print(f"{options.connections} connections, {options.vhosts} vhosts besides, milliseconds of delay:")
    turns = f" {'turn CPU':>8} {'turn':>8} {'> 5 ms':>6} {'full GC':>8}" if options.accounts else ""
    print(f"{'':44} {'messages':>8} {'lost':>5} {'median':>8} {'99 %':>8} {'99.9 %':>8} {'longest':>8}{turns}")
    print("\n".join(phase.row() for phase in found.phases))
    ended = f"{found.detached} links detached, {found.closed} connections closed"
    print(f"{ended}, {found.passes} passes over all connections")
    print(f"The longest delay is {found.added_delay * 1000:.0f} ms more beside a change than without one.")
    return 0 if found.is_right and found.added_delay < TARGET_S else 1


if __name__ == "__main__":
    sys.exit(main())
