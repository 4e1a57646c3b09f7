"""Paths, origins and files: what is served, and from where."""

import os
from pathlib import Path

import pytest

from router.web.origins import is_permitted, read_origins
from router.web.paths import accepts, names_of, type_of
from router.web.static_files import OpenFile, open_below


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "a.js").write_text("plain")
    (made / "inner" / "a.js.br").write_text("br")
    (made / "inner" / "a.js.gz").write_text("gz")
    (tmp_path / "secret.gz").write_text("secret")
    (made / "secret").write_text("open")
    (made / "secret.gz").symlink_to(tmp_path / "secret.gz")
    (made / "out").symlink_to(tmp_path)
    (made / "again").symlink_to(made / "inner")
    return made


def read(found: OpenFile | None) -> str | None:
    if found is None:
        return None
    try:
        return found.read(0, 100).decode()
    finally:
        found.close()


@pytest.mark.parametrize(
    ("accepted", "text"),
    [((), "plain"), (("br",), "br"), (("gzip", "br;q=0.5"), "br"), (("gzip",), "gz"), (("br;q=0", "gzip"), "gz")],
)
def test_the_best_coding_that_is_taken_is_sent(root: Path, accepted: tuple[str, ...], text: str) -> None:
    assert read(open_below(str(root), ("inner", "a.js"), accepted)) == text


def test_links_are_followed_inside_the_folder_alone(root: Path) -> None:
    assert read(open_below(str(root), ("again", "a.js"), ())) == "plain"
    assert open_below(str(root), ("out", "secret.gz"), ()) is None
    assert read(open_below(str(root), ("secret",), ("gzip",))) == "open"


def test_folders_and_what_is_no_regular_file_are_nothing(root: Path) -> None:
    os.mkfifo(root / "fifo")
    for names in (("inner",), ("fifo",), ("missing",), ("inner", "a.js", "index.html")):
        assert open_below(str(root), names, ()) is None


def test_an_etag_changes_with_the_file(root: Path) -> None:
    first = open_below(str(root), ("inner", "a.js"), ())
    (root / "inner" / "a.js").write_text("other")
    os.utime(root / "inner" / "a.js", ns=(1, 1))
    second = open_below(str(root), ("inner", "a.js"), ())
    assert first is not None
    assert second is not None
    assert first.etag != second.etag
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/", ("index.html",)),
        ("/a/", ("a", "index.html")),
        ("/a%20b", ("a b",)),
        ("/caf%C3%A9", ("café",)),
        ("/a/../b", None),
        ("/%2e%2e/b", None),
        ("/a%2fb", ("a", "b")),
        ("/%252e", None),
        ("/a%00", None),
        ("/a%0a", None),
        ("/a\\b", None),
        ("/a//b", None),
        ("/.git/config", None),
        ("/%ff", None),
        ("/" + "a/" * 40, None),
    ],
)
def test_a_path_means_names_or_nothing(target: str, names: tuple[str, ...] | None) -> None:
    assert names_of(target) == names


def test_types_go_by_the_last_ending() -> None:
    assert type_of("a.min.JS") == "text/javascript; charset=utf-8"
    assert type_of("README") == type_of("a.html.exe") == "application/octet-stream"


def test_a_coding_with_weight_zero_is_not_taken() -> None:
    assert accepts(("gzip",), "gzip")
    assert not accepts(("gzip; q=0",), "gzip")
    assert not accepts(("deflate",), "gzip")


@pytest.mark.parametrize("text", ["console.example", "ftp://a", "https://*", "https://a/b", "https://a:b", "https://"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        read_origins(text)


def test_origins_are_compared_by_scheme_host_and_port() -> None:
    permitted = read_origins("https://A.example, http://b.example:8080")
    for origin in ("https://a.example", "https://a.example:443", "http://b.example:8080"):
        assert is_permitted(origin, "router", permitted, is_secure=True)
    assert not is_permitted("http://a.example", "router", permitted, is_secure=True)
    assert is_permitted("https://[::1]:1", "[::1]:1", frozenset(), is_secure=True)
    assert is_permitted(None, None, frozenset(), is_secure=False)
    assert not is_permitted("http://x", None, frozenset(), is_secure=False)
