"""The files that a router would read together with an open one: its policy folder and the configuration that names it.

Open files have the text in the editor. All others are read from the disk, regular files only.
"""

import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from policy.cli.sources import (
    BEGINNING,
    Loaded,
    UnreadableError,
    cannot_be_read,
    is_ours,
    load_files,
    read_text,
    why_unread,
)
from policy.files.positioned_json import NotJson, Problem, parse
from policy.files.regular import MAX_POLICY_FILES, folder_names, is_policy_file, read_start
from policy.lint.configuration import ConfigurationError, LintConfiguration, read_configuration

CONFIGURATION: Final = "qdpolicy.toml"
_CONF: Final = ".conf"
# Limit of configurations examined in each of two folders: the policy folder and its parent.
_MAX_CONFIGURATIONS: Final = 20
_MAX_LEVELS: Final = 40

_POLICY_DIR: Final = re.compile(r"policy-?dir", re.IGNORECASE)


def load_project(file: str, buffers: Mapping[str, str]) -> Loaded:
    """Loads the files that a router would read with this one, as `qdpolicy lint` does.

    file     absolute; a name that is not on the disk is loaded alone
    buffers  file -> text of the open files
    """
    loaded = Loaded(buffers=buffers)
    path = Path(file)
    if not path.is_absolute():
        load_files([path], loaded)
        return loaded
    is_router = path.suffix == _CONF or _is_json_router(path, buffers)
    configuration = path if is_router else _configuration_of(path.parent, buffers)
    if configuration is None:
        # It is unknown whether a router reads this folder. It may contain JSON files of all kinds.
        found = _policy_files(path.parent, loaded)
        load_files([each for each in found if each == path or _may_be_policy(each, buffers)], loaded)
        return loaded
    load_files([configuration], loaded)
    named = loaded.policy.get("policyDir")
    if isinstance(named, str) and named:
        folder = _folder(named, configuration)
        if folder.is_dir() or folder == path.parent:
            load_files(_policy_files(folder, loaded), loaded, are_policy=True)
        else:
            loaded.problems.append((str(configuration), _no_folder(named, loaded)))
    return loaded


def _is_json_router(file: Path, buffers: Mapping[str, str]) -> bool:
    loaded = Loaded(buffers=buffers)
    load_files([file], loaded)
    return loaded.is_configuration


def _no_folder(named: str, loaded: Loaded) -> Problem:
    problem = cannot_be_read(f"its policyDir '{named}' is no folder")
    for entity in loaded.entities:
        if entity.type == "policy" and (line := entity.source.line_of(("policyDir",))) is not None:
            return Problem(line=line, column=entity.source.column_of(("policyDir",)), text=problem.text)
    return problem


def _policy_files(folder: Path, loaded: Loaded) -> list[Path]:
    """Returns the policy files of a folder: those on the disk, and open ones that are not on the disk yet."""
    try:
        names = folder_names(str(folder), is_policy_file) if folder.is_dir() else []
    except OSError as error:
        loaded.problems.append((str(folder), cannot_be_read(why_unread(error))))
        names = []
    new = {Path(file).name for file in loaded.buffers if Path(file).parent == folder and is_policy_file(file)}
    found = [folder / name for name in sorted({*names, *new})]
    return found[:MAX_POLICY_FILES]


def _may_be_policy(file: Path, buffers: Mapping[str, str]) -> bool:
    if (text := buffers.get(str(file))) is not None:
        return is_ours(text, str(file)) or not text.strip()
    try:
        return is_ours(read_start(str(file), BEGINNING).decode("utf-8", "replace"), str(file))
    except OSError:
        return False


def _configuration_of(folder: Path, buffers: Mapping[str, str]) -> Path | None:
    """Returns the configuration beside a folder, or in it, whose policyDir it is."""
    for file in _configurations(folder, buffers):
        try:
            text = buffers.get(str(file)) or read_text(file)
        except UnreadableError:
            continue
        if _POLICY_DIR.search(text) is None or not is_ours(text, str(file)):
            continue
        loaded = Loaded(buffers=buffers)
        load_files([file], loaded)
        named = loaded.policy.get("policyDir")
        if isinstance(named, str) and named and _is_same(_folder(named, file), folder):
            return file
    return None


def _configurations(folder: Path, buffers: Mapping[str, str]) -> Iterator[Path]:
    for place in dict.fromkeys((folder, folder.parent)):
        try:
            names = folder_names(str(place), _is_configuration)
        except OSError:
            names = []
        new = {Path(file).name for file in buffers if Path(file).parent == place and file.endswith(_CONF)}
        # The usual name comes first.
        ordered = sorted({*names, *new}, key=lambda name: (not name.startswith("qdrouterd"), name))
        yield from (place / name for name in ordered[:_MAX_CONFIGURATIONS])


def _is_configuration(name: str) -> bool:
    return name.endswith(_CONF)


def _folder(named: str, configuration: Path) -> Path:
    """Returns the folder that a configuration names. A relative one is relative to the configuration."""
    return Path(os.path.normpath(configuration.parent / named))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def lint_configuration(file: str, roots: Sequence[str]) -> tuple[LintConfiguration, Collection[str], Problem | None]:
    """Returns the project's lint settings, the fingerprints in its baseline, and a problem if they cannot be read.

    roots  the folders that are open in the editor: the search goes from the file's folder up to the nearest of them
    """
    found = _nearest_configuration(file, roots)
    if found is None:
        return LintConfiguration(), (), None
    try:
        configuration = read_configuration(tomllib.loads(read_text(found)))
        return configuration, _baseline(configuration.baseline, found), None
    except (UnreadableError, ConfigurationError, ValueError, RecursionError) as error:
        text = f"{found.name}: {error or 'it is nested too deeply'}"
        return LintConfiguration(), (), Problem(line=1, column=1, text=text)


def _nearest_configuration(file: str, roots: Sequence[str]) -> Path | None:
    folder = Path(file).parent
    if not folder.is_absolute():
        return None
    limits = [Path(root) for root in roots if folder.is_relative_to(root)]
    for place in (folder, *folder.parents)[:_MAX_LEVELS]:
        if (place / CONFIGURATION).is_file():
            return place / CONFIGURATION
        if place in limits or not limits:
            return None
    return None


def _baseline(named: str | None, configuration: Path) -> Collection[str]:
    if named is None:
        return ()
    try:
        recorded = parse(read_text(configuration.parent / named)).value
    except NotJson:
        recorded = None
    match recorded:
        case {"version": 1, "findings": list() as marks}:
            return frozenset(map(str, marks))
        case _:
            raise ConfigurationError(f"baseline {named} is none: write one with --write-baseline")
