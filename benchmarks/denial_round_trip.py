"""The round trip of a message through a router that denies 5,000 requests a second, with and without audit.

    python -m benchmarks.denial_round_trip [--stage attach] [--rate 5000] [--seconds 5] [--rounds 3]

--stage transfer denies messages instead of attaches: each names its own address, to which its anonymous sender may not
send, and gets a Disposition. The requests in the audit log, in full and in sums, must add up to those that were sent;
otherwise the run ends with an error.

Each denied attach is different: another link name, another address, on a real connection. They come from one connection
(a flood: a few in full, then sums), or from so many hosts that each is written in full. Prints the median and the 99th
percentile of the round trip of one message. Also prints the denials a second that the router answered, and its
processor time per denial. Runs without auditDir, and with permitted attaches, separate the cost of the audit log from
that of an attach.
"""

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.processes import Process
from router.amqp.codec import encode
from router.values import Described, uint, ulong

CONFIGURATION: Final = """
router {{
    id: bench
    mode: standalone
    {audit}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
log {{
    module: DEFAULT
    enable: info+
    outputFile: {folder}/router.log
}}
listener {{
    name: open
    host: 127.0.0.1
    port: {port}
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
GROUP: Final = {"users": "*", "remoteHosts": "*", "sources": "may.*", "targets": "may.*", "maxConnections": 4000,
                "allowAnonymousSender": True}  # fmt: skip
# The number of denials of one connection that are written in full at once (router.admission.folding). A denied message
# has a longer record.
IN_FULL: Final = {"attach": 40, "transfer": 30}
# Less than the credit that a router gives a sender.
MOST_UNANSWERED: Final = 100
DRAIN_S: Final = 30.0
TICK_S: Final = 0.002
_FLOW, _TRANSFER, _DISPOSITION, _DETACH, _PROPERTIES = 0x13, 0x14, 0x15, 0x16, 0x73
_PAYLOAD: Final = b"\x00\x53\x75\xa0\x04fine"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One load beside which the round trip is measured.

    hosts  from which the requests come, one connection each; 0: no requests
    stage  "attach" or "transfer": the kind of the requests
    """

    name: str
    hosts: int
    is_audited: bool
    stage: str
    is_permitted: bool = False


