"""policyDir watched: what counts as a change, and when it is acted upon. Issue 5. A look is a call: nothing waits."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from router.io.folder_watch import RETRY_LOOKS, TICK_NS, FolderWatch, scan
from router.management.config import is_policy_file

LATER_NS = time.time_ns() + 3600 * 10**9  # reading began long after every file was written


class Looking:
    def __init__(self, folder: Path, read_at_ns: int = LATER_NS) -> None:
        self.calls = 0
        self.is_read = True
        scanned = partial(scan, str(folder), is_policy_file)
        self.watch = FolderWatch(scanned, self.changed, read_at_ns=read_at_ns)

    async def changed(self) -> bool:
        self.calls += 1
        return self.is_read

    def look(self, times: int = 2) -> int:
        """How often it has called after so many looks."""

        async def looks() -> None:
            for _ in range(times):
                await self.watch.look()

        asyncio.run(looks())
        return self.calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_text("[]")
    return tmp_path


def test_what_stays_is_read_once(folder: Path) -> None:
    assert Looking(folder).look(5) == 0


def test_what_could_not_be_read_at_all_is_read_again_later(folder: Path) -> None:
    """A process that was killed, say: else the change would wait for the next, and a user who loses access keeps it."""
    looking = Looking(folder)
    looking.look()
    (folder / "a.json").write_text("[1]")
    looking.is_read = False
    assert looking.look() == 1
    assert looking.look(RETRY_LOOKS) == 1
    assert looking.look(1) == 2
    looking.is_read = True
    assert looking.look(RETRY_LOOKS + 1) == 3
    assert looking.look(3 * RETRY_LOOKS) == 3


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda folder: (folder / "a.json").write_text("[1]"),
    "of the same size": lambda folder: (folder / "a.json").write_text("{}"),
    "added": lambda folder: (folder / "b.json").write_text("[]"),
    "removed": lambda folder: (folder / "a.json").unlink(),
    "renamed over": lambda folder: (folder / "new").write_text("[]") and (folder / "new").rename(folder / "a.json"),
    "renamed": lambda folder: (folder / "a.json").rename(folder / "b.json"),
    "linked elsewhere": lambda folder: relink(folder),
    "folder gone": shutil.rmtree,
}


def relink(folder: Path) -> None:
    """As configuration that is mounted changes: the file is a link, and another one takes its place."""
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("[2]")
    (folder / "link").symlink_to(folder / "data" / "x")
    (folder / "link").rename(folder / "a.json")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_read_once_two_looks_have_seen_it(folder: Path, change: Callable[[Path], object]) -> None:
    looking = Looking(folder)
    looking.look(2)
    change(folder)
    assert looking.look(1) == 0
    assert looking.look(1) == 1
    assert looking.look(3) == 1


def test_a_file_with_its_old_time_and_size_is_another_file(folder: Path) -> None:
    """As `cp -p` and archives leave them."""
    looking = Looking(folder)
    looking.look(2)
    status = (folder / "a.json").stat()
    (folder / "a.json").write_text("{}")
    os.utime(folder / "a.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert looking.look(2) == 1


def test_a_file_that_is_being_written_is_waited_for(folder: Path) -> None:
    looking = Looking(folder)
    looking.look(2)
    for size in range(5):
        (folder / "a.json").write_text("[" + " " * size)
        assert looking.look(1) == 0
    assert looking.look(1) == 1


@pytest.mark.parametrize("name", [".a.json.swp", "a.json~", "#a.json#", "4913", "a.json.tmp", ".#a.json"])
def test_what_editors_leave_is_no_change(folder: Path, name: str) -> None:
    looking = Looking(folder)
    looking.look(2)
    (folder / name).write_text("x")
    assert looking.look(3) == 0


def test_a_folder_that_comes_back_is_read(folder: Path) -> None:
    looking = Looking(folder / "later")
    assert looking.look(2) == 0
    (folder / "later").mkdir()
    (folder / "later" / "a.json").write_text("[]")
    assert looking.look(2) == 1


def test_what_was_written_while_the_router_started_is_read_again(folder: Path) -> None:
    written_ns = (folder / "a.json").stat().st_ctime_ns
    assert Looking(folder, written_ns).look(3) == 1
    assert Looking(folder, written_ns + 2 * TICK_NS).look(3) == 0


def test_what_a_signal_has_read_is_not_read_again(folder: Path) -> None:
    looking = Looking(folder)
    looking.look(2)
    (folder / "a.json").write_text("[1]")
    asyncio.run(looking.watch.take())
    assert looking.look(3) == 0


def test_a_folder_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert scan(str(tmp_path / "none"), is_policy_file) is None
    assert scan(str(tmp_path), is_policy_file) == ()
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    assert scan(str(tmp_path), is_policy_file) is None  # reading it would fail too


def test_it_looks_on_until_it_is_cancelled(folder: Path) -> None:
    async def run() -> int:
        looking = Looking(folder)
        task = asyncio.get_running_loop().create_task(looking.watch.run(0, lambda fault: pytest.fail(str(fault))))
        while not looking.watch._taken:
            await asyncio.sleep(0)
        (folder / "a.json").write_text("[1]")
        while not looking.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return looking.calls

    assert within(run()) == 1


def test_a_fault_of_ours_is_told_and_it_looks_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> int:
        looking = Looking(folder)
        faults: list[Exception] = []

        async def look(_every_s: float) -> None:
            raise RuntimeError

        monkeypatch.setattr(looking.watch, "look", look)
        task = asyncio.get_running_loop().create_task(looking.watch.run(0, faults.append))
        while len(faults) < 2:
            await asyncio.sleep(0)
        task.cancel()
        return len(faults)

    assert within(run()) >= 2


def within(work: Coroutine[Any, Any, int]) -> int:
    async def limited() -> int:
        return await asyncio.wait_for(work, 20)

    return asyncio.run(limited())
