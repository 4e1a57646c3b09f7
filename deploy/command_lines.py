"""The parsers of all commands, from which completions and manual pages are written."""

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
    """Returns parsers by name of the command: all except the daemons, whose options are parsed by getopt."""
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
    """Yields name, parser and a line of help for each verb; none if the command has no verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            yield from ((name, verb, helps.get(name, "")) for name, verb in action.choices.items())
