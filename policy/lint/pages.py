"""The documentation of the rules: a page for each, made from its docstring, and the address of the page.

Pure. `python -m policy.cli.rule_pages` writes the pages to docs/rules.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from policy.lint.findings import LintRule

# The project's address on the web, with a final slash; "" while it has none, and then there are no links to it.
# `docs-url` in qdpolicy.toml sets another one for the pages, such as a mirror.
HOME: Final = ""
RULES_URL: Final = f"{HOME}docs/rules/" if HOME else ""
_NOTICE: Final = "<!-- Written by `python -m policy.cli.rule_pages` from policy/lint. -->"


def url_of(id_: str, base: str = RULES_URL) -> str:
    """Returns the address of a rule's page, "" if it has none.

    base  of all pages, with a final slash
    """
    return f"{base}{id_}.md" if base else ""


def page(rule: LintRule) -> str:
    """Returns the page of a rule, in Markdown."""
    return (
        f"{_NOTICE}\n# {rule.ID}: {rule.TITLE}\n\nFamily: {rule.FAMILY}\n\n{(rule.__doc__ or '').strip()}\n\n"
        f"[All rules](README.md) · [how to excuse a finding](../qdpolicy.md#lint)\n"
    )


def index(rules: Sequence[LintRule]) -> str:
    """Returns the page that lists the rules."""
    return "".join(f"{line}\n" for line in _index_lines(rules))


def _index_lines(rules: Sequence[LintRule]) -> Iterator[str]:
    yield from (_NOTICE, "# The rules of `qdpolicy lint`", "", "| rule | family | finds |", "|---|---|---|")
    for rule in rules:
        yield f"| [{rule.ID}]({rule.ID}.md) | {rule.FAMILY} | {rule.TITLE} |"
