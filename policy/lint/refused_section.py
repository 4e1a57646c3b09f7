"""The router does not start with a section of its configuration.

A value is none that the attribute takes, something that is required is left out, a name is taken, an authenticator or
a plugin is not defined, or the mode of the router forbids the role. The text is that of `qdrouterd --check`, which
also opens the files that the configuration names. Unknown names are PAL042, missing sslProfiles PAL038.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from policy.configuration.kinds.kind import MissingProfileError
from policy.configuration.schema import MAX_SUGGESTED_FOR_CHARACTERS, ChoiceError, UnknownNameError
from policy.configuration.validation import Fault
from policy.lint import refused_vhost
from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL150"
TITLE = "section with which the router does not start"
FAMILY = Family.CORRECTNESS

_ELSEWHERE = (UnknownNameError, MissingProfileError)


def check(policy: PolicyText) -> Iterator[Finding]:
    for fault in policy.validation.faults:
        if isinstance(fault.error, _ELSEWHERE):
            continue
        if fault.section == "vhost" and any(refused_vhost.check(policy)):
            continue
        yield policy.blame(ID, Level.ERROR, fault, about=_advice(fault))


def _advice(fault: Fault) -> About:
    """The value that was meant, where one is close."""
    if not isinstance(fault.error, ChoiceError) or not isinstance(written := fault.error.value, str):
        return About()
    similar = get_close_matches(written[:MAX_SUGGESTED_FOR_CHARACTERS], fault.error.allowed, n=1)
    fix = Fix(old=written, new=similar[0], is_safe=False) if similar else None
    return About(item=written, instead=f"{fault.attribute}: {similar[0]}" if similar else "", fix=fix)
