"""The routers of several configurations that are checked together, and the connections between them.

No host name is looked up: a connector leads to the listener with its port and, as far as the texts show, its host. If
that cannot be told, the result is "not known".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from policy.lint.findings import PolicyText, SectionText
from policy.lint.network_roles import network_sections, role_of

_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104
_MODES: Final = {"0": "standalone", "1": "interior", "2": "edge"}


@dataclass(frozen=True, kw_only=True)
class FleetRouter:
    """The configuration of one router.

    file  its own file, without those of its policyDir
    """

    policy: PolicyText
    file: str

    @cached_property
    def section(self) -> SectionText | None:
        return next(iter(self.policy.sections("router")), None)

    @property
    def id(self) -> str:
        """Returns the id, "" if the router generates one."""
        return self.section.text("id") if self.section is not None else ""

    @property
    def mode(self) -> str:
        mode = self.section.text("mode") if self.section is not None else ""
        return _MODES.get(mode, mode) or "standalone"

    @property
    def title(self) -> str:
        return f"'{self.id}'" if self.id else f"of {self.file}"

    @property
    def anchor(self) -> SectionText:
        """Returns the section that a finding about the whole router refers to."""
        found = self.section or next(iter(self.policy.all_sections), None)
        assert found is not None  # a file without sections is not a router
        return found

    def is_at(self, host: str) -> bool:
        """Returns whether a host name can be the name of this router's host."""
        file = self.file.rpartition("/")[2].removesuffix(".conf")
        return host.lower() in (self.id.lower(), file.lower())


def fleet(policy: PolicyText) -> tuple[FleetRouter, ...]:
    """Returns the routers of a policy with several configurations, none for a single configuration."""
    return tuple(
        FleetRouter(policy=router, file=router.all_sections[0].source.file or "")
        for router in policy.routers
        if router.all_sections
    )


def target_of(connector: SectionText, own: FleetRouter, routers: tuple[FleetRouter, ...]) -> FleetRouter | None:
    """Returns the router that a connector leads to. None if it is not among them, or cannot be told."""
    host, port = connector.text("host") or "127.0.0.1", connector.text("port") or "amqp"
    exact, possible = [], []
    for router in routers:
        for listener in network_sections(router.policy, "listener"):
            same_role = role_of(listener) == role_of(connector)
            if router is own or not same_role or (listener.text("port") or "amqp") != port:
                continue
            if listener.text("host").lower() == host.lower():
                exact.append(router)
            elif listener.text("host") in _EVERY_ADDRESS:
                possible.append(router)
    if not exact and len(possible) > 1:
        possible = [each for each in possible if each.is_at(host) or each.is_at(host.partition(".")[0])]
    found = exact or possible
    return found[0] if len(found) == 1 else None


def connectors_of(router: FleetRouter, role: str) -> Iterator[SectionText]:
    return (each for each in network_sections(router.policy, "connector") if role_of(each) == role)


# The index of an interior router in the fleet -> the indexes of its neighbours.
Graph = Mapping[int, set[int]]


def interior_graph(routers: tuple[FleetRouter, ...]) -> Graph | None:
    """Returns the network of the interior routers. None if a connector's other end is not known."""
    places = {id(router): place for place, router in enumerate(routers)}
    graph: dict[int, set[int]] = {place: set() for place, each in enumerate(routers) if each.mode == "interior"}
    for place in graph:
        for connector in connectors_of(routers[place], "inter-router"):
            target = target_of(connector, routers[place], routers)
            if target is None:
                return None
            if (other := places[id(target)]) in graph:
                graph[place].add(other)
                graph[other].add(place)
    return graph
