"""Attack: a broker that a connector has reached answers the router's Open and then sends frames in forbidden orders.

The AMQP engine trusted the broker as it trusted clients, whose orders of frames killed the router; some of these orders
it accepted silently. Each is a violation that closes the connection with its condition.
"""

import pytest
from frames_attacker import Broker, besieged_router, clock_of, hostile_broker, wire
from harness import RunningRouter

router = besieged_router


def at(channel: int, body: bytes) -> bytes:
    return wire.frame(body, channel)


BEGIN = at(0, wire.begin())
SENDER = at(0, wire.attach("s", 0, is_receiver=False, address="guests.a"))
RECEIVER = at(0, wire.attach("r", 1, is_receiver=True, address="guests.a"))
ORDERS = {
    "a begin that answers nothing": at(0, wire.begin(0)) + at(0, wire.end()),
    "a begin that answers an answer": BEGIN + at(1, wire.begin(0)) + SENDER + at(1, wire.end()) + at(0, wire.end()),
    "a transfer on a receiving link": BEGIN
    + RECEIVER
    + at(0, wire.transfer(1, 0, wire.message(10), is_settled=True))
    + at(0, wire.disposition(is_receiver=False, first=0)),
    "a second open": at(0, wire.open_()),
    "a second begin": BEGIN + BEGIN,
    "a handle attached twice": BEGIN + SENDER + at(0, wire.attach("t", 0, is_receiver=True)),
    "a transfer after the detach": BEGIN + SENDER + at(0, wire.detach(0)) + at(0, wire.transfer(0, 0, wire.message(1))),
    "another delivery's id": BEGIN
    + SENDER
    + at(0, wire.transfer(0, 0, wire.message(1), is_last=False))
    + at(0, wire.transfer(0, 1, wire.message(1))),
    "an end of nothing": at(7, wire.end()),
    "a channel over the limit": at(65535, wire.begin()),
    "a SASL frame": wire.frame(wire.performative(0x44, wire.ubyte(0)), kind=1),
    "a list longer than its count": at(0, b"\x00\x53\x11\xc0\x06\x01\x40\x43\x43\x43\x43"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_brokers_connection_is_closed_with_a_condition(name: str, router: RunningRouter) -> None:
    conditions: list[str] = []

    def behave(broker: Broker) -> None:
        if not conditions:  # the connector comes again
            with clock_of(router) as clock:
                broker.converse(ORDERS[name], clock)
            conditions.append(broker.condition_of_close())

    with hostile_broker(router, behave) as was_done:
        failures = was_done()
    assert failures == []
    assert conditions[0].startswith("amqp:")
