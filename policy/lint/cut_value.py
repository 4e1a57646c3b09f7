"""A value ends at a `#` that has no blank before it.

In a `.conf` file `#` begins a comment wherever it stands, as in qdrouterd 1.20: of the password `k3y#Qw9` the router
takes `k3y`. Only `pattern`, `bindingKey` and `hostname` may have one. Write a password as `file:PATH` or `env:NAME`.
The JSON form of a configuration has no comments in values. Put a blank before a comment that is one.
"""

from collections.abc import Iterator

from policy.files.redaction import is_secret_name
from policy.lint.findings import About, Family, Finding, Level, PolicyText, SectionText

ID = "PAL153"
TITLE = "value cut by a #"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for entity in policy.entities:
        section = SectionText(type=entity.type, attributes=entity.attributes, source=entity.source)
        for name in entity.cut:
            text = f"'{name}' ends at the '#', where a comment begins"
            instead = f"{name}: file:PATH" if is_secret_name(name) else f"{name}: {entity.attributes[name]}  # comment"
            yield section.finding(ID, Level.WARNING, text, name, About(instead=instead))
