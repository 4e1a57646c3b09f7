"""Writes the manual pages of the commands from their command lines: `python deploy/man/generate.py`.

A test fails if they differ from its output. `python -m router.management.manual` writes qdrouterd.conf(5).
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent)]

from command_lines import parsers, verbs_of  # noqa: E402

from router.io.options import AUTH_SERVICE, ROUTER, usage  # noqa: E402

_DAEMONS = {"qdrouterd": ROUTER, "qdauthd": AUTH_SERVICE}
_OF_OPERATORS = ("qdrouterd", "qdrouterd-entry", "qdauthd", "qdstat", "qdmanage")
_SEE_ALSO = r"""
.SH SEE ALSO
.BR qdrouterd.conf (5)
"""


def section_of(name: str) -> int:
    """Returns the section of a manual page. Books on the replaced router refer to qdstat(8)."""
    return 8 if name in _OF_OPERATORS else 1


def pages() -> dict[str, str]:
    """Returns file name -> its required content."""
    found = {name: _daemon_page(name) for name in _DAEMONS}
    found |= {name: _page(name, parser) for name, parser in parsers().items()}
    return {f"{name}.{section_of(name)}": text for name, text in found.items()}


def _daemon_page(name: str) -> str:
    kind = _DAEMONS[name]
    lines = [_head(name, kind.purpose), f".B {_roff(name)}", "[OPTIONS]", ".SH OPTIONS", *_as_it_is(usage(name, kind))]
    return "\n".join(lines) + _SEE_ALSO


def _page(name: str, parser: argparse.ArgumentParser) -> str:
    description = " ".join((parser.description or "").split())
    purpose, _, more = description.partition(". ")
    verbs = list(verbs_of(parser))
    lines = [_head(name, purpose), f".B {_roff(name)}", "[OPTIONS]", *_operands(parser)]
    lines += [".SH DESCRIPTION", _roff(more)] if more else []
    lines += [".SH OPTIONS", *_options(parser)]
    for verb, of_verb, text in verbs:
        lines += [f".SH {_roff(f'{name} {verb}'.upper())}", _roff(of_verb.description or text), *_options(of_verb)]
        lines += _as_it_is(of_verb.epilog)
    lines += [".SH NOTES", *_as_it_is(parser.epilog)] if parser.epilog else []
    return "\n".join(lines) + _SEE_ALSO


def _head(name: str, purpose: str) -> str:
    title = f'.TH {name.upper()} {section_of(name)} "" "Palisade Router"'
    notice = '.\\" Written by `python deploy/man/generate.py` from the command line: do not edit.'
    purpose = purpose.rstrip(".")
    return f"{notice}\n{title}\n.SH NAME\n{name} \\- {_roff(purpose[:1].lower() + purpose[1:])}\n.SH SYNOPSIS"


def _operands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if not action.option_strings:
            yield f".I {_roff(str(action.metavar or action.dest))}"


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        choices = "|".join(map(str, action.choices or ()))
        value = action.metavar or choices or action.dest.upper()
        given = "" if action.nargs == 0 else f" \\fI{_roff(str(value))}\\fR"
        flags = ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in action.option_strings)
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        yield f".TP\n{flags}{given}".replace("\n ", "\n") + f"\n{_roff(' '.join(text.split()))}"


def _as_it_is(text: str | None) -> Iterator[str]:
    if text:
        yield f".PP\n.nf\n{_roff(text.strip())}\n.fi"


def _roff(text: str) -> str:
    """Returns the text with roff's control characters escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n"))


if __name__ == "__main__":
    for name, text in pages().items():
        (HERE / name).write_text(text)
