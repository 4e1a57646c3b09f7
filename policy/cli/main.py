"""`qdpolicy` works on policies without a router. Each verb has one file."""

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from policy.cli import convert, diff, explain, fmt, lint, lsp, rules, schema, test
from schemas.versions import add_version_option

EPILOG = """\
exit status:
  0  nothing to complain about
  1  lint: findings at or above --fail-level; explain: denied; diff: what --fail-on names;
     test: an expectation is not met; convert: it would not mean the same
  2  the command line is wrong
  3  something could not be read, or is no policy
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="qdpolicy",
        description="Check, explain and compare the policies of a message router.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version_option(made)
    verbs = made.add_subparsers(required=True, metavar="VERB")
    for verb in (lint, rules, explain, diff, test, fmt, convert, schema, lsp):
        verb.add_parser(verbs)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    options = parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot show are printed as escapes.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`). Keeps the interpreter from reporting that at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130  # the exit status that shells use
    return status


if __name__ == "__main__":
    sys.exit(main())
