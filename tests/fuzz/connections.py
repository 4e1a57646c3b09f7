"""A fuzzing campaign over whole connections: every performative, in every order, between peers that share addresses.

    python -m tests.fuzz.connections --seconds 3600 --seed 1
    python -m tests.fuzz.connections --replay 1:4711          one scenario again, frame by frame
    python -m tests.fuzz.connections --replay 1:4711 --shrink  and as few steps as still fail

A scenario (tests/fuzz/orders.py) runs against the router's own connections, accepted and made, in this process. A
failure is a crash of the process, a report of a sanitizer where proton and our C are built with one (tests/asan), an
engine that falls silent, an error in the router's log, or anything that is left when all peers have gone. The scenario
that failed is printed.

The scenarios run in a child process, because what they look for ends it.
"""

import argparse
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent / "core")]

import sanitized_modules  # noqa: E402, F401  before those of the router
import wire  # noqa: E402
from answers import Answers  # noqa: E402
from orders import LIBERTIES, Scenario, Step, scenario  # noqa: E402
from rounds import hear_warnings, no_engine_is_silent, stream_from, summary_of  # noqa: E402

from router.amqp.buffers import READ_BUFFER, READ_BYTES  # noqa: E402


class Session:
    """One scenario being run."""

    def __init__(self, made: Scenario) -> None:
        from memory_net import Net, Vhosts

        from router.amqp.engine import limit_slices

        group = {
            "users": "*", "remoteHosts": "*", "sources": "a, b, m", "targets": "a, b, m, c", "maxSessions": 3,
            "maxSenders": 4, "maxReceivers": 4, "allowAnonymousSender": True, "allowDynamicSource": True,
            "maxMessageSize": 20000, "maxMessageRate": 50,
        }  # fmt: skip
        easy = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True,
                "allowDynamicSource": True, "allowDynamicTarget": True}  # fmt: skip
        has_guests = "guest" in made.kinds
        vhosts = Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": group}},
                         "$default": {"allowUnknownUser": True, "groups": {"$default": easy}}},
                        {"enableVhostPolicy": True, "defaultVhost": "$default"}) if has_guests else None  # fmt: skip
        terms = dict(made.terms)
        is_stingy = terms.pop("is_stingy")
        if is_stingy:
            terms["session_bytes"] = 65536
            terms["max_frame_bytes"] = 16384
        stream_from(terms.pop("streams_at"))  # type: ignore[arg-type]
        limit_slices(-1e-9 if terms.get("is_sliced") else 0)  # one event at once, or all
        self.net = Net({"m": "multicast", "c": "closest"}, vhosts=vhosts, **terms)  # type: ignore[arg-type]
        self.made = made
        self.peers: dict[int, FuzzPeer] = {}
        self.warnings = hear_warnings()

    def do(self, step: Step) -> None:
        if step.what == "join":
            self.peers[step.peer] = FuzzPeer(self.net, self.made.kinds[step.peer])
        peer = self.peers[step.peer]
        if step.what == "say":
            peer.say(step.data)
        elif step.what == "pass":
            self.net.pump()
        elif step.what == "open":
            peer.opener.act(random.Random(step.data))
        elif step.what == "answer":
            self.net.pump()
            peer.say(b"".join(peer.answers.frames(step.data)))
        elif step.what == "stall":
            peer.is_reading = False
        elif step.what == "read":
            peer.is_reading = True
            self.net.pump()
        elif step.what == "leave":
            peer.kill()
        elif step.what == "wait":
            self.net.advance(1.0, step=0.5)

    def check(self, *, with_bystanders: bool) -> None:
        """Nothing is left, no error is in the log, and others were not disturbed."""
        net = self.net
        for peer in self.peers.values():
            peer.is_reading = True
        net.pump()
        net.no_errors()
        no_engine_is_silent(self.warnings)
        if with_bystanders:
            from test_connection_fuzz import Bystanders

            Bystanders(net).check()
        net.nothing_left()


