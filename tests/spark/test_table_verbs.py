"""What the verbs on the event table say to a wrong command line: one sentence, before Spark is started (issue 15)."""

import importlib.metadata
import json
from pathlib import Path

import pytest

from spark import cli


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "table.json").write_text('{"version": 1}')
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit status and standard error."""
    try:
        status = cli.main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize("verb", ["detect", "report", "comply"])
def test_a_folder_that_is_no_table(capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str) -> None:
    out = ("--out", tmp_path / "out") if verb != "detect" else ()
    for folder, said in ((tmp_path / "none", "no such folder"), (tmp_path, "is no event table")):
        status, err = run(capsys, verb, folder, *out)
        assert status == 3
        assert err.startswith(f"qdaudit: {folder}: {said}")
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--follow", "--once"), "not allowed with argument"),
        (("--follow",), "--follow and --once need --checkpoint DIR"),
        (("--webhook", "https://h/"), "--webhook and --checkpoint are for --follow and --once"),
        (("--once", "--checkpoint", "c", "--since", "2026-01-01"), "--since and --until are not for --follow"),
        (("--once", "--checkpoint", "c", "--webhook", "http://h/s3cret"), "--webhook: is not https"),
        (("--since", "2026-02-01", "--until", "2026-01-01"), "must be before --until"),
        (("--thresholds", "none.json"), "none.json: cannot be read: No such file"),
        (("--thresholds", "bad.json"), "bad.json: brute_force.window_s: "),
        (("--thresholds", "off.json"), "off.json: no detector is enabled"),
        (("--once", "--checkpoint", "c", "--webhook-token-file", "token"), "a token is one line of printable ASCII"),
    ],
)
def test_detect_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    table: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    import schemas

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text('{"brute_force": {"window_s": "x"}}')
    names = schemas.load("detect_thresholds")["properties"]
    (tmp_path / "off.json").write_text(json.dumps({name: {"enabled": False} for name in names}))
    (tmp_path / "token").write_text("t0ken\nX-More: y")
    status, err = run(capsys, "detect", table, *arguments)
    assert status == (3 if ".json: " in said or "token" in said else 2)  # of a file's content; of the command line
    assert said in err
    assert "s3cret" not in err
    assert "t0ken" not in err


@pytest.mark.parametrize("verb", ["denials", "detect", "comply"])
@pytest.mark.parametrize(
    ("mark", "said"), [('{"version": 99}', "table: is a table of version 99"), ("{", "table.json: is not the mark")]
)
def test_a_table_of_a_later_version_is_not_read(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path, verb: str, mark: str, said: str
) -> None:
    """It was, by this version's columns, and its numbers were perhaps wrong."""
    (table / "table.json").write_text(mark)
    status, err = run(capsys, verb, table, *(("--out", tmp_path / "out") if verb == "comply" else ()))
    assert status == 3
    assert said in err


@pytest.mark.parametrize(
    "arguments", [("detect", "--thresholds", "none"), ("report", "--findings", "none"), ("report",), ("comply",)]
)
def test_without_pyspark_the_package_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    table: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
) -> None:
    """And nothing else is asked for first, which would want it loaded."""

    def version(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    verb, *others = arguments
    status, err = run(capsys, verb, table, *others, *(() if verb == "detect" else ("--out", tmp_path / "out")))
    assert status == 3
    assert err == ("qdaudit: pyspark is not installed; install this package with its extra spark\n")


@pytest.mark.parametrize("verb", ["replay", "recommend"])
def test_a_policy_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path, verb: str
) -> None:
    policy = tmp_path / "p.json"
    policy.write_text('[["vhost", {"hostname": 5}]]')
    status, err = run(capsys, verb, table, policy)
    assert status == 3
    assert "p.json:1:" in err
    assert "Traceback" not in err


def test_a_key_without_a_trail(capsys: pytest.CaptureFixture[str], table: Path, tmp_path: Path) -> None:
    status, err = run(capsys, "comply", table, "--out", tmp_path / "o", "--key", "k.pem")
    assert (status, err) == (2, "qdaudit: --key is for --trail\n")


def test_arguments_that_are_none(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    for arguments in (
        ("detect", table, "--interval", "0"),
        ("detect", table, "--fail-on", "all"),
        ("report", table),
        ("comply", table, "--standard", "hipaa", "--out", "x"),
        ("replay", table),
    ):
        assert run(capsys, *arguments)[0] == 2, arguments
