"""`qdpolicy lsp` is the language server for editors."""

import argparse
import sys
from importlib.util import find_spec
from typing import Any

from policy.cli.sources import CLEAN, WRONG_USE

DESCRIPTION = """\
Speak the Language Server Protocol over standard input and output: findings of lint while a policy or a configuration
is typed, what its rules and attributes mean, the rights of its users and groups, completion, and lint's fixes.

An editor starts it; docs/editors.md says how. It needs the extra `editors`.
"""
MISSING = "the language server needs pygls: install this package with its extra editors"


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "lsp",
        help="the language server, for editors",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stdio", action="store_true", help="speak over standard input and output, as it does anyway")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        print(f"qdpolicy: {MISSING}", file=sys.stderr)
        return WRONG_USE
    if sys.stdin.isatty():
        print("qdpolicy: an editor starts this and speaks to it, see docs/editors.md; Ctrl-C ends it", file=sys.stderr)
    from policy.editor.server import serve

    serve()
    return CLEAN
