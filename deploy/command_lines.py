"""The parsers of all commands, for what is written from them: completions and manual pages."""

import argparse
from collections.abc import Iterator, Mapping

from auth import qdcerts
from auth.verifiers import qdpasswd
from policy.cli import main as qdpolicy
from router.entry import container
from router.tools import qdmanage, qdreceive, qdsend, qdstat
from spark import cli as qdaudit

Parser = argparse.ArgumentParser


def parsers() -> Mapping[str, Parser]:
    """By name of the command: all but the daemons, whose options are those of getopt."""
    return {
        "qdrouterd-entry": container.parser(),
        "qdstat": qdstat.parser(),
        "qdmanage": qdmanage.parser(),
        "qdsend": qdsend.parser(),
        "qdreceive": qdreceive.parser(),
        "qdcerts": qdcerts.parser(),
        "qdpasswd": qdpasswd.parser(),
        "qdpolicy": qdpolicy.parser(),
        "qdaudit": qdaudit.parser(),
    }


def verbs_of(parser: Parser) -> Iterator[tuple[str, Parser, str]]:
    """Name, parser and a line of help of each verb; none where the command has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            yield from ((name, verb, helps.get(name, "")) for name, verb in action.choices.items())
