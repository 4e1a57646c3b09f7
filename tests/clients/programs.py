"""Clients in other languages, one small program each: built once, started, and told what to do line by line.

A program reads one JSON object a line from stdin and answers each with one JSON object on stdout. Requests have `op`;
`as` names what is opened, `on` what was opened before. A failure is `{"error": {"condition", "description"}}`, with the
AMQP condition where the peer gave one, else null.

connect   as, port, ca, user, password, mechanism,  TLS and SASL to localhost, by this mechanism alone; a token is the
          certificate, key, key_store, reconnect    password. Certificate and key are PEM files of the client's own, the
                                                    key store is both as PKCS #12; null for none. With `reconnect` the
                                                    client comes back by itself
sender    as, on, address, mode, settles            address null for an anonymous sender
receiver  as, on, address, mode, settles            address null for a dynamic one, in the reply; grants no credit
                                                    mode: settled, unsettled, mixed of the sender; settles: first,
                                                    second of the receiver; null for the library's own choice. The
                                                    reply has those of the attach reply where the library shows them
credit    on, count
drain     on                                        replies once the router has answered
send      on, id, size, to, reply_to, settled       a body of `size` x; does not wait for the outcome
outcome   on                                        of the oldest message sent: outcome; condition, description
                                                    (rejected); failed, elsewhere (modified)
receive   on, limit_ms                              id, size, is_whole, reply_to; remembered for `settle`
settle    on, outcome, condition, description       one that settles second waits for the sender
close     on
closed    on                                        waits for the end of the connection: condition, of the peer's
                                                    Close, or null
restored  on                                        waits until the client has connected again by itself
"""

import contextlib
import fcntl
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "clients"
NODE_MODULES = ROOT / "tests" / "interop" / "node_modules"
BUILD_LIMIT_S = 1200.0  # Helm is large
REPLY_LIMIT_S = 40.0
STOP_LIMIT_S = 10.0
MAVEN = ("mvn", "-q", "-B", "-ntp", "-Dbuild.folder={out}", "compile")


class BuildError(Exception):
    """The program could not be built: what was run, and the end of what it printed."""


