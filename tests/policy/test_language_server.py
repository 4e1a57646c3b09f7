"""`qdpolicy lsp`, spoken to by a real client over standard input and output."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from editor_client import ROOT, Editor
from lsprotocol import types

from policy.cli import lsp, main
from policy.editor.analyst import Analyst

pytestmark = pytest.mark.slow  # each starts a server and its worker

WORK = {"hostname": "shop", "groups": {"apps": {"users": "ann", "remoteHosts": "10.0.0.1", "sources": "{user}.a"}}}
TEXT = json.dumps([["vhost", WORK]])
MENDED = TEXT.replace("{user}", "${user}")


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    started = Editor(tmp_path_factory.mktemp("work"))
    yield started
    assert started.end() == 0
    assert started.shown == []


def whole(text: str) -> types.Range:
    return types.Range(start=types.Position(0, 0), end=types.Position(0, len(text)))


def test_diagnostics_are_of_the_open_text_and_follow_it(editor: Editor, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("nonsense on the disk")
    uri = file.as_uri()
    editor.open(uri, TEXT)
    first = editor.published(uri)
    (found,) = first.diagnostics
    assert (found.code, found.source, found.severity) == ("PAL005", "qdpolicy", types.DiagnosticSeverity.Warning)
    assert TEXT[found.range.start.character : found.range.end.character] == "{user}.a"
    version = editor.change(uri, TEXT[:-1])
    broken = editor.published(uri)
    assert (broken.version, [each.code for each in broken.diagnostics]) == (version, [None])
    editor.change(uri, MENDED)
    assert editor.rules(uri) == []
    editor.change(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    editor.close(uri)
    assert editor.rules(uri) == []


def test_diagnostics_of_a_configuration(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "qdrouterd.conf").as_uri()
    editor.open(uri, "router {\n  id: A\n}\nlistener {\n  prot: 5672\n}\n", "plaintext")
    found = editor.published(uri).diagnostics
    (unknown,) = (each for each in found if each.code == "PAL042")
    assert (unknown.range.start, unknown.severity) == (types.Position(4, 2), types.DiagnosticSeverity.Error)
    assert "sslProfile" in editor.completions(uri, 4, 2)
    assert "Where the router accepts connections." in editor.hover(uri, 3, 3)
    editor.close(uri)


def test_a_burst_of_changes_is_checked_once_it_is_over(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.json").as_uri()
    editor.open(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    versions = [editor.change(uri, MENDED[: -50 + number]) for number in range(40)]
    versions.append(editor.change(uri, MENDED))
    last = editor.published(uri)
    assert (last.version, list(last.diagnostics)) == (versions[-1], [])
    editor.close(uri)


def test_other_open_files_of_the_folder_are_told_too(editor: Editor, tmp_path: Path) -> None:
    mine, other = (tmp_path / "a.json").as_uri(), (tmp_path / "b.json").as_uri()
    editor.open(other, MENDED)
    assert editor.rules(other) == []
    editor.open(mine, MENDED)
    assert "PAL001" in editor.rules(other)
    editor.change(mine, MENDED.replace("shop", "$default"))
    assert editor.rules(other) == []
    for uri in (mine, other):
        editor.close(uri)


def test_an_error_in_a_file_that_is_not_open_is_shown_until_it_is_gone(editor: Editor, tmp_path: Path) -> None:
    mine, other = (tmp_path / "a.json").as_uri(), (tmp_path / "b.json")
    other.write_text(MENDED)
    editor.open(mine, MENDED)
    assert editor.rules(other.as_uri()) == ["PAL001"]
    editor.change(mine, MENDED.replace("shop", "$default"))
    assert editor.rules(other.as_uri()) == []
    editor.close(mine)


def test_hover_tells_the_rule_and_the_rights(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.json").as_uri()
    editor.open(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    assert "may receive from: `ann.a`" in editor.hover(uri, 0, TEXT.index("ann") + 1)
    assert "**Rights of group** `apps`" in editor.hover(uri, 0, TEXT.index("apps") + 1)
    about = editor.hover(uri, 0, TEXT.index("{user}") + 1)
    assert about.startswith("**PAL005: ")
    assert "Addresses the members may receive from" in about
    assert editor.hover("file:///dev/zero", 0, 0) == ""
    editor.close(uri)


def test_completion_offers_what_the_schema_and_the_project_have(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.json").as_uri()
    editor.open(uri, MENDED)
    assert editor.rules(uri) == []
    half = MENDED[:-5] + ', "den'
    editor.change(uri, half)
    offered = editor.completions(uri, 0, len(half))
    edit = offered["denyTargets"].text_edit
    assert isinstance(edit, types.TextEdit)
    assert half[: edit.range.start.character] + edit.new_text == half[:-3] + 'denyTargets": '
    assert "users" not in offered
    editor.close(uri)


def test_fixes_are_code_actions(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.json").as_uri()
    editor.open(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    quick, everything = editor.actions(uri, whole(TEXT))
    assert (quick.title, quick.is_preferred) == ("PAL005: replace '{user}.a' by '${user}.a'", True)
    assert everything.kind == "source.fixAll.qdpolicy"
    for action in (quick, everything):
        assert action.edit is not None
        assert action.edit.changes is not None
        (edit,) = action.edit.changes[uri]
        assert TEXT[: edit.range.start.character] + edit.new_text + TEXT[edit.range.end.character :] == MENDED
    assert [each.kind for each in editor.actions(uri, whole(TEXT), ["source.fixAll"])] == ["source.fixAll.qdpolicy"]
    assert editor.actions(uri, whole(TEXT), ["refactor"]) == []
    # Lint has not seen this text, and its fixes are not for it.
    editor.change(uri, TEXT.replace("shop", "store"))
    assert editor.actions(uri, whole(TEXT)) == []
    editor.close(uri)


def test_json_of_other_kinds_is_left_alone(editor: Editor, tmp_path: Path) -> None:
    other, uri = (tmp_path / "package.json").as_uri(), (tmp_path / "a.json").as_uri()
    editor.open(other, '{"name": }')
    editor.open(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    editor.change(uri, MENDED)
    assert editor.rules(uri) == []
    assert not editor.has_more(other)


def messages(output: bytes) -> list[dict[str, object]]:
    """All messages of a server; an error when anything else is among them."""
    found = []
    while output:
        head = re.match(rb"Content-Length: (\d+)\r\nContent-Type: [^\r]+\r\n\r\n|Content-Length: (\d+)\r\n\r\n", output)
        assert head is not None, output[:80]
        end = head.end() + int(head[1] or head[2])
        found.append(json.loads(output[head.end() : end]))
        output = output[end:]
    return found


def framed(*sent: dict[str, object]) -> bytes:
    contents = [json.dumps({"jsonrpc": "2.0", **each}).encode() for each in sent]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(content), content) for content in contents)


def initialize(*encodings: str) -> dict[str, object]:
    capabilities = {"general": {"positionEncodings": encodings}} if encodings else {}
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    return {"id": 1, "method": "initialize", "params": params}


def opening(uri: str, text: str) -> dict[str, object]:
    item = {"uri": uri, "languageId": "json", "version": 1, "text": text}
    return {"method": "textDocument/didOpen", "params": {"textDocument": item}}


def test_the_output_is_the_protocol_and_ends_with_the_input(tmp_path: Path) -> None:
    """An editor that dies leaves neither the server nor its worker behind. Positions are in the units agreed on."""
    command = [sys.executable, "-P", "-m", "policy.cli.main", "lsp"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        text = TEXT.replace("shop", "é😀")
        server.stdin.write(framed(initialize("utf-8", "utf-16"), opening((tmp_path / "a.json").as_uri(), text)))
        server.stdin.flush()
        os.set_blocking(server.stdout.fileno(), True)
        read = b""
        while b"PAL005" not in read:
            read += os.read(server.stdout.fileno(), 65536)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        assert children
        server.stdin.close()
        read += server.stdout.read()
        assert server.wait(20) == 0
        assert server.stderr is not None
        assert server.stderr.read() == b""
    answered, published = messages(read)
    assert (answered["id"], published["method"]) == (1, "textDocument/publishDiagnostics")
    assert f'"character": {len(text.partition("{user}")[0].encode())}' in json.dumps(published)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline


def many_vhosts(count: int) -> dict[str, object]:
    """A request for a check that takes seconds."""
    vhosts = [["vhost", {**WORK, "hostname": f"h{number}"}] for number in range(count)]
    buffers = {"untitled:a.json": json.dumps(vhosts)}
    return {"file": "untitled:a.json", "buffers": buffers, "encoding": "utf-16", "roots": [], "now": 0.0}


def test_a_check_can_be_ended_and_the_next_one_is_answered() -> None:
    async def scenario() -> None:
        analyst = Analyst()
        small = many_vhosts(1)
        first = await analyst.answer(small)
        assert first is not None
        running = asyncio.create_task(analyst.answer(many_vhosts(20_000)))
        await asyncio.sleep(0.2)
        assert not running.done()
        analyst.end()
        assert await asyncio.wait_for(running, 5) is None
        assert await analyst.answer(small) == first
        await analyst.close()

    asyncio.run(scenario())


def test_a_check_that_takes_too_long_is_ended_and_said_so() -> None:
    async def scenario() -> None:
        analyst = Analyst(deadline_s=0.001)
        assert await analyst.answer(many_vhosts(2_000)) == {"failure": "not checked: it took longer than 0.001 s"}

    asyncio.run(scenario())


def test_a_worker_that_dies_is_replaced(editor: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "a.json").as_uri()
    editor.open(uri, TEXT)
    assert editor.rules(uri) == ["PAL005"]
    for child in Path(f"/proc/{editor.pid}/task/{editor.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    editor.change(uri, MENDED)
    assert editor.rules(uri) == []
    editor.close(uri)


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(lsp, "find_spec", lambda name: None)
    assert main.main(["lsp"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "qdpolicy: the language server needs pygls: install this package with its extra editors\n"
