"""Parses the values of options. An error names the right form."""

import argparse
import re
from difflib import get_close_matches

from policy.lint.rules import RULES


def count(text: str) -> int:
    """Returns a number, 0 or more."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def percent(text: str) -> int:
    if (number := count(text)) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 100 percent")
    return number


def rule_id(text: str) -> str:
    """Returns the id of a lint rule, written in any case."""
    ids = [rule.ID for rule in RULES]
    if (found := text.upper()) in ids:
        return found
    padded = re.sub(r"[0-9]+", lambda number: number[0].zfill(3), found)
    similar = [padded] if padded in ids else get_close_matches(found, ids, n=1)
    advice = f"did you mean {similar[0]}? " if similar else ""
    raise argparse.ArgumentTypeError(f"{text!r} is no rule: {advice}`qdpolicy rules` lists them")


def rule_or_family(text: str) -> tuple[str, ...]:
    """Returns the ids of a family of rules, or the id of one rule."""
    family = tuple(rule.ID for rule in RULES if text.lower() == rule.FAMILY)
    return family or (rule_id(text),)


def add_router_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--router-id`."""
    text = "id of the router the policy is for, which its _topo/ addresses have (default: that of the configuration)"
    parser.add_argument("--router-id", metavar="ID", default="", help=text)
