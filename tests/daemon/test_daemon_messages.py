"""`qdsend` and `qdreceive` against a running router. There was no installed command for a first test message."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from daemon_process import LISTENER, ROOT, Daemon, Ran, start, write_users
from process_log import PATIENCE_S

from policy.printing import printable

pytestmark = pytest.mark.interop

POLICY = """
policy {
    enableVhostPolicy: yes
    defaultVhost: v
}
vhost {
    hostname: v
    groups: {
        all: {
            users: alice
            remoteHosts: *
            sources: orders
            targets: orders
        }
    }
}
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("router")
    sasl = write_users(folder, {"alice": "wonderland"})
    (folder / "password").write_text("wonderland\n")
    closed = LISTENER.replace("name: plain", "name: closed").replace("ANONYMOUS", "PLAIN")
    closed = closed.replace("authenticatePeer: no", "authenticatePeer: yes\n    policyVhost: v")
    made = start(folder, f"router {{\n id: R\n saslConfigDir: {sasl}\n}}\n{closed}{POLICY}{LISTENER}")
    made.port("closed")
    yield made
    made.end()


def begun(tool: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"router.tools.{tool}", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ended(process: "subprocess.Popen[str]", text: str = "") -> Ran:
    out, err = process.communicate(text, timeout=PATIENCE_S)
    return Ran(process.returncode, out, err)


def access(router: Daemon, address: str) -> list[str]:
    place = f"127.0.0.1:{router.port('closed')}/{address}"
    return ["-b", place, "--sasl-username", "alice", "--sasl-password-file", str(router.folder / "password")]


def test_a_user_sends_and_receives(router: Daemon) -> None:
    """More messages than the credit of a receiver, and than are on their way at once."""
    at = access(router, "orders")
    receiver = begun("qdreceive", *at, "-c", "250", "--wait", str(PATIENCE_S))
    sender = begun("qdsend", *at, "-c", "250", "--body", "order", "-t", str(PATIENCE_S))
    assert ended(sender) == Ran(0, "250 messages to orders accepted\n", "")
    assert ended(receiver) == Ran(0, "".join(f"order {number}\n" for number in range(1, 251)), "")


def test_what_policy_refuses_is_said(router: Daemon) -> None:
    for tool, end in (("qdsend", "sender to secret"), ("qdreceive", "receiver of secret")):
        ran = ended(begun(tool, *access(router, "secret")))
        assert ran.status == 1
        assert f"closed the {end}: amqp:unauthorized-access" in ran.out


def test_lines_are_messages_and_a_terminal_obeys_none(router: Daemon) -> None:
    """Attack: a message with control characters, printed on a terminal."""
    at = access(router, "orders")
    receiver = begun("qdreceive", *at, "-c", "2", "-v")
    sender = begun("qdsend", *at, "--stdin", "--subject", "news", "--durable", "-t", str(PATIENCE_S))
    assert ended(sender, "first\n\x1b[2Jsecond\n").status == 0
    assert ended(receiver).out == f"subject=news first\nsubject=news {printable(chr(27))}[2Jsecond\n"


def test_waiting_has_an_end(router: Daemon) -> None:
    at = access(router, "orders")
    ran = ended(begun("qdsend", *at, "-t", "0.5"))
    assert (ran.status, "is there a receiver?" in ran.out) == (1, True)
    ran = ended(begun("qdreceive", *at, "--wait", "0.2"))
    assert (ran.status, "waited for a message" in ran.out) == (1, True)
    assert ended(begun("qdreceive", *at, "--wait", "0.2", "-c", "0")) == Ran(0, "", "")


def test_an_address_is_wanted(router: Daemon) -> None:
    ran = ended(begun("qdsend", "-b", f"127.0.0.1:{router.port()}"))
    assert (ran.status, "which address?" in ran.err) == (2, True)
