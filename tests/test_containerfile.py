"""The structure of deploy/container/Containerfile. No image is built here: that wants a registry with its base images.

tests/packaging installs the wheel that its second stage installs.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "deploy" / "container" / "Containerfile").read_text("utf-8")
LINES = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def stages() -> list[list[list[str]]]:
    """The instructions of each stage, as words; what is before the first stage is left out."""
    found: list[list[list[str]]] = []
    for line in filter(None, LINES):
        if line.startswith("FROM "):
            found.append([])
        if found:
            found[-1].append(line.split())
    return found


def of_kind(stage: list[list[str]], instruction: str) -> list[str]:
    return [" ".join(words[1:]) for words in stage if words[0] == instruction]


def test_base_images_have_a_version_and_may_be_given_by_digest() -> None:
    arguments = dict(line.split()[1].split("=") for line in LINES if line.startswith("ARG "))
    for stage in stages():
        name = stage[0][1].removeprefix("${").removesuffix("}")
        assert re.fullmatch(r"[a-z]+:\d+(\.\d+)?-(bookworm-slim|slim-bookworm)", arguments[name])


def test_the_last_stage_has_no_compiler_and_no_root() -> None:
    *_, last = stages()
    commands = " ".join(of_kind(last, "RUN"))
    assert not re.search(r"apt-get|gcc|pip|npm", commands)
    assert "-perm /6000" in commands
    assert of_kind(last, "COPY") == ["--from=build /opt/palisade /opt/palisade"]
    (user,) = of_kind(last, "USER")
    assert re.fullmatch(r"[1-9]\d+:0", user)  # a number: Kubernetes cannot tell whether a name is root


def test_what_is_copied_is_there_and_everything_that_is_packed_is_copied() -> None:
    """A package that comes to pyproject.toml would otherwise be missing in the image."""
    copied = {
        name
        for stage in stages()
        for words in of_kind(stage, "COPY")
        if not words.startswith("--from")
        for name in words.split()[:-1]
    }
    assert [name for name in copied if not (ROOT / name).exists()] == []
    packages = {name.removesuffix("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert {name for name in packages if (ROOT / name).is_dir()} <= copied


def test_it_starts_and_checks_by_commands_of_ours_without_a_shell() -> None:
    *_, last = stages()
    (entry,), (check,) = of_kind(last, "ENTRYPOINT"), of_kind(last, "HEALTHCHECK")
    assert entry == '["qdrouterd-entry"]'
    assert 'CMD ["qdstat", "--check", ' in check
    assert {"qdrouterd-entry", "qdstat"} <= PROJECT["project"]["scripts"].keys()
