"""Files are opened without waiting, as what they are, and up to a size. Issue 11, section 2."""

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.files import regular
from policy.files.regular import (
    folder_names,
    is_policy_file,
    is_too_many,
    read_regular,
    read_start,
    why_unreadable,
)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "socket": bound_socket,
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "x")
    path = str(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(path, 10)
    with pytest.raises(OSError, match="not a regular file") as refused:
        read_start(path, 10)
    assert (refused.value.errno, refused.value.filename) == (errno.EINVAL, path)
    assert why_unreadable(path) == "not a regular file"


def test_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"text")
    (tmp_path / "x").symlink_to("content")
    assert read_regular(str(tmp_path / "x"), 4) == b"text"
    assert read_start(str(tmp_path / "x"), 2) == b"te"
    assert why_unreadable(str(tmp_path / "x")) is None


def test_one_byte_more_is_too_many(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_regular(str(path), 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes") as refused:
        read_regular(str(path), 4)
    assert (refused.value.errno, refused.value.filename) == (errno.EFBIG, str(path))
    assert why_unreadable(str(path), 4) == "larger than 4 bytes"
    assert why_unreadable(str(path), 5) is None


def test_a_status_is_shown_before_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    sizes: list[int] = []
    assert read_regular(str(path), 5, check=lambda status: sizes.append(status.st_size)) == b"12345"
    assert sizes == [5]


def test_a_file_that_grows_while_it_is_read_is_bounded_too() -> None:
    """One of /proc says that it has no bytes."""
    assert read_regular("/proc/self/status", 1 << 20)
    with pytest.raises(OSError, match="larger than 10 bytes") as refused:
        read_regular("/proc/self/status", 10)
    assert refused.value.filename == "/proc/self/status"


def test_what_is_exchanged_between_the_look_and_the_opening_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"text")
    opened = os.open

    def exchanging(name: str, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return opened(name, flags)

    monkeypatch.setattr(os, "open", exchanging)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(str(path), 10)


def test_a_pipe_is_read_where_the_operator_named_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"text",))
    writer.start()
    assert read_regular(str(path), 10, may_be_pipe=True) == b"text"
    writer.join()


def test_folders_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.json", "a.json", ".#a.json", "c.txt"):
        (tmp_path / name).touch()
    assert folder_names(str(tmp_path), is_policy_file) == ["a.json", "b.json"]
    for bound, enough, text in (
        ("MAX_POLICY_FILES", 2, "it has more than 1 policy files"),
        ("MAX_FOLDER_ENTRIES", 4, "it has more than 3 entries"),
    ):
        monkeypatch.setattr(regular, bound, enough)
        assert folder_names(str(tmp_path), is_policy_file) == ["a.json", "b.json"]
        monkeypatch.setattr(regular, bound, enough - 1)
        with pytest.raises(OSError, match="it has more than") as caught:
            folder_names(str(tmp_path), is_policy_file)
        assert is_too_many(caught.value)
        assert (caught.value.strerror, caught.value.filename) == (text, str(tmp_path))
        monkeypatch.undo()


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular, "_PIECE_BYTES", 2)
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_regular(str(path), 5) == b"12345"
    assert [read_start(str(path), size) for size in (0, 1, 3, 5, 9)] == [b"", b"1", b"123", b"12345", b"12345"]


@pytest.mark.parametrize(
    ("at_most", "text"),
    [((1 << 20) - 1, "larger than 1048575 bytes"), (1 << 20, "larger than 1 MiB"), (3 << 20, "larger than 3 MiB")],
)
def test_a_bound_is_told_in_bytes_or_in_mebibytes(at_most: int, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as file:
        file.truncate(at_most + 1)
    assert why_unreadable(str(path), at_most) == text
