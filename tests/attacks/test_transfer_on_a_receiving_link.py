"""Attack: a client sends a message on a link on which it receives.

The AMQP engine filed the delivery among the incoming ones, but removed it from the list of the outgoing ones: the
released delivery stayed on its list. With one Disposition for it the router died of SIGSEGV, each time, on the first
connection.
"""

import pytest
from frames_attacker import besieged_router, send_to_router, wire
from harness import RunningRouter

router = besieged_router

SESSION = wire.frame(wire.open_("attacker", "localhost")) + wire.frame(wire.begin())
RECEIVER = wire.frame(wire.attach("r", 0, is_receiver=True, address="guests.a"))


def transfer(*, is_settled: bool, is_last: bool = True, is_aborted: bool = False) -> bytes:
    return wire.frame(
        wire.transfer(0, 0, wire.message(10), is_settled=is_settled, is_last=is_last, is_aborted=is_aborted)
    )


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(wire.frame(wire.disposition(is_receiver=False, first=0)), id="disposition"),
        pytest.param(
            wire.frame(wire.detach(0)) + wire.frame(wire.disposition(is_receiver=False, first=0)), id="detach first"
        ),
        pytest.param(wire.frame(wire.flow(0, credit=10)) + wire.frame(wire.detach(0)), id="credit"),
        pytest.param(wire.frame(wire.end()), id="end"),
    ],
)
def test_a_message_against_the_links_direction_is_refused(
    is_settled: bool, is_last: bool, after: bytes, router: RunningRouter
) -> None:
    frames = SESSION, RECEIVER, transfer(is_settled=is_settled, is_last=is_last), after
    assert send_to_router(router, *frames).startswith("amqp:")


def test_also_when_the_router_had_closed_the_link(router: RunningRouter) -> None:
    """Policy refuses the link; the peer sends before it knows."""
    refused = wire.frame(wire.attach("r", 0, is_receiver=True, address="forbidden"))
    settling = wire.frame(wire.disposition(is_receiver=False, first=0))
    assert send_to_router(router, SESSION, refused, transfer(is_settled=False), settling).startswith("amqp:")


def test_a_detached_handle_attached_again_the_other_way_round_is_judged_as_it_is_now(router: RunningRouter) -> None:
    sender = wire.frame(wire.attach("s", 0, is_receiver=False, address="guests.a"))
    again = wire.frame(wire.detach(0)) + RECEIVER
    settling = wire.frame(wire.disposition(is_receiver=False, first=0))
    assert send_to_router(router, SESSION, sender, again, transfer(is_settled=False), settling).startswith("amqp:")
