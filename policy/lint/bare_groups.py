"""In a configuration the groups of a vhost are not written as JSON.

Both forms are read here. qdrouterd 1.20 wants JSON inside `groups: {`: names and texts in double quotes, and commas.
`qdpolicy convert --form compatible` writes them so.
"""

from collections.abc import Iterator

from policy.files.sections import CONF_SUFFIX
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL049"
TITLE = "groups not in JSON"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    lines = {file: text.split("\n") for file, text in policy.texts.items() if file.endswith(CONF_SUFFIX)}
    for group in policy.groups:
        source = group.source
        if (written := lines.get(source.file or "")) is None:
            continue
        path = ("groups", group.name)
        line, column = source.line_of(path) or 1, source.column_of(path)
        if not written[line - 1][column - 1 :].startswith('"'):
            yield group.finding(ID, Level.NOTE, "its name is not in quotes, which 1.20 does not read")
