"""Applications with Qpid JMS use real brokers by link routes: the broker's own features work (routing 116)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_process import Broker, BrokerError
from daemon_process import start
from jms_program import built, played
from router_text import LISTENER, link_routes


@pytest.fixture(scope="module")
def program(require_tool: Callable[[str, str], Path]) -> list[str]:
    try:
        return built(require_tool)
    except BrokerError as error:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["artemis", "broker_j"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker: Broker = request.getfixturevalue(request.param)
    daemon = start(tmp_path_factory.mktemp("router"), LISTENER + broker.connector + link_routes("parts", "news", "DLQ"))
    try:
        daemon.wait_for_log("Link Route Activated .* on connection broker")
        yield f"amqp://127.0.0.1:{daemon.port('clients')}"
    finally:
        daemon.end()


def test_a_durable_subscription_keeps_what_came_while_its_subscriber_was_away(program: list[str], url: str) -> None:
    assert played(program, "durable", url)["received"] == "one two three"


def test_consumers_share_a_subscription(program: list[str], url: str) -> None:
    """Each message comes to one of them, and each of them gets some."""
    found = played(program, "shared", url)
    first, second = found["first"].split(), found["second"].split()
    assert sorted(first + second) == list("123456")
    assert first
    assert second


def test_a_group_of_messages_stays_with_one_consumer(program: list[str], url: str) -> None:
    found = played(program, "groups", url)
    first, second = ([int(number) for number in found[name].split()] for name in ("first", "second"))
    assert sorted(first + second) == list(range(20))
    assert {number % 4 for number in first}.isdisjoint(number % 4 for number in second)
    assert first
    assert second
    for group in range(4):
        of_group = [number for number in first + second if number % 4 == group]
        assert of_group == sorted(of_group)


def test_a_session_is_committed_and_rolled_back(program: list[str], url: str) -> None:
    found = played(program, "transacted", url)
    assert found["before commit"] == "null"
    assert found["taken and given back"] == found["taken again"] == "one two"
    assert found["left"] == "null"


def test_the_brokers_count_of_deliveries_reaches_the_client_and_leads_to_its_dead_letters(
    program: list[str], url: str
) -> None:
    """The broker gives a message up after its third delivery: neither sooner nor later than without the router."""
    found = played(program, "dead-letters", url)
    assert found["deliveries"] == "1first 2again 3again"
    assert found["dead"] == "bad"
