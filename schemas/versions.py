"""The installed version, and the option of every command line that prints it."""

import argparse
from typing import NoReturn


def product_version() -> str:
    """Returns the version; "" if nothing is installed."""
    from importlib import metadata  # importing it takes a fifth of a tool's start

    try:
        return metadata.version("palisade-router")
    except metadata.PackageNotFoundError:
        return ""


class ShowVersion(argparse.Action):
    """The option `--version`. Looks up the version only if it is used."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(product_version() or "unknown")
        parser.exit()


def add_version_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version and exit")