class Opener:
    """Sessions and links that the router opens on one connection, as whoever routes over them would."""

    def __init__(self, peer: "FuzzPeer") -> None:
        self.peer = peer
        self.sessions: list[Any] = []
        self.links: list[Any] = []
        self.names = 0

    def act(self, chance: random.Random) -> None:
        from router.amqp.engine import CannotBegin

        peer = self.peer.router.peer
        if peer is None or peer.engine.is_freed:
            return
        try:
            self._act(peer.engine, chance)
        except CannotBegin:
            pass
        finally:
            self.peer.net.work.finish()

    def _act(self, engine: Any, chance: random.Random) -> None:
        choice = chance.random()
        if not self.sessions or choice < 0.15:
            session = engine.begin_session(self, incoming_capacity_bytes=chance.choice((0, 1 << 20)))
            session.on_answer = lambda: self._attach(session, random.Random(chance.random()))
            self.sessions.append(session)
        elif choice < 0.55:
            self._attach(chance.choice(self.sessions), chance)
        elif choice < 0.85 and self.links:
            self._release(link := chance.choice(self.links))
            link.close(is_peers_doing=False)
        elif choice > 0.9:
            session = chance.choice(self.sessions)
            self.sessions.remove(session)
            for link in [link for link in self.links if link.session is session]:
                self._release(link)
            session.close()

    def _attach(self, session: Any, chance: random.Random) -> None:
        from router.amqp.engine import CannotBegin
        from router.amqp.terminus import Terminus

        self.names += chance.random() < 0.7
        address = chance.choice("aam")
        terms = {"source": Terminus(address=address), "target": Terminus(address=address)}
        attach = chance.choice((session.attach_sender, session.attach_receiver))
        try:
            link = attach(f"r{self.names}", self, **terms)
        except CannotBegin:
            return
        link.on_answer = lambda: self._bind(link, address)
        self.links.append(link)

    def _bind(self, link: Any, address: str) -> None:
        from memory_net import at

        from router.amqp.engine import IncomingWire

        core, attachment = self.peer.net.core, self.peer.router.peer.attachment
        link.named = at(address)
        add = core.add_in_link if isinstance(link, IncomingWire) else core.add_out_link
        add(link, attachment, link.named)

    def _release(self, link: Any) -> None:
        self.links.remove(link)
        if link.core is not None:
            self.peer.net.core.remove_link(link.core)

    # Owner

    def on_detach(self, link: Any, *, is_closed: bool) -> None:
        if link in self.links:
            self._release(link)

    def on_end(self, session: Any) -> None:
        if session in self.sessions:
            self.sessions.remove(session)


