"""The page of `qdaudit report`: one file, and nothing a peer wrote becomes markup (issue 15)."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("jinja2")

from spark.pages.page import Page, bars_plot, columns_plot, render, shown_text, table

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title></svg></table><iframe src=//evil.example>",
    "{{ 7*7 }}{% raw %}",
    "javascript:alert(1)",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "a\u202egnp.exe",
    "a\x00\x1b[31mb",
)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


def page(name: str) -> str:
    row: dict[str, Any] = {"severity": "high", "user": name, "users": [name, name], "denials": 7}
    return render(
        Page(
            title=name,
            about=name,
            numbers=[("denials", 7)],
            remarks=[name],
            plots=[columns_plot("Denials", [(name, 3), (name, 4)]), bars_plot("Reasons", [(name, 3)])],
            tables=[table("by_user", "By user", tuple(row), [row, {**row, "severity": name}], is_whole=True)],
        )
    )


def tags(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = _Tags()
    parser.feed(text)
    return parser.tags


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_a_name_is_never_markup(name: str) -> None:
    assert tags(page(name)) == tags(page("alice"))
    assert "{{ 7*7 }}" in page("{{ 7*7 }}")


def test_what_steers_a_reader_is_shown_as_an_escape() -> None:
    assert shown_text("a\u202eb\x1b\n") == "a\\u202eb\\x1b\\n"
    assert shown_text(None) == "(none)"
    assert len(shown_text("x" * 5000)) == 400


def test_the_page_needs_nothing_and_lets_nothing_in() -> None:
    text = page("alice")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert said.startswith("default-src 'none'; style-src 'sha256-")
    for tag in ("style", "script"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in said
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "http:" not in text.replace("http-equiv", "")
    assert "style=" not in text
    assert " on" not in "".join(" ".join(("", *names)) for _, names in tags(text))


def test_an_empty_trail_is_a_page_as_well() -> None:
    text = render(Page(title="t", about="a", numbers=[], remarks=[], plots=[columns_plot("p", [])], tables=[]))
    assert "<svg" not in text
