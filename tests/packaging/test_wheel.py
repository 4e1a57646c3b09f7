"""The wheel works outside a checkout: everything it needs is inside, nothing else is."""

import os
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
PACKAGES = {"auth", "policies", "policy", "router", "schemas", "spark"}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command from a folder that is not the checkout, without help from the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top_level = {name.partition("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == PACKAGES
    data = {
        *(ROOT / "schemas").glob("*.json"),
        *(ROOT / "policies").rglob("*.json"),
        *(ROOT / "policies").rglob("*.conf"),
    }
    assert data
    assert {str(path.relative_to(ROOT)) for path in data} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_modules_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Guards the other tests of this folder: were the checkout imported, they would prove nothing."""
    code = "import router, policy, auth, schemas, spark; print(router.__file__, policy.__file__, schemas.__file__)"
    result = run(installed / "python", "-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(path.startswith(str(installed.parent)) for path in result.stdout.split())


def test_compiled_steps_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = "from router.amqp.engine import steps; print(steps.CHOSEN is steps.COMPILED)"
    assert run(installed / "python", "-c", code, cwd=tmp_path).stdout.strip() == "True"


def test_every_schema_loads(installed: Path, tmp_path: Path) -> None:
    names = sorted(path.stem for path in (ROOT / "schemas").glob("*.json"))
    code = "import schemas, sys; [schemas.load(name) for name in sys.argv[1:]]"
    result = run(installed / "python", "-c", code, *names, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_example_policies_can_be_read_and_have_no_findings(installed: Path, tmp_path: Path) -> None:
    code = "from importlib import resources; print(resources.files('policies') / 'quickstart')"
    folder = run(installed / "python", "-c", code, cwd=tmp_path).stdout.strip()
    assert folder.startswith(str(installed.parent))
    result = run(installed / "qdpolicy", "lint", folder, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, installed: Path, tmp_path: Path) -> None:
    result = run(installed / command, "--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "usage" in result.stdout.lower()
    assert command in result.stdout
