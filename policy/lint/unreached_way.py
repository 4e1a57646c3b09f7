"""No group of any vhost may use the address of an auto link or a link route.

With vhost policy on, nobody can send to the queue, or receive from it, on this router: the address is misspelt, or a
group lacks it in `targets` (`autoLink` out, `linkRoute` in) or `sources` (`autoLink` in, `linkRoute` out). That is
decided exactly, for every user. A router that other routers connect to is left out: their clients are judged there.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from policy.analysis.automata import address_automaton, find_word
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.lint.container_ways import Key, Way, for_every_user, pattern_for_every_user, ways
from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.network_roles import network_sections

ID = "PAL133"
TITLE = "queue that nobody may use"
FAMILY = Family.REACHABILITY

# What a way takes, as measured; see effort.py.
WAY_STEPS: Final = 6000
_KEYS: Final[Mapping[Key, str]] = {"sources": "sourcePattern", "targets": "targetPattern"}
_VERBS: Final[Mapping[Key, str]] = {"sources": "receive from", "targets": "send to"}


def check(policy: PolicyText) -> Iterator[Finding]:
    laid = list(ways(policy))
    # Without vhosts they are not known, or everybody is refused.
    if not laid or not policy.is_enforced or not policy.vhosts:
        return
    if any(True for type_ in ("listener", "connector") for _ in network_sections(policy, type_)):
        return
    items = {key: _Items(policy, key) for key in _KEYS}
    effort = Effort(RULE_STEPS)
    effort.allow(WAY_STEPS * (len(laid) + sum(each.count for each in items.values())))
    for way in laid:
        try:
            is_reached = items[way.key].meet(way, effort)
        except TooComplexError as error:
            text = error.about("somebody may use each queue")
            yield way.section.finding(ID, Level.NOTE, text, way.key_of_address)
            return
        if not is_reached:
            text = f"no group may {_VERBS[way.key]} '{way.section.text(way.key_of_address)}': add it to '{way.key}'"
            yield way.section.finding(ID, Level.WARNING, text, way.key_of_address)


class _Items:
    """All that the groups of all vhosts allow, whatever the user is called."""

    def __init__(self, policy: PolicyText, key: Key) -> None:
        is_tenant = any(section.is_on("multiTenant") for section in policy.sections("listener"))
        literals: dict[str, None] = {}
        patterns: dict[str, None] = {}
        for group in policy.groups:
            for head in ("", f"{group.vhost}/") if is_tenant else ("",):
                literals |= {head + for_every_user(item): None for item in group.items(key)}
                patterns |= {head + pattern_for_every_user(item): None for item in group.items(_KEYS[key])}
        self._literals, self._patterns = tuple(literals), tuple(patterns)
        self._key = key

    @property
    def count(self) -> int:
        return len(self._literals) + len(self._patterns)

    def meet(self, way: Way, effort: Effort) -> bool:
        """Is an address of the way allowed? Raises TooComplexError."""
        if way.address:
            wanted = address_automaton(self._key, (way.address,), "", effort)
        else:
            wanted = address_automaton(_KEYS[self._key], ("/".join(way.tokens),), "", effort)
        for key, items in ((self._key, self._literals), (_KEYS[self._key], self._patterns)):
            if items:
                allowed = address_automaton(key, items, "", effort)
                if find_word((wanted, allowed), lambda accepts: accepts == (True, True), effort) is not None:
                    return True
        return False
