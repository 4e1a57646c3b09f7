"""The wheel works outside a checkout: everything it needs is inside, nothing else is."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from wheels import CONSOLE, copy_of_checkout, pip

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
COMPAT = {"qpid_dispatch", "qpid_dispatch_internal", "qpid_dispatch_site"}
PACKAGES = {"auth", "policies", "policy", "router", "schemas", "spark"} | COMPAT


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command from a folder that is not the checkout, without help from the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_wheel_holds_the_packages_and_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top_level = {name.partition("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith((".dist-info", ".data"))} == PACKAGES
    beside = {name.partition(".data/")[2] for name in names if ".data/" in name.partition("/")[0] + "/"}
    manuals = {f"man{path.suffix[1:]}/{path.name}" for path in (ROOT / "deploy" / "man").glob("*.[158]")}
    assert {name.partition("/")[2].partition(".")[0] for name in manuals} == COMMANDS.keys()
    assert beside == {f"data/share/man/{name}" for name in manuals}
    data = {
        *(ROOT / "schemas").glob("*.json"),
        *(ROOT / "policies").rglob("*.json"),
        *(ROOT / "policies").rglob("*.conf"),
    }
    assert data
    assert {str(path.relative_to(ROOT)) for path in data} <= set(names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_console_is_in_the_wheel_where_it_was_built(wheel: Path) -> None:
    """Its built files, and no source of them."""
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("router/web/console")} == CONSOLE


def test_modules_of_the_router_we_replace_are_at_the_top_level(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """Management §11: scripts import them by their own names, and by no other."""
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("router/compat")]
    result = run(installed / "python", "-c", COMPAT_IMPORTS, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(path.startswith(str(installed.parent)) for path in result.stdout.split())


COMPAT_IMPORTS = """
import qpid_dispatch.management.client as client
import qpid_dispatch.management.entity, qpid_dispatch.management.error, qpid_dispatch_internal.compat
import qpid_dispatch_internal.management.config, qpid_dispatch_internal.management.qdrouter as qdrouter
import qpid_dispatch_internal.management.schema, qpid_dispatch_internal.tools.command, qpid_dispatch_site as site
assert qdrouter.QdSchema().dump()["prefix"] == "org.apache.qpid.dispatch"
assert site.VERSION[0].isdigit() and client.Node and client.Url and client.Entity
print(client.__file__, qdrouter.__file__, site.__file__)
"""


def test_they_are_found_in_an_editable_installation_and_in_one_from_the_source_archive(tmp_path: Path) -> None:
    """Both ways that `pip install` is used from a checkout."""
    source = tmp_path / "source"
    copy_of_checkout(source)
    for way, what in (("editable", ["-e", str(source)]), ("archive", [str(source_archive(source, tmp_path))])):
        folder = tmp_path / way
        venv.create(folder, with_pip=False, symlinks=True)
        python = folder / "bin" / "python"
        pip("install", "-q", "--no-deps", *what, python=python)
        packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(packages, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        result = run(python, "-c", COMPAT_IMPORTS, cwd=folder)
        assert result.returncode == 0, result.stderr
        assert all(path.startswith(str(tmp_path)) for path in result.stdout.split()), way


def source_archive(source: Path, folder: Path) -> Path:
    """The sdist of a source folder, built by its own build backend."""
    tools = folder / "tools"
    pip("install", "-q", "--target", tools, "setuptools>=77")
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(tools)}
    built = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder / built.stdout.splitlines()[-1]


def test_modules_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Guards the other tests of this folder: were the checkout imported, they would prove nothing."""
    code = "import router, policy, auth, schemas, spark; print(router.__file__, policy.__file__, schemas.__file__)"
    result = run(installed / "python", "-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(path.startswith(str(installed.parent)) for path in result.stdout.split())


@pytest.mark.parametrize("module", ["engine._steps", "guard._frames", "layout._walk"])
def test_what_is_compiled_is_in_the_wheel(module: str, installed: Path, tmp_path: Path) -> None:
    result = run(installed / "python", "-c", f"import router.amqp.{module}", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_every_schema_loads(installed: Path, tmp_path: Path) -> None:
    names = sorted(path.stem for path in (ROOT / "schemas").glob("*.json"))
    code = "import schemas, sys; [schemas.load(name) for name in sys.argv[1:]]"
    result = run(installed / "python", "-c", code, *names, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_manual_pages_are_where_man_looks_for_them(installed: Path) -> None:
    for name in ("man5/qdrouterd.conf.5", "man8/qdrouterd.8", "man1/qdsend.1"):
        assert (installed.parent / "share" / "man" / name).is_file()


def test_the_default_configuration_is_installed(installed: Path, tmp_path: Path) -> None:
    """It is what a bare `qdrouterd` finds where there is none in /etc."""
    code = (
        "from router.io import daemon; daemon.DEFAULT_CONFIG = '/no/such/file'\n"
        "path = daemon.default_config(); print(path, open(path).read().count('listener {'))"
    )
    result = run(installed / "python", "-c", code, cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout.startswith(str(installed.parent))
    assert result.stdout.endswith("policies/default/qdrouterd.conf 1\n")


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
