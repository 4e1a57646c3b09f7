"""How `qdpolicy` treats what it is given: files that are none, standard input, files it writes."""

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from policy.analysis.effort import TooComplexError
from policy.cli.files import write_whole
from policy.cli.main import main
from policy.cli.sources import UnusableError, ruleset_of
from policy.files.regular import MAX_POLICY_BYTES
from policy.lint.places import Mended

ROOT = Path(__file__).resolve().parents[2]
OLD = '[["vhost", {"id": "h", "groups": {"g": {"users": "a", "remoteHosts": "10.0.0.1", "sources": "x"}}}]]\n'
NEW = OLD.replace('"id"', '"hostname"')


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy with one finding and its fix; qdpolicy runs beside it."""
    path = tmp_path / "p.json"
    path.write_text(OLD)
    monkeypatch.chdir(tmp_path)
    return path


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


@pytest.mark.parametrize(
    "verb", [["lint"], ["fmt"], ["test"], ["convert"], ["diff", "p.json"], ["explain", "--host", "::1"]], ids=" ".join
)
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x00\xff\x93", "not UTF-8, beginning with byte 2"),
        (b"[" * 100_000, "nested more than 64 levels deep"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_policy_is_named_by_every_verb(
    verb: list[str], content: bytes | None, text: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = file.with_name("bad.json")
    if content is not None:
        bad.write_bytes(content)
    assert main([*verb, "bad.json"]) == 3
    captured = capsys.readouterr()
    assert "bad.json" in captured.out + captured.err
    assert text in captured.out + captured.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rule", "PAL65"], "'PAL65' is no rule: did you mean PAL065? `qdpolicy rules` lists them"),
        (["lint", "p.json", "--ignore", "x"], "'x' is no rule: `qdpolicy rules` lists them"),
        (["test", "p.json", "--min-coverage", "101"], "'101' is more than 100 percent"),
        (["explain", "p.json", "--host", "::1", "--links", "-1"], "'-1' is no number from 0 on"),
    ],
)
def test_a_wrong_option_is_told_what_would_be_right(
    arguments: list[str], text: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"{text}\n")


def test_ids_and_versions_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rule", "pal006"]) == 0
    assert capsys.readouterr().out.startswith("PAL006: ")
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0


@pytest.mark.slow
def test_a_device_does_not_fill_the_memory(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: a link in a policyDir to what never ends."""
    with file.open("wb") as opened:
        opened.truncate(MAX_POLICY_BYTES + 1)
    assert main(["lint", "p.json"]) == 3
    assert "larger than 16 MiB" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_does_not_pass_for_clean(file: Path) -> None:
    file.parent.chmod(0)
    try:
        assert main(["lint", str(file.parent)]) == 3
    finally:
        file.parent.chmod(0o700)


@pytest.mark.parametrize("path", ["rules", "r.conf"])
def test_a_folder_that_cannot_be_listed_is_named(
    path: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file.with_name("rules").mkdir()
    file.with_name("r.conf").write_text("policy {\n    enableVhostPolicy: yes\n    policyDir: rules\n}\n")
    monkeypatch.setattr("policy.cli.sources.folder_names", forbidden)
    assert main(["convert", "rules"]) == 3
    assert main(["explain", path, "--host", "::1"]) == 3
    captured = capsys.readouterr()
    assert captured.err == captured.out == "rules:1:1: cannot be read: Permission denied\n"


def test_files_that_are_too_much_together_are_not_read_on(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: a folder of files, each of which is small enough."""
    monkeypatch.setattr("policy.cli.sources.MAX_POLICY_BYTES", 1 << 20)
    file.unlink()
    for name in "abcd":
        file.with_name(f"{name}.json").write_text("[" + " " * ((1 << 19) - 2) + "]")
    said = "these policy files have more than 1 MiB together"
    assert main(["lint", "."]) == 3
    assert capsys.readouterr().out == f"c.json:1:1: invalid: cannot be read: {said}\n1 unreadable file\n"
    file.with_name("c.json").unlink()
    file.with_name("d.json").unlink()
    assert main(["lint", "."]) == 0


def test_standard_input_does_not_fill_the_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attack: /dev/zero as standard input."""
    monkeypatch.setattr("policy.cli.sources.MAX_POLICY_BYTES", 2 << 20)
    endless = io.BytesIO(b"[" + b" " * (3 << 20))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
    assert main(["lint", "-"]) == 3
    assert capsys.readouterr().out == "-:1:1: invalid: cannot be read: larger than 2 MiB\n1 unreadable file\n"
    assert endless.tell() == (2 << 20) + 1
    give(monkeypatch, "[" + " " * ((2 << 20) - 2) + "]")
    assert main(["lint", "-"]) == 0


def test_standard_input_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unreadable(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: object) -> int:
            raise io.UnsupportedOperation

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Unreadable())))
    assert main(["convert", "-"]) == 3
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["convert", "-"]) == 3
    assert capsys.readouterr().err == "-:1:1: cannot be read: unknown error\n-:1:1: cannot be read: it is closed\n"


