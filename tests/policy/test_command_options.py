"""What the options of `qdpolicy` come to, the texts of its help, and what it says while it works."""

import argparse
import importlib
import io
import json
import sys
import time
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

import schemas
from policy.cli import lsp, rule_pages
from policy.cli import main as command
from policy.cli.main import main
from policy.cli.progress import Progress, progress
from policy.facts import ManagementFacts
from schemas.versions import product_version

POLICY = '[["vhost", {"hostname": "h", "groups": {"g": {"users": "a", "remoteHosts": "::1"}}}]]\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "p.json"
    path.write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.parametrize(
    ("verb", "arguments", "options"),
    [
        ("convert", ["p"], {"path": Path("p"), "to": None, "form": "as-is", "narrow": False, "output": None}),
        (
            "diff",
            ["a", "b"],
            {
                "old": Path("a"),
                "new": Path("b"),
                "fail_on": None,
                "at": None,
                "router_id": "",
                "resolve": False,
                "json": False,
            },
        ),
        (
            "explain",
            ["p", "--host", "::1"],
            {
                "path": Path("p"),
                "user": None,
                "host": "::1",
                "vhost": "",
                "mechanism": None,
                "group": [],
                "tls": False,
                "router_id": "",
                "multi_tenant": False,
                "send": None,
                "receive": None,
                "receive_dynamic": False,
                "manage": None,
                "reply_age": None,
                "own": False,
                "capability": [],
                "connections": 0,
                "connections_of_user": 0,
                "connections_of_host": 0,
                "links": 0,
                "at": None,
                "resolve": False,
                "json": False,
            },
        ),
        ("fmt", ["p"], {"paths": [Path("p")], "check": False, "diff": False}),
        (
            "lint",
            ["p"],
            {
                "paths": [Path("p")],
                "format": "text",
                "explain": False,
                "output": None,
                "fail_level": None,
                "ignore": [],
                "select": [],
                "config": None,
                "baseline": None,
                "write_baseline": None,
                "fleet": False,
                "at": None,
                "fix": False,
                "diff": False,
                "unsafe": False,
            },
        ),
        ("test", ["p"], {"files": [Path("p")], "junit": None, "min_coverage": 0, "router_id": "", "resolve": False}),
        ("schema", [], {}),
        ("lsp", [], {"stdio": False}),
        (
            "convert",
            ["p", "--output", "o", "--to", "conf", "--form", "extended", "--narrow"],
            {"path": Path("p"), "to": "conf", "form": "extended", "narrow": True, "output": Path("o")},
        ),
        (
            "diff",
            ["a", "b", "--at", "1970-01-01T00:00:01Z", "--router-id", "R", "--resolve", "--json", "--fail-on", "any"],
            {
                "old": Path("a"),
                "new": Path("b"),
                "fail_on": "any",
                "at": 1.0,
                "router_id": "R",
                "resolve": True,
                "json": True,
            },
        ),
        (
            "explain",
            [
                "p",
                "--host",
                "::1",
                "--user",
                "u",
                "--own",
                "--capability",
                "c",
                "--capability",
                "d",
                "--group",
                "g",
                "--reply-age",
                "5",
                "--links",
                "1",
                "--connections",
                "2",
                "--connections-of-user",
                "3",
                "--connections-of-host",
                "4",
                "--resolve",
                "--receive-dynamic",
                "--vhost",
                "v",
                "--mechanism",
                "m",
            ],
            {
                "path": Path("p"),
                "user": "u",
                "host": "::1",
                "vhost": "v",
                "mechanism": "m",
                "group": ["g"],
                "tls": False,
                "router_id": "",
                "multi_tenant": False,
                "send": None,
                "receive": None,
                "receive_dynamic": True,
                "manage": None,
                "reply_age": 5,
                "own": True,
                "capability": ["c", "d"],
                "connections": 2,
                "connections_of_user": 3,
                "connections_of_host": 4,
                "links": 1,
                "at": None,
                "resolve": True,
                "json": False,
            },
        ),
        ("fmt", ["p", "-", "--check", "--diff"], {"paths": [Path("p"), Path("-")], "check": True, "diff": True}),
        (
            "lint",
            [
                "p",
                "q",
                "--format",
                "json",
                "--config",
                "c",
                "--baseline",
                "b",
                "--output",
                "o",
                "--write-baseline",
                "w",
                "--fleet",
                "--unsafe",
                "--fix",
                "--explain",
                "--ignore",
                "PAL001",
            ],
            {
                "paths": [Path("p"), Path("q")],
                "format": "json",
                "explain": True,
                "output": Path("o"),
                "fail_level": None,
                "ignore": ["PAL001"],
                "select": [],
                "config": Path("c"),
                "baseline": Path("b"),
                "write_baseline": Path("w"),
                "fleet": True,
                "at": None,
                "fix": True,
                "diff": False,
                "unsafe": True,
            },
        ),
        (
            "test",
            ["p", "q", "--junit", "j", "--min-coverage", "5", "--resolve"],
            {"files": [Path("p"), Path("q")], "junit": Path("j"), "min_coverage": 5, "router_id": "", "resolve": True},
        ),
        ("lsp", ["--stdio"], {"stdio": True}),
    ],
)
def test_options_come_to(
    verb: str, arguments: list[str], options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, object] = {}

    def run(given: argparse.Namespace) -> int:
        found.update(vars(given))
        return 7

    monkeypatch.setattr(f"policy.cli.{verb}.run", run)
    assert main([verb, *arguments]) == 7
    assert found.pop("run") is run
    assert found == {"version": None, **options}


