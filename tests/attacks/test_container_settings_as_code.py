"""Attack: whoever sets a variable of a container, or shares a volume of its pod, changes what the router is.

Where a script fills variables in as text, one with a line break in it adds a listener without TLS to the configuration.
A link in the volume for what is written leads the hashes of the users to another place.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import run_python

pytestmark = pytest.mark.interop

CONFIGURATION = "router {\n    id: ${ROUTER_NAME}\n}\n"
LISTENER = "A\n}\nlistener {\n    port: 0\n    authenticatePeer: no"


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """In memory, where /dev/shm is."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def enter(run_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[int, str]:
    monkeypatch.setenv("QDROUTERD_CONF", CONFIGURATION)
    monkeypatch.setenv("ROUTER_NAME", name)
    ran = run_python("-m", "router.entry.container", "--run-dir", str(run_dir), "--", "--check")
    return ran.status, ran.err


def test_a_variable_stays_one_value(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = enter(run_dir, monkeypatch, LISTENER)
    assert (status, "ROUTER_NAME has a line break" in said, "listener" in said) == (1, True, False)
    assert not (run_dir / "router" / "qdrouterd.conf").exists()
    assert enter(run_dir, monkeypatch, "A")[0] == 0


def test_a_folder_that_another_has_put_there_is_refused(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run_dir / "router").symlink_to(tmp_path)
    status, said = enter(run_dir, monkeypatch, "A")
    assert (status, "belongs to this user alone" in said) == (1, True)
    (run_dir / "router").unlink()
    (run_dir / "router").mkdir()
    (run_dir / "router").chmod(0o777)
    assert enter(run_dir, monkeypatch, "A")[0] == 1
    assert os.listdir(tmp_path) == os.listdir(run_dir / "router") == []
