"""The command line, start-up failures, daemon mode and signals of the real process. Management §2, items 2, 17-23."""

import ast
import os
import pwd
import re
import signal
import socket
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from daemon_process import (
    LISTENER,
    Daemon,
    eventually,
    run,
    run_configuration,
    run_python,
    run_tool,
    start,
    write_configuration,
)
from free_ports import free_port

from router.io import daemon as daemon_main
from router.io.options import parse

pytestmark = pytest.mark.interop

TIMESTAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4}"


@pytest.mark.parametrize("option", ["-v", "--version", "--vers"])
def test_version_is_one_line_on_stdout(option: str) -> None:
    """Management 17."""
    ran = run(option)
    assert (ran.status, ran.err) == (0, "")
    assert re.fullmatch(r"\S+\n", ran.out)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_on_stdout(option: str) -> None:
    """Management 17."""
    ran = run(option)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: ")
    assert " [OPTIONS]\n" in ran.out
    for word in ("--config", "--include", "--daemon", "--pidfile", "--user", "--test-hooks", "SIGHUP"):
        assert word in ran.out


def test_an_unknown_option_is_told_and_the_usage_shown() -> None:
    """Management 17."""
    ran = run("--nonsense")
    assert ran.status == 1
    assert "nonsense" in ran.err
    assert ran.out.startswith("Usage: ")


def test_a_missing_argument_is_told() -> None:
    ran = run("-c")
    assert ran.status == 1
    assert "-c" in ran.err
    assert ran.out.startswith("Usage: ")


def test_positional_arguments_are_refused() -> None:
    """Management 17."""
    ran = run("one", "two")
    assert ran.status == 1
    assert ran.err.startswith("Unexpected arguments: one two\n")
    assert ran.out.startswith("Usage: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "Not found: Configuration file could not be opened"),
        ("", "Configuration: Configuration file was empty"),
        (
            "router {\n mode: banana\n}\n",
            "Python: Exception: Cannot load configuration file {path}: org.apache.qpid.dispatch.router: "
            "Invalid value for enum",
        ),
        ("listener {\n port: 0\n nonsense: 1\n}\n", "Unknown attribute 'nonsense'"),
    ],
)
def test_a_failing_start_says_it_in_the_log_and_to_whoever_started_it(
    tmp_path: Path, text: str | None, error: str
) -> None:
    """Management 2, 21: a line of the log, and a plain line."""
    path = tmp_path / "broken.conf"
    if text is not None:
        path.write_text(text)
    ran = run("-c", str(path))
    assert ran.status == 1
    assert ran.out == ""
    logged, plain = ran.err.splitlines()
    expected = re.escape(error.format(path=path))
    assert re.match(rf"{TIMESTAMP} MAIN \(critical\) Router start-up failed: .*{expected}", logged)
    assert re.match(rf"\S+: .*{expected}", plain)
    assert "Traceback" not in ran.err


def test_a_fault_is_named_with_file_and_line(tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, "# a comment\nlistener {\n    port: 0\n    nonsense: 1\n}\n")
    assert f"{tmp_path}/qdrouterd.conf:4" in ran.err


@pytest.mark.parametrize(
    ("section", "error"),
    [
        ("listener {\n name: x\n port: 0\n saslPlugin: nobody\n}\n", "Run Time: Cannot find sasl plugin nobody"),
        ("listener {\n name: x\n port: 0\n sslProfile: nobody\n}\n", "no sslProfile named 'nobody'"),
        ("log {\n module: DEFAULT\n outputFile: /no/such/folder/x.log\n}\n", "Failed to open log file"),
        ("sslProfile {\n name: p\n password: env:NO_SUCH_VARIABLE_HERE\n}\n", "variable 'NO_SUCH_VARIABLE_HERE'"),
        ("router {\n auditDir: /dev/null/audit\n}\n", "auditDir"),
        ("router {\n saslConfigDir: /no/such/folder\n}\n", "/no/such/folder"),
        ("vhost {\n hostname: h\n maxConnections: -3\n}\n", "PolicyError: Policy 'h' is invalid"),
        ("policy {\n policyDir: /no/such/folder\n}\n", "/no/such/folder"),
    ],
)
def test_what_fails_while_it_is_applied_ends_the_start(tmp_path: Path, section: str, error: str) -> None:
    """Management 21; policy 5, of a vhost in the configuration."""
    ran = run_configuration(tmp_path, section)
    assert ran.status == 1, ran.err
    assert error in ran.err
    assert f"MAIN (critical) Router start-up failed: {ran.err.splitlines()[-1].partition(': ')[2]}" in ran.err


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ("auditMaxFileBytes: 1000", "auditMaxFileBytes must be 65536 to"),
        ("auditMaxFiles: 1", "auditMaxFiles must be 2 to"),
        ("auditMaxFiles: -1", "auditMaxFiles must be 2 to"),
        ("auditMaxBytes: 100000000", "auditMaxBytes must be 134217728 to"),
        ("auditMaxFileBytes: 65536\n auditMaxBytes: 100000", "auditMaxBytes must be 131072 to"),
        ("auditMaxAgeDays: 40000", "auditMaxAgeDays must be 1 to 36500"),
        ("auditMaxAgeDays: soon", "auditMaxAgeDays"),
    ],
)
def test_limits_of_the_audit_log_that_make_no_sense_end_the_start(tmp_path: Path, settings: str, error: str) -> None:
    ran = run_configuration(tmp_path, f"router {{\n auditDir: {tmp_path}/audit\n {settings}\n}}\n")
    assert ran.status == 1, ran.err
    assert error in ran.err
    assert not (tmp_path / "audit").exists()


