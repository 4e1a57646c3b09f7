"""Run the test suites one after the other and see to it that they leave no process and no file behind.

`python tests/run_suites.py [unit|slow|interop|timing|clients|brokers|spark|packaging|asan ...]`, all of them
when none is named. Exit status 0 only when every suite passed, none was empty, no process survived and the checkout is
as it was.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Suite -> what selects it, for pytest. The fastest first: it fails soonest. `slow` is what tries very many inputs;
# `timing` is the part of interop that measures how long somebody waits, with fewer tests at a time. To collect every
# test and leave most out takes each worker 6 s of processor time, two thirds of it for nothing: where a suite's tests
# can be is named here, and tests/conftest.py refuses one that is marked with a suite which would not find it.
ONE_FOLDER = ("clients", "brokers", "spark", "packaging", "asan")
INTEROP_FOLDERS = ("interop", "daemon", "attacks")
INTEROP = (*INTEROP_FOLDERS, "auth/test_scram_with_cyrus.py", "audit/test_trail_at_full_speed.py")
PEERS = [f"tests/{place}" for place in INTEROP]
ELSEWHERE = [f"--ignore=tests/{folder}" for folder in (*INTEROP_FOLDERS, *ONE_FOLDER)]
ANY_WORKER = ["-n", "auto", "--dist", "worksteal"]
A_FILE_EACH = ["-n", "auto", "--dist", "loadfile"]  # what is costly to set up is set up once for a file
A_GROUP_EACH = ["-n", "auto", "--dist", "loadgroup"]  # a worker starts the client programs that it has the tests of
# Against peers a test waits more than it computes.
MORE_WORKERS = ["-n", str((os.cpu_count() or 1) + 4), "--dist", "worksteal"]
SUITES = {
    "unit": [*ANY_WORKER, *ELSEWHERE, "-m", "not interop and not slow"],
    "slow": [*ANY_WORKER, *ELSEWHERE, "-m", "not interop and slow"],
    "interop": [*MORE_WORKERS, *PEERS, "-m", "interop and not timing"],
    "timing": [*ANY_WORKER, *PEERS, "-m", "timing"],
    "clients": [*A_GROUP_EACH, "tests/clients"],
    "brokers": [*A_FILE_EACH, "tests/brokers"],
    "spark": [*A_FILE_EACH, "tests/spark"],
    "packaging": [*A_FILE_EACH, "tests/packaging"],
    "asan": [*ANY_WORKER, "tests/asan"],
}
# What the suite `clients` builds and runs, with the Debian packages: without them its tests are skipped by name, and
# fail where PALISADE_REQUIRE_ALL is set.
CLIENT_TOOLS = {
    "node": "nodejs",
    "npm": "npm",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang (1.26 or newer)",
    "cargo": "cargo (1.85 or newer)",
}
# Images for containers set this. Each worker would compile every test again (9 s of processor time), and each daemon
# that a test starts the whole router (1.2 s).
UNSET = ("PYTHONDONTWRITEBYTECODE",)
PR_SET_CHILD_SUBREAPER = 36
# A daemon that was told to stop may still be writing its last log line when pytest ends.
GRACE_S = 3.0


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in SUITES]:
        print(f"No suite called {', '.join(unknown)}: choose from {', '.join(SUITES)}")
        return 2
    missing = [package for program, package in CLIENT_TOOLS.items() if shutil.which(program) is None]
    if missing and "clients" in (names or SUITES):
        print(f"Not every client can be tested on this machine: apt-get install {', '.join(missing)}")
    # Orphans of a test become our children, so that they can be found afterwards.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = tree_state()
    results: list[tuple[str, str, float]] = []
    for name in names or SUITES:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="palisade-test-", ignore_cleanup_errors=True) as scratch:
            problem = run_suite(name, scratch)
        results.append((name, problem, time.monotonic() - started))
    changed = tree_state() ^ before
    print()
    for name, problem, seconds in results:
        print(f"{name:10} {problem or 'passed':40} {seconds:6.1f} s")
    for line in sorted(changed):
        print(f"The tests changed the checkout: {line}")
    return 1 if changed or any(problem for _, problem, _ in results) else 0


def run_suite(name: str, scratch: str) -> str:
    """Run one suite with `scratch` as its temporary folder; "" when all is well, else what is wrong."""
    print(f"\n== {name}", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in UNSET} | {
        "TMPDIR": scratch,
        # The JVM asks no TMPDIR, and keeps its performance counters in /tmp unless told not to.
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData",
    }
    command = [sys.executable, "-m", "pytest", "-q", *SUITES[name]]
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    survivors = surviving_processes()
    for pid, command_line in survivors.items():
        print(f"Left running: {pid} {command_line}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if status == 5:
        return "no test was selected"
    if status != 0:
        return f"failed (pytest exit status {status})"
    return "left processes running" if survivors else ""


def surviving_processes() -> dict[int, str]:
    """Command lines by pid of what still lives below this process once GRACE_S is over."""
    deadline = time.monotonic() + GRACE_S
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        if not pids or time.monotonic() > deadline:
            return {int(pid): command_line(pid) for pid in pids}
        time.sleep(0.05)


def command_line(pid: str) -> str:
    """Arguments of a process, blank-separated; "" when it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def tree_state() -> set[str]:
    """The changed or new files of the checkout, by git; empty outside a git checkout."""
    result = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=False)
    return set(result.stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
