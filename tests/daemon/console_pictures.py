"""Makes pictures of every page of the console, at three widths and in both themes: `make pictures`.

They show three routers, an edge, two brokers with the same name, and clients that send. They are for people to look at.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "daemon"), str(TESTS / "interop")]

from daemon_process import ROOT, Daemon, eventually, start  # noqa: E402
from joined_routers import router_network  # noqa: E402
from proton import Message, Timeout  # noqa: E402
from proton.utils import BlockingConnection, SendException  # noqa: E402

DRIVER = ROOT / "router" / "web" / "console" / "tests" / "browser.mjs"
WIDTHS = {390: 844, 1440: 900, 2560: 1440}
PAGES = {
    "overview": "",
    "topology": "",
    "entities": "/router.link",
    "charts": "",
    "policy": "",
    "logs": "",
    "schema": "/listener",
}
CLIENTS = {"shop": 12, "billing": 4, "sensor": 30}
PERIOD_S = 0.02
SETTLED_MS = 6_000
EDGE_LISTENER = "listener {\n name: edges\n host: 127.0.0.1\n port: 0\n role: edge\n}\n"
WEB_LISTENER = "listener {\n name: web\n host: 127.0.0.1\n port: 0\n http: yes\n saslMechanisms: ANONYMOUS\n}\n"
# The clients that only stay connected answer no heartbeat.
CLIENT_LISTENER = (
    "listener {\n name: clients\n host: 127.0.0.1\n port: 0\n saslMechanisms: ANONYMOUS\n idleTimeoutSeconds: 0\n}\n"
)
BAN = "ban {\n name: thief\n remoteHost: 203.0.113.9\n reason: too many logins\n}\n"


@contextmanager
def example(folder: Path) -> Iterator[Daemon]:
    """Starts a network with traffic; yields the router that serves the console."""
    with ExitStack() as ending:
        network = ending.enter_context(router_network(folder, "A", "B", "C"))
        brokers = [
            start(made(folder / name), f"router {{\n id: artemis\n}}\n{CLIENT_LISTENER}") for name in ("b1", "b2")
        ]
        for broker in brokers:
            ending.callback(broker.end)
        target = "connector {{\n name: broker{}\n host: 127.0.0.1\n port: {}\n role: route-container\n}}\n"
        connectors = "".join(target.format(at, each.port("clients")) for at, each in enumerate(brokers))
        dead = "connector {\n name: archive\n host: 127.0.0.1\n port: 1\n role: route-container\n}\n"
        network.start("A", extra=CLIENT_LISTENER + EDGE_LISTENER + WEB_LISTENER + connectors + dead + BAN)
        network.start("B", "A", extra=CLIENT_LISTENER)
        network.start("C", "A", "B", terms="cost: 3")
        network.settle("A", "B", "C")
        router = network.routers["A"]
        port = router.port("edges")
        uplink = f"connector {{\n name: up\n host: 127.0.0.1\n port: {port}\n role: edge\n}}\n"
        edge = start(made(folder / "edge"), f"router {{\n mode: edge\n id: E1\n}}\n{CLIENT_LISTENER}{uplink}")
        ending.callback(edge.end)
        routers = [router, network.routers["B"], edge]
        connections = []
        for name, count in CLIENTS.items():
            for at in range(count):
                connection = BlockingConnection(
                    f"127.0.0.1:{routers[at % 3].port('clients')}",
                    container_id=f"{name}-{at}",
                    allowed_mechs="ANONYMOUS",
                )
                connections.append(connection)
                ending.callback(connection.close)
        stopping = threading.Event()
        for work, connection in ((keep_receiving, connections[1]), (keep_sending, connections[0])):
            thread = threading.Thread(target=work, args=(connection, stopping))
            thread.start()
            ending.callback(thread.join)
        ending.callback(stopping.set)
        yield router


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def keep_sending(connection: BlockingConnection, stopping: threading.Event) -> None:
    sender = connection.create_sender("orders.new")
    while not stopping.wait(PERIOD_S):
        with contextlib.suppress(SendException):  # until the other router knows the receiver
            sender.send(Message(body="x"))


def keep_receiving(connection: BlockingConnection, stopping: threading.Event) -> None:
    receiver = connection.create_receiver("orders.new", credit=100)
    while not stopping.is_set():
        with contextlib.suppress(Timeout):
            receiver.receive(timeout=1)
            receiver.accept()


def take(router: Daemon, chromium: str, target: Path, width: int, theme: str) -> None:
    port = router.wait_for_log(r"Listening for HTTP on 127\.0\.0\.1:(\d+)")[1]
    steps: list[dict[str, Any]] = [
        {"do": "open", "url": f"http://127.0.0.1:{port}/"},
        {"do": "wait", "selector": ".card"},
        {"do": "hash", "hash": "#/charts"},
        {"do": "wait", "selector": "form option", "text": "A"},
        {"do": "click", "selector": "form button", "text": "Add"},
        {"do": "run", "code": f"new Promise((done) => setTimeout(done, {SETTLED_MS}))"},
    ]
    for page, rest in PAGES.items():
        steps += [
            {"do": "hash", "hash": f"#/{page}{rest}"},
            {"do": "wait", "selector": "h1", "text": page.capitalize()},
            {"do": "wait", "selector": "main .card, main table, main .plot"},
            {"do": "run", "code": "new Promise((done) => setTimeout(done, 4000))"},
            {"do": "picture", "path": str(target / f"{page}-{width}-{theme}.png")},
        ]
    steps += [
        {"do": "hash", "hash": "#/entities/listener"},
        {"do": "wait", "selector": ".tools button", "text": "Create"},
        {"do": "click", "selector": ".tools button", "text": "Create"},
        {"do": "wait", "selector": "dialog form"},
        {"do": "picture", "path": str(target / f"form-{width}-{theme}.png")},
        {"do": "run", "code": "document.querySelector('dialog').close()"},
        {"do": "click", "selector": "header button", "text": "Log out"},
        {"do": "wait", "selector": ".login form"},
        {"do": "picture", "path": str(target / f"login-{width}-{theme}.png")},
    ]
    task = {"chromium": chromium, "width": width, "height": WIDTHS[width], "theme": theme, "steps": steps}
    ran = subprocess.run(["node", DRIVER], input=json.dumps(task), capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    if result["failure"] or result["errors"]:
        raise SystemExit(f"{result['failure']}\n{result['errors']}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Pictures of the console, for people to look at.")
    parser.add_argument("folder", type=Path, help="where they are written")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch, example(Path(scratch)) as router:
        with router.client() as client:
            assert eventually(lambda: len(client.query("router.node").rows) == 3)
        for width in WIDTHS:
            for theme in ("light", "dark"):
                take(router, chromium, options.folder, width, theme)
    print(f"{len(WIDTHS) * 2 * (len(PAGES) + 2)} pictures in {options.folder}")


if __name__ == "__main__":
    main()