def test_a_bad_vhost_in_policy_dir_ends_the_start(tmp_path: Path) -> None:
    """Policy 5: with the error's text, and the file it stands in."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "bad.json").write_text('[["vhost", {"hostname": "h", "maxConnections": -3}]]')
    ran = run_configuration(tmp_path, f"policy {{\n policyDir: {folder}\n}}\n" + LISTENER)
    assert ran.status == 1
    failed = [line for line in ran.err.splitlines() if "MAIN (critical) Router start-up failed: " in line]
    assert len(failed) == 1
    assert "PolicyError: Policy 'h' is invalid: " in failed[0]
    assert f"{folder}/bad.json:1" in failed[0]
    assert "Listening" not in ran.err


def test_a_listener_that_cannot_be_bound_ends_the_start(tmp_path: Path) -> None:
    """Management §1.5; routing 22: whichever it is, and whatever else is in the file"""
    others = LISTENER + f"connector {{\n name: c\n host: 127.0.0.1\n port: {free_port()}\n}}\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run_configuration(tmp_path, others + f"listener {{\n host: 127.0.0.1\n port: {port}\n}}\n")
    assert ran.status == 1
    assert f"SERVER (error) Listener error on 127.0.0.1:{port}: " in ran.err
    assert f"SERVER (critical) Shutting down, required listener failed 127.0.0.1:{port}" in ran.err


def test_old_command_lines_are_accepted(daemon: Callable[..., Daemon]) -> None:
    """Management 23; the pidfile means nothing in the foreground."""
    me = pwd.getpwuid(os.getuid()).pw_name
    router = daemon(LISTENER, "-I", "/usr/lib/qpid-dispatch/python", "-T", "-P", "/no/such/pid", "-U", me)
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_stop_is_graceful(daemon: Callable[..., Daemon], number: int) -> None:
    """Management 20."""
    router = daemon(LISTENER)
    with router.client() as client:
        client.query("router")
        router.signal(number)
        assert router.wait() == 0
    router.wait_for_log(r"SERVER \(info\) \[C\d+\] Closing connection on shutdown")
    router.wait_for_log(r"SERVER \(notice\) Shut Down")


def test_an_interrupt_ends_it_as_an_interrupt(daemon: Callable[..., Daemon]) -> None:
    """Management 20: a shell loop around the router must see it."""
    router = daemon(LISTENER)
    router.signal(signal.SIGINT)
    assert router.wait() == -signal.SIGINT
    router.wait_for_log(r"SERVER \(notice\) Shut Down")


def test_a_second_signal_does_not_disturb_the_stop(daemon: Callable[..., Daemon]) -> None:
    """Management §2.4."""
    router = daemon(LISTENER)
    with router.client():  # does not read its Close, so that the stop takes a while
        router.signal(signal.SIGTERM)
        router.wait_for_log("Closing connection on shutdown")
        while router.process.poll() is None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                router.signal(number)
            time.sleep(0.01)
    assert router.wait() == 0


def test_hangups_do_not_stop_it(daemon: Callable[..., Daemon]) -> None:
    """Management 20."""
    router = daemon(LISTENER)
    router.port()
    for _ in range(3):
        since = router.mark()
        router.signal(signal.SIGHUP)
        router.wait_for_log(r"Reload on SIGHUP finished", since)
    with router.client() as client:
        assert client.query("router").rows
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


def pid_of(pidfile: Path) -> int:
    text = pidfile.read_text()
    assert re.fullmatch(r"\d+\n", text)
    return int(text)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def end_daemon(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: not is_running(pid))


def test_a_daemon_returns_when_it_listens(tmp_path: Path) -> None:
    """Management 18: a relative path, a pid file, no output, its own session, a log for the owner's eyes."""
    port = free_port()
    log_file, pidfile = tmp_path / "router.log", tmp_path / "pid"
    write_configuration(
        tmp_path,
        f"listener {{\n host: 127.0.0.1\n port: {port}\n authenticatePeer: no\n}}\n"
        f"log {{\n module: DEFAULT\n enable: info+\n outputFile: {log_file}\n}}\n",
    )
    ran = run("-d", "-c", "qdrouterd.conf", "-P", str(pidfile), cwd=tmp_path)
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    pid = pid_of(pidfile)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        assert f"process ID {pid}" in log_file.read_text()
        assert os.getsid(pid) != os.getsid(0)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
        assert stat.S_IMODE(log_file.stat().st_mode) == 0o640
    finally:
        end_daemon(pid)
    assert "SERVER (notice) Shut Down" in log_file.read_text()
    assert pidfile.exists()


