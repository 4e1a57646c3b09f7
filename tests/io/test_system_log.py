"""Log entries to the system's logger (router.io.system_log): a socket of the test stands in its place."""

import re
import socket
import syslog
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.control.logs import Logs
from router.io.system_log import SystemLog
from router.management.logrules import rules_from

PATIENCE_S = 30.0


@contextmanager
def logger(path: Path) -> Iterator[socket.socket]:
    """The system's logger, until the end of the body."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.settimeout(PATIENCE_S)
        made.bind(str(path))
        try:
            yield made
        finally:
            path.unlink()


def logs_to(path: Path) -> Logs:
    logs = Logs(SystemLog(str(path)))
    logs.use(rules_from([{"module": "SERVER", "enable": "trace+", "outputFile": "syslog", "includeTimestamp": True}]))
    return logs


def received(made: socket.socket) -> str:
    return made.recv(65536).decode()


def text_of(entry: str) -> str:
    return entry.partition("]: ")[2]


def test_the_system_log_gets_its_own_form(tmp_path: Path) -> None:
    """Management §3: facility daemon, no timestamp of ours, trace and debug as debug."""
    priorities = {
        "trace": syslog.LOG_DEBUG,
        "debug": syslog.LOG_DEBUG,
        "info": syslog.LOG_INFO,
        "notice": syslog.LOG_NOTICE,
        "warning": syslog.LOG_WARNING,
        "error": syslog.LOG_ERR,
        "critical": syslog.LOG_CRIT,
    }
    with logger(tmp_path / "log") as made:
        logs = logs_to(tmp_path / "log")
        for level, priority in priorities.items():
            logs.write("SERVER", level, "a\x00b")  # type: ignore[arg-type]
            opening = rf"<{syslog.LOG_DAEMON | priority}>\w{{3}} [ \d]\d \d\d:\d\d:\d\d qdrouterd\[\d+\]: "
            assert re.fullmatch(rf"{opening}SERVER \({level}\) a\\x00b", received(made))


def test_without_a_logger_entries_are_lost_and_it_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = logs_to(tmp_path / "log")
    for _ in range(3):
        logs.write("SERVER", "info", "nobody hears this")
        logs.write("AGENT", "error", "on stderr")
    said = [line for line in capsys.readouterr().err.splitlines() if "Cannot write" in line]
    assert said == ["Cannot write log output to 'syslog': [Errno 2] No such file or directory"]
    assert len(list(logs.ring.entries())) == 6  # GET-LOG still shows them
    with logger(tmp_path / "log") as made:
        logs.write("SERVER", "info", "now")
        assert text_of(received(made)) == "ERROR (warning) 3 log entries did not get to the system log"
        assert text_of(received(made)) == "SERVER (info) now"


def test_a_logger_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    """Attack: the C library's syslog() would wait, and with it every connection."""
    with logger(tmp_path / "log") as made:
        system_log = SystemLog(str(tmp_path / "log"))
        logs = Logs(system_log)
        logs.use(rules_from([{"module": "DEFAULT", "outputFile": "syslog"}]))

        def flood() -> None:
            while not system_log.lost:
                logs.write("SERVER", "info", "x" * 2000)

        flooding = threading.Thread(target=flood, daemon=True)
        flooding.start()
        flooding.join(PATIENCE_S)
        assert not flooding.is_alive()
        received(made)
        received(made)
        logs.write("SERVER", "info", "it reads again")
        assert system_log.lost == 0


def test_a_logger_that_was_started_anew_is_found(tmp_path: Path) -> None:
    logs = logs_to(tmp_path / "log")
    for text in ("first", "second"):
        with logger(tmp_path / "log") as made:
            logs.write("SERVER", "info", text)
            assert text_of(received(made)) == f"SERVER (info) {text}"
