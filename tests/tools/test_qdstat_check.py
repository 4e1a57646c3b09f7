"""`qdstat --check`, `--watch` and `-n --dot`: a monitor had to read tables, and the network had no picture."""

import time
from typing import Any

import pytest
from fake_management import FakeTransport

from router.management.client import ForbiddenStatus, NotFoundStatus
from router.tools.qdstat import main

WELL: dict[str, list[dict[str, Any]]] = {
    "router": [{"id": "R", "uptimeSeconds": 93784, "auditState": "writing"}],
    "listener": [{"name": "amqps", "listening": True}, {"name": "amqp"}],
    "sslProfile": [{"name": "server", "daysToExpiry": 90}, {"name": "client", "daysToExpiry": None}],
    "authenticatorStats": [{"authenticator": "ldap", "answering": True}],
    "budget": [{"kind": "connection", "owner": "C1", "heldBack": 0}, {"kind": "router", "owner": "", "heldBack": 0}],
}


def checked(capsys: pytest.CaptureFixture[str], *arguments: str, **tables: Any) -> tuple[int, str]:
    status = main(["--check", *arguments], FakeTransport(WELL | tables).connect)
    return status, capsys.readouterr().out


def test_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "up 001:02:03:04, 2 listening, certificates 90 days, 1 authenticators answer, audit writing, nobody held back"
    )
    assert checked(capsys) == (0, f"OK: router R: {text}\n")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"listener": []}, "it has no listener"),
        ({"listener": [{"name": "a", "listening": False}]}, "listener a does not listen"),
        ({"sslProfile": [{"name": "s", "daysToExpiry": 13}]}, "the certificate of s ends in 13 days"),
        ({"sslProfile": [{"name": "s", "daysToExpiry": -1}]}, "the certificate of s has ended"),
        ({"authenticatorStats": [{"authenticator": "l", "answering": False}]}, "authenticator l does not answer"),
        ({"router": [{"id": "R", "auditState": "failing"}]}, "audit is failing"),
        ({"budget": [{"kind": "connection", "owner": "C7", "heldBack": 1}]}, "1 connections held back: C7"),
    ],
)
def test_what_is_wrong_is_said_with_status_1(
    tables: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(capsys, **tables) == (1, f"FAILED: router R: {said}\n")


def test_all_that_is_wrong_is_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a name that a terminal, or a monitor that reads lines, obeys."""
    status, text = checked(capsys, "30", listener=[], sslProfile=[{"name": "s\nOK:\x1b[2J", "daysToExpiry": 29}])
    assert (status, text.count("\n")) == (1, 1)
    assert text.startswith("FAILED: router R: it has no listener; the certificate of s")
    assert "\x1b" not in text


def test_what_may_not_be_read_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    class Partly(FakeTransport):
        error: type[Exception] = ForbiddenStatus

        def query(self, properties: Any, body: Any) -> Any:
            if properties.get("entityType", "").endswith(("budget", "authenticatorStats")):
                raise self.error("not here")
            return super().query(properties, body)

    assert main(["--check"], Partly(WELL).connect) == 1
    Partly.error = NotFoundStatus  # as qdrouterd 1.20 answers
    assert main(["--check"], Partly(WELL).connect) == 0
    assert "no authenticator, audit writing" in capsys.readouterr().out


def test_it_is_shown_again_until_it_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Attack on oneself: a password that has changed, tried again every second, ends in a ban."""
    waited: list[float] = []
    transport = FakeTransport(WELL)

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            transport.tables.clear()
            transport.query = lambda *_: (_ for _ in ()).throw(ForbiddenStatus("no more"))  # type: ignore[method-assign]

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["-n", "--watch", "5"], transport.connect) == 1
    assert waited == [5, 5]
    assert capsys.readouterr().out.count("No Router List") == 2


def test_ctrl_c_ends_watching_with_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["-n", "--watch", "5"], FakeTransport(WELL).connect) == 0


@pytest.mark.parametrize("arguments", [["--watch", "0"], ["--watch", "nan"], ["-c", "--dot"], ["--check", "-c"]])
def test_what_does_not_go_together_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments, FakeTransport(WELL).connect)
    assert caught.value.code == 2


def test_the_network_is_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: the id of a router that would be a statement of the graph."""
    nodes = [
        {"id": "A", "linkState": ["B", 'x" -- "y']},
        {"id": "B", "linkState": ["A"]},
        {"id": 'x" -- "y', "linkState": ["A"]},
    ]
    assert main(["-n", "--dot"], FakeTransport({"router.node": nodes}).connect) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        "graph network {",
        "layout=neato; overlap=false; node [shape=box];",
        '"A";',
        '"B";',
        '"x\\" -- \\"y";',
        '"A" -- "B";',
        '"A" -- "x\\" -- \\"y";',
        "}",
    ]
