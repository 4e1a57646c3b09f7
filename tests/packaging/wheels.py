"""Building a wheel of this checkout, and installing it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CONSOLE = frozenset(f"router/web/console/dist/{name}" for name in ("index.html", "assets/app.js", "assets/app.js.br"))


def pip(*arguments: str | Path, python: Path | None = None, environment: dict[str, str] | None = None) -> None:
    """Run pip, on another environment when `python` is given; its output appears when it fails."""
    where: list[str | Path] = ["--python", python] if python else []
    command = [sys.executable, "-m", "pip", *where, *arguments]
    result = subprocess.run(
        command, env=os.environ | (environment or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, result.stdout


def copy_of_checkout(target: Path) -> None:
    """The paths that git has or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
