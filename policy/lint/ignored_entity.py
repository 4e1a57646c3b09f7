"""A policy file has something else than a vhost.

Routers take only vhosts from the files in policyDir. They check every other section as in a configuration, and then
pass over it in silence. A `policy` section, such as enableVhostPolicy, belongs into the router's configuration file.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL014"
TITLE = "ignored in a policy file"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    refused = {(fault.source.file, fault.source.line, fault.source.column) for fault in policy.validation.faults}
    for entity in policy.entities:
        place = (entity.source.file, entity.source.line, entity.source.column)
        if entity.type != "vhost" and not entity.is_of_router and place not in refused:
            text = f"'{entity.type}' is ignored here: move it into the router's configuration file"
            yield Finding(
                rule=ID, level=Level.WARNING, file=entity.source.file or "", line=entity.source.line or 1, text=text
            )
