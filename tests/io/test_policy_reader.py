"""A policy folder read by a process of its own: what comes back is what reading it here would give. Issue 5."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from policy.configuration.schema import load_schema
from policy.ruleset import assemble_ruleset, compile_ruleset
from router.control import policy_reader
from router.control.policy_reader import FolderReader, OvertakenError, ReadFolder, ReadVhost, ReloadError, key_of
from router.management.config import load_policy_dir

POLICY = {"enableVhostPolicy": True}
LONG = ".".join(["a", "*", "#", "b"] * 60)


def vhost(hostname: str, **group: Any) -> list[Any]:
    defaults = {"users": ["u", "w"], "remoteHosts": "10.0.0.0/8, ::1", "sourcePattern": f"{LONG}, ${{user}}.#"}
    return ["vhost", {"hostname": hostname, "groups": {"g": {**defaults, "denyTargets": "x", **group}}}]


def write(folder: Path, *vhosts: list[Any], name: str = "a.json") -> None:
    (folder / name).write_text(json.dumps([*vhosts], indent=1))


def read(folder: Path, known: Mapping[bytes, ReadVhost] | None = None) -> ReadFolder:
    return asyncio.run(FolderReader(str(folder), "policyDir").read(known or {}))


def test_what_the_process_compiles_is_what_is_compiled_here(tmp_path: Path) -> None:
    write(tmp_path, vhost("v"), vhost("w", users="*", unknown=1))
    found = read(tmp_path)
    there = assemble_ruleset(POLICY, ((each.vhost, each.warnings) for each in found.vhosts))
    entities = load_policy_dir(str(tmp_path), load_schema()).entities
    here = compile_ruleset(POLICY, [(each.attributes, each.source) for each in entities], resolve=lambda _: ())
    assert there.digest == here.digest
    assert there.warnings == here.warnings
    assert [each.entity for each in found.vhosts] == list(entities)
    settings = there.vhosts["v"].groups["g"]
    assert settings.sources.bind("u").match(f"{LONG.replace('*', 'x').replace('#', 'y')}") == LONG
    assert settings.rule("denyTargets") == here.vhosts["v"].groups["g"].rule("denyTargets")
    assert [each.key for each in found.vhosts] == [
        key_of(entity, here.vhosts[str(entity.attributes["hostname"])]) for entity in entities
    ]


def test_only_what_has_changed_is_taken_over(tmp_path: Path) -> None:
    write(tmp_path, vhost("v"), vhost("w"))
    first = read(tmp_path)
    known = {each.key: each for each in first.vhosts}
    write(tmp_path, vhost("v"), vhost("w", maxSenders=1))
    second = read(tmp_path, known)
    assert second.vhosts[0] is first.vhosts[0]
    assert second.vhosts[1].vhost.groups["g"].max_senders == 1


def test_a_vhost_that_moves_within_its_file_is_another(tmp_path: Path) -> None:
    """Denials name the line of the rule."""
    write(tmp_path, vhost("v"))
    first = read(tmp_path)
    (tmp_path / "a.json").write_text("\n\n" + (tmp_path / "a.json").read_text())
    second = read(tmp_path, {each.key: each for each in first.vhosts})
    assert (first.vhosts[0].entity.source.line, second.vhosts[0].entity.source.line) == (2, 4)


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("[", "Expecting value", 1),
        (json.dumps([vhost("v", remoteHosts="no.such.host.invalid")]), "failed to resolve", 1),
        (json.dumps([vhost("v", maxSenders=-1)]), "below minimum", 1),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, why: str, line: int) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ReloadError, match=why) as caught:
        read(tmp_path)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "a.json"), line)
    assert not caught.value.may_pass


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReloadError, match="cannot be read: No such file"):
        read(tmp_path / "none")


def test_a_process_that_dies_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a policy is none."""
    write(tmp_path, vhost("v"))
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nprintf 'half of a frame'\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(ReloadError, match="ended early, with status 3") as caught:
        read(tmp_path)
    assert caught.value.may_pass


def test_a_process_that_cannot_be_started_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(ReloadError, match="no process could be started") as caught:
        read(tmp_path)
    assert caught.value.may_pass


def test_a_process_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(policy_reader, "READING_S", 0.05)
    with pytest.raises(ReloadError, match="could not be read within") as caught:
        read(tmp_path)
    assert caught.value.may_pass


def test_routing_has_its_turn_while_vhosts_are_taken_over(tmp_path: Path) -> None:
    write(tmp_path, *(vhost(f"v{number}") for number in range(100)))

    async def run() -> int:
        turns = 0
        reading = asyncio.create_task(FolderReader(str(tmp_path), "policyDir").read({}))
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await reading).vhosts) == 100
        return turns

    assert asyncio.run(run()) > 20


