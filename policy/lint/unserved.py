"""A configuration wants what this router cannot do yet, which stops its start.

Http listeners. Take the section out, or keep the router that has it for this
host.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL086"
TITLE = "not served by this router"
FAMILY = Family.CORRECTNESS

ATTRIBUTES = {
    "listener": {
        "http": "http listeners",
        "httpRootDir": "http listeners",
    },
}
_OFF = ("", "no", "false", "off", "0")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.all_sections:
        for key, named in ATTRIBUTES.get(section.type, {}).items():
            if section.text(key).lower() not in _OFF:
                yield section.finding(ID, Level.ERROR, f"this router does not start with it: it has no {named}", key)