def test_names_of_hosts_are_looked_up_where_it_is_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[object, ...]] = []

    def looked_up(*name: object, **options: object) -> list[tuple[object, ...]]:
        asked.append((*name, options))
        return [(2, 1, 6, "", ("10.0.0.7", port)) for port in (0, 1)]

    monkeypatch.setattr("policy.cli.sources.socket.getaddrinfo", looked_up)
    file.write_text(NEW.replace("10.0.0.1", "host.example"))
    expected = {"user": "a", "host": "10.0.0.7", "vhost": "h", "is": "allow"}
    file.with_name("e.json").write_text(json.dumps({"policy": "p.json", "expect": [expected]}))
    for host, status in (("10.0.0.7", 0), ("10.0.0.8", 1)):
        assert main(["explain", "p.json", "--host", host, "--vhost", "h", "--user", "a", "--resolve"]) == status
    assert main(["test", "e.json", "--resolve"]) == 0
    assert main(["diff", "p.json", "p.json", "--resolve"]) == 0
    assert set(map(str, asked)) == {str(("host.example", None, {"type": socket.SOCK_STREAM}))}
    hosts = ruleset_of(file, resolves=True).vhosts["h"].groups["g"].hosts
    assert [hosts.contains(host) for host in ("10.0.0.7", "10.0.0.8")] == [True, False]
    with pytest.raises(UnusableError, match=r"p\.json:1: .*host names are not looked up here: give --resolve"):
        ruleset_of(file)


def test_a_byte_order_mark_is_passed_over(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + OLD.encode())
    main(["lint", "p.json"])
    assert "p.json:1:14: warning PAL005" in capsys.readouterr().out
    conf = file.with_name("r.conf")
    conf.write_bytes(b"\xef\xbb\xbfrouter {\n}\n")
    assert main(["lint", "r.conf"]) == 0


def test_standard_input_is_linted(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, OLD)
    assert main(["lint", "-"]) == 1
    assert capsys.readouterr().out.startswith("stdin.json:1:14: warning PAL005")
    give(monkeypatch, "# a router\nlistener {\n host: 127.0.0.1\n no\n}\n")
    assert main(["lint", "-"]) == 3
    assert capsys.readouterr().out.startswith("stdin.conf:4:2: ")
    give(monkeypatch, OLD)
    assert main(["lint", "-", "--fix"]) == 2


def test_standard_input_is_laid_out_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, '[["vhost",{"hostname":"h"}]]')
    assert main(["fmt", "-"]) == 0
    assert capsys.readouterr().out == '[\n  ["vhost", {\n    "hostname": "h"\n  }]\n]\n'


