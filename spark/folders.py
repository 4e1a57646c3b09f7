"""The folders on a command line: of audit files, tables, and output. Nothing here needs Spark."""

import json
import os
from pathlib import Path

from spark.lines import files

# Marks a folder as an event table and has the version of its layout, for writing and reading.
MARK = "table.json"
VERSION = 1


class UnusableError(Exception):
    """Input or output that cannot be used. The text names it and the remedy."""


class UsageError(UnusableError):
    """Arguments that cannot be combined."""


def audit_files(folder: Path, kinds: tuple[str, ...] = (files.LINES,)) -> tuple[list[files.Found], list[str]]:
    """Returns the audit files of a folder in the order of their names, and the names of other entries.

    Both are empty for an empty folder.
    Errors  UnusableError: no such folder, no permission, or a folder of other files, for which a report of zero would
    be
            wrong.
    """
    try:
        found, others = files.audit_files(folder, kinds)
    except FileNotFoundError:
        raise UnusableError(f"{folder}: no such folder; give a router's audit directory") from None
    except NotADirectoryError:
        raise UnusableError(f"{folder}: is a file; give the folder it is in") from None
    except OSError as error:
        raise UnusableError(f"{folder}: cannot be read: {error.strerror}") from error
    if others and not found:
        raise UnusableError(
            f"{folder}: holds no audit file ({', '.join(f'*{kind}' for kind in kinds)}) but {len(others)} other "
            f"entries, the first {others[0]!r}; give a router's audit directory"
        )
    for file in found:
        if not os.access(file.path, os.R_OK):
            raise UnusableError(f"{file.path}: not allowed to read it")
    return found, others


def is_table(folder: Path) -> bool:
    return (folder / MARK).is_file()


def check_version(table: Path) -> None:
    """Checks the version of a table.

    Errors: UnusableError for another version, which would be misread, or a wrong mark.
    """
    mark = table / MARK
    try:
        version = json.loads(mark.read_text("ascii"))["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnusableError(f"{mark}: is not the mark of a table") from None
    except OSError as error:
        raise UnusableError(f"{mark}: cannot be read: {error.strerror}") from None
    if version != VERSION:
        raise UnusableError(
            f"{table}: is a table of version {version!r:.40}, this qdaudit is for {VERSION}; use another one"
        )


def make_folder(folder: Path, option: str) -> None:
    """Creates a folder for output if needed. Errors: UnusableError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UnusableError(f"{option}{folder}: is no folder; give a new one") from None
    except OSError as error:
        raise UnusableError(f"{option}{folder}: cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnusableError(f"{option}{folder}: not allowed to write there")
