"""Writes the pages of the lint rules: `python -m policy.cli.rule_pages [FOLDER]`, by default docs/rules."""

import sys
from pathlib import Path

from policy.lint.pages import index, page
from policy.lint.rules import RULES

FOLDER = Path("docs/rules")


def pages() -> dict[str, str]:
    """Returns name of a file -> its text."""
    return {"README.md": index(RULES), **{f"{rule.ID}.md": page(rule) for rule in RULES}}


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
