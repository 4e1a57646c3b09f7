"""Attack: a policyDir that is written to take the router's memory, its time, or its later changes.

A user who may write one tenant's file can put anything in its place. Whatever is there, the rules in force stay, and
the failure is logged, counted and recorded. The next change takes effect as soon as the folder can be used again.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import Daemon, Started, audit_events, eventually

CONFIGURATION = """
router {{
    id: reading
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    policyDirWatchSeconds: {watch}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""
FAILED = r"POLICY \(error\) Reload of policyDir failed, the rules in force stay: "
# A router that reads what it should not is stopped here; without the attack it takes a fifth of it.
MEMORY_BYTES = 1 << 30
# Half of what a reader that hangs may take.
AT_ONCE_S = 60


def vhost(name: str) -> list[Any]:
    groups = {
        "$default": {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
    }
    return ["vhost", {"hostname": name, "groups": groups}]


def started(tmp_path: Path, daemon: Started, *, watch: int = 1, **options: Any) -> Daemon:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "all.json").write_text(json.dumps([vhost("$default")]))
    return daemon(CONFIGURATION.format(folder=tmp_path, watch=watch), **options)


def change(tmp_path: Path, name: str) -> None:
    """The folder gets one more vhost."""
    (tmp_path / "policy" / "more.json").write_text(json.dumps([vhost(name)]))


def link_to(path: str) -> Callable[[Path], None]:
    return lambda place: place.symlink_to(path)


def sparse(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(10 << 30)


def nested(place: Path) -> None:
    place.write_text("[" * 5_000_000)


def many(place: Path) -> None:
    content = place.parent.parent / "content"
    content.write_text("[]")
    for number in range(21_000):
        os.symlink(content, place.parent / f"{number}.json")


def large_together(place: Path) -> None:
    content = place.parent.parent / "content"
    content.write_text("[" + " " * (1 << 20) + "]")
    for number in range(100):
        os.symlink(content, place.parent / f"{number}.json")


def fifo_elsewhere(place: Path) -> None:
    os.mkfifo(place.parent.parent / "x")
    place.symlink_to("../x")


ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "zero": (link_to("/dev/zero"), r"cannot be read: not a regular file"),
    "a terminal": (link_to("/dev/tty"), r"cannot be read: (not a regular file|No such device)"),
    "a FIFO": (os.mkfifo, r"cannot be read: not a regular file"),
    "a link to a FIFO": (fifo_elsewhere, "not a reg"),
    "10 GB": (sparse, r"cannot be read: larger than 16 MiB"),
    "100 MB in sum": (large_together, r"cannot be read: its policy files have more than 16 MiB together"),
    "21,000 files": (many, r"cannot be read: it has more than 20000 policy files"),
    "deep nesting": (nested, r"nested deeper than 32 levels"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_lies_in_the_folder_holds_up_nothing(attack: str, tmp_path: Path, daemon: Started) -> None:
    make, why = ATTACKS[attack]
    router = started(tmp_path, daemon)
    began = time.monotonic()
    make(tmp_path / "policy" / "x.json")
    router.wait_for_log(FAILED + ".*" + why)
    assert time.monotonic() - began < AT_ONCE_S
    assert largest_reader(router) < MEMORY_BYTES
    (event,) = eventually(lambda: audit_events(tmp_path / "audit"))
    assert (event["stage"], event["decision"], event["reason"]) == ("policy", "deny", "invalid_policy")
    with router.client() as client:
        names = ["policyChanges", "policyChangeFailures"]
        (policy,) = client.query("org.apache.qpid.dispatch.policy", names).entities()
        assert (policy["policyChanges"], policy["policyChangeFailures"]) == (0, 1)
    for path in (tmp_path / "policy").iterdir():
        if path.name != "all.json":
            path.unlink()
    change(tmp_path, "later")
    router.wait_for_log(r"Reload of policyDir: 1 vhosts created, 0 updated, 0 deleted")


def largest_reader(router: Daemon) -> int:
    """Bytes that the router itself has taken at most."""
    status = Path(f"/proc/{router.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def test_mounted_configuration_is_read(tmp_path: Path, daemon: Started) -> None:
    """A ConfigMap: each file is a link into a folder that is itself a link, exchanged as a whole."""
    router = started(tmp_path, daemon)
    folder = tmp_path / "policy"
    (folder / "..1").mkdir()
    (folder / "..1" / "more.json").write_text(json.dumps([vhost("mounted")]))
    (folder / "..data").symlink_to("..1")
    (folder / "more.json").symlink_to("..data/more.json")
    router.wait_for_log(r"Reload of policyDir: 1 vhosts created, 0 updated, 0 deleted")


# Runs in every Python of the router: a disk that does not answer as long as there is the file `hangs`, and a reader
# that never ends where there was a file `sleeps` when it began, which it renames to `asleep`.
HANGING = """
import os, sys, time

def hanging(call):
    def called(*arguments):
        while os.path.exists({hangs!r}) and str(arguments[0]) == {folder!r}:
            time.sleep(0.05)
        return call(*arguments)
    return called

os.scandir, os.listdir = hanging(os.scandir), hanging(os.listdir)
if "router.control.policy_reader" in sys.orig_argv and os.path.exists({sleeps!r}):
    os.rename({sleeps!r}, {asleep!r})
    time.sleep(3600)
"""


def with_hanging_disk(tmp_path: Path, daemon: Started, *, watch: int) -> Daemon:
    own = tmp_path / "python"
    own.mkdir()
    names = {"hangs": "hangs", "sleeps": "sleeps", "asleep": "asleep", "folder": "policy"}
    places = {key: str(tmp_path / name) for key, name in names.items()}
    (own / "sitecustomize.py").write_text(HANGING.format(**places))
    return started(tmp_path, daemon, watch=watch, environment={"PYTHONPATH": str(own)})


def test_a_disk_that_hangs_keeps_no_later_signal_out(tmp_path: Path, daemon: Started) -> None:
    router = with_hanging_disk(tmp_path, daemon, watch=1)
    (tmp_path / "hangs").touch()
    change(tmp_path, "later")
    router.signal(signal.SIGHUP)
    eventually(lambda: readers(router))
    router.signal(signal.SIGHUP)
    router.wait_for_log(FAILED + "it is being read anew, the read under way took more than 5 s")
    (tmp_path / "hangs").unlink()
    router.wait_for_log(r"Reload of policyDir: 1 vhosts created, 0 updated, 0 deleted")
    router.wait_for_log(r"SERVER \(notice\) Reload on SIGHUP finished")


@pytest.mark.parametrize("watch", [0, 1])
def test_the_router_ends_while_a_disk_hangs(watch: int, tmp_path: Path, daemon: Started) -> None:
    router = with_hanging_disk(tmp_path, daemon, watch=watch)
    (tmp_path / "hangs").touch()
    router.signal(signal.SIGHUP)
    with router.client() as client:
        client.query("org.apache.qpid.dispatch.policy")  # the signal has been taken, and holds nobody up
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


def test_a_changed_folder_ends_a_read_that_hangs(tmp_path: Path, daemon: Started) -> None:
    router = with_hanging_disk(tmp_path, daemon, watch=1)
    (tmp_path / "sleeps").touch()
    change(tmp_path, "one")
    eventually((tmp_path / "asleep").exists)
    reader = readers(router)
    began = time.monotonic()
    change(tmp_path, "two")
    router.wait_for_log(FAILED + "it is being read anew")
    router.wait_for_log(r"Reload of policyDir: 1 vhosts created, 0 updated, 0 deleted")
    assert time.monotonic() - began < AT_ONCE_S
    assert not set(reader) & set(readers(router))


def readers(router: Daemon) -> list[int]:
    """The processes that the router has begun, and that have not ended."""
    children = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text()
    return [int(each) for each in children.split()]