class ClientError(Exception):
    """What the client was told, by the peer or by its library.

    condition  of AMQP, or None
    """

    def __init__(self, condition: str | None, description: str | None) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a program is made and started. `{out}` is the folder of what was built, `{source}` the program's own.

    tools        program -> Debian package
    environment  besides the tests' own
    """

    tools: Mapping[str, str]
    build: Sequence[str]
    start: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


MAVEN_TOOLS = {"mvn": "maven", "javac": "openjdk-17-jdk-headless", "java": "openjdk-17-jre-headless"}
JAVA = ("java", "-XX:+UseSerialGC", "-cp", "{out}/classes:{out}/lib/*", "Client")
RECIPES: Mapping[str, Recipe] = {
    "rhea": Recipe(
        tools={"node": "nodejs"},
        build=(),
        start=("node", "{source}/client.js"),
        environment={"NODE_PATH": str(NODE_MODULES)},
    ),
    "goamqp": Recipe(
        tools={"go": "golang (1.26 or newer)"},
        build=("go", "build", "-trimpath", "-o", "{out}/client", "."),
        start=("{out}/client",),
    ),
    # No client: it renders deploy/chart.
    "helm": Recipe(
        tools={"go": "golang (1.26 or newer)"},
        build=("go", "build", "-ldflags=-s", "-o", "{out}/helm", "helm.sh/helm/v3/cmd/helm"),
        start=("{out}/helm",),
    ),
    "qpidjms": Recipe(tools=MAVEN_TOOLS, build=MAVEN, start=JAVA),
    "protonj2": Recipe(tools=MAVEN_TOOLS, build=MAVEN, start=JAVA),
    "fe2o3": Recipe(
        tools={"cargo": "cargo (1.85 or newer)"},
        build=("cargo", "build", "--quiet", "--locked", "--target-dir", "{out}"),
        start=("{out}/debug/client",),
    ),
    "oslo": Recipe(
        tools={},
        build=(
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--target",
            "{out}",
            "-r",
            "{source}/requirements.txt",
        ),
        start=(sys.executable, "-W", "ignore", "{source}/client.py"),
        environment={"PYTHONPATH": str(CACHE / "oslo")},
    ),
}


def built(name: str, require_tool: Callable[[str, str], Path]) -> list[str]:
    """The command that starts a program, which is built unless its sources are those of the last build.

    BuildError with the command and the last lines of its output.
    """
    recipe = RECIPES[name]
    tools = {program: require_tool(program, package) for program, package in recipe.tools.items()}
    if name == "rhea" and not (NODE_MODULES / "rhea").is_dir():
        raise BuildError("rhea is not installed: npm ci --prefix tests/interop (`make test` does it)")
    out = CACHE / name
    fill = {"out": out, "source": HERE / name}

    def command(words: Sequence[str]) -> list[str]:
        first, *others = (word.format(**fill) for word in words)
        return [str(tools.get(first, first)), *others]

    if recipe.build:
        out.mkdir(parents=True, exist_ok=True)
        # Several test processes may come here at once.
        with (CACHE / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stamp = out / "built-from"
            sources = digest(HERE / name)
            if not stamp.is_file() or stamp.read_text() != sources:
                build(name, command(recipe.build))
                stamp.write_text(sources)
    return command(recipe.start)


def digest(folder: Path) -> str:
    """Of the names and contents of a folder's files."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def build(name: str, command: Sequence[str]) -> None:
    """Run the build in the program's folder, for at most BUILD_LIMIT_S."""
    shown = f"the client program tests/clients/{name} is not built: {' '.join(command)}"
    # Registries are asked by the build tool, which keeps what it got outside the checkout.
    process = subprocess.Popen(
        command,
        cwd=HERE / name,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        raise BuildError(f"{shown}: it took longer than {BUILD_LIMIT_S:.0f} s") from None
    if process.returncode != 0:
        raise BuildError(f"{shown}: status {process.returncode}\n" + "\n".join(printed.splitlines()[-30:]))


@dataclass(slots=True)
class Program:
    """A client program that runs."""

    name: str
    process: "subprocess.Popen[str]"
    replies: "queue.Queue[str | None]" = field(default_factory=queue.Queue)
    stderr: list[str] = field(default_factory=list)

    def ask(self, op: str, **members: Any) -> dict[str, Any]:
        """One request and its reply; ClientError when the reply is one. Fails when none comes in REPLY_LIMIT_S."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **members}) + "\n")
        self.process.stdin.flush()
        try:
            line = self.replies.get(timeout=REPLY_LIMIT_S)
        except queue.Empty:
            line = None
        if line is None:
            last = "\n".join(self.stderr[-20:])
            raise AssertionError(f"{self.name} did not answer {op} {members}:\n{last}")
        reply: dict[str, Any] = json.loads(line)
        if error := reply.get("error"):
            raise ClientError(error.get("condition"), error.get("description"))
        return reply

    def read_replies(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.replies.put(line)
        self.replies.put(None)

    def read_errors(self) -> None:
        assert self.process.stderr is not None
        self.stderr.extend(line.rstrip() for line in self.process.stderr)


@contextlib.contextmanager
def running(name: str, command: Sequence[str]) -> Iterator[Program]:
    """The program until the end of the body; it ends when its stdin does."""
    process = subprocess.Popen(
        command,
        env=os.environ | RECIPES[name].environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    program = Program(name, process)
    readers = [threading.Thread(target=read, daemon=True) for read in (program.read_replies, program.read_errors)]
    for reader in readers:
        reader.start()
    try:
        yield program
    finally:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join(STOP_LIMIT_S)
