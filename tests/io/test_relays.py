"""Turns of logins with remote services (docs/spec/policy-and-auth.md §9.2)."""

import asyncio

import pytest

from auth.relay import Voucher
from router.connection.service import ServiceTerms
from router.control import relays
from router.control.relays import MAX_OF_HOST, Login, Place, Relays, Service


class Waiting(Login):
    """A login whose client never goes on."""

    def __init__(self, table: Relays, host: str) -> None:
        self.heard: list[str] = []
        self.has_begun = False
        service = Service(
            [Place(host="192.0.2.1", port="1")], lambda _place: ServiceTerms(hostname=None, product="", version="")
        )
        super().__init__(table, service, self.asker, host)
        table.enter(self)

    @property
    def asker(self) -> "Heard":
        return Heard(self.heard)

    def run(self) -> None:
        self.has_begun = True
        self._began_at = self._loop.time()


class Heard:
    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def offered(self, names: tuple[str, ...]) -> None: ...
    def challenged(self, data: bytes) -> None: ...
    def refused(self, code: int) -> None: ...
    def vouched(self, voucher: Voucher) -> None: ...
    def failed(self, why: str) -> None:
        self._heard.append(why)


def begun(logins: list[Waiting]) -> list[bool]:
    return [login.has_begun for login in logins]


def test_a_host_never_has_all_places() -> None:
    async def scene() -> None:
        table = Relays(most=MAX_OF_HOST + 1)
        greedy = [Waiting(table, "192.0.2.1") for _ in range(MAX_OF_HOST + 3)]
        assert begun(greedy) == [True] * MAX_OF_HOST + [False] * 3
        (other,) = [Waiting(table, "192.0.2.2")]
        assert other.has_begun
        greedy[0].close()
        greedy[0].close()
        assert begun(greedy) == [True] * (MAX_OF_HOST + 1) + [False] * 2
        assert table.count == MAX_OF_HOST + 1
        for login in (*greedy, other):
            login.close()
        assert table.count == 0
        assert greedy[-1].heard == [], "who was given up is told nothing"

    asyncio.run(scene())


def test_hosts_have_turns() -> None:
    async def scene() -> None:
        table = Relays(most=1)
        first = Waiting(table, "192.0.2.9")
        waiting = [
            Waiting(table, host) for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2")
        ]
        order = []
        current = first
        while True:
            current.close()
            following = [login for login in waiting if login.has_begun and login not in order]
            if not following:
                break
            (current,) = following
            order.append(current)
        # The second of a host comes after the first of the others; an IPv6 network of 64 bits is one host.
        assert [waiting.index(login) for login in order] == [0, 2, 3, 1, 4]

    asyncio.run(scene())


def test_logins_that_are_left_lying_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: few hosts hold all places."""
    monkeypatch.setattr(relays, "GRACE_S", 0.02)

    async def scene() -> None:
        table = Relays(most=4)
        lying = [Waiting(table, "192.0.2.1") for _ in range(4)]
        honest = [Waiting(table, f"198.51.100.{number}") for number in range(3)]
        assert begun(honest) == [False] * 3
        async with asyncio.timeout(5):
            while not all(begun(honest)):
                await asyncio.sleep(0.01)
        assert [len(login.heard) for login in lying] == [1, 1, 1, 0], "the oldest first, and no more than needed"
        more = Waiting(table, "203.0.113.1")
        await asyncio.sleep(0.1)
        assert not more.has_begun, "hosts with one each do not push each other out"

    asyncio.run(scene())


def test_a_service_that_failed_is_tried_last_for_a_while() -> None:
    places = [Place(host="a", port="1"), Place(host="b", port="1"), Place(host="c", port="1")]
    service = Service(places, lambda _place: ServiceTerms(hostname=None, product="", version=""))
    service.avoid(places[0], 100.0)
    assert [place.host for place in service.in_order(101.0)] == ["b", "c", "a"]
    assert [place.host for place in service.in_order(100.0 + relays.AVOIDED_S)] == ["a", "b", "c"]
