"""The version of what is installed, and the option of every command line that prints it."""

import argparse
from typing import NoReturn


def product_version() -> str:
    """The version; "" where nothing is installed."""
    from importlib import metadata  # what it takes to look is a fifth of a tool's start

    try:
        return metadata.version("palisade-router")
    except metadata.PackageNotFoundError:
        return ""


class ShowVersion(argparse.Action):
    """`--version`. Looks the version up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(product_version() or "unknown")
        parser.exit()


def add_version_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="print the version and exit")
