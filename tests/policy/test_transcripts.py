"""What `qdpolicy` says, whole: each command of tests/policy/transcripts with its output and its exit status.

A command begins with `$`, its standard error with `!`, a file `out` that it writes with `>`, its exit status
with `=`. It runs beside a copy of transcripts/files; behind ` < ` stands the one that is its standard input.
`python tests/policy/test_transcripts.py` writes the transcripts anew: read what has changed before you commit it.
"""

import contextlib
import io
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LF = "\n"
FOLDER = Path(__file__).resolve().parent / "transcripts"
if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[2]))

from policy.cli.main import main  # noqa: E402


def commands(transcript: Path) -> Iterator[tuple[str, str]]:
    """Each command with all that follows it."""
    for part in transcript.read_text("utf-8").removeprefix("$ ").split("\n$ "):
        command, _, said = part.partition("\n")
        yield command, f"{said.rstrip()}\n"


def said_to(command: str) -> str:
    """The output of a command, run in the folder of this process. Of a help only the words count."""
    out, err = io.StringIO(), io.StringIO()
    words, _, given = command.partition(" < ")
    terminal, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(Path(given).read_bytes() if given else b""))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: object = main(shlex.split(words))
        except SystemExit as ended:
            status = ended.code
        finally:
            sys.stdin = terminal
    # How lines are broken differs between versions of Python.
    output = " ".join(out.getvalue().split()) + "\n" if command.endswith("--help") else out.getvalue()
    told = err.getvalue()
    if told.startswith("usage: "):  # is part of the help
        told = told.splitlines()[-1]
    errors = "".join(f"! {line}\n" for line in told.splitlines())
    written = Path("out").read_text("utf-8").splitlines() if Path("out").exists() else ()
    return f"{output}{errors}{''.join(f'> {line}{LF}' for line in written)}= {status}\n"


TRANSCRIPTS = {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}
SPOKEN = [(name, command, said) for name, path in TRANSCRIPTS.items() for command, said in commands(path)]


class Copy:
    """A copy of transcripts/files, made anew behind a command that changed it: that is most of what a test takes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._state: dict[str, tuple[int, ...]] | None = None

    def fresh(self) -> Path:
        files = self._folder / str(self._made)
        if self._state is None or self._state != _state(files):
            self._made += 1
            files = self._folder / str(self._made)
            shutil.copytree(FOLDER / "files", files)
            self._state = _state(files)
        return files


def _state(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every file and folder in it, with what changes when it is written, replaced, renamed or made."""
    stats = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {str(path): (stat.st_ino, stat.st_mode, stat.st_size, stat.st_ctime_ns) for path, stat in stats.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("transcripts"))


@pytest.mark.parametrize(("name", "command", "said"), SPOKEN, ids=[f"{name}-{command}" for name, command, _ in SPOKEN])
def test_a_command_says_what_its_transcript_says(
    name: str, command: str, said: str, files: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.fresh())
    monkeypatch.setenv("COLUMNS", "120")
    assert said_to(command) == said, f"{name}: {command}"


def write_anew() -> None:
    os.environ["COLUMNS"] = "120"
    for path in TRANSCRIPTS.values():
        found = []
        for command, _ in commands(path):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(FOLDER / "files", Path(folder) / "files")
                os.chdir(Path(folder) / "files")
                found.append(f"$ {command}\n{said_to(command)}")
                os.chdir("/")
        path.write_text("\n".join(found), "utf-8")


if __name__ == "__main__":
    write_anew()
