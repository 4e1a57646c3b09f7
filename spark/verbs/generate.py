"""`qdaudit generate` writes synthetic trails with planted incidents."""

import argparse
import re
from pathlib import Path

from spark.folders import UnusableError, make_folder

DONE = 0


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "generate",
        help="write a synthetic trail with incidents, and the truth about them",
        description="Write audit files of made-up routers into DIR/audit, with incidents of every kind that `detect` "
        "looks for, and what they are into DIR/truth.jsonl. The same seed writes the same bytes.",
        epilog="Exit status: 0 done; 2 wrong arguments; 3 DIR is not empty or cannot be written.",
    )
    verb.add_argument("out", metavar="DIR", type=Path, help="a new folder, or an empty one")
    for option, default, most, told in (
        ("--events", 100_000, 10**10, "events, those of incidents aside"),
        ("--seed", 0, 2**63 - 1, "of the random numbers"),
        ("--days", 120, 3650, "that the trail is of, from 2026-01-01 on; 15 or more, for a dormant user 95"),
        ("--routers", 4, 1000, "that write it"),
        ("--incidents", 2, 1000, "of each kind"),
    ):
        least = {"--days": 15, "--routers": 1, "--events": 1}.get(option, 0)
        kind = _number(least, most)
        verb.add_argument(option, metavar="N", type=kind, default=default, help=f"{told} ({default})")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes a trail. Errors: UnusableError."""
    make_folder(arguments.out, "")
    if any(arguments.out.iterdir()):
        raise UnusableError(f"{arguments.out}: is not empty; give a new folder")
    from spark.trails.generate import Wanted, generate  # here: importing pyarrow takes time, which --help must not take

    wanted = Wanted(
        events=arguments.events,
        seed=arguments.seed,
        days=arguments.days,
        routers=arguments.routers,
        incidents=arguments.incidents,
    )
    try:
        planted = generate(arguments.out, wanted)
    except OSError as error:
        raise UnusableError(f"{arguments.out}: cannot be written: {error.strerror}") from None
    print(f"{arguments.events + len(planted.events)} events with {len(planted.truth)} incidents in {arguments.out}")
    return DONE


def _number(least: int, most: int) -> "type[int]":
    def number(text: str) -> int:
        if re.fullmatch("[0-9]{1,19}", text) is None or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return number  # type: ignore[return-value]
