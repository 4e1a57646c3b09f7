"""A machine that lacks something is told all of it at once, with the command that installs it."""

import importlib.util
import shutil
import sysconfig
from pathlib import Path

import pytest

from deploy import preflight


def test_everything_missing_is_named_in_one_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert preflight.main() == 1
    assert capsys.readouterr().out == "Missing on this machine: apt-get install python3-venv python3-dev gcc\n"


def test_a_missing_jdk_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(preflight, "missing_packages", list)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert preflight.main() == 0
    assert "openjdk" in capsys.readouterr().out


def test_an_old_python_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(preflight, "OLDEST_PYTHON", (99, 0))
    assert preflight.main() == 1
    assert "make PYTHON=/path/to/python99.0" in capsys.readouterr().out
