"""Whatever is typed, at whatever place: an answer, soon, and never an error."""

import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsprotocol import types

from policy.editor.checking import Checker
from policy.editor.documents import Document, opened
from policy.editor.messages import actions_for, completions_at, diagnostic_of, hover_at

ROOT = Path(__file__).resolve().parent.parent.parent
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
PIECES = [
    *'{}[]":,#\\\n\t $*',
    "\r\n",
    "${user}",
    '["vhost", {',
    "groups: {",
    "listener {",
    "\ud800",
    "😀",
    "\0",
    "é",
    "  ",
]


@cache
def examples() -> list[tuple[str, str]]:
    """(suffix, text) of the policies and configurations of the lint rules, and of those we ship."""
    folders = ("tests/lint_cases", "policies/quickstart", "policies/tenants")
    files = [path for folder in folders for path in sorted((ROOT / folder).glob("*.*"))]
    kept = [path for path in files if path.suffix in (".json", ".conf") and path.stat().st_size < 6_000]
    return [(path.suffix, path.read_text("utf-8")) for path in kept]


@st.composite
def half_typed(draw: st.DrawFn) -> tuple[str, str, int]:
    """The suffix of a file, a text somebody may be typing, and the place of the cursor."""
    suffix, text = draw(st.sampled_from(examples()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        what = draw(st.sampled_from(("cut", "delete", "insert", "repeat")))
        length = draw(st.integers(0, 40))
        if what == "cut":
            text = text[:at]
        elif what == "delete":
            text = text[:at] + text[at + length :]
        elif what == "insert":
            text = text[:at] + draw(st.sampled_from(PIECES) | st.text(max_size=8)) + text[at:]
        else:
            text = text[: at + length] + text[at:]
    return suffix, text, draw(st.integers(0, len(text)))


def document(suffix: str, text: str) -> Document:
    found = opened(f"untitled:x{suffix}", text, 1, "utf-16", "json")
    assert found is not None
    return found


def ask(shown: Document, line: int, character: int) -> None:
    """Everything an editor may ask about a place."""
    position = types.Position(line=line, character=character)
    hover_at(shown, position)
    for item in completions_at(shown, position).items:
        assert isinstance(item.text_edit, types.TextEdit)
        assert item.text_edit.range.start <= item.text_edit.range.end
    here = types.Range(start=types.Position(0, 0), end=position)
    document_id = types.TextDocumentIdentifier(uri=shown.uri)
    actions_for(shown, types.CodeActionParams(document_id, here, types.CodeActionContext([])))


def check(shown: Document) -> None:
    request = {
        **{"file": shown.file, "buffers": {shown.file: shown.text}, "encoding": "utf-16"},
        **{"roots": [], "now": 0.0},
    }
    answer = Checker().answer(request)
    (shown.diagnostics,) = answer["files"].values()
    lines = shown.text.split("\n")
    for found in map(diagnostic_of, shown.diagnostics):
        assert found.range.start <= found.range.end
        assert found.range.end.line < len(lines)
        assert found.range.end.character <= len(lines[found.range.end.line].encode("utf-16-le")) // 2


@settings(QUIET, max_examples=25)
@given(typed=half_typed(), names=st.text(max_size=20))
def test_no_half_typed_text_is_an_error(typed: tuple[str, str, int], names: str) -> None:
    suffix, text, at = typed
    shown = document(suffix, text)
    check(shown)
    line, character = shown.positions.of(at)
    ask(shown, line, character)
    ask(shown, line + 1, character + len(names))


@pytest.mark.slow
@settings(QUIET, max_examples=1500)
@given(typed=half_typed())
def test_no_half_typed_text_of_very_many_is_an_error(typed: tuple[str, str, int]) -> None:
    suffix, text, at = typed
    shown = document(suffix, text)
    check(shown)
    ask(shown, *shown.positions.of(at))


@settings(QUIET, max_examples=25)
@given(text=st.text(max_size=300), suffix=st.sampled_from((".json", ".conf")), at=st.integers(0, 300))
def test_no_text_at_all_is_an_error(text: str, suffix: str, at: int) -> None:
    shown = document(suffix, text)
    check(shown)
    ask(shown, *shown.positions.of(at))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(examples())))
def test_an_example_cut_at_every_place_is_no_error(number: int) -> None:
    suffix, text = examples()[number]
    for at in range(0, len(text), 3):
        shown = document(suffix, text[:at])
        check(shown)
        ask(shown, *shown.positions.of(at))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '[["vhost", {' + '"a": {' * 50_000,
        '[["vhost", {"hostname": "' + "a, " * 200_000,
        "#" * 200_000,
        "# " * 100_000 + "\n",
        '[["vhost", {"groups": {"g": {"management": "' + "read , " * 20_000 + "x",
        '"' * 50_001,
        "[[" + '"\\' * 100_000,
        " " * 300_000 + "{",
    ],
    ids=["brackets", "maps", "items", "comment", "blanks", "rights", "quotes", "escapes", "spaces"],
)
@pytest.mark.parametrize("suffix", [".json", ".conf"])
def test_what_is_asked_about_a_text_of_nothing_but_traps_is_answered_soon(text: str, suffix: str) -> None:
    shown = document(suffix, text)
    begun = time.process_time()
    ask(shown, *shown.positions.of(len(text)))
    ask(shown, *shown.positions.of(len(text) // 2))
    assert time.process_time() - begun < 3
