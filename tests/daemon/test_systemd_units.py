"""The units of deploy/systemd: verified and scored by systemd itself, and in step with the daemon. Issue 39."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import ROOT

pytestmark = pytest.mark.interop

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MAX_EXPOSURE = 1.5


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_to_object_to(unit: Path, tmp_path: Path, require_tool: Callable[..., Path]) -> None:
    analyze = require_tool("systemd-analyze", "systemd")
    # An instance of a template; and a program that is there, since /opt/palisade is not.
    copy = tmp_path / unit.name.replace("@.", "@one.")
    copy.write_text(unit.read_text().replace("/opt/palisade/bin/", f"{tmp_path}/"))
    for program in ("qdrouterd", "qdauthd"):
        shutil.copy("/bin/true", tmp_path / program)
    found = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.replace(str(tmp_path), "")) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_exposure(unit: Path, require_tool: Callable[..., Path]) -> None:
    analyze = require_tool("systemd-analyze", "systemd")
    # `--threshold` is in tenths.
    options = ["security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE * 10:.0f}"]
    found = subprocess.run([analyze, *options, str(unit)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_all_have_the_same_sandbox() -> None:
    assert [unit.name for unit in UNITS] == ["qdauthd.service", "qdrouterd-edge@.service", "qdrouterd.service"]
    sandboxes = {unit.read_text().partition("LogsDirectoryMode")[2].partition("[Install]")[0] for unit in UNITS}
    assert len(sandboxes) == 1
    assert "ProtectSystem=strict" in sandboxes.pop()
