"""The manual pages of the commands. Only qdrouterd.conf(5) was there, while books send their readers to qdstat(8)."""

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "man"
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
PAGES = sorted(path.name for path in FOLDER.glob("qd*.[18]"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_manuals", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_pages_are_what_the_command_lines_make(generator: ModuleType) -> None:
    """Run `python deploy/man/generate.py` after changing an option."""
    assert {name.partition(".")[0] for name in PAGES} == COMMANDS.keys()
    for name, text in generator.pages().items():
        assert (FOLDER / name).read_text() == text, f"{name} is out of date"


@pytest.mark.parametrize("name", PAGES)
def test_roff_has_nothing_to_complain_about(name: str, require_tool: Callable[[str, str], Path]) -> None:
    groff = require_tool("groff", "groff")
    command = [str(groff), "-man", "-Tutf8", "-ww", "-z", str(FOLDER / name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    # Long lines of examples are for the reader's own terminal.
    assert [line for line in ran.stderr.splitlines() if "cannot adjust line" not in line] == []


def test_every_command_has_its_version() -> None:
    """qdaudit and qdpasswd took it for a mistake."""
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        code = f"import sys; sys.argv = [{name!r}, '--version']; from {module} import {function} as m; sys.exit(m())"
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), name
        assert ran.stdout.strip() not in ("", "unknown"), name