def test_nothing_where_the_router_was_started_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a file named like a module, where the router's operator happened to be when he started it."""
    rules, started_in = tmp_path / "rules", tmp_path / "started_in"
    rules.mkdir()
    started_in.mkdir()
    write(rules, vhost("v"))
    (started_in / "hashlib.py").write_text("open('was_run', 'w')\nraise SystemExit")
    monkeypatch.chdir(started_in)
    assert [each.vhost.name for each in read(rules).vhosts] == ["v"]
    assert not (started_in / "was_run").exists()


def test_a_process_that_cannot_be_killed_does_not_keep_later_changes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for a network's disk goes on waiting."""

    class Stuck:
        def __init__(self) -> None:
            self.stdout = asyncio.StreamReader()

        def kill(self) -> None:
            pass

        async def wait(self) -> int:
            await asyncio.Event().wait()
            return 0

    async def started(*_: object) -> Stuck:
        return Stuck()

    async def run() -> None:
        async with asyncio.timeout(10):
            await FolderReader("/", "policyDir").read({})

    monkeypatch.setattr(policy_reader, "_started", started)
    monkeypatch.setattr(policy_reader, "READING_S", 0.01)
    monkeypatch.setattr(policy_reader, "DYING_S", 0.01)
    with pytest.raises(ReloadError, match="could not be read within"):
        asyncio.run(run())


def hanging_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str = "exec sleep 60") -> None:
    (tmp_path / "python").write_text(f"#!/bin/bash\n{script}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def test_a_newer_read_ends_one_that_takes_long_and_each_has_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_reader, "PATIENCE_S", 0.05)
    monkeypatch.setattr(policy_reader, "READING_S", 0.15)
    hanging_python(tmp_path, monkeypatch)

    async def run() -> None:
        reader = FolderReader("/", "policyDir")
        reader.hurry()  # nothing to hurry
        for expected in (r"took more than 0\.05 s", r"took more than 0\.1 s", "could not be read within"):
            reading = asyncio.create_task(reader.read({}))
            await asyncio.sleep(0)
            reader.hurry()
            reader.hurry()
            with pytest.raises(ReloadError, match=expected) as caught:
                await reading
            assert isinstance(caught.value, OvertakenError) == ("took more" in expected)

    asyncio.run(run())


def test_a_process_that_cannot_be_ended_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer collects no processes."""
    monkeypatch.setattr(policy_reader, "READING_S", 0.05)
    monkeypatch.setattr(policy_reader, "DYING_S", 0.05)
    hanging_python(tmp_path, monkeypatch)

    async def run() -> None:
        reader = FolderReader(str(tmp_path), "policyDir")
        kill = asyncio.subprocess.Process.kill
        monkeypatch.setattr(asyncio.subprocess.Process, "kill", lambda _self: None)
        with pytest.raises(ReloadError, match="could not be read within"):
            await reader.read({})
        with pytest.raises(ReloadError, match="has not ended: it waits for a disk") as caught:
            await reader.read({})
        assert caught.value.may_pass
        assert reader._stuck is not None
        kill(reader._stuck)
        await reader._stuck.wait()
        with pytest.raises(ReloadError, match="could not be read within"):
            await reader.read({})
        kill(reader._stuck)
        await reader._stuck.wait()

    asyncio.run(run())


def test_a_policy_that_takes_all_processor_time_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging_python(tmp_path, monkeypatch, "kill -XCPU $$; sleep 60")
    with pytest.raises(ReloadError, match="takes more than 60 s of processor time") as caught:
        read(tmp_path)
    assert not caught.value.may_pass


def test_a_policy_that_takes_all_memory_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("[" + ",".join(["[]"] * 1_000_000) + "]")
    hanging_python(tmp_path, monkeypatch, f'ulimit -v 200000; exec "{sys.executable}" "$@"')
    with pytest.raises(ReloadError, match="takes more than 195 MiB of memory") as caught:
        read(tmp_path)
    assert not caught.value.may_pass


def test_the_process_is_under_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = tmp_path / "shown"
    script = (
        "import resource; from router.control import policy_reader; "
        "policy_reader._limit_this_process(); "
        "print([resource.getrlimit(each)[0] for each in policy_reader._LIMITS], "
        "open('/proc/self/oom_score_adj').read())"
    )
    hanging_python(tmp_path, monkeypatch, f'"{sys.executable}" -c "{script}" | cat > {shown}; exit 1')
    with pytest.raises(ReloadError, match="status 1"):
        read(tmp_path)
    assert shown.read_text().split("\n")[0] == "[1073741824, 60, 128, 0, 0] 1000"