@pytest.mark.slow
def test_a_pipe_that_is_closed_is_no_error(file: Path) -> None:
    file.write_text(json.dumps([["vhost", {"id": f"h{number}"}] for number in range(3000)]))
    process = subprocess.Popen(
        [sys.executable, "-m", "policy.cli.main", "lint", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 1


def test_what_a_terminal_cannot_show_is_spelled_out(file: Path) -> None:
    file.write_text('[["vhost", {"id": "hé…"}]]', "utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "policy.cli.main", "lint", str(file)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii:strict"},
    )
    assert (found.returncode, found.stderr) == (1, b"")
    assert b"vhost 'h\\xe9\\u2026'" in found.stdout


@pytest.mark.slow
def test_a_policy_on_one_line_takes_time_in_proportion(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: for each finding the whole line was searched for passwords, in the square of its length: minutes."""
    vhosts = [["vhost", {"id": f"h{number}"}] for number in range(1000)]
    file.write_text(json.dumps([*vhosts, ["vhost", {"id": "password" * 50_000}]]))
    assert main(["lint", "p.json"]) == 1
    assert capsys.readouterr().out.count("warning PAL005") == 1001


def test_a_reader_who_has_seen_enough_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`qdpolicy schema | head`: no traceback, neither at once nor when the interpreter ends."""
    reading, writing = os.pipe()
    os.close(reading)
    stdout = os.fdopen(writing, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["schema"]) == 1
    stdout.write("more")
    stdout.close()


def test_what_the_character_set_lacks_is_spelled_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('[["vhost", {"id": "hé…"}]]', "utf-8")
    out = io.BytesIO()
    stdout = io.TextIOWrapper(out, "ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["lint", "p.json"]) == 1
    assert b"vhost 'h\\xe9\\u2026'" in out.getvalue()


def test_a_verb_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: VERB\n")


# Writing


def test_a_fix_keeps_permissions_and_links(file: Path) -> None:
    file.chmod(0o640)
    link = file.with_name("link.json")
    link.symlink_to(file.name)
    assert main(["lint", "link.json", "--fix"]) == 0
    assert link.is_symlink()
    assert file.read_text() == NEW
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == ["link.json", "p.json"]


def test_a_file_that_may_not_be_written_stays(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replacing it would get around what its owner has forbidden."""
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    assert main(["lint", "p.json", "--fix"]) == 3
    assert capsys.readouterr().err == "p.json: cannot be written: it is write-protected\n"
    for option in ("--output", "--write-baseline"):
        assert main(["lint", "p.json", "--fix", option, f"new{option}"]) == 3
    assert main(["fmt", "p.json"]) == 3
    assert file.read_text() == OLD


def test_a_file_is_written_whole_or_not_at_all(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not leave half a policy for the router to find."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("policy.cli.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"x")
    assert file.read_text() == OLD
    assert [path.name for path in file.parent.iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["lint", "p.json", "--output", "no/such"],
        ["lint", "p.json", "--write-baseline", "no/such"],
        ["test", "e.json", "--junit", "no/such"],
        ["convert", "p.json", "--output", "no/such"],
    ],
)
def test_a_report_that_cannot_be_written_is_status_3(
    arguments: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.with_name("e.json").write_text('{"policy": "p.json", "expect": []}')
    assert main(arguments) == 3
    assert capsys.readouterr().err.endswith("no/such: cannot be written: No such file or directory\n")


def test_a_fix_that_would_change_the_meaning_is_not_made(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake in a rule that calls its fix safe must not open anything."""
    harmful = Mended(text=NEW.replace('"x"', '"*"'), findings=())
    monkeypatch.setattr("policy.cli.lint.mended", lambda *_, **__: {"p.json": harmful})
    said = "p.json: not changed, the fixes would change what it permits\n"
    assert main(["lint", "p.json", "--fix"]) == 3
    assert capsys.readouterr().out.startswith(f"{said}p.json:1:14: warning PAL005")
    assert main(["lint", "p.json", "--diff"]) == 3
    assert capsys.readouterr().out == said
    assert main(["lint", "p.json", "--fix", "--format", "json"]) == 3
    captured = capsys.readouterr()
    assert captured.err == said
    assert [each["rule"] for each in json.loads(captured.out)["findings"]] == ["PAL005"]
    assert main(["lint", "p.json", "--fix", "--output", "report"]) == 3
    assert capsys.readouterr().err == said
    assert file.read_text() == OLD


def test_line_ends_stay_as_they_are(file: Path) -> None:
    file.write_bytes(OLD.replace(", ", ",\r\n").encode())
    assert main(["lint", "p.json", "--fix"]) == 0
    assert file.read_bytes() == NEW.replace(", ", ",\r\n").encode()


# What a project has decided


def test_findings_of_a_baseline_that_are_gone_are_counted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "p.json", "--write-baseline", "known"])
    file.write_text(NEW)
    capsys.readouterr()
    assert main(["lint", "p.json", "--baseline", "known"]) == 0
    error = capsys.readouterr().err
    assert error == "qdpolicy: 1 of 1 findings in the baseline are gone: write it anew with --write-baseline\n"


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "{}", '{"version": 2, "findings": []}'])
def test_a_baseline_that_is_none_is_status_2(text: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("known").write_text(text)
    assert main(["lint", "p.json", "--baseline", "known"]) == 2
    assert capsys.readouterr().err == "qdpolicy: baseline known is none: write one with --write-baseline\n"


def test_a_configuration_nested_too_deeply_is_status_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.with_name("deep.toml").write_text(f"ignore = {'[' * 100_000}")
    assert main(["lint", "p.json", "--config", "deep.toml"]) == 2
    assert capsys.readouterr().err == "qdpolicy: deep.toml: it is nested too deeply\n"


def test_a_comment_about_a_rule_there_is_not_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[\n# qdpolicy: ignore[PAL999] hm\n" + NEW.removeprefix("["))
    assert main(["lint", "p.json"]) == 1
    output = capsys.readouterr().out
    assert "p.json:2:1: warning PAL053: there is no rule PAL999" in output
    assert "PAL054" not in output


# What cannot be told


@pytest.mark.parametrize(("options", "said"), [([], "{}\n"), (["--json"], '{{"version": 1, "problem": "{}"}}\n')])
def test_policies_too_large_to_compare_are_status_3(
    options: list[str], said: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TooComplexError("'#/x'")

    monkeypatch.setattr("policy.cli.diff.diff_rulesets", refuse)
    assert main(["diff", "p.json", "p.json", *options]) == 3
    assert capsys.readouterr().out == said.format("cannot tell: too large to compare: '#/x'")
    monkeypatch.setattr("policy.cli.convert.changed_meaning", refuse)
    assert main(["convert", "p.json"]) == 1
    text = (
        "the outcome cannot be shown to mean the same: cannot tell: too large to compare: '#/x'\nnothing was written\n"
    )
    assert capsys.readouterr().err == text
