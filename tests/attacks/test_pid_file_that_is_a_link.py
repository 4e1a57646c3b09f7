"""Attack: a user who may write to the folder of the pid file puts a link there, and root writes through it.

`qdrouterd -d -P /run/ours/pid` wrote its process id over the file that the link names, even /etc/passwd. Now a link, or
a file that is not a pid file of ours, stays as it is, and the router does not start. An old pid file of ours is
replaced.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, eventually, run, write_configuration


def start(folder: Path, pidfile: Path) -> tuple[int, str]:
    ran = run("-d", "-c", str(write_configuration(folder, LISTENER)), "-P", str(pidfile))
    return ran.status, ran.err


@pytest.fixture(autouse=True)
def _nothing_stays_running(tmp_path: Path) -> Iterator[None]:
    """Of a router that starts although it should not, too."""
    yield
    for path in tmp_path.glob("*"):
        text = path.read_text() if path.is_file() else ""
        commands = [Path(f"/proc/{text.strip()}/cmdline")] if text.strip().isdigit() else []
        if any(command.exists() and str(tmp_path) in command.read_text() for command in commands):
            os.kill(int(text), signal.SIGKILL)


def stop(pidfile: Path) -> None:
    pid = int(pidfile.read_text())
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie: its parent is the test run, which waits for it when the suite is over."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("content", ["root:x:0:0\n", "4711\n", ""])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_file_is_written_through_a_link(link: object, content: str, tmp_path: Path) -> None:
    theirs, pidfile = tmp_path / "passwd", tmp_path / "pid"
    theirs.write_text(content)
    assert callable(link)
    link(theirs, pidfile)
    status, error = start(tmp_path, pidfile)
    assert theirs.read_text() == content
    assert status == 1
    assert f"Can't write pidfile {pidfile}: " in error


def test_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    pidfile.symlink_to(tmp_path / "cron")
    status, error = start(tmp_path, pidfile)
    assert (status, (tmp_path / "cron").exists()) == (1, False)
    assert error.endswith("it is a symbolic link\n")


@pytest.mark.parametrize("content", ["# a configuration\n", "1\n2\n", "1" * 40])
def test_a_file_that_is_no_pid_file_stays(content: str, tmp_path: Path) -> None:
    pidfile = tmp_path / "router.conf"
    pidfile.write_text(content)
    status, error = start(tmp_path, pidfile)
    assert pidfile.read_text() == content
    assert status == 1
    assert error.endswith("the file holds something else than a process id\n")


def test_a_fifo_does_not_hold_up_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    status, error = start(tmp_path, tmp_path / "pid")
    assert status == 1
    assert error.endswith("it is no regular file\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_stays(tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    pidfile.write_text("4711\n")
    os.chown(pidfile, 12345, 12345)
    status, error = start(tmp_path, pidfile)
    assert (status, pidfile.read_text()) == (1, "4711\n")
    assert error.endswith("the file belongs to another user\n")


@pytest.mark.parametrize("content", [None, "", "4711\n", "4711"])
def test_a_pid_file_of_ours_is_replaced_as_a_whole(content: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    pidfile = folder / "pid"
    if content is not None:
        pidfile.write_text(content)
        pidfile.chmod(0o666)
    reader = pidfile.open() if content is not None else None
    assert start(tmp_path, pidfile) == (0, "")
    if reader is not None:
        with reader:
            assert reader.read() == content  # the old file is another one
    assert list(folder.iterdir()) == [pidfile]
    assert pidfile.stat().st_mode & 0o022 == 0
    stop(pidfile)


def test_a_relative_one_is_below_the_root_as_before(tmp_path: Path) -> None:
    relative = os.path.relpath(tmp_path / "pid", "/")
    ran = run("-d", "-c", str(write_configuration(tmp_path, LISTENER)), "-P", relative)
    assert (ran.status, ran.err) == (0, "")
    stop(tmp_path / "pid")
