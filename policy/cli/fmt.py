"""`qdpolicy fmt`: policy files in one layout."""

import argparse
from difflib import unified_diff
from pathlib import Path
from typing import Any

from policy.cli.sources import CLEAN, FINDINGS, UNREADABLE, printable
from policy.layout import formatted
from policy.loader import PolicyFileError

EPILOG = """\
exit status:
  0  done, or nothing to do
  1  --check or --diff: a file is laid out otherwise
  2  the command line is wrong
  3  a file could not be read, or is no JSON; the others are done
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "fmt",
        help="lay out policy files evenly",
        description="Lay out policy files evenly. Rules, comments and their order stay as they are.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a policy file, or a folder of them")
    parser.add_argument("--check", action="store_true", help="change nothing, name the files that would change")
    parser.add_argument("--diff", action="store_true", help="change nothing, show what would change")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    status = CLEAN
    for path in options.paths:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            status = max(status, _lay_out(file, options))
    return status


def _lay_out(file: Path, options: argparse.Namespace) -> int:
    if file.suffix != ".json":
        print(printable(f"{file}: only policy files are laid out, which are JSON and end in .json"))
        return UNREADABLE
    try:
        before = file.read_bytes().decode("utf-8")
        after = formatted(before, str(file))
    except PolicyFileError as error:
        print(printable(str(error)))
        return UNREADABLE
    except (OSError, UnicodeDecodeError) as error:
        print(printable(f"{file}: cannot be read: {error.strerror if isinstance(error, OSError) else error}"))
        return UNREADABLE
    if before == after:
        return CLEAN
    if options.diff:
        lines = unified_diff(before.splitlines(), after.splitlines(), f"a/{file}", f"b/{file}", lineterm="")
        print("\n".join(printable(line) for line in lines))
        return FINDINGS
    if options.check:
        print(printable(f"{file}: would change"))
        return FINDINGS
    file.write_bytes(after.encode("utf-8"))
    print(printable(f"{file}: laid out"))
    return CLEAN
