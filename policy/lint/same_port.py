"""Two listeners have the same host and port.

The second one cannot listen. Give it another port or address.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText, SectionText

ID = "PAL052"
TITLE = "two listeners on one port"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    seen: dict[tuple[str, str, str], SectionText] = {}
    for section in policy.sections("listener"):
        place = (section.text("host"), section.text("port") or "amqp", section.text("socketAddressFamily"))
        first = seen.setdefault(place, section)
        if first is not section:
            text = f"the listener in line {first.source.line} has the same host and port"
            yield section.finding(ID, Level.ERROR, text, "port")
