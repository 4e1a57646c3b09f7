"""Finds router configurations and folders of policy files in a folder and its subfolders.

Only the beginning of a file is read to recognise it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policy.cli.sources import BEGINNING, is_ours, is_sasl_configuration
from policy.files.regular import is_policy_file, read_start
from policy.files.sections import CONF_SUFFIX, are_of_json_router

# Stops a mistake such as `qdpolicy lint /` from walking for an hour.
MAX_FILES: Final = 100_000
_NOT_WALKED: Final = frozenset({"node_modules", "__pycache__"})
_TYPE: Final = re.compile(r'\[\s*"([A-Za-z-]+)"\s*,\s*\{')


class TreeError(Exception):
    """There are too many files to examine."""


def routers_below(folder: Path) -> list[Path]:
    """Returns the configurations in the folder and its subfolders. Raises TreeError."""
    return [file for file in _files_below(folder) if _is_router(file)]


def policy_folders_below(folder: Path) -> list[Path]:
    """Returns the folders with policy files, among the folder and its subfolders. Raises TreeError."""
    found = (file.parent for file in _files_below(folder) if is_policy_file(file.name) and _is_policy(file))
    return [*dict.fromkeys(found)]


def policy_files_of(folder: Path) -> list[Path]:
    """Returns the policy files of one folder, without its other JSON files."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if is_policy_file(entry.name))
    except OSError:
        return []
    return [folder / name for name in names if _is_policy(folder / name)]


def is_sasl_file(file: Path) -> bool:
    """Returns whether the file is a SASL configuration."""
    return file.name.endswith(CONF_SUFFIX) and is_sasl_configuration(_beginning(file))


def _files_below(folder: Path) -> Iterator[Path]:
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _NOT_WALKED)
        for name in sorted(names):
            count += 1
            if count > MAX_FILES:
                raise TreeError(f"there are more than {MAX_FILES} files in it: name a folder further down")
            if name.endswith(CONF_SUFFIX) or is_policy_file(name):
                yield Path(place) / name


def _is_router(file: Path) -> bool:
    text = _beginning(file)
    if file.name.endswith(CONF_SUFFIX):
        return is_ours(text, str(file)) and not is_sasl_configuration(text)
    return is_ours(text, str(file)) and are_of_json_router(_TYPE.findall(text))


def _is_policy(file: Path) -> bool:
    text = _beginning(file)
    return is_ours(text, str(file)) and not are_of_json_router(_TYPE.findall(text))


def _beginning(file: Path) -> str:
    try:
        return read_start(str(file), BEGINNING).decode("utf-8", "replace")
    except OSError:
        return ""
