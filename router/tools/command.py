"""The common part of the tools' command lines: the text of a failure, and its exit status."""

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from policy.printing import printable

# Set to debug the tools: failures keep their traceback.
DEBUG_VARIABLE = "_QPID_DISPATCH_TOOLS_DEBUG_"


class Parser(argparse.ArgumentParser):
    """Complains without repeating values: one of them may be a password."""

    def error(self, message: str) -> NoReturn:
        # What there is takes a screen, and the line that matters would stand below it.
        text = re.sub(r"(--[\w-]+)=\S*", r"\1", message)
        self.exit(2, f"usage: {self.prog} [options...]; --help lists them\n{self.prog}: error: {text}\n")

    def parse_all(self, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
        """The options, and what is none. What is empty is not there: scripts write `--type "$TYPE" "$MORE"`."""
        given, rest = self.parse_known_args(arguments)
        for name, value in vars(given).items():
            if value == "":
                setattr(given, name, self.get_default(name))
        return given, [argument for argument in rest if argument]

    def refuse_unknown(self, unknown: Sequence[str]) -> None:
        """A usage error unless `unknown`, what parse_all left over, is empty."""
        names = [argument.split("=")[0] for argument in unknown if argument.startswith("-")]
        if names:
            self.error(f"unrecognized arguments: {' '.join(names)}")
        if unknown:
            # Not the argument itself, which may be a password.
            self.error("takes options only, and something besides them was given")


class FailedError(Exception):
    """What there is to say has been said: the exit status is 1."""


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def run(action: Callable[[], None]) -> int:
    """The exit status of `action`: 0, or 1 with `<class>: <text>` on standard output. Scripts match that line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for what the terminal's encoding cannot show
    try:
        action()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print()
        return 1
    except FailedError:
        return 1
    except BrokenPipeError:
        _give_up_output()  # its reader has seen enough
        return 1
    except Exception as error:
        if DEBUG_VARIABLE in os.environ:
            raise
        text = f"{type(error).__name__}: {printable(str(error))}"
        try:
            print(text, flush=True)
        except OSError:  # that was the failure: the output goes to a full disk
            _give_up_output()
            print(text, file=sys.stderr)
        return 1
    return 0


def _give_up_output() -> None:
    """Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