def kinds(stage: str, rate: int, seconds: float) -> Sequence[Kind]:
    crowd = int(rate * seconds / IN_FULL[stage])
    return (
        Kind(stage=stage, name="nothing else", hosts=0, is_audited=True),
        Kind(stage=stage, name="permitted", hosts=1, is_audited=True, is_permitted=True),
        Kind(stage=stage, name="flood, no auditDir", hosts=1, is_audited=False),
        Kind(stage=stage, name="flood", hosts=1, is_audited=True),
        Kind(stage=stage, name=f"{crowd} hosts, no auditDir", hosts=crowd, is_audited=False),
        Kind(stage=stage, name=f"{crowd} hosts", hosts=crowd, is_audited=True),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=tuple(IN_FULL), default="attach", help="what is denied (attach)")
    parser.add_argument("--rate", type=int, default=5_000, help="requests a second (5000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind and round (5)")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts (3)")
    parser.add_argument("--only", help="the kinds whose name begins so")
    parser.add_argument("--flood", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.flood is not None:
        flood(**arguments.flood)
        return 0
    wanted = kinds(arguments.stage, arguments.rate, arguments.seconds)
    if arguments.only:
        wanted = [kind for kind in wanted if kind.name.startswith(("nothing", arguments.only))]
    trips: dict[str, list[Sequence[float]]] = {kind.name: [] for kind in wanted}
    facts: dict[str, str] = {}
    for _ in range(arguments.rounds):
        for kind in wanted:
            seconds, facts[kind.name] = measured(kind, arguments.rate, arguments.seconds)
            trips[kind.name].append(seconds)
    usual = min(map(statistics.median, trips["nothing else"]))
    print(f"load average {os.getloadavg()[0]:.1f}")
    for name, rounds in trips.items():
        best = min(rounds, key=statistics.median)
        median, late = statistics.median(best), statistics.quantiles(best, n=100)[98]
        print(f"{name:28} {median * 1e6:7.0f} us, ratio {median / usual:5.2f}, p99 {late * 1e6:8.0f} us  {facts[name]}")
    return 0


def measured(kind: Kind, rate: int, seconds: float) -> tuple[Sequence[float], str]:
    """Returns the seconds of each round trip, and a text on what the router did meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(folder, is_audited=kind.is_audited) as (port, pid), Pinger(port) as pinger:
            pinger.trips(0.5)
            if not kind.hosts:
                return pinger.trips(seconds), ""
            asked = {"port": port, "hosts": kind.hosts, "rate": rate, "seconds": seconds,
                     "permitted": kind.is_permitted, "stage": kind.stage}  # fmt: skip
            command = [sys.executable, "-m", "benchmarks.denial_round_trip", "--flood", json.dumps(asked)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdout.readline()  # the child is ready
                before, began = cpu_s(pid), time.monotonic()
                child.stdin.write("\n")
                child.stdin.flush()
                trips = pinger.trips(seconds)
                took_s, spent_s = time.monotonic() - began, cpu_s(pid) - before
                answered, denied = map(int, child.stdout.readline().split())
        # The router has stopped, and has written its last sums.
        written, on_record = recorded(folder, kind.stage)
        if kind.stage == "transfer" and kind.is_audited and on_record != denied:
            raise SystemExit(f"{kind.name}: {denied} were denied, the audit log has {on_record}")
        return trips, (
            f"{answered / took_s:6.0f} answered/s, {spent_s / took_s:4.0%} of a core, "
            f"{1e6 * spent_s / max(1, answered):4.0f} us each, {written} written, for {on_record}"
        )


def recorded(folder: Path, stage: str) -> tuple[int, int]:
    """Returns the number of written events of a stage, and the number of requests that they represent."""
    lines = [line for path in folder.glob("audit/*.jsonl") for line in path.read_bytes().splitlines()]
    events = [json.loads(line) for line in lines if b'"stage":"%s"' % stage.encode() in line]
    return len(events), sum(event.get("attempts", 1) for event in events)


@contextmanager
def running(folder: Path, *, is_audited: bool) -> Iterator[tuple[int, int]]:
    """Yields a router's port and process id."""
    (folder / "policy").mkdir()
    vhost = {"hostname": "$default", "allowUnknownUser": True, "groups": {"$default": GROUP}, "maxConnections": 4000,
             "maxConnectionsPerUser": 4000, "maxConnectionsPerHost": 4000}  # fmt: skip
    (folder / "policy" / "all.json").write_text(json.dumps([["vhost", vhost]]))
    audit = f"auditDir: {folder}/audit" if is_audited else ""
    file = folder / "router.conf"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file.write_text(CONFIGURATION.format(folder=folder, audit=audit, port=port))
    process = Process([sys.executable, "-m", "router.io.daemon", "-c", str(file)])
    try:
        until = time.monotonic() + 30
        while not _is_up(port):
            if time.monotonic() > until:
                raise SystemExit(f"the router does not come up:\n{process.tail()}")
            time.sleep(0.05)
        yield port, process.pid
    finally:
        process.stop()


def _is_up(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class Pinger:
    """A connection with a sender and a receiver on the same address."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask = wire.anonymous("any") + wire.receiver("may.ping", 1) + wire.sender("may.ping", 0)
        self._socket.sendall(ask + wire.credit(1, 2**31 - 1))
        wire.until_attached(self._socket, 2, bytearray())
        time.sleep(0.2)  # the router's credit arrives after its Attach
        self._number = 0

    def __enter__(self) -> "Pinger":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def trips(self, seconds: float) -> list[float]:
        found, until = [], time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            self._socket.sendall(_transfer(self._number))
            self._number += 1
            data = b""
            while _PAYLOAD not in data:
                more = self._socket.recv(65536)
                if not more:
                    raise SystemExit("the router closed the connection of the round trips")
                data = data[-16:] + more
            found.append(time.monotonic() - began)
            time.sleep(0.0005)
        return found


def _transfer(number: int) -> bytes:
    fields = [uint(0), uint(number), number.to_bytes(4, "big"), uint(0), True]
    body = encode(Described(ulong(_TRANSFER), fields)) + _PAYLOAD
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def _detach(handle: int) -> bytes:
    body = encode(Described(ulong(_DETACH), [uint(handle), True]))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def flood(*, port: int, hosts: int, rate: int, seconds: float, permitted: bool, stage: str) -> None:
    """Runs in a separate process.

    Prints a line when all are connected, and waits for one. Then prints how many requests were answered within
    `seconds`, and how many were denied in all.
    """
    if stage == "transfer":
        flood_of_messages([Sender(port, n) for n in range(hosts)], rate, seconds, is_permitted=permitted)
        return
    connections = []
    for number in range(hosts):
        connection = connected(port, number)
        data = b""
        while b"\x00\x53\x11" not in data:  # Begin
            data += connection.recv(65536)
        connection.setblocking(False)
        connections.append(connection)
    place = "may" if permitted else "secret"
    total = int(rate * seconds)
    asks = [wire.receiver(f"{place}.{n}", n % 200).replace(b"\xa1", b"\xa1") + _detach(n % 200) for n in range(total)]
    print("ready", flush=True)
    sys.stdin.readline()
    answered, sent, began = 0, 0, time.monotonic()
    waiting = selectors.DefaultSelector()
    for connection in connections:
        waiting.register(connection, selectors.EVENT_READ)
    kept = dict.fromkeys(connections, b"")
    while sent < total or answered < total:
        now = time.monotonic() - began
        if now > seconds:
            break
        due = min(total, int(now * rate))
        while sent < due:
            # A few at a time from each: a client that sends many requests at once waits for its turns.
            count = min(10, due - sent)
            connection = connections[sent // 10 % len(connections)]
            try:
                connection.sendall(b"".join(asks[sent : sent + count]))
            except BlockingIOError:
                break
            sent += count
        for key, _ in waiting.select(TICK_S):
            connection = key.fileobj  # type: ignore[assignment]
            try:
                data = kept[connection] + connection.recv(1 << 18)
            except BlockingIOError:
                continue
            answered += data.count(b"\x00\x53\x16")  # Detach: each attach gets one
            kept[connection] = data[-2:] if not data.endswith(b"\x00\x53\x16") else b""
    print(answered, answered, flush=True)


def connected(port: int, number: int) -> socket.socket:
    """Returns a connection from its own host, after sending everything up to its session."""
    host = f"127.0.{1 + number // 250}.{1 + number % 250}"
    connection = socket.create_connection(("127.0.0.1", port), source_address=(host, 0))
    connection.sendall(wire.anonymous("any"))
    connection.settimeout(DRAIN_S)
    return connection


class Sender:
    """A connection with an anonymous sender that has credit."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = connected(port, number)
        self.socket.sendall(wire.sender(None, 0))
        self._kept = bytearray()
        seen = wire.until_attached(self.socket, 1, self._kept)
        while _FLOW not in {frame.code for frame in seen}:
            seen += wire.frames(self._kept, self.socket.recv(65536))
        self.socket.setblocking(False)
        self.sent = self.answered = 0
        self._unsent = b""

    def send(self, texts: Sequence[bytes]) -> bool:
        """Sends these messages, if there is room for them. Returns whether there was."""
        if self._unsent or self.sent + len(texts) - self.answered > MOST_UNANSWERED:
            return self._flush() and self.sent + len(texts) - self.answered <= MOST_UNANSWERED and self.send(texts)
        self._unsent = b"".join(_message(self.sent + place, text) for place, text in enumerate(texts))
        self.sent += len(texts)
        self._flush()
        return True

    def receive(self) -> int:
        """Returns how many more messages are answered."""
        self._flush()
        before = self.answered
        for frame in wire.frames(self._kept, self.socket.recv(1 << 18)):
            if frame.code in (_DETACH, wire.CLOSE):
                raise SystemExit("the router ended the flood")
            if frame.code == _DISPOSITION:
                _, first, last, *_ = [*frame.fields(), None]
                self.answered += int(last if last is not None else first) - int(first) + 1  # type: ignore[call-overload]
        return self.answered - before

    def _flush(self) -> bool:
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :] if self._unsent else b""
        except BlockingIOError:
            return False
        return not self._unsent


def flood_of_messages(senders: Sequence[Sender], rate: int, seconds: float, *, is_permitted: bool) -> None:
    place = "may" if is_permitted else "secret"
    waiting = selectors.DefaultSelector()
    for sender in senders:
        waiting.register(sender.socket, selectors.EVENT_READ, sender)
    print("ready", flush=True)
    sys.stdin.readline()
    total, sent, answered, in_time, began = int(rate * seconds), 0, 0, 0, time.monotonic()
    while (now := time.monotonic() - began) < seconds or (answered < sent and now < seconds + DRAIN_S):
        due = min(total, int(now * rate)) if now < seconds else sent
        while sent < due:
            count = min(10, due - sent)
            texts = [f"{place}.{number}".encode() for number in range(sent, sent + count)]
            if not senders[sent // 10 % len(senders)].send(texts):
                break
            sent += count
        for key, _ in waiting.select(TICK_S):
            answered += key.data.receive()
        if now < seconds:
            in_time = answered
    if answered < sent:
        raise SystemExit(f"{sent - answered} of {sent} messages have no answer")
    print(in_time, 0 if is_permitted else answered, flush=True)


def _message(number: int, to: bytes) -> bytes:
    """Returns an unsettled transfer, in one frame, of a message to an address."""
    fields = [uint(0), uint(number), number.to_bytes(4, "big"), uint(0), False]
    properties = encode(Described(ulong(_PROPERTIES), [None, None, to.decode()]))
    body = encode(Described(ulong(_TRANSFER), fields)) + properties + _PAYLOAD
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


if __name__ == "__main__":
    sys.exit(main())
