"""`qdpolicy fmt` writes policy files in one layout."""

import argparse
import sys
from difflib import unified_diff
from pathlib import Path
from typing import Any, Protocol, TextIO

from policy.cli.collector import without_collector
from policy.cli.files import written
from policy.cli.progress import progress
from policy.cli.sources import (
    CLEAN,
    FINDINGS,
    STDIN,
    UNREADABLE,
    Loaded,
    UnreadableError,
    files_of,
    read_text,
)
from policy.files.layout import formatted
from policy.files.loader import PolicyFileError
from policy.files.redaction import lines_without_secrets
from policy.printing import printable

EPILOG = """\
exit status:
  0  done, or nothing to do
  1  --check or --diff: a file is laid out otherwise
  2  the command line is wrong
  3  a file could not be read or written, or is no JSON; the others are done
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "fmt",
        help="lay out policy files evenly",
        description="Lay out policy files evenly. Rules, comments and their order stay as they are.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    paths_help = "a policy file, or a folder of them; - is standard input, laid out on standard output"
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help=paths_help)
    parser.add_argument("--check", action="store_true", help="change nothing, name the files that would change")
    parser.add_argument("--diff", action="store_true", help="change nothing, show what would change")
    parser.set_defaults(run=run)


@without_collector
def run(options: argparse.Namespace) -> int:
    status = CLEAN
    with progress() as watch:

        def say(text: str, end: str = "\n", file: TextIO | None = None) -> None:
            watch.clear()
            print(text, end=end, file=file)

        for path in options.paths:
            loaded = Loaded()
            files = [path] if str(path) == STDIN else files_of(path, loaded)
            for file in watch("files laid out", files):
                status = max(status, _lay_out(file, options, say))
            for name, problem in loaded.problems:
                say(printable(f"{name}: {problem.text}"))
                status = UNREADABLE
    return status


class _Say(Protocol):
    """Prints a text that is printable already."""

    def __call__(self, text: str, end: str = "\n", file: TextIO | None = None) -> None: ...


def _lay_out(file: Path, options: argparse.Namespace, say: _Say) -> int:
    is_stdin = str(file) == STDIN
    if file.suffix != ".json" and not is_stdin:
        say(printable(f"{file}: only policy files are laid out, which are JSON and end in .json"))
        return UNREADABLE
    try:
        before = read_text(file)
        after = formatted(before, "stdin.json" if is_stdin else str(file))
    except (PolicyFileError, UnreadableError) as error:
        text = f"{file}: cannot be read: {error}" if isinstance(error, UnreadableError) else str(error)
        # Standard output gets only the formatted file.
        say(printable(text, kept="\n"), file=sys.stderr if is_stdin else sys.stdout)
        return UNREADABLE
    if is_stdin and not options.check and not options.diff:
        say(after, end="")
        return CLEAN
    if before == after:
        return CLEAN
    if options.diff:
        was, is_ = lines_without_secrets(before), lines_without_secrets(after)
        say("\n".join(map(printable, unified_diff(was, is_, f"a/{file}", f"b/{file}", lineterm=""))))
        return FINDINGS
    if options.check:
        say(printable(f"{file}: would change"))
        return FINDINGS
    if (status := written(file, after)) == CLEAN:
        say(printable(f"{file}: laid out"))
    return status
