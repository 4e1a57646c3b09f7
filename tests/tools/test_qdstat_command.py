"""qdstat's command line: what it refuses, whom it asks, how it fails (management 83, 86)."""

from pathlib import Path
from typing import NoReturn

import pytest
from fake_management import FakeTransport

from router.management.client import ConnectionException
from router.tools.connection_options import ConnectionOptions
from router.tools.qdstat import main


def refuse(options: ConnectionOptions, address: str) -> NoReturn:
    raise ConnectionException("Connection to h:5672 failed: Connection refused")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-g", "-c"],
        ["--vhosts", "--log"],
        ["-r", "A", "-d", "B"],
        ["--all-routers", "-r", "A"],
        ["--limit", "x"],
        ["--limit", "-1"],
        ["surplus"],
        ["--nonsense"],
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """management 83"""
    with pytest.raises(SystemExit) as caught:
        main(arguments, refuse)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: qdstat ")
    assert "qdstat: error: " in captured.err


@pytest.mark.parametrize(
    "arguments", [["--sasl-passwd", "topsecret"], ["--sasl-passwd=topsecret"], ["--sasl-pass=topsecret"]]
)
def test_a_mistyped_option_does_not_print_its_value(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: passwords in terminals' and cron's logs."""
    with pytest.raises(SystemExit):
        main(arguments, refuse)
    assert "topsecret" not in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_help_and_version_exit_with_0(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option], refuse)
    assert caught.value.code == 0
    assert capsys.readouterr().out


def test_a_failure_is_one_line_on_standard_output_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    """management 86"""
    assert main([], refuse) == 1
    assert capsys.readouterr().out == "ConnectionException: Connection to h:5672 failed: Connection refused\n"


def test_a_failure_with_terminal_escapes_is_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a router's error text drives the terminal of the operator."""

    def fail(options: ConnectionOptions, address: str) -> NoReturn:
        raise ConnectionException("a\x1b[2J\nb")

    assert main([], fail) == 1
    assert capsys.readouterr().out == "ConnectionException: a\\x1b[2J\\nb\n"


def test_an_interrupt_prints_an_empty_line_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(options: ConnectionOptions, address: str) -> NoReturn:
        raise KeyboardInterrupt

    assert main([], interrupt) == 1
    assert capsys.readouterr().out == "\n"


def test_the_debug_variable_keeps_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_QPID_DISPATCH_TOOLS_DEBUG_", "1")
    with pytest.raises(ConnectionException):
        main([], refuse)


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ([], "$management"),
        (["-r", "B"], "_topo/0/B/$management"),
        (["-d", "E"], "_edge/E/$management"),
        (["-r", "B", "-b", "h/x/$management"], "x/$management"),
    ],
)
def test_whom_it_asks(arguments: list[str], address: str) -> None:
    """management 96: a path in the URL overrides -r and -d"""
    transport = FakeTransport()
    assert main(arguments, transport.connect) == 0
    assert {asked for asked, _, _ in transport.requests} == {address}
    assert transport.is_closed


def test_long_options_may_be_abbreviated() -> None:
    transport = FakeTransport()
    assert main(["--conn", "--timeou", "7"], transport.connect) == 0
    assert transport.options.timeout_s == 7


def test_an_unreadable_password_file_is_a_failure_not_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--sasl-password-file", str(tmp_path / "none")], refuse) == 1
    assert capsys.readouterr().out.startswith("FileNotFoundError: ")


@pytest.mark.parametrize(("is_terminal", "is_cut"), [(True, True), (False, False)])
def test_only_a_terminal_gets_what_fits_it(
    is_terminal: bool, is_cut: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts cut columns out of the whole."""
    transport = FakeTransport({"connection": [{"identity": "1", "container": "c" * 100}], "router": [{"id": "R"}]})
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["-c"], transport.connect) == 0
    assert ("c" * 100 not in capsys.readouterr().out) is is_cut
