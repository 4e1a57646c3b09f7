"""`qdpolicy rules`: what lint looks for."""

import argparse
from typing import Any

from policy.lint.rules import RULES


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser("rules", help="list or explain the rules of lint")
    choices = [rule.ID for rule in RULES]
    parser.add_argument("id", metavar="ID", nargs="?", choices=choices, help="explain this rule")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for rule in RULES:
        if options.id is None:
            print(f"{rule.ID}  {rule.TITLE}")
        elif options.id == rule.ID:
            print(f"{rule.ID}: {rule.TITLE}\n\n{(rule.__doc__ or '').strip()}")
    return 0
