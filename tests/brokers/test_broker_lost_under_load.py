"""Brokers die while clients send: nothing that was accepted is lost, and all goes on by itself (routing 110, 116)."""

import time
from pathlib import Path

import pytest
from artemis import running
from broker_process import KINDS, QUEUES, MakeBroker
from daemon_process import start
from router_text import LISTENER, link_routes, waypoint
from traffic import Told, sending, taken, wait_until

# Seconds in which senders go on when one of two brokers has died.
FAILOVER_S = 2.0


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_accepted_is_in_the_broker_when_it_comes_back(
    kind: str, make_broker: MakeBroker, tmp_path: Path
) -> None:
    """By auto links and by link routes, twice."""
    with make_broker(kind, tmp_path / "broker").running() as broker:
        daemon = start(tmp_path, LISTENER + broker.connector + waypoint("orders", "broker") + link_routes("parts"))
        try:
            url = f"amqp://127.0.0.1:{daemon.port('clients')}"
            daemon.wait_for_log("Auto Link Activated .* on connection broker")
            orders, parts = Told(), Told()
            with sending(url, "orders", orders), sending(url, "parts", parts):
                for _ in range(2):
                    _wait_for_more(orders, parts)
                    broker.kill()
                    broker.start()
                _wait_for_more(orders, parts)
            for address, told in (("orders", orders), ("parts", parts)):
                assert set(told.accepted) <= taken(url, address, set(told.accepted))
        finally:
            daemon.end()
        assert daemon.process.returncode == 0


def _wait_for_more(*each: Told) -> None:
    before = [len(told.accepted) for told in each]
    for told, count in zip(each, before, strict=True):
        wait_until(lambda told=told, count=count: len(told.accepted) >= count + 60, "senders go on")  # type: ignore[misc]


def test_senders_go_on_with_the_other_broker(distribution: Path, tmp_path: Path) -> None:
    """Of two behind one address, by auto links; and behind one route, where the client attaches again."""
    first_of = running(tmp_path / "first", distribution, *QUEUES, name="first")
    second_of = running(tmp_path / "second", distribution, *QUEUES, name="second")
    with first_of as first, second_of as second:
        text = LISTENER + first.connector + second.connector
        text += waypoint("orders", "first", "second") + link_routes("parts", connection="first")
        text += link_routes("parts", connection="second")
        daemon = start(tmp_path, text)
        try:
            url = f"amqp://127.0.0.1:{daemon.port('clients')}"
            for name in ("first", "second"):
                daemon.wait_for_log(f"Auto Link Activated .* on connection {name}")
            orders, parts = Told(), Told()
            with sending(url, "orders", orders), sending(url, "parts", parts):
                _wait_for_more(orders, parts)
                died = time.monotonic()
                first.kill()
                _wait_for_more(orders, parts)
                waits = [told.longest_wait_s(died) for told in (orders, parts)]
                assert max(waits) < FAILOVER_S, waits
                first.start()
            # Each broker has its part; the one that died is back with what it has stored.
            for address, told in (("orders", orders), ("parts", parts)):
                found: set[str] = set()
                for broker in (first, second):
                    found |= taken(broker.url, address, set(told.accepted) - found)
                assert set(told.accepted) <= found
        finally:
            daemon.end()
        assert daemon.process.returncode == 0
