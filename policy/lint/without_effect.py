"""A setting is accepted and has no effect.

`workerThreads`: the router has one event loop. `allowRedirect` has no effect in qdrouterd 1.20 either, nor has a
`console` section: its console is served by http listeners. Take the line out.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL088"
TITLE = "without effect"
FAMILY = Family.HYGIENE

_ATTRIBUTES = {
    "router": ("workerThreads", "debugDumpFile"),
    "connector": ("allowRedirect",),
}


def check(policy: PolicyText) -> Iterator[Finding]:
    for type_, keys in _ATTRIBUTES.items():
        for section in policy.sections(type_):
            for key in keys:
                if (written := section.written_name(key)) in section.attributes:
                    yield section.finding(ID, Level.NOTE, f"'{written}' has no effect", key)
    for section in policy.sections("console"):
        yield section.finding(ID, Level.NOTE, "a console section has no effect, and neither have its attributes")
