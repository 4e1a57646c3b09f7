"""Parses a configuration file into a list of sections, and words the errors for a file that cannot be read. Pure.

Uses no schema. `policy.files` reads both forms, for `qdpolicy` as well. Source: docs/spec/management.md §1.1 (with its
Build grammar) and §1.2.
"""

from policy.configuration.value_texts import HIDDEN
from policy.files.conf import conf_sections
from policy.files.conf_json import conf_json_sections
from policy.files.conf_text import ConfError
from policy.files.positioned_json import Problem
from policy.files.redaction import ELLIPSIS, is_secret_name, lines_without_secrets, without_secrets
from policy.files.sections import Section
from router.effects import Log

# Enough to correct a file; a binary file given by mistake would fill the log.
MAX_REPORTED_LINES = 20


class ConfigError(Exception):
    """A configuration that cannot be used. str() is the error text of docs/spec/management.md §2.3.

    kind    the beginning of the text: "Not found", "Configuration", or "Python: <exception name>"
    reason  what is wrong, and with which input; contains no secret
    path    the configuration file as it was named
    file    the file with the fault: `path`, or a file of policyDir
    line    1-based; None if the fault has no single line
    logs    lines to log before giving up
    others  other faults, each with its place
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str,
        line: int | None = None,
        kind: str = "Python: Exception",
        file: str | None = None,
        logs: tuple[Log, ...] = (),
        others: tuple[str, ...] = (),
    ) -> None:
        self.kind, self.reason, self.path, self.line, self.logs = kind, reason, path, line, logs
        self.others = others
        self.file = file or path
        super().__init__(self.text())

    def text(self) -> str:
        where = f" ({self.file}:{self.line})" if self.line is not None else ""
        is_load = self.kind == "Python: Exception"
        opening = f"Cannot load configuration file {self.path}: " if is_load else ""
        return f"{self.kind}: {opening}{self.reason}{where}"


def parse_config(text: str, *, path: str) -> list[Section]:
    """Returns the sections of a configuration file, in order. A path that ends in .json contains JSON.

    Errors  ConfigError with the line.
    """
    try:
        sections = conf_json_sections(text, path) if path.endswith(".json") else conf_sections(text, path)
        for section in sections:
            _refuse_repeats(section)
    except ConfError as error:
        raise _config_error(error, path, text) from None
    return sections


def _refuse_repeats(section: Section) -> None:
    """Refuses a repeated key. Raises ConfError."""
    for name, (line, column) in section.refused_repeats:
        text = f"key '{name[-1]}' stands here a second time, in column {column}: keep one of them"
        raise ConfError(Problem(line=line, column=column, text=text))


def _config_error(error: ConfError, path: str, text: str) -> ConfigError:
    """Returns the reader's error in the router's words, with log lines that show the bad lines without secrets."""
    logs: list[str] = []
    contents: list[str] = []
    if error.bad_lines:
        if error.is_nesting_wrong or any(line.startswith("}") for _, line in error.bad_lines):
            logs.append("Configuration file: invalid entity nesting detected.")
        contents.append("Contents of failed config file")
    is_hidden = False
    in_context = dict(enumerate(lines_without_secrets(text), start=1))
    for number, line in error.bad_lines[:MAX_REPORTED_LINES]:
        # A password on the line after its name is as secret as one on the same line.
        visible, was_hidden = without_secrets(line), is_hidden or in_context.get(number) == ELLIPSIS
        is_hidden = any(map(is_secret_name, line.split()))
        shown = HIDDEN if is_hidden or was_hidden else visible
        is_hidden = is_hidden or visible != line or line.rstrip().endswith((":", "="))
        logs.append(f"Invalid config file syntax (line {number}):\n>>> {shown}")
        contents.append(f"Line {number} |{shown}")
    return ConfigError(
        error.problem.text,
        path=path,
        line=error.problem.line,
        logs=(
            *(Log(module="AGENT", level="warning", text=text) for text in logs),
            *(Log(module="AGENT", level="error", text=text) for text in contents),
        ),
    )