class FuzzPeer:
    """A socket whose bytes the scenario writes: to Net what memory_net.Client is, without an engine of its own."""

    def __init__(self, net: "Net", kind: str) -> None:  # type: ignore[name-defined]  # noqa: F821
        self.net = net
        self.inbox = bytearray()
        self.is_reading = True
        self.outbox = bytearray()  # not read by the router yet
        self.answers = Answers()
        self.opener = Opener(self)
        self.has_overrun = False  # the router was given a read that it had not asked for
        self.is_dead = self.router_closed = self._is_paused = False
        net.clients.append(self)
        if kind == "server":
            self.router = self._outgoing()
            self.router.start()
            net.work.finish()
        else:
            self.router = net.accept(net.listener(), self)

    def _outgoing(self) -> "Outgoing":  # type: ignore[name-defined]  # noqa: F821
        from router.admission.connection_gate import ConnectionGate
        from router.connection.outgoing import Connector, Outgoing

        net = self.net
        net._last_id += 1
        gate = ConnectionGate(
            net.gate, connection_id=net._last_id, connection_name=f"server:{net._last_id}", remote_host="",
            listener="server", is_governed=False, is_accepted=False,
        )  # fmt: skip
        terms = {key: value for key, value in net.listener_terms.items() if key not in ("name", "host", "port")}
        return Outgoing(
            host="server", connector=Connector(name="out", host="server", port="5672", **terms), gate=gate,
            surroundings=net.surroundings, write=self.write, close=self.close_socket, on_failed=lambda _text: None,
            on_opened=lambda _stack: net.deadlines.__setitem__(self, net.now),
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        if not self.is_dead:
            self.inbox += data
            if len(self.inbox) > 512 * 1024 and not self._is_paused:
                self._is_paused = True
                self.router.set_blocked(True)

    def close_socket(self) -> None:
        self.router_closed = True

    def push_to_router(self) -> bool:
        router = self.router
        if self.is_dead or self.router_closed:
            return False
        if router.has_more:
            router.resume()
            self.net.work.finish()
            return True
        if router.waits_for_room or not self.outbox:
            return False
        self._deliver(bytes(self.outbox[:READ_BYTES]))
        return True

    def pull_from_router(self) -> bool:
        if self.is_dead or not self.is_reading or not self.inbox:
            return False
        self.answers.hear(bytes(self.inbox))
        self.inbox.clear()
        if self._is_paused:
            self._is_paused = False
            self.router.set_blocked(False)
            self.net.work.finish()
        return True

    def say(self, data: bytes) -> None:
        """The router reads the unread bytes later, but for a read that is under way already."""
        self.outbox += data
        while self.outbox and not self.is_dead and not self.router_closed:
            if (self.router.has_more or self.router.waits_for_room) and self.has_overrun:
                return
            self.has_overrun = self.router.has_more or self.router.waits_for_room
            self._deliver(bytes(self.outbox[:READ_BYTES]))

    def _deliver(self, piece: bytes) -> None:
        del self.outbox[: len(piece)]
        begin = self.router.lay()
        READ_BUFFER[begin : begin + len(piece)] = piece
        self.router.receive_read(len(piece))
        self.net.work.finish()

    def kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            self.inbox.clear()
            self.router.on_lost()
            self.net.work.finish()


def run(made: Scenario, *, is_loud: bool = False, with_bystanders: bool = False) -> None:
    session = Session(made)
    for step in made.steps:
        if is_loud:
            print(text_of(step), flush=True)
        session.do(step)
    session.check(with_bystanders=with_bystanders)


def text_of(step: Step) -> str:
    if step.what != "say":
        return f"peer {step.peer} {step.what}"
    return f"peer {step.peer} say\n" + "\n".join(f"    {line}" for line in in_frames(step.data))


def in_frames(data: bytes) -> list[str]:
    """A piece of a stream as the frames it is made of, where it is."""
    found: list[str] = []
    at = 0
    while at < len(data):
        size = 8 if data[at : at + 4] == b"AMQP" else int.from_bytes(data[at : at + 4], "big")
        if size < 8 or at + size > len(data):
            return [*found, f"piece {data[at:].hex()[:2000]}"]
        piece = data[at : at + size]
        found.append("header " + piece.hex() if piece[:4] == b"AMQP" else wire.describe(piece))
        at += size
    return found


# The child


def work(options: argparse.Namespace, liberties: Sequence[str]) -> int:
    """Scenarios one after the other. `options.progress` always holds the number of the one that runs."""
    ends = time.monotonic() + options.seconds
    number = options.start
    with open(options.progress, "r+b", buffering=0) as progress:
        while time.monotonic() < ends and (not options.count or number < options.start + options.count):
            os.pwrite(progress.fileno(), f"{number:20}".encode(), 0)
            run(scenario(f"{options.seed}:{number}", liberties), with_bystanders=number % 16 == 0)
            number += 1
            if number % 256 == 0:
                gc.collect()
        os.pwrite(progress.fileno(), f"{number:20}".encode(), 0)
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{number - options.start:,} scenarios without a failure, {used_mb} MB at most", flush=True)
    if used_mb > options.memory_mb:
        print(f"More than the {options.memory_mb} MB that --memory-mb allows: the router gives something back too late")
        return 1
    return 0


def replay(path: str, *, is_loud: bool) -> int:
    run(load(path), is_loud=is_loud)
    print("no failure")
    return 0


def shrink(path: str) -> int:
    """Put into the file as few steps as still fail, and print them."""
    made = load(path)
    if not fails(made):
        print("alone it does not fail")
        return 1
    made = shrunk(made)
    save(made, path)
    print(f"shrunk to {len(made.steps)} steps; kinds {made.kinds}, terms {made.terms}")
    print("\n".join(text_of(step) for step in made.steps), flush=True)
    print(summary_of(fails(made)))
    return 0


# The parent


def save(made: Scenario, path: str) -> None:
    steps = [[step.what, step.peer, step.data.hex()] for step in made.steps]
    Path(path).write_text(json.dumps({"terms": made.terms, "kinds": made.kinds, "steps": steps}))


def load(path: str) -> Scenario:
    read = json.loads(Path(path).read_text())
    steps = tuple(Step(what, peer, bytes.fromhex(data)) for what, peer, data in read["steps"])
    return Scenario(read["terms"], tuple(read["kinds"]), steps)


def child(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-X", "faulthandler", str(HERE / "connections.py"), *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )


def fails(made: Scenario) -> str:
    """The output of a failing run, in a process of its own; "" when it does not."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as output:
        if (pid := os.fork()) == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            signal.alarm(60)  # what does not come to an end fails too
            try:
                run(made, with_bystanders=True)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        return output.read().decode(errors="replace") + f"status {status}" if status else ""


def into_frames(made: Scenario) -> Scenario:
    """The same bytes, a frame a step: what is small is easier to read."""
    streams: dict[int, bytes] = {}
    steps = []
    for step in made.steps:
        if step.what != "say":
            if step.what != "pass" or not streams.get(step.peer):
                steps.append(step)
            continue
        data = streams.get(step.peer, b"") + step.data
        while data:
            size = 8 if data[:4] == b"AMQP" else int.from_bytes(data[:4], "big")
            if size < 8 or size > len(data):
                break
            steps.append(Step("say", step.peer, data[:size]))
            data = data[size:]
        streams[step.peer] = data
    steps += [Step("say", peer, data) for peer, data in streams.items() if data]
    return Scenario(made.terms, made.kinds, tuple(steps))


def shrunk(made: Scenario) -> Scenario:
    """As few steps as still fail, by leaving out ever smaller parts."""
    framed = into_frames(made)
    if fails(framed):
        made = framed
    for what in ({"is_stingy": False}, {"is_sliced": False}, {"capacity": 250}, {"strip": "both"}):
        simpler = Scenario({**made.terms, **what}, made.kinds, made.steps)
        if fails(simpler):
            made = simpler
    size = max(len(made.steps) // 2, 1)
    while True:
        at, before = 0, len(made.steps)
        while at < len(made.steps):
            left = made.steps[:at] + made.steps[at + size :]
            joined: set[int] = set()
            is_sane = True
            for step in left:
                is_sane &= step.what == "join" or step.peer in joined
                joined.add(step.peer)
            shorter = Scenario(made.terms, made.kinds, left)
            if left and is_sane and fails(shorter):
                made = shorter
            else:
                at += size
        if size == 1 and len(made.steps) == before:
            return made
        size = max(size // 2, 1)


def campaign(options: argparse.Namespace, liberties: Sequence[str]) -> int:
    print(f"seed {options.seed}, {options.seconds:g} s, liberties: {', '.join(liberties) or 'none'}", flush=True)
    ends = time.monotonic() + options.seconds
    failures, start = 0, options.start
    with tempfile.TemporaryDirectory() as folder:
        progress, path = f"{folder}/progress", f"{folder}/scenario.json"
        while True:
            Path(progress).write_bytes(b" " * 20)
            left = max(ends - time.monotonic(), 0.0)
            result = child(
                "--work", "--progress", progress, "--seed", str(options.seed), "--start", str(start), "--seconds",
                str(left), "--count", str(options.count), "--memory-mb", str(options.memory_mb),
                "--liberties", ",".join(liberties),
            )  # fmt: skip
            number = int(Path(progress).read_bytes().strip() or start)
            if result.returncode == 0:
                print(result.stdout, end="", flush=True)
                return 1 if failures else 0
            failures += 1
            print(f"\nFAILURE {failures} in scenario {options.seed}:{number} (exit status {result.returncode})")
            print(result.stdout if options.verbose else summary_of(result.stdout), flush=True)
            if options.shrink:
                kept = f"{options.keep}/{options.seed}-{number}.json" if options.keep else path
                save(scenario(f"{options.seed}:{number}", liberties), kept)
                print(child("--shrink-file", kept).stdout, end="", flush=True)
            start = number + 1
            if failures >= options.failures or time.monotonic() > ends:
                return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="for how long (default 60)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--start", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--count", type=int, default=0, help="how many scenarios at most")
    parser.add_argument("--only", default="", help="the liberties that may be taken, by comma; 'none' for none")
    parser.add_argument("--without", default="", help="liberties that may not be taken")
    parser.add_argument("--failures", type=int, default=1, help="after how many to stop (default 1)")
    parser.add_argument("--memory-mb", type=int, default=2000, help="what the process may grow to (default 2000)")
    parser.add_argument("--shrink", action="store_true", help="look for the fewest steps that fail")
    parser.add_argument("--keep", default="", help="a folder for shrunk scenarios")
    parser.add_argument("--verbose", action="store_true", help="print all that a sanitizer says")
    parser.add_argument("--replay", default="", help="SEED:NUMBER of a scenario to run again")
    parser.add_argument("--replay-file", default="", help="a kept scenario to run again")
    parser.add_argument("--shrink-file", default="", help=argparse.SUPPRESS)
    for hidden in ("--work", "--quiet"):
        parser.add_argument(hidden, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    parser.add_argument("--liberties", help=argparse.SUPPRESS)
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name] or list(LIBERTIES)
    liberties = [name for name in chosen if name not in options.without.split(",") and name != "none"]
    if unknown := sorted({*liberties, *filter(None, options.without.split(","))} - set(LIBERTIES)):
        parser.error(f"no liberty called {', '.join(unknown)}: choose from {', '.join(LIBERTIES)}")
    if options.work:
        return work(options, [name for name in options.liberties.split(",") if name])
    if options.shrink_file:
        return shrink(options.shrink_file)
    if options.replay_file:
        return replay(options.replay_file, is_loud=not options.quiet)
    if options.replay:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/scenario.json"
            save(scenario(options.replay, liberties), path)
            if options.shrink:
                print(child("--shrink-file", path).stdout, end="")
            result = child("--replay-file", path)
            print(result.stdout, end="")
            return result.returncode
    return campaign(options, liberties)


if __name__ == "__main__":
    sys.exit(main())
