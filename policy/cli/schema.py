"""`qdpolicy schema` prints the schema of policy files, for editors."""

import argparse
import json
from typing import Any

import schemas


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "schema",
        help="print the JSON Schema of policy files, for editors",
        description="Print the JSON Schema (Draft 2020-12) of policy files. Editors check and complete by it, "
        "if they take lines that begin with # for comments.",
    )
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    print(json.dumps(schemas.load("policy"), indent=2, ensure_ascii=False))
    return 0
