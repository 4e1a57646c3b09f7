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

# Set this to debug the tools: failures then keep their traceback.
DEBUG_VARIABLE = "_QPID_DISPATCH_TOOLS_DEBUG_"


class Parser(argparse.ArgumentParser):
    """Reports errors without repeating values: one of them may be a password."""

    def error(self, message: str) -> NoReturn:
        # The whole usage fills a screen, and the important line would be below it.
        text = re.sub(r"(--[\w-]+)=\S*", r"\1", message)
        self.exit(2, f"usage: {self.prog} [options...]; --help lists them\n{self.prog}: error: {text}\n")

    def parse_all(self, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
        """Returns the options, and the arguments that are no options.

        Ignores empty values: scripts write `--type "$TYPE"`.
        """
        given, rest = self.parse_known_args(arguments)
        for name, value in vars(given).items():
            if value == "":
                setattr(given, name, self.get_default(name))
        return given, [argument for argument in rest if argument]

    def refuse_unknown(self, unknown: Sequence[str]) -> None:
        """Reports a usage error unless `unknown`, the rest of parse_all, is empty."""
        names = [argument.split("=")[0] for argument in unknown if argument.startswith("-")]
        if names:
            self.error(f"unrecognized arguments: {' '.join(names)}")
        if unknown:
            # The argument itself is not shown, because it may be a password.
            self.error("takes options only, and something besides them was given")


class FailedError(Exception):
    """All output has been written, and the exit status is 1."""


def utc_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def run(action: Callable[[], None]) -> int:
    """Returns the exit status of `action`: 0, or 1 after printing `<class>: <text>` on standard output.

    Scripts match that line.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that the terminal's encoding lacks
    try:
        action()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print()
        return 1
    except FailedError:
        return 1
    except BrokenPipeError:
        _give_up_output()  # its reader has closed the pipe
        return 1
    except Exception as error:
        if DEBUG_VARIABLE in os.environ:
            raise
        text = f"{type(error).__name__}: {printable(str(error))}"
        try:
            print(text, flush=True)
        except OSError:  # the failure itself: the output goes to a full disk
            _give_up_output()
            print(text, file=sys.stderr)
        return 1
    return 0


def _give_up_output() -> None:
    """Drops further output, so that Python does not complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
