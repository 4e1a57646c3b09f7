"""Where a connector tries next and how long it waits (docs/spec/routing.md §1.9), without a clock."""

from typing import Any

import pytest

from router.connection.outgoing import MAX_FAILOVER_SERVERS, RetryDelays, Server, Servers
from router.values import symbol, uint

DELAYS = RetryDelays()
HOME = Server("amqp", "home", "5672")


def advertised(*entries: Any) -> dict[Any, Any]:
    return {symbol("failover-server-list"): list(entries)}


def place(host: str, **more: Any) -> dict[Any, Any]:
    return {symbol(key.replace("_", "-")): value for key, value in {"network_host": host, **more}.items()}


def test_delays_are_five_two_and_one_seconds() -> None:
    """routing 18"""
    servers = Servers(HOME, DELAYS)
    assert servers.failed(was_open=False) == 5.0
    assert servers.failed(was_open=True) == 2.0
    servers.opened(advertised(place("other")))
    assert servers.failed(was_open=True) == 1.0
    assert servers.failed(was_open=False) == 1.0


def test_a_server_is_tried_twice_then_the_next_round_robin() -> None:
    """routing 16"""
    servers = Servers(HOME, DELAYS)
    servers.opened(advertised(place("b"), place("c")))
    tried = []
    for _ in range(8):
        servers.failed(was_open=False)
        tried.append(servers.current.host)
    assert tried == ["home", "b", "b", "c", "c", "home", "home", "b"]


def test_an_opened_connection_is_a_new_start_for_its_server() -> None:
    """routing 16: what failed before counts no more."""
    servers = Servers(HOME, DELAYS)
    servers.opened(advertised(place("b")))
    servers.failed(was_open=True)
    servers.opened({})
    servers.failed(was_open=True)
    assert servers.current == HOME


def test_the_list_is_merged_and_reads_back_current_first() -> None:
    """routing 16: entries known already are not repeated; scheme and port have defaults; any scalar port is taken."""
    servers = Servers(HOME, DELAYS)
    added = servers.opened(
        advertised(place("home", port="5672"), place("b", scheme="amqps"), place("c", port=uint(20001)), place("b"))
    )
    assert [server.url for server in added] == ["amqps://b:5672", "amqp://c:20001"]
    assert servers.urls == "amqp://home:5672, amqps://b:5672, amqp://c:20001"
    for _ in range(2):
        servers.failed(was_open=False)
    assert servers.urls == "amqps://b:5672, amqp://c:20001, amqp://home:5672"


def test_a_new_list_keeps_only_the_configured_server_and_the_one_in_use() -> None:
    """routing 16, 17"""
    servers = Servers(HOME, DELAYS)
    servers.opened(advertised(place("b"), place("c")))
    for _ in range(2):
        servers.failed(was_open=False)
    servers.opened(advertised(place("d")))
    assert servers.urls == "amqp://b:5672, amqp://home:5672, amqp://d:5672"


def test_an_empty_list_resets_and_an_absent_one_changes_nothing() -> None:
    """routing 17"""
    servers = Servers(HOME, DELAYS)
    servers.opened(advertised(place("b")))
    servers.opened({})
    assert servers.urls == "amqp://home:5672, amqp://b:5672"
    servers.opened(advertised())
    assert servers.urls == "amqp://home:5672"


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "b:5672",
        {},
        place(""),
        place("b" * 254),
        place("b", port="9" * 33),
        place("b", port=["5672"]),
        place("b\nSERVER (info) forged"),
        place("b", port="5672\x1b[2J"),
        place("b", scheme="file"),
        place("b", scheme=["amqp"]),
        place(b"b"),  # type: ignore[arg-type]
    ],
)
def test_what_names_no_place_is_passed_over(entry: Any) -> None:
    """routing 16. Attack: a server's list that breaks log lines, or the connector."""
    servers = Servers(HOME, DELAYS)
    assert servers.opened(advertised(entry)) == []
    assert servers.urls == HOME.url


def test_a_long_list_is_cut() -> None:
    """Attack: a server that sends us round the world."""
    servers = Servers(HOME, DELAYS)
    assert len(servers.opened(advertised(*(place(f"h{number}") for number in range(1000))))) == MAX_FAILOVER_SERVERS


@pytest.mark.parametrize("properties", [{}, {symbol("failover-server-list"): "b"}, {"other": [1]}])
def test_without_a_list_nothing_changes(properties: dict[Any, Any]) -> None:
    """routing 17"""
    servers = Servers(HOME, DELAYS)
    servers.opened(properties)
    assert servers.urls == HOME.url