def test_a_management_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []

    def run(given: argparse.Namespace) -> int:
        found.append(given.manage)
        return 0

    monkeypatch.setattr("policy.cli.explain.run", run)
    assert main(["explain", "p", "--host", "::1", "--manage", "read ban"]) == 0
    assert found == [ManagementFacts(operation="read", entity_type="ban")]


@pytest.mark.parametrize("verb", ["convert", "diff", "explain", "fmt", "lint", "lsp", "test"])
def test_the_lines_of_a_help_stay(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"policy.cli.{verb}")
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    output = capsys.readouterr().out
    texts = [text for name in ("DESCRIPTION", "EPILOG") if (text := getattr(module, name, None)) is not None]
    assert [text in output for text in texts] == [True] * len(texts) != []


def test_the_lines_of_the_help_stay(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert command.EPILOG in capsys.readouterr().out


def test_the_version_is_that_of_what_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def version(name: str) -> str:
        asked.append(name)
        return "1.2.3"

    monkeypatch.setattr(metadata, "version", version)
    assert product_version() == "1.2.3"
    assert asked == ["palisade-router"]
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "1.2.3\n"

    def missing(_: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert product_version() == ""
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "unknown\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["convert", "p.json"], [("reading files", 1), ("vhosts checked", 1), ("vhosts checked", 1)]),
        (
            ["diff", "p.json", "p.json"],
            [
                ("reading files", 1),
                ("reading files", 1),
                ("vhosts checked", 1),
                ("vhosts checked", 1),
                ("pairs of vhosts compared", 2),
            ],
        ),
        (["explain", "p.json", "--host", "::1"], [("reading files", 1), ("vhosts checked", 1)]),
        (["fmt", "p.json", "--check"], [("files laid out", 1)]),
    ],
)
def test_how_far_it_is_is_said(
    arguments: list[str], said: list[tuple[str, int]], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, int]] = []

    def called(_: Progress, what: str, elements: Iterable[object], /) -> Iterator[object]:
        passed = list(elements)
        found.append((what, len(passed)))
        yield from passed

    monkeypatch.setattr(Progress, "__call__", called)
    main(arguments)
    assert found == said


def test_lint_says_how_many_rules_it_has_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def called(_: Progress, what: str, elements: Iterable[object], /) -> Iterator[object]:
        found.append(what)
        yield from elements

    monkeypatch.setattr(Progress, "__call__", called)
    assert main(["lint", "p.json"]) == 0
    assert found == ["reading files", "rules checked"]


@pytest.mark.parametrize(
    ("missing", "is_terminal", "status", "said"),
    [
        ("pygls", False, 2, f"qdpolicy: {lsp.MISSING}\n"),
        ("lsprotocol", False, 2, f"qdpolicy: {lsp.MISSING}\n"),
        ("", False, 0, ""),
        ("", True, 0, "qdpolicy: an editor starts this and speaks to it, see docs/editors.md; Ctrl-C ends it\n"),
    ],
)
def test_the_language_server_is_started_by_editors(
    missing: str,
    is_terminal: bool,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    served: list[bool] = []
    monkeypatch.setattr("policy.editor.server.serve", lambda: served.append(True))
    monkeypatch.setattr("policy.cli.lsp.find_spec", lambda name: None if name == missing else name)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal, raising=False)
    assert main(["lsp"]) == status
    assert capsys.readouterr().err == said
    assert served == [True] * (status == 0)


def test_a_verb_that_is_broken_off_has_the_status_of_shells(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("policy.cli.schema.run", broken_off)
    assert main(["schema"]) == 130


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


def test_after_a_second_it_says_every_tenth_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    now_s = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with progress() as watch:
        counted = watch("files", [0.5, 1.0, 1.05, 1.15, 1.2])
        for element in counted:
            now_s = 50.0 + element  # when the next one is asked for
        assert terminal.getvalue() == "\rfiles: 2 of 5\x1b[K\rfiles: 4 of 5\x1b[K"
        now_s = 60.0
        assert list(watch("rules", iter("ab"))) == ["a", "b"]
        assert terminal.getvalue().endswith("\x1b[K\rrules: 0\x1b[K")
        watch.clear()
        assert terminal.getvalue().endswith("\rrules: 0\x1b[K\r\x1b[K")
        shown = terminal.getvalue()
    assert terminal.getvalue() == shown


def test_a_line_on_a_terminal_goes_when_the_verb_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    now_s = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)

    def broken_off() -> None:
        nonlocal now_s
        with progress() as watch:
            now_s = 51.0
            for _ in watch("files", "a"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert terminal.getvalue() == "\rfiles: 0 of 1\x1b[K\r\x1b[K"


@pytest.mark.parametrize("kind", ["", "dumb", None])
def test_nothing_is_said_where_a_line_cannot_be_cleared(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.delenv("TERM")
    if kind is not None:
        monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr("policy.cli.progress.DELAY_S", 0.0)
    with progress() as watch:
        assert list(watch("files", "ab")) == ["a", "b"]
    assert terminal.getvalue() == ""


def test_the_schema_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == f"{json.dumps(schemas.load('policy'), indent=2, ensure_ascii=False)}\n"


def test_the_pages_of_the_rules_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, folder in ([], "docs/rules"), (["a/b"], "a/b"), (["a/b"], "a/b"):
        monkeypatch.setattr(sys, "argv", ["rule_pages", *arguments])
        assert rule_pages.main() == 0
        written = {path.name: path.read_text("utf-8") for path in Path(folder).iterdir()}
        assert written == rule_pages.pages()
