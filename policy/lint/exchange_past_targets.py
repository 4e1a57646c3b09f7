"""By an exchange a group sends to an address to which it may not send.

Policy judges who sends to the exchange's own address. What goes on from there by a binding, or to `alternateAddress`,
it does not judge: the router sends it. So a group that may send to the exchange reaches addresses that its `targets`
leave out, or its `denyTargets` close. Where that is what the exchange is for, ignore this; a denial that it gets round
is probably a mistake. The finding names one group.
"""

from collections.abc import Iterator

from policy.addressing.lists import AddressMatcher, compile_literals, compile_patterns, denied_items
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.findings import (
    SOME_USER,
    About,
    Confidence,
    Family,
    Finding,
    GroupText,
    Level,
    PolicyText,
    SectionText,
)

ID = "PAL140"
TITLE = "exchange past the targets"
FAMILY = Family.SECURITY

# Of one comparison with a group's lists; see effort.py.
_STEPS = 40
_TEXT = "no exchange leads a group past its targets"


def check(policy: PolicyText) -> Iterator[Finding]:
    exchanges = {section.text("name"): section for section in policy.sections("exchange")}
    if not policy.is_enforced or not exchanges:
        return
    is_tenant = any(section.is_on("multiTenant") for section in policy.sections("listener"))
    groups = [_Targets(group, is_tenant=is_tenant) for group in policy.groups]
    ways = [(section, section, "alternateAddress") for section in exchanges.values()]
    ways += [
        (exchanges[section.text("exchangeName")], section, "nextHopAddress")
        for section in policy.sections("binding")
        if section.text("exchangeName") in exchanges
    ]
    effort = Effort(RULE_STEPS)
    try:
        for exchange, section, key in ways:
            if section.text(key):
                yield from _past(exchange.text("address"), section, key, groups, effort)
    except TooComplexError as error:
        yield next(iter(exchanges.values())).finding(ID, Level.NOTE, error.about(_TEXT))


class _Targets:
    """Where a group may send."""

    def __init__(self, group: GroupText, *, is_tenant: bool) -> None:
        self.group = group
        self._tenant = f"{group.vhost}/" if is_tenant else ""
        self._allowed: tuple[AddressMatcher, ...] = (
            compile_literals(list(group.items("targets"))).bind(SOME_USER),
            compile_patterns(list(group.items("targetPattern"))).bind(SOME_USER),
        )
        self._denied = compile_literals(list(denied_items(group.items("denyTargets")))).bind(SOME_USER)

    def _names(self, address: str) -> list[str]:
        """What a member writes for it."""
        is_own = self._tenant and address.startswith(self._tenant)
        return [address, address.removeprefix(self._tenant)] if is_own else [address]

    def denies(self, address: str) -> bool:
        return any(self._denied.match(name) is not None for name in self._names(address))

    def allows(self, address: str) -> bool:
        names = self._names(address)
        return not self.denies(address) and any(
            each.match(name) is not None for name in names for each in self._allowed
        )


def _past(address: str, section: SectionText, key: str, groups: list[_Targets], effort: Effort) -> Iterator[Finding]:
    to = section.text(key)
    found: list[_Targets] = []
    for targets in groups:
        effort.spend(_STEPS)
        if targets.allows(address) and not targets.allows(to):
            found.append(targets)
    if not found:
        return
    denied = [targets for targets in found if targets.denies(to)]
    first = (denied or found)[0].group
    what = "is denied" if denied else "may not send"
    text = f"{first.title} may send to the exchange '{address}', and so reaches '{to}', where it {what}"
    about = About(item=to, confidence=Confidence.LIKELY if denied else Confidence.POSSIBLE)
    yield section.finding(ID, Level.WARNING if denied else Level.NOTE, text, key, about)
