"""A section or an attribute of the configuration is unknown.

The router does not start with it. Names are compared exactly, `ssl-profile` and `sslProfile` being the same.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import schemas
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL042"
TITLE = "unknown section or attribute"
FAMILY = Family.CORRECTNESS


_ALIASES = {name: f"router.config.{name}" for name in ("address", "linkRoute", "autoLink", "exchange", "binding")}
_COMMON = ("name", "identity", "type")


def check(policy: PolicyText) -> Iterator[Finding]:
    types: dict[str, Any] = schemas.load("management")["entityTypes"]
    for section in policy.all_sections:
        type_ = types.get(section.type) or types.get(_ALIASES.get(section.type, ""))
        if type_ is None:
            advice = _advice(section.type, list(types))
            yield section.finding(ID, Level.ERROR, f"there is no section '{section.type}'{advice}")
            continue
        aliases = (alias for attribute in type_["attributes"].values() for alias in attribute.get("aliases", ()))
        known = {*type_["attributes"], *_COMMON, *aliases}
        for key in section.attributes:
            if key not in known:
                text = f"'{key}' is unknown{_advice(key, list(known))}"
                yield section.finding(ID, Level.ERROR, text, key, About(item=key))


def _advice(name: str, known: list[str]) -> str:
    similar = get_close_matches(name, known, n=1)
    return f": did you mean '{similar[0]}'?" if similar else ""
