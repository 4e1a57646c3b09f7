"""An auto link or a link route is for connections that the router never has.

`connection` is the name of a listener or a connector, and that has the role `route-container`. Where another one is
meant, or none, nothing is ever attached, and clients of a link route are refused. A connector that is made later over
management is not known here.
"""

from collections.abc import Iterator
from difflib import get_close_matches

from policy.lint.container_ways import CONTAINER_ROLE
from policy.lint.findings import About, Confidence, Family, Finding, Fix, Level, PolicyText, SectionText
from policy.lint.network_roles import role_of

ID = "PAL155"
TITLE = "route to no container"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    ends = policy.sections("connector", "listener")
    containers = [end for end in ends if role_of(end) == CONTAINER_ROLE]
    for section in policy.sections("autoLink", "linkRoute"):
        name = section.text("connection")
        if not name:
            if not section.text("containerId"):
                text = "it names neither a connection nor a containerId, and is never attached"
                yield section.finding(ID, Level.WARNING, text)
            elif not containers:
                text = f"no listener and no connector has the role {CONTAINER_ROLE}: no container can connect"
                yield section.finding(ID, Level.WARNING, text, "containerId", About(confidence=Confidence.LIKELY))
            continue
        named = [end for end in ends if end.text("name") == name]
        if not named:
            yield _unknown(section, name, [end.text("name") for end in ends])
        elif not any(end in containers for end in named):
            text = f"the {named[0].title} has the role {role_of(named[0])}, and wants {CONTAINER_ROLE}"
            about = About(item=name, confidence=Confidence.LIKELY)
            yield section.finding(ID, Level.WARNING, text, "connection", about)


def _unknown(section: SectionText, name: str, known: list[str]) -> Finding:
    similar = get_close_matches(name, known, n=1)
    advice = f": did you mean '{similar[0]}'?" if similar else ""
    fix = Fix(old=name, new=similar[0], is_safe=False) if similar else None
    about = About(item=name, confidence=Confidence.LIKELY, fix=fix)
    text = f"no listener and no connector is called '{name}'{advice}"
    return section.finding(ID, Level.WARNING, text, "connection", about)
