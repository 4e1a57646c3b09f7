"""A configuration wants what this router cannot do yet, which stops its start.

Link routes, auto links, exchanges and fallback destinations, http listeners, and modes
other than standalone and interior. Take the section out, or keep the router that has it for this host.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL086"
TITLE = "not served by this router"
FAMILY = Family.CORRECTNESS

TYPES = {
    "linkRoute": "link routes",
    "autoLink": "auto links",
    "exchange": "exchanges",
    "binding": "bindings of exchanges",
}
ATTRIBUTES = {
    "listener": {
        "http": "http listeners",
        "httpRootDir": "http listeners",
    },
    "address": {"enableFallback": "fallback destinations"},
}
_OFF = ("", "no", "false", "off", "0")
MODES = ("standalone", "0", "interior", "1")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.all_sections:
        if (what := TYPES.get(section.type)) is not None:
            yield section.finding(ID, Level.ERROR, f"this router does not start with it: it has no {what}")
        for key, named in ATTRIBUTES.get(section.type, {}).items():
            if section.text(key).lower() not in _OFF:
                yield section.finding(ID, Level.ERROR, f"this router does not start with it: it has no {named}", key)
    for section in policy.sections("router"):
        if (mode := section.text("mode")) and mode not in MODES:
            text = f"this router does not start in mode '{mode}': it is standalone or interior"
            yield section.finding(ID, Level.ERROR, text, "mode")
