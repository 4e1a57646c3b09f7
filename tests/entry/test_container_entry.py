"""What qdrouterd-entry writes into its run folder, and what it becomes."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from auth.secrets import Secret
from auth.verifiers.files import UserFile
from auth.verifiers.hashes import Argon2idCost
from router.entry import container

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
CONFIGURATION = "router {\n    mode: interior\n    id: ${ROUTER}\n}\n"


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """In memory, where /dev/shm is."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """As Kubernetes mounts a Secret: links through a hidden folder."""
    (tmp_path / "users" / "..2026").mkdir(parents=True)
    (tmp_path / "users" / "..data").symlink_to("..2026")
    for name, password in (("admin", "pässword\n"), ("anna", "wonderland")):
        (tmp_path / "users" / "..2026" / name).write_text(password)
        (tmp_path / "users" / name).symlink_to(f"..data/{name}")
    return tmp_path / "users"


class Became:
    """What the process would have become."""

    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = {}

    def __call__(self, path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        assert path == sys.executable
        self.arguments, self.environment = arguments, environment


Enter = Callable[..., tuple[int, Became]]


@pytest.fixture
def enter(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    monkeypatch.setattr(container, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(os, "umask", lambda mode: None)
    monkeypatch.setattr("socket.gethostname", lambda: "mesh-1")

    def run(*arguments: str, **environment: str) -> tuple[int, Became]:
        became = Became()
        status = container.main(
            ["--run-dir", str(run_dir), *arguments], environment=environment, become=became, cost=CHEAP
        )
        return status, became

    return run


def written(run_dir: Path) -> str:
    return (run_dir / "router" / "qdrouterd.conf").read_text()


def test_a_configuration_of_the_environment_is_written_and_run(enter: Enter, run_dir: Path) -> None:
    """The variable is gone afterwards: it may hold passwords."""
    status, became = enter("--", "--check", QDROUTERD_CONF=CONFIGURATION, ROUTER="A")
    assert status == 0
    assert "id: A\n" in written(run_dir)
    path = str(run_dir / "router" / "qdrouterd.conf")
    assert became.arguments == [sys.executable, "-m", "router.io.daemon", "-c", path, "--check"]
    assert became.environment == {"ROUTER": "A"}
    assert stat.S_IMODE((run_dir / "router").stat().st_mode) == 0o700


def test_a_path_may_be_named_and_the_old_paths_are_read(
    enter: Enter, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("named", "old"):
        (tmp_path / name).write_text(f"router {{\n    id: {name}\n}}\n")
    assert container.CONFIGURATIONS[0] == "/opt/interconnect/etc/qdrouterd.conf"
    monkeypatch.setattr(container, "CONFIGURATIONS", (str(tmp_path / "not-there"), str(tmp_path / "old")))
    assert enter(QDROUTERD_CONF=str(tmp_path / "named"))[0] == 0
    assert "id: named" in written(run_dir)
    assert enter()[0] == 0
    assert "id: old" in written(run_dir)


def test_passwords_are_hashed_and_nothing_shows_them(
    enter: Enter, run_dir: Path, users: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The old image kept them readable in /tmp/qdrouterd.sasldb. They log in as admin@NAME, as there."""
    settings = {"QDROUTERD_CONF": "router {\n}\n", "APPLICATION_NAME": "mesh"}
    status, became = enter("--users", str(users), **settings)
    assert status == 0
    path = run_dir / "router" / "users"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    known = UserFile.load(str(path))
    assert known.users == ("admin@mesh", "anna@mesh")
    assert known.verify("admin@mesh", Secret("pässword")).is_valid
    sasl = Path(became.environment["PN_SASL_CONFIG_PATH"]) / "qdrouterd.conf"
    assert f"userfile_path: {path}\n" in sasl.read_text()
    everything = [each.read_text() for each in (run_dir / "router").rglob("*") if each.is_file()]
    shown = "\n".join([*everything, *became.arguments, *became.environment.values(), *capfd.readouterr()])
    assert "wonderland" not in shown
    assert "pässword" not in shown


def test_a_second_start_forgets_users_that_are_gone(enter: Enter, run_dir: Path, users: Path) -> None:
    """The run folder outlives a container that is started again."""
    settings = {"QDROUTERD_CONF": "router {\n}\n", "QDROUTERD_AUTO_CREATE_SASLDB_SOURCE": str(users)}
    assert enter(**settings)[0] == 0
    (users / "anna").unlink()
    assert enter(**settings)[0] == 0
    assert UserFile.load(str(run_dir / "router" / "users")).users == ("admin",)


def test_auto_mesh_ends_the_file(enter: Enter, run_dir: Path) -> None:
    """Operators look at it with `tail`."""
    mesh = {"QDROUTERD_AUTO_MESH_DISCOVERY": "INFER", "APPLICATION_NAME": "mesh"}
    assert enter(QDROUTERD_CONF=CONFIGURATION, ROUTER="A", **mesh)[0] == 0
    assert "host: mesh-0.mesh-headless\n" in written(run_dir).splitlines(keepends=True)[-7].lstrip()
    assert enter(QDROUTERD_CONF='[["router", {"id": "A"}]]', **mesh)[0] == 1


@pytest.mark.parametrize("content", ["", "\n", "two\nlines"])
def test_a_password_that_cannot_be_one_is_refused(
    enter: Enter, users: Path, capfd: pytest.CaptureFixture[str], content: str
) -> None:
    (users / "ben").write_text(content)
    assert enter("--users", str(users), QDROUTERD_CONF="router {\n}\n")[0] == 1
    printed = capfd.readouterr().err
    assert f"{users}/ben: the password" in printed
    assert "lines" not in printed


def test_what_is_missing_is_named(
    enter: Enter, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "CONFIGURATIONS", (str(tmp_path / "a"), str(tmp_path / "b")))
    for arguments, settings, text in (
        ([], {}, "there is no configuration: set QDROUTERD_CONF"),
        ([], {"QDROUTERD_CONF": CONFIGURATION}, "line 3: there is no environment variable ROUTER"),
        (["-c", "/not/there"], {}, "/not/there: No such file or directory"),
        (["--users", "/not/there"], {"QDROUTERD_CONF": "router {\n}"}, "/not/there: No such file or directory"),
        (["--users", str(tmp_path)], {"QDROUTERD_CONF": "router {\n}"}, "there is no user in it"),
    ):
        assert enter(*arguments, **settings)[0] == 1
        assert text in capfd.readouterr().err


def test_a_folder_on_a_disk_is_refused(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc stands for it: it is certainly no tmpfs."""
    monkeypatch.setattr(container, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(os, "umask", lambda mode: None)
    assert container.main(["--run-dir", "/proc"], environment={"QDROUTERD_CONF": "router {\n}"}) == 1
    assert "mount a tmpfs there" in capfd.readouterr().err
