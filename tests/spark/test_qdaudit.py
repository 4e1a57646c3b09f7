"""`qdaudit` as its user meets it (issue 2, part 8: Audit)."""

import importlib.metadata
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from literal_events import line

from spark import cli, folders, session, tables
from spark.verbs import ingest

ROOT = Path(__file__).resolve().parents[2]


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """Exit status and standard error."""
    try:
        status = cli.main([str(argument) for argument in argv])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    return status, capsys.readouterr().err


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, said = run(capsys, "denials", tmp_path / "none")
    assert status == 3
    assert said == f"qdaudit: {tmp_path}/none: no such folder; give a router's audit directory\n"


def test_a_file_in_place_of_the_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    status, said = run(capsys, "denials", tmp_path / "a.jsonl")
    assert (status, said) == (3, f"qdaudit: {tmp_path}/a.jsonl: is a file; give the folder it is in\n")


def test_a_folder_of_other_things_is_not_a_report_of_zero(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    status, said = run(capsys, "denials", tmp_path)
    assert status == 3
    assert "holds no audit file (*.jsonl) but 1 other entries, the first 'notes.txt'" in said


def test_no_file_is_passed_over_in_silence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("_a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.jsonl.bak"):
        (tmp_path / name).write_text("")
    found, others = folders.audit_files(tmp_path)
    assert [file.name for file in found] == ["_a.jsonl", "b.jsonl", "c.jsonl"]
    ingest.tell_others(others)
    assert capsys.readouterr().err == "qdaudit: 1 other entries passed over, the first 'd.jsonl.bak'\n"


def test_attack_a_file_name_of_other_bytes_is_passed_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / os.fsdecode(b"b\xff\x1b.jsonl")).write_text("")
    found, others = folders.audit_files(tmp_path)
    assert [file.name for file in found] == ["a.jsonl"]
    ingest.tell_others(others)
    said = capsys.readouterr().err
    assert said.isprintable() or said[:-1].isprintable()


def test_attack_the_mark_of_a_table_among_audit_files_hides_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "table.json").write_text("{}")
    (tmp_path / "a.jsonl.gz").write_text("")
    status, said = run(capsys, "denials", tmp_path)
    assert status == 3
    assert "holds a table's mark (table.json) and audit files; keep them apart" in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "a.jsonl").chmod(0)
    status, said = run(capsys, "denials", tmp_path)
    assert (status, said) == (3, f"qdaudit: {tmp_path}/a.jsonl: not allowed to read it\n")


@pytest.mark.parametrize(
    ("arguments", "said_part"),
    [
        ((), "the following arguments are required: VERB"),
        (("denials",), "the following arguments are required: FOLDER"),
        (("denials", ".", "--since", "noon"), "'noon' is not a time; write it as 2026-01-31 or 2026-01-31T08:00:00Z"),
        (("denials", ".", "--since", "2026-02-01", "--until", "2026-02-01"), "must be before --until"),
        (("denials", ".", "--format", "xml"), "invalid choice: 'xml'"),
        (("denials", ".", "--top", "0"), "'0' is no number from 1 to 1000"),
        (("denials", ".", "--driver-memory", "lots"), "'lots' is no size of memory; write it as 2048m or 4g"),
        (("denials", ".", "--master", "host:7077"), "'host:7077' is no address of a Spark cluster"),
        (("ingest", "."), "the following arguments are required: TABLE"),
        (("ingest", ".", "t", "--every", "0"), "'0' is no number of seconds from 1 to 86400"),
        (("shadow", ".", "--candidate", "xyz"), "'xyz' is not the beginning of a digest"),
    ],
)
def test_wrong_arguments(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said_part: str) -> None:
    status, said = run(capsys, *arguments)
    assert status == 2
    assert said_part in said


def test_without_java_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "4.0.0")
    status, said = run(capsys, "denials", tmp_path)
    assert status == 3
    assert "no java on the PATH. Spark needs Java 17 or later" in said
    assert "apt install openjdk-17-jdk-headless" in said
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "no java in JAVA_HOME=/nowhere." in run(capsys, "denials", tmp_path)[1]


@pytest.mark.parametrize(
    ("version", "part"), [("1.8.0_392", "is Java 8."), ("11.0.22", "is Java 11."), (None, "does not tell a version")]
)
def test_an_old_java_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, part: str
) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n" if version else "#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "4.0.0")
    empty = tmp_path / "audit"
    empty.mkdir()
    status, said = run(capsys, "denials", empty)
    assert status == 3
    assert part in said


def test_without_pyspark_it_names_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    status, said = run(capsys, "denials", tmp_path)
    assert (status, said) == (
        3, "qdaudit: pyspark is not installed; install this package with its extra spark\n",
    )  # fmt: skip


def test_an_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "3.5.1")
    with pytest.raises(session.SparkUnavailableError, match=r"pyspark 3\.5\.1 is too old"):
        session.check_installed()


