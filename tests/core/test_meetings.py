"""Link routes and auto links meet connections, and part from them, in turns: whatever happens in between, each pair
meets once and parts once, and no attach goes to a container that is gone.

Attack: a container that comes and goes where 5,000 link routes or auto links wait for it holds up everybody else.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_net import Net

from policy.addressing.address import Address
from router.connection.auto_links import AutoLink, Place
from router.connection.link_routes import LinkRoute, LinkRoutes
from router.connection.meetings import Meetings
from router.core.addresses import LiveAddress
from router.core.work import Work
from router.values import Condition

AT_ONCE = 1  # routes or links that need no further turn; of the router 64
PLACES = (Place(kind="container", text="broker"), Place(kind="connection", text="brokers"))
BROKER = PLACES[0]
OPS = st.lists(
    st.tuples(
        st.sampled_from(("open", "open", "lose", "add", "add", "remove", "own", "disown", "step", "step", "step")),
        st.integers(0, 5),
        st.integers(1, 3),
    ),
    max_size=60,
)


class Visiting:
    """A connection that link routes know, and nothing behind it."""

    unanswered = 0
    is_full = False
    is_gone = False
    container = "broker"
    links: Any = None
    session_bytes = 0

    def __init__(self, attachment: Any, places: tuple[Place, ...]) -> None:
        self.attachment = attachment
        self.places = places
        self.routed: dict[Any, None] = {}

    def begin(self) -> bool:
        assert not self.is_gone
        return True

    def with_session(self, *_calls: object) -> None:
        raise AssertionError("no link is routed here")

    def takes(self, *_question: object) -> bool:
        return True

    def full(self, why: str) -> Condition:
        raise AssertionError(f"no link is routed here: {why}")


@pytest.fixture(autouse=True, scope="module")
def _one_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("router.core.work._AT_ONCE", AT_ONCE)
        yield


class Steps:
    """What is left for later, done as tests like."""

    def __init__(self) -> None:
        self.left: deque[Iterator[object]] = deque()
        self.work = Work(bytes, later=self.left.append)

    def do(self, count: int) -> None:
        """In the order in which turns come."""
        for _ in range(count):
            if self.left:
                steps = self.left.popleft()
                if next(steps, self) is not self:
                    self.left.append(steps)

    def do_all(self) -> None:
        while self.left:
            self.do(1)


@settings(deadline=None)
@given(OPS)
@example([("add", 0, 1), ("add", 2, 1), ("open", 0, 1), ("remove", 2, 1), ("step", 0, 3)])
def test_each_pair_meets_once_and_parts_once(ops: list[tuple[str, int, int]]) -> None:
    steps, told = Steps(), []
    gone: set[Visiting] = set()
    together: set[tuple[int, Visiting]] = set()

    def met(member: int, visitor: Visiting) -> None:
        assert (member, visitor) not in together
        assert visitor not in gone
        together.add((member, visitor))
        told.append("met")

    def parted(member: int, visitor: Visiting, is_gone: bool) -> None:
        together.remove((member, visitor))
        assert is_gone is (visitor in gone)
        told.append("parted")

    meetings: Meetings[int, Visiting] = Meetings(steps.work, met, parted)
    members: dict[int, Place] = {}
    here: list[Visiting] = []
    due: set[tuple[int, Visiting]] = set()
    for what, which, count in ops:
        if what == "open":
            here.append(Visiting(None, PLACES[:count] if count < 3 else PLACES[1:]))
            meetings.opened(here[-1])
        elif what == "lose" and here:
            visitor = here.pop(which % len(here))
            gone.add(visitor)
            meetings.lost(visitor)
        elif what == "add" and which not in members:
            members[which] = PLACES[which % 2]
            meetings.add(which, members[which])
        elif what == "remove" and which in members:
            meetings.remove(which, members.pop(which))
            assert not any(member == which for member, _ in together)
        elif what == "step":
            steps.do(count)
        due = {(member, each) for member, place in members.items() for each in here if place in each.places}
        assert {pair for pair in together if pair[1] not in gone} <= due
        for member, place in members.items():
            is_met = any((member, each) in together for each in here)
            assert meetings.has_met(member, place) is is_met
    steps.do_all()
    assert together == due
    for visitor in here:
        gone.add(visitor)
        meetings.lost(visitor)
    steps.do_all()
    assert not together
    assert told.count("met") == told.count("parted")
    assert not meetings._here
    assert not meetings._leaving


class Served:
    """Link routes, and what a model without turns says of them."""

    def __init__(self) -> None:
        self.net = Net()
        self.steps = Steps()
        core = self.net.core
        core.work = self.steps.work
        self.lines: list[str] = []
        self.routes = LinkRoutes(core, lambda effect: self.lines.append(effect.text))  # type: ignore[union-attr]
        self.routes.on_served = self._on_served
        self.at = self.net.peer(self._opened_client()).attachment
        self.is_served: dict[LiveAddress, bool] = {}
        self.here: list[Visiting] = []
        self.configured: dict[int, LinkRoute] = {}
        self.own: dict[tuple[Visiting, int], LinkRoute] = {}
        self.made = 0

    def _opened_client(self) -> Any:
        client = self.net.client()
        self.net.pump()
        return client

    def _on_served(self, live: LiveAddress, is_served: bool) -> None:
        assert self.is_served.get(live, False) is not is_served
        self.is_served[live] = is_served

    def route(self, which: int) -> LinkRoute:
        """Two of each pattern, at two places."""
        self.made += 1
        text = f"q{which // 2}"
        return LinkRoute(
            name=f"r{self.made}", pattern=text, key=f"C{text}", direction="send", place=PLACES[which % 2]
        )  # fmt: skip

    def do(self, what: str, which: int, count: int) -> None:
        here, routes = self.here, self.routes
        visitor = here[which % len(here)] if here else None
        if what == "open":
            here.append(Visiting(self.net.peer(self._opened_client()).attachment, PLACES[:count]))
            routes.opened(here[-1])
        elif what == "lose" and visitor is not None:
            here.remove(visitor)
            routes.lost(visitor)
            for number in range(3):
                if (late := self.own.pop((visitor, number), None)) is not None and count == 1:
                    routes.remove_own(late, visitor)  # a request of the peer that was on its way
            assert not routes.add_own(self.route(0), visitor)
        elif what == "add" and which not in self.configured:
            self.configured[which] = self.route(which)
            routes.add(self.configured[which])
        elif what == "remove" and which in self.configured:
            routes.remove(self.configured.pop(which))
        elif what == "own" and visitor is not None:
            key = (visitor, count - 1)
            made = self.route(2 * (count - 1))
            assert routes.add_own(made, visitor) is (key not in self.own)
            self.own.setdefault(key, made)
        elif what == "disown" and (visitor, count - 1) in self.own:
            assert visitor is not None
            routes.remove_own(self.own.pop((visitor, count - 1)), visitor)
        elif what == "step":
            self.steps.do(count)

    def due(self, number: int) -> Counter[Visiting]:
        """The containers of a pattern, and by how many routes."""
        found = Counter(visitor for visitor, own in self.own if own == number)
        for which, route in self.configured.items():
            if which // 2 == number:
                found.update(visitor for visitor in self.here if route.place in visitor.places)
        return found

    def check_attaches(self) -> None:
        for number in range(3):
            hop = self.routes.next_hop(f"q{number}", "send", self.at)
            assert hop is None or hop.host is None or hop.host in self.due(number)
            routed = self.routes.find(f"q{number}", "send")
            if routed is not None and self.routes.has_destination(routed):
                assert hop is not None
                assert hop.host is not None

    def check_state(self) -> None:
        """Nothing is left for later: all is as if it had been done in one go."""
        for number in range(3):
            due, routed = self.due(number), self.routes.find(f"q{number}", "send")
            assert dict(due) == (routed.hosts if routed is not None else {})
            live = self.net.core.table.addresses.get(f"Cq{number}")
            assert (live.containers if live is not None else 0) == len(due)
            if live is not None:
                assert self.is_served.get(live, False) is bool(due)
        routes = {route.name: route for route in (*self.configured.values(), *self.own.values())}
        active = Counter(line.split("'")[1] for line in self.lines if " Activated " in line)
        over = Counter(line.split("'")[1] for line in self.lines if " Deactivated " in line)
        for name in active.keys() | over.keys():
            route = routes.get(name)
            left = 0
            if route in self.own.values():
                left = 1
            elif route is not None:
                left = sum(route.place in visitor.places for visitor in self.here)
            assert active[name] - over[name] == left, name
        assert self.routes.count == len(self.configured)
        for route in self.configured.values():
            assert self.routes.is_active(route) is any(route.place in visitor.places for visitor in self.here)


@settings(deadline=None, max_examples=150)
@given(OPS)
def test_link_routes_are_as_if_nothing_took_turns(ops: list[tuple[str, int, int]]) -> None:
    served = Served()
    for op in ops:
        served.do(*op)
        served.check_attaches()
    served.steps.do_all()
    served.check_state()
    for visitor in served.here:
        served.routes.lost(visitor)
    for route in served.configured.values():
        served.routes.remove(route)
    served.here, served.own, served.configured = [], {}, {}
    served.steps.do_all()
    served.check_state()
    assert not served.routes._own
    assert not served.net.core.table.addresses


def many_routes(net: Net, count: int) -> None:
    for number in range(count):
        name = f"q{number}"
        net.surroundings.link_routes.add(
            LinkRoute(name=name, pattern=name, key=f"C{name}", direction="send", place=BROKER)
        )


def many_auto_links(net: Net, count: int) -> list[AutoLink]:
    made = []
    for number in range(count):
        address = net.core.resolve(f"q{number}")
        assert isinstance(address, Address)
        made.append(AutoLink(name=f"a{number}", address=address, is_in=False, phase=0, external="q", place=BROKER))
        net.surroundings.auto_links.add(made[-1])
    return made


def lines_by_step(net: Net, said: str) -> list[int]:
    """Lines of the log that each step wrote, until none is left."""
    found, before = [], len(net.logs)
    while net.remainders:
        steps = net.remainders.popleft()
        if next(steps, net) is not net:
            net.remainders.append(steps)
        net.work.finish()
        found.append(sum(said in entry.text for entry in net.logs[before:]))
        before = len(net.logs)
    return found


@pytest.mark.parametrize("kind", ["Link Route", "Auto Link"])
def test_no_step_takes_more_than_one_link_route_or_auto_link(kind: str) -> None:
    net = Net(is_sliced=True)
    (many_routes if kind == "Link Route" else many_auto_links)(net, 500)
    container = net.client("broker", role="route-container")
    for what in ("Activated", "Deactivated"):
        said = f"{kind} {what}"
        if what == "Activated":
            while not net.remainders:
                assert container.push_to_router()
        else:
            net.pump()
            net.effects.clear()
            container.kill()
        assert sum(said in text for text in net.log_texts()) <= AT_ONCE
        steps = lines_by_step(net, said)
        assert max(steps) == 1
        assert sum(said in text for text in net.log_texts()) == 500
    net.nothing_left()


def test_no_step_attaches_more_than_one_auto_link_when_the_session_is_there() -> None:
    """They share one session, and have waited for the container to answer its Begin."""
    net = Net(is_sliced=True)
    made = many_auto_links(net, 500)
    container = net.client("broker", role="route-container", channel_max=1)
    while not net.remainders:
        assert container.push_to_router()
    lines_by_step(net, "")
    links = net.peer(container).engine.links
    assert not links
    while not links:
        assert container.pull_from_router() | container.push_to_router()
    before = len(links)
    assert before <= AT_ONCE
    while len(links) < 500:
        assert net.do_later()
        assert len(links) <= before + 2
        before = len(links)
    net.pump()
    assert {auto.status for auto in made} == {"active"}
    net.nothing_left()


def test_auto_links_that_have_waited_for_a_session_are_not_attached_once_the_container_is_gone() -> None:
    net = Net(is_sliced=True)
    many_auto_links(net, 200)
    container = net.client("broker", role="route-container")
    links = net.peer(container).engine.links if net.carry() else {}
    while not links:
        net.carry()
    assert len(links) < 100
    container.kill()
    before = list(links)
    for _ in range(20):
        net.do_later()
        assert links.keys() <= set(before)
    net.nothing_left()
    assert not any("Failed" in text for text in net.log_texts())


def test_auto_links_that_wait_for_a_session_that_ends_fail_and_are_attached_later() -> None:
    net = Net(is_sliced=True)
    made = many_auto_links(net, 200)
    container = net.client("broker", role="route-container")
    while not container.attached_by_router:
        net.carry()
    container.attached_by_router[0].link.session.close()
    while not any(auto.status == "failed" for auto in made):
        net.carry()
    net.pump()
    assert {auto.status for auto in made} == {"failed", "active"}  # those that came later began another
    net.advance(6)
    assert {auto.status for auto in made} == {"active"}
    net.nothing_left()


def test_a_retry_that_is_due_attaches_nothing_to_a_container_that_is_gone() -> None:
    net = Net(is_sliced=True)
    made = many_auto_links(net, 100)
    container = net.client("broker", role="route-container")
    net.pump()
    for end in container.attached_by_router:
        end.close()
    net.pump()
    assert {auto.status for auto in made} == {"failed"}
    container.kill()
    held = net.remainders.copy()
    net.remainders.clear()
    for member in list(net.timers):
        member.on_timer(net.now)
    assert "attaching" in {auto.status for auto in made}
    net.remainders.extend(held)
    net.pump()
    assert {auto.status for auto in made} == {"inactive"}
    assert not net.timers
    net.nothing_left()


def test_an_auto_link_deleted_while_its_connection_is_going_is_not_detached_there() -> None:
    net = Net(is_sliced=True)
    made = many_auto_links(net, 100)
    container = net.client("broker", role="route-container")
    net.pump()
    container.kill()
    assert net.remainders
    for auto in made:
        net.surroundings.auto_links.remove(auto)
        assert not auto.runs
    net.pump()
    assert sum("Deactivated" in text for text in net.log_texts()) == 100
    net.nothing_left()


def test_a_container_that_comes_and_goes_leaves_no_more_work_than_it_has_made() -> None:
    net = Net(is_sliced=True)
    many_routes(net, 500)
    for _ in range(20):
        container = net.client("broker", role="route-container")
        while not net.remainders:
            assert container.push_to_router()
        container.kill()
        assert len(lines_by_step(net, "")) < 20
    net.nothing_left()
