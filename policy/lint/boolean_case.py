"""A switch is written `True` or `TRUE`.

qdrouterd 1.20 takes everything but `true` for false: a switch that is off there is on here. Write true or false,
without quotes and in small letters.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL045"
TITLE = "true in capital letters"
FAMILY = Family.COMPATIBILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key, value in group.settings.items():
            if isinstance(value, str) and value.lower() == "true" and value != "true":
                text = f"'{key}' is \"{value}\", which 1.20 takes for false"
                fix = Fix(old=value, new="true")
                yield group.finding(ID, Level.WARNING, text, key, About(item=value, instead="true", fix=fix))
