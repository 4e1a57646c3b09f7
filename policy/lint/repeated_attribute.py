"""An attribute stands twice in a section.

The last one counts, as in qdrouterd 1.20, and the first says nothing. In a `vhost` or a `policy` section that stops
the start. Keep one of them.
"""

from collections.abc import Iterator
from dataclasses import replace

from policy.lint.findings import Family, Finding, Level, PolicyText, SectionText

ID = "PAL159"
TITLE = "attribute given twice"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for entity in policy.entities:
        section = SectionText(type=entity.type, attributes=entity.attributes, source=entity.source)
        for path, (line, column) in entity.repeats:
            text = f"'{path[-1]}' stands here a second time, and only this one counts"
            found = section.finding(ID, Level.WARNING, text, str(path[0]))
            yield replace(found, line=line, column=column)
