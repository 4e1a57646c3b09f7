"""Attack: bob, whose sources are `*`, attaches to alice's dynamic address by one of its names and gets her answers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery, Message
from proton.utils import SendException
from reply_house import ROUTER, TIMEOUT_S, dynamic_receiver, house, refusal, send

# {}: the last part of the address, `temp.` and 15 characters.
SPELLINGS = [
    f"amqp:/_topo/0/{ROUTER}/{{}}",
    f"_topo/0/{ROUTER}/{{}}",
    f"_topo/all/{ROUTER}/{{}}",
    f"/_topo/0/{ROUTER}/{{}}",
    f"amqp://some.where/_topo/0/{ROUTER}/{{}}",
    f"x:/_topo/0/{ROUTER}/{{}}",
    "_local/{}",
    "_local/{}/",
    "amqp:/_local/{}",
    f"_edge/{ROUTER}/{{}}",
    f"amqp:/_edge/{ROUTER}/{{}}.",
]
QUEUES = ["amqp:/_${}", "_${}", "/_${}", "_${}/", "x:/_${}"]


def test_bob_reads_a_dynamic_source(tmp_path: Path) -> None:
    with house(tmp_path, {"services": {"targets": f"amqp:/_topo/0/{ROUTER}/*"}}) as made:
        alices, address = dynamic_receiver(made.connect("alice"))
        name = address.rpartition("/")[2]
        bob = made.connect("bob")
        for spelling in SPELLINGS:
            condition = refusal(partial(bob.create_receiver, spelling.format(name), credit=1))
            assert (condition.name, condition.description) == (
                "amqp:unauthorized-access", "link disallowed by local policy",
            )  # fmt: skip
        send(made.connect("service"), address, Message(body="for alice"))
        assert alices.receive(TIMEOUT_S).body == "for alice"
        event = made.event(reason="dynamic_address_not_own", user="bob")
        assert (event["stage"], event["direction"], event["group"]) == ("attach", "receive", "readers")
        made.daemon.wait_for_log(r"DENY AMQP Attach receiver .* 'bob'.*\[dynamic_address_not_own: only the connection")


def test_bob_reads_a_queue_of_jms(tmp_path: Path) -> None:
    """A sender with a dynamic target, and receivers on its address: what JMS makes of createTemporaryQueue."""
    with house(tmp_path) as made:
        alice, bob = made.connect("alice"), made.connect("bob")
        assert alice.conn is not None
        dynamic: Any = Dynamic()  # proton takes any object that has `apply` and `test`
        maker = alice.container.create_sender(alice.conn, None, options=dynamic)
        alice.wait(lambda: bool(maker.remote_target.address))
        address = str(maker.remote_target.address)
        alices = alice.create_receiver(address, credit=1)
        for spelling in QUEUES:
            name = address.removeprefix("amqp:/_$")
            refusal(partial(bob.create_receiver, spelling.format(name), credit=1))
        maker.send(Message(body="hers"))
        assert alices.receive(TIMEOUT_S).body == "hers"


def test_bob_takes_over_the_name_of_who_has_left(tmp_path: Path) -> None:
    """The answer comes when alice is gone: nobody has it."""
    with house(tmp_path, {"services": {"targets": f"amqp:/_topo/0/{ROUTER}/*"}}) as made:
        alice, bob, service = (made.connect(name) for name in ("alice", "bob", "service"))
        _, address = dynamic_receiver(alice)
        late = service.create_sender(address)
        alice.close()
        made.daemon.wait_for_log(r"Link closed|Link detached")
        refusal(lambda: bob.create_receiver(address, credit=1))
        with pytest.raises(SendException) as caught:
            late.send(Message(body="answer"))
        assert caught.value.state == Delivery.RELEASED


class Dynamic:
    """An option of proton's that gives the target no address and has the router make one."""

    def apply(self, link: object) -> None:
        link.target.dynamic = True  # type: ignore[attr-defined]

    def test(self, link: object) -> bool:
        return True