def test_a_daemon_that_fails_says_so_to_whom_started_it(tmp_path: Path) -> None:
    """Management 19."""
    write_configuration(tmp_path, "router {\n mode: banana\n}\n")
    ran = run("-d", "-c", "qdrouterd.conf", cwd=tmp_path)
    assert (ran.status, ran.out) == (1, "")
    assert re.fullmatch(r"\S+: Python: Exception: Cannot load configuration file \S+/qdrouterd.conf: .*\n", ran.err)


def test_a_daemon_whose_listener_fails_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        write_configuration(tmp_path, f"listener {{\n host: 127.0.0.1\n port: {port}\n}}\n")
        ran = run("-d", "-c", "qdrouterd.conf", cwd=tmp_path)
    assert ran.status == 1
    assert re.fullmatch(rf"\S+: .*127\.0\.0\.1:{port}.*\n", ran.err)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("-P", "/no/such/folder/pid"), "Can't write pidfile /no/such/folder/pid: No such file or directory"),
        (("-U", "no-such-user-here"), "Can't look up user no-such-user-here"),
    ],
)
def test_a_daemon_that_cannot_become_one_says_why(tmp_path: Path, options: tuple[str, ...], error: str) -> None:
    """Management §2.2."""
    write_configuration(tmp_path, LISTENER)
    ran = run("-d", "-c", "qdrouterd.conf", *options, cwd=tmp_path)
    assert (ran.status, ran.out) == (1, "")
    assert re.fullmatch(rf"\S+: {re.escape(error)}\n", ran.err)


BECOME = """
import os, sys
from router.io.process import daemonize
report = daemonize(pidfile=sys.argv[1], user="nobody")
text = repr((os.getresuid(), os.getresgid(), os.getgroups(), os.getpid()))
report(text)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_daemon_leaves_root_behind(tmp_path: Path) -> None:
    """Management 18: the user, its group and its groups, for good; the pid file is written before, as root."""
    pidfile = tmp_path / "pid"
    ran = run_python("-c", BECOME, str(pidfile))
    assert ran.status == 1  # what it reports is not "ok"
    users, groups, supplementary, pid = ast.literal_eval(ran.err.partition(": ")[2])
    nobody = pwd.getpwnam("nobody")
    assert users == (nobody.pw_uid,) * 3
    assert groups == (nobody.pw_gid,) * 3
    assert 0 not in supplementary
    assert pid_of(pidfile) == pid
    assert pidfile.stat().st_uid == 0


def test_a_file_of_comments_is_a_standalone_router(daemon: Callable[..., Daemon]) -> None:
    """Management 1."""
    router = daemon("# nothing\n")
    router.wait_for_log(r"SERVER \(info\) Container Name: Standalone_[A-Za-z0-9+_]{15}$")
    router.wait_for_log(r"ROUTER \(info\) Router started in Standalone mode")


def test_with_file_logging_nothing_is_printed(tmp_path: Path) -> None:
    """Management 22."""
    log_file, dump = tmp_path / "all.log", tmp_path / "dump"
    out = (tmp_path / "stdout").open("w+")
    router = start(
        tmp_path,
        f"router {{\n debugDumpFile: {dump}\n}}\nlog {{\n module: DEFAULT\n outputFile: {log_file}\n}}\n" + LISTENER,
        stdout=out,
    )
    try:
        assert eventually(lambda: log_file.exists() and "Listening on" in log_file.read_text())
        port = re.search(r"Listening on 127\.0\.0\.1:(\d+)", log_file.read_text())
        assert port is not None
        assert run_tool("qdstat", "-b", f"127.0.0.1:{port[1]}").status == 0
        router.signal(signal.SIGTERM)
        assert router.wait() == 0
    finally:
        router.end()
    out.seek(0)
    assert out.read() == ""
    assert eventually(lambda: router.has_ended)
    assert router.lines == []
    assert not dump.exists() or not dump.read_text()


def test_the_start_is_quick(daemon: Callable[..., Daemon]) -> None:
    """Listening within seconds, whatever the machine: an operator restarts under load."""
    began = time.monotonic()
    daemon(LISTENER).port()
    assert time.monotonic() - began < 10


def test_a_fault_of_our_own_while_loading_reaches_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --daemon the launching process would else only know that the daemon is gone."""

    def fail(*_: object, **__: object) -> None:
        raise LookupError("with a secret of the configuration")

    monkeypatch.setattr("router.io.daemon.load_config", fail)
    reported: list[str | None] = []

    def report(error: str | None, passed_over: Sequence[str] = ()) -> None:
        reported.append(error)

    assert daemon_main.run("r.conf", parse(["qdrouterd", "-c", "r.conf"]), report) == 1
    (text,) = reported
    assert text is not None
    assert text.startswith("Python: LookupError at ")
    assert "secret" not in text
