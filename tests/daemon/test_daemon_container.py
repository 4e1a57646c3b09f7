"""qdrouterd-entry becomes a router whose users come from a folder."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import Started

pytestmark = pytest.mark.interop

ENTRY = (sys.executable, "-m", "router.entry.container")
CONFIGURATION = """
router {
    id: ${ROUTER_NAME}
}
listener {
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: SCRAM-SHA-256 PLAIN
}
# That of a health check: the router did not start, since the users left no room for ANONYMOUS.
listener {
    name: health
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
"""


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """In memory, where /dev/shm is."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_a_user_of_the_folder_logs_in(daemon: Started, run_dir: Path, tmp_path: Path) -> None:
    """The process is the router itself: it gets the signals, and its arguments and files have no password."""
    users = tmp_path / "sasl-users"
    users.mkdir()
    (users / "admin").write_text("correct horse\n")
    router = daemon(
        CONFIGURATION,
        *("--run-dir", str(run_dir), "--users", str(users)),
        command=ENTRY,
        environment={"ROUTER_NAME": "mesh-0", "APPLICATION_NAME": "mesh"},
    )
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("correct horse")
    wrong.write_text("battery staple")

    def login(user: str, password: Path) -> tuple[int, str]:
        mechanism = ("--sasl-mechanisms", "SCRAM-SHA-256")
        ran = router.tool("qdstat", "-g", *mechanism, "--sasl-username", user, "--sasl-password-file", str(password))
        return ran.status, ran.out

    status, shown = login("admin@mesh", secret)
    assert (status, "mesh-0" in shown) == (0, True)
    assert login("admin", secret)[0] == 1
    assert login("admin@mesh", wrong)[0] == 1
    assert router.tool("qdstat", "--check", name="health").status == 0
    arguments = Path(f"/proc/{router.process.pid}/cmdline").read_bytes()
    assert b"router.io.daemon" in arguments
    assert b"correct horse" not in arguments
    assert not router.log("correct horse")
    router.process.terminate()
    assert router.wait() == 0
