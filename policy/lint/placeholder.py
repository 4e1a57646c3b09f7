"""A value is still the placeholder of a document or of a template.

`<host>` stands for a value in documents, `${NAME}` and `{{ name }}` for one that a script puts in before the start. The
router replaces nothing of these: it takes them as they are.
"""

import re
from collections.abc import Iterator
from typing import Final

from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL154"
TITLE = "placeholder"
FAMILY = Family.CORRECTNESS

# `${user}` and `${user:escaped}` are words of the router's own.
_PLACEHOLDER: Final = re.compile(
    r"<[A-Za-z][^<>]{0,80}>|\$\{(?!user(?::escaped)?\})[A-Za-z_][^{}]{0,80}\}|\{\{[^{}]{1,80}\}\}"
)


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.all_sections:
        for key, value in section.attributes.items():
            if isinstance(value, str) and (found := _PLACEHOLDER.search(value)) is not None:
                text = f"'{key}' has the placeholder '{found[0]}', which the router takes as it is"
                about = About(item=value, confidence=Confidence.LIKELY)
                yield section.finding(ID, Level.WARNING, text, key, about)
