"""A queue has a second name, by which a group may use it that may not by the first.

`externalAddress`, `addExternalPrefix` and `delExternalPrefix` give a queue another name for clients than it has at the
broker. Policy judges the name that the client writes: where two of them lead to one queue, what a vhost denies, or does
not list, under the one is open under the other. Deny both, or lay only one way to the queue. The finding names both.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from policy.addressing.lists import AddressMatcher, compile_literals, compile_patterns, denied_items
from policy.analysis.effort import RULE_STEPS, Effort, TooComplexError
from policy.groups import DENIED_BY
from policy.lint.container_ways import Key, Way, ways
from policy.lint.findings import SOME_USER, About, Confidence, Family, Finding, GroupText, Level, PolicyText

ID = "PAL132"
TITLE = "queue with a second name"
FAMILY = Family.SECURITY

_PATTERNS: Final[Mapping[Key, str]] = {"sources": "sourcePattern", "targets": "targetPattern"}
_VERBS: Final[Mapping[Key, str]] = {"sources": "receive from", "targets": "send to"}
_NAMING: Final = ("externalAddress", "addExternalPrefix", "delExternalPrefix")
# A comparison of a way with a name, as measured; see effort.py.
_STEPS: Final = 40
_TEXT: Final = "every group may use a queue by all of its names, or by none"


def check(policy: PolicyText) -> Iterator[Finding]:
    if not policy.is_enforced:
        return
    laid: dict[tuple[tuple[str, str], Key], list[Way]] = {}
    for way in ways(policy):
        laid.setdefault((way.place, way.key), []).append(way)
    effort = Effort(RULE_STEPS)
    for (_, key), found in laid.items():
        if not any(way.renames for way in found):
            continue
        lists = [_Lists(group, key, is_tenant=_has_tenants(policy)) for group in policy.groups]
        try:
            yield from _second_names(key, found, lists, effort)
        except TooComplexError as error:
            yield found[0].section.finding(ID, Level.NOTE, error.about(_TEXT))
            return


def _has_tenants(policy: PolicyText) -> bool:
    return any(section.is_on("multiTenant") for section in policy.sections("listener"))


class _Lists:
    """What a group allows and denies to one of its users."""

    def __init__(self, group: GroupText, key: Key, *, is_tenant: bool) -> None:
        self.group = group
        self._tenant = f"{group.vhost}/" if is_tenant else ""
        pattern_key = _PATTERNS[key]
        self._allowed: tuple[AddressMatcher, ...] = (
            compile_literals(list(group.items(key))).bind(SOME_USER),
            compile_patterns(list(group.items(pattern_key))).bind(SOME_USER),
        )
        self.denials = group.items(DENIED_BY[key])
        self._denied = compile_literals(list(denied_items(self.denials))).bind(SOME_USER)

    def allows(self, address: str) -> bool:
        """By the name that its users write."""
        names = [address]
        if self._tenant and address.startswith(self._tenant):
            names.append(address.removeprefix(self._tenant))
        return any(self._allows(name) for name in names)

    def _allows(self, name: str) -> bool:
        return any(each.match(name) is not None for each in self._allowed) and not self.denies(name)

    def denies(self, name: str) -> bool:
        return self._denied.match(name) is not None


def _second_names(key: Key, found: list[Way], lists: list[_Lists], effort: Effort) -> Iterator[Finding]:
    told: set[int] = set()
    for external in _externals(found, lists, effort):
        names: dict[str, Way] = {}
        for way in found:
            effort.spend(_STEPS)
            if (name := way.address_of(external)) is not None:
                names.setdefault(name, way)
        for each in lists if len(names) > 1 else ():
            effort.spend(_STEPS * len(names))
            opened = [name for name in names if each.allows(name)]
            closed = [name for name in names if name not in opened]
            if opened and closed:
                way = next(way for way in (names[opened[0]], names[closed[0]]) if way.renames)
                if id(way) not in told:
                    told.add(id(way))
                    yield _finding(key, way, each, external, opened[0], closed[0])


def _externals(found: list[Way], lists: list[_Lists], effort: Effort) -> list[str]:
    """Names at the container that follow from a denial, or stand in the configuration."""
    externals: dict[str, None] = {}
    for item in dict.fromkeys(item for each in lists for item in each.denials):
        denied = item.removesuffix("*") + "x" if item.endswith("*") else item
        for way in found:
            effort.spend(_STEPS)
            if denied and way.leads(denied):
                externals[way.external_of(denied)] = None
    externals |= {way.external_of(way.sample): None for way in found if way.sample is not None}
    return list(externals)


def _finding(key: Key, way: Way, lists: _Lists, external: str, opened: str, closed: str) -> Finding:
    shown = next(each for each in _NAMING if way.section.text(each))
    text = (
        f"'{opened}' and '{closed}' are one queue, '{external}' of {way.place[0]} '{way.place[1]}': "
        f"{lists.group.title} may {_VERBS[key]} the first and not the second"
    )
    level = Level.WARNING if lists.denies(closed) else Level.NOTE
    about = About(confidence=Confidence.LIKELY, item=external if external in way.section.text(shown) else "")
    return way.section.finding(ID, level, text, shown, about)
