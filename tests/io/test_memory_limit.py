"""The least limit on the process's memory is found, and the log says where the budget does not fit."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from router.io.memory_limit import MemoryLimit, Shortage, least_limit, used_bytes, warning_of

GIB = 1024 * 1024 * 1024


def system(root: Path, groups: str, files: dict[str, str], total_kb: int = 64 * 1024 * 1024) -> Path:
    for name, text in {"proc/self/cgroup": groups, "proc/meminfo": f"MemTotal: {total_kb} kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "size"),
    [
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{GIB}\n"}, GIB),
        ("0::/a/b\n", {"sys/fs/cgroup/a/memory.max": f"{GIB}", "sys/fs/cgroup/a/b/memory.max": "max"}, GIB),
        ("0::/a\n", {"sys/fs/cgroup/memory.max": f"{GIB}", "sys/fs/cgroup/a/memory.max": f"{2 * GIB}"}, GIB),
        ("4:cpu,memory:/x\n0::/\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{GIB}"}, GIB),
        ("4:memory:/x\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 64 * GIB),
        ("nonsense\n", {}, 64 * GIB),
    ],
)
def test_the_least_limit_is_found(groups: str, files: dict[str, str], size: int, tmp_path: Path) -> None:
    limit = least_limit(system(tmp_path, groups, files))
    assert limit is not None
    assert (limit.size_bytes, limit.measure) == (size, "resident")


def test_limits_of_the_process_count(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "from router.io.memory_limit import least_limit, used_bytes; limit = least_limit();"
        "assert 0 < used_bytes(limit) < 1 << 30; print(limit.size_bytes, limit.what, limit.measure)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split() == [str(1 << 30), "RLIMIT_AS", "virtual"]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize(("size", "budget", "warns"), [(4, 1, False), (2, 1, True), (64, 0, True)])
def test_a_budget_that_does_not_fit_is_told(size: int, budget: int, warns: bool) -> None:
    limit = MemoryLimit(size_bytes=size * GIB, what="memory of the machine", measure="resident")
    text = warning_of(limit, budget * GIB)
    assert (text is not None) is warns
    assert text is None or str(limit.largest_budget_bytes) in text


def test_nothing_is_told_where_there_is_no_limit() -> None:
    assert warning_of(None, GIB) is None


def test_while_memory_is_short_one_connection_goes_each_second() -> None:
    limit = MemoryLimit(size_bytes=GIB, what="RLIMIT_AS", measure="virtual")
    said: list[str] = []
    used, names = [GIB // 2], ["C1", "C2"]
    shortage = Shortage(limit, lambda: names.pop(0) if names else None, said.append, lambda _limit: used[0])
    shortage.on_second(1.0)
    assert said == []
    used[0] = GIB - limit.least_free_bytes + 1
    shortage.on_second(2.0)
    assert len(said) == 1
    assert "connection C1, which holds most, is closed" in said[0]
    for _ in range(3):
        shortage.on_second(3.0)
    assert len(said) == 2
    assert names == []


def test_the_process_is_measured() -> None:
    for measure in ("resident", "virtual", "data"):
        assert used_bytes(MemoryLimit(size_bytes=GIB, what="", measure=measure)) > 1024 * 1024
