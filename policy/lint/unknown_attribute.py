"""A section or an attribute of the configuration is unknown.

The router does not start with it. Names are compared exactly, `ssl-profile` and `sslProfile` being the same. Mend the
name, or remove the line.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import schemas
from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.section_names import old_attribute_names, section_attributes

ID = "PAL042"
TITLE = "unknown section or attribute"
FAMILY = Family.CORRECTNESS


_COMMON = ("name", "identity", "type")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.all_sections:
        attributes = section_attributes(section.type)
        if attributes is None:
            advice = _advice(section.type, list(schemas.load("management")["entityTypes"]))
            yield section.finding(ID, Level.ERROR, f"there is no section '{section.type}'{advice}")
            continue
        known = {*attributes, *_COMMON, *old_attribute_names(section.type)}
        for key in section.attributes:
            if key not in known:
                text = f"'{key}' is unknown{_advice(key, list(known))}"
                yield section.finding(ID, Level.ERROR, text, key, About(item=key))


def _advice(name: str, known: list[str]) -> str:
    similar = get_close_matches(name, known, n=1)
    return f": did you mean '{similar[0]}'?" if similar else ""
