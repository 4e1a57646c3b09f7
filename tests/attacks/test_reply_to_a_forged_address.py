"""Attack: a request has another client's address as its reply-to, and the service, which may reply, writes there."""

from pathlib import Path

import pytest
from reply_house import ROUTER, ask, dynamic_receiver, house, refusal, rejection

SECRETS = ["secret", "amqp:/secret", "/secret", "x:/secret", "secret/"]
INSIDE = ["$management", "_local/$management", f"amqp:/_topo/0/{ROUTER}/$management", f"_edge/{ROUTER}/$management"]


@pytest.mark.parametrize("forged", [*SECRETS, *INSIDE])
def test_the_service_writes_where_mallory_may_not(forged: str, tmp_path: Path) -> None:
    # Even who may send to management by all of its names has nobody else write there.
    rights = {"guests": {"targets": "*"}} if forged in INSIDE else {}
    with house(tmp_path, rights) as made:
        service, mallory = made.connect("service"), made.connect("mallory")
        made.connect("owner").create_receiver("secret", credit=10)
        requests = service.create_receiver("requests", credit=10)
        ask(mallory, requests, forged)
        assert refusal(lambda: service.create_sender(forged)).name == "amqp:unauthorized-access"
        condition = rejection(service, forged)
        assert condition is not None
        assert condition.name == "amqp:unauthorized-access"
        assert made.event(stage="attach", user="service")["reason"] == "target_not_allowed"
        assert made.event(stage="transfer", user="service")["reason"] == "message_target_not_allowed"


def test_the_service_writes_to_alice_what_mallory_asked_for(tmp_path: Path) -> None:
    with house(tmp_path, {"guests": {"targets": "*"}}) as made:
        service, mallory = made.connect("service"), made.connect("mallory")
        _, address = dynamic_receiver(made.connect("alice"))
        requests = service.create_receiver("requests", credit=10)
        ask(mallory, requests, address)
        assert refusal(lambda: service.create_sender(address)).name == "amqp:unauthorized-access"
        assert rejection(service, address) is not None
        assert made.event(stage="transfer", user="service")["reason"] == "reply_not_expected"
