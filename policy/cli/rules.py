"""`qdpolicy rules` lists the lint rules."""

import argparse
from typing import Any

from policy.cli.arguments import rule_id
from policy.lint.rules import RULES


def add_parser(verbs: Any) -> None:
    for name, help_ in (("rules", "list or explain the rules of lint"), ("rule", "explain a rule of lint")):
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=help_)
        count = "?" if name == "rules" else None
        parser.add_argument("id", metavar="ID", nargs=count, type=rule_id, help="explain this rule")
        parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for rule in RULES:
        if options.id is None:
            print(f"{rule.ID}  {rule.FAMILY:13}  {rule.TITLE}")
        elif options.id == rule.ID:
            print(f"{rule.ID}: {rule.TITLE} ({rule.FAMILY})\n\n{(rule.__doc__ or '').strip()}")
    return 0