def test_help_and_wrong_arguments_do_not_wait_for_spark(tmp_path: Path) -> None:
    code = "import sys, spark.cli\ntry: spark.cli.main(sys.argv[1:])\nfinally: assert 'pyspark' not in sys.modules"
    missing = str(tmp_path / "none")
    for arguments in (["--help"], ["denials", "--help"], ["shadow", "-h"], ["denials"], ["denials", missing]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert "AssertionError" not in done.stderr


JAVA_ERRORS = [
    (
        "An error occurred while calling o89.parquet.\n: org.apache.spark.SparkException: Job aborted: Task 0 failed "
        "(executor driver): java.io.IOException: Mkdirs failed to create file:/x\n\tat org.apache.A(A.java:1)",
        "Mkdirs failed to create file:/x",
    ),
    (
        "An error occurred while calling o7.count.\n: java.lang.RuntimeException: outer\n\tat a.b(C.java:1)\n"
        "Caused by: java.io.IOException: No space left on device\n\t... 3 more",
        "No space left on device",
    ),
    ("[PATH_NOT_FOUND] Path does not exist: file:/a.jsonl.", "[PATH_NOT_FOUND] Path does not exist: file:/a.jsonl."),
    ("", "RuntimeError"),
    (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "files.py", line 105, in opened\n    metadata = pq.read_metadata(path)\n               ^^^\n'
        "pyarrow.lib.ArrowInvalid: magic\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "files.py", line 78, in run\n'
        "spark.sums.files.DamagedFileError: /t/a.parquet: no magic: take another\n\n\tat org.apache.A(A.java:1)",
        "/t/a.parquet: no magic: take another",
    ),
    (
        '[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n  File "part.py", line 1\n'
        "OSError: [Errno 28] No space left on device\n\n\tat org.apache.A(A.java:1)\n=== Streaming Query ===\n"
        "Identifier: [id = 1]\n+- ~StreamingDataSourceV2ScanRelation[file#0] palisade_audit\n",
        "[Errno 28] No space left on device",
    ),
]


@pytest.mark.parametrize(("text", "cause"), JAVA_ERRORS)
def test_of_a_java_stack_the_cause_is_shown(text: str, cause: str) -> None:
    assert cli._cause(RuntimeError(text)) == cause


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def sample(rows: int = 1, **changes: Any) -> Any:
    """A report without Spark."""
    pytest.importorskip("pyspark")
    from spark.jobs.reports import Continuity, Report, Table

    shown = tuple((f"[red]u\x1b[2J{n}", 3) for n in range(rows))
    users = Table(title="Denials by user", columns=("user", "denials"), rows=shown, is_complete=False)
    names = ["by_reason", "by_host", "by_vhost", "by_hour", "quarantine"]
    empty = {name: Table(title=name, columns=(name, "denials"), rows=(), is_complete=True) for name in names}
    counts = {
        "files": 1,
        "lines": 2,
        "quarantined": 0,
        "duplicates": 0,
        "lost": 0,
        "deleted_files": 0,
        "totals": {"denials": 3},
    }
    whole = {"continuity": Continuity(starts=1), "heading": "3 denials", "warning": ""}
    return Report(**{**counts, **whole, **changes}, tables={"by_user": users, **empty})


def test_elsewhere_than_on_a_terminal_the_report_is_plain() -> None:
    stream = io.StringIO()
    tables.render(sample(), stream)
    assert stream.getvalue() == (
        "3 denials in 2 lines of 1 file; 0 duplicates; 0 quarantined\n\n"
        "Denials by user\n  user            denials\n  [red]u\\x1b[2J0        3\n"
    )


def test_attack_a_user_name_cannot_steer_the_terminal() -> None:
    stream = Terminal()
    tables.render(sample(), stream)
    assert "\x1b[2J" not in stream.getvalue()
    assert "[red]u\\x1b[2J0" in stream.getvalue()
    assert tables.printable("a\u202eb\nc") == "a\\u202eb\\nc"
    assert len(tables.printable("x" * 1000)) == tables.MAX_CELL_CHARS


def test_a_long_table_is_cut_and_says_so() -> None:
    stream = io.StringIO()
    tables.render(sample(rows=25), stream)
    assert "... 5 or more rows more; --out writes all\n" in stream.getvalue()


def test_lost_events_are_warned_of() -> None:
    stream = io.StringIO()
    tables.render(sample(lost=1), stream)
    assert "WARNING: 1 event could not be written by the routers" in stream.getvalue()


def test_what_is_missing_is_told_before_anything_else() -> None:
    pytest.importorskip("pyspark")
    from spark.jobs.reports import Continuity

    stream = io.StringIO()
    tables.render(sample(continuity=Continuity(starts=3, missing=2, headless=1, endless=2)), stream)
    assert stream.getvalue().splitlines()[1:4] == [
        "WARNING: 2 events missing between others of one start of a router",
        "1 of 3 starts of routers: the first events are not here",
        "2 of 3 starts of routers: no end on record, still running, or killed with what was not written yet",
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_the_command_prints_its_report_and_leaves_nothing_behind(tmp_path: Path) -> None:
    try:
        session.check_installed()
    except session.SparkUnavailableError as error:
        pytest.skip(str(error))
    folder, here, temporary = tmp_path / "audit", tmp_path / "here", tmp_path / "tmp"
    for path in (folder, here, temporary):
        path.mkdir()
    (folder / "denials-1.jsonl").write_text(line() + "\n" + line()[:80])
    done = subprocess.run(
        [sys.executable, "-m", "spark.cli", "denials", str(folder), "--strict", "--until", "2027-01-01"],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "SPARK_HOME": "/nowhere"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.returncode == 1
    assert done.stdout.startswith(
        "1 denial in 2 lines of 1 file; 0 duplicates; 1 quarantined\n"
        "1 of 1 start of routers: no end on record, still running, or killed with what was not written yet\n"
        "\nDenials by reason\n"
        "  reason              denials  first                        last\n"
        "  target_not_allowed        1  2026-11-20T14:05:06.000007Z  2026-11-20T14:05:06.000007Z\n"
    )
    assert done.stdout.endswith(
        "Quarantined lines\n  file             reason                     lines\n"
        "  denials-1.jsonl  not one whole JSON object      1\n"
    )
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []
