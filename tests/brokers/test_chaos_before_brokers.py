"""One client holds up nobody, and nothing gets lost, whatever happens at the broker (routing 110, 116).

All links to a broker once shared one session: a client that took nothing stopped everybody's receiving for a minute,
and one refused attach could end the links of all.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import rabbitmq
from broker_process import KINDS, Broker, MakeBroker
from daemon_process import start
from round_trips import RoundTrips, empty, going_round, in_their_way
from router_text import LISTENER, link_routes, waypoint
from traffic import taken

TRIPS = 150
# A busy machine may slow down either of the two that are compared.
ATTEMPTS = 6
AT_MOST = 2
RABBITMQ = """
autoLink {
    address: orders
    direction: out
    connection: rabbit
    externalAddress: /queue/orders
}
autoLink {
    address: orders
    direction: in
    connection: rabbit
    externalAddress: /queue/orders
}
"""
PREFIXED = """linkRoute {{
    prefix: {prefix}
    direction: {direction}
    connection: rabbit
    addExternalPrefix: /
}}
"""


@pytest.mark.parametrize("kind", [*KINDS, "rabbitmq"])
def test_the_others_go_on(kind: str, make_broker: MakeBroker, tmp_path: Path) -> None:
    """Clients stall, are refused, and the broker is killed. Those of others take no longer than when all is quiet."""
    broker: Broker
    if kind == "rabbitmq":
        if not rabbitmq.SERVER.exists():
            pytest.skip("RabbitMQ is not installed")
        broker = rabbitmq.RabbitMQ(tmp_path / "broker")
        text = "address {\n    prefix: orders\n    waypoint: yes\n}\n" + RABBITMQ
        ways = [(prefix, way) for prefix in ("queue", "exchange") for way in ("in", "out")]
        text += "".join(PREFIXED.format(prefix=prefix, direction=way) for prefix, way in ways)
        routed, stalled, refused = "queue/parts", "queue/stalled", "exchange/none"
    else:
        broker = make_broker(kind, tmp_path / "broker")
        text = waypoint("orders", "broker") + link_routes("parts", "far.away")
        routed, stalled, refused = "parts", "far.away", "parts.none"
    with broker.running():
        daemon = start(tmp_path, LISTENER + broker.connector + text)
        try:
            url = f"amqp://127.0.0.1:{daemon.port('clients')}"
            daemon.wait_for_log("Auto Link Activated")
            trips = [RoundTrips(url, "orders"), RoundTrips(url, routed)]

            def quiet() -> list[float]:
                return [each.worst(TRIPS) for each in trips]

            def disturbed() -> list[float]:
                with in_their_way(url, stalled=stalled, refused=refused):
                    return quiet()

            with going_round(*trips):
                quiet()  # what is new is slow
                assert_no_slower(quiet, disturbed, lambda: empty(url, stalled))
                if kind != "rabbitmq":  # it stores nothing of a link whose terminus is not durable
                    with in_their_way(url, stalled=stalled, refused=refused):
                        broker.kill()
                        broker.start()
                        for each in trips:
                            each.wait_for(1)
                    quiet()
                    assert_no_slower(quiet, disturbed, lambda: empty(url, stalled))
            for each in trips:
                left = each.accepted - each.got
                assert not left or left <= taken(url, each.address, left)
        finally:
            daemon.end()
        assert daemon.process.returncode == 0


def assert_no_slower(
    quiet: Callable[[], list[float]], disturbed: Callable[[], list[float]], clean: Callable[[], None]
) -> None:
    """In one of some attempts the 99th percentile, by address, is at most twice what it is without the others."""
    seen = []
    for _ in range(ATTEMPTS):
        usual, now = quiet(), disturbed()
        clean()
        seen.append((usual, now))
        if all(one <= AT_MOST * other for one, other in zip(now, usual, strict=True)):
            return
    pytest.fail(f"seconds without and with the others: {seen}")
