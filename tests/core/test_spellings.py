"""Attack: another spelling of an address, which policy allows and the router takes for a forbidden one."""

from typing import Any

import pytest
from memory_net import ACCEPTED, REJECTED, Net, Vhosts


def governed(allowed: str, **group: Any) -> Net:
    rules = {"remoteHosts": "*", "sources": allowed, "targets": allowed, "allowAnonymousSender": True, **group}
    return Net(vhosts=Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": rules}}}))


DENIED = [
    ("public/*", "public/x:/secret", "secret"),
    ("public*", "public:/secret", "secret"),
    ("a*", "amqp:/secret", "secret"),
    ("a*", "amqp://host/secret", "secret"),
    ("public/*", "public/", "public"),
    ("public.*", "public.", "public"),
]


@pytest.mark.parametrize(("allowed", "address", "reached"), DENIED)
def test_a_wildcard_does_not_reach_addresses_outside_it(allowed: str, address: str, reached: str) -> None:
    """policy 30, 37, routing 36: links and messages are judged on the address they reach as well"""
    net = governed(allowed)
    client = net.client(hostname="v")
    ends = [client.sender(address), client.receiver(address)]
    anonymous = client.sender(None)
    net.pump()
    for end in ends:
        assert end.is_detached
        assert end.refusal.name == "amqp:unauthorized-access"
    sending = anonymous.send(address=address)
    net.pump()
    assert sending.outcome == REJECTED
    assert sending.updates[0].refusal.description == "policy violation on target"
    assert not net.core.table.addresses
    assert {audit["address"] for audit in net.audits} == {reached}
    assert client.router.gate.open_receivers == 0


@pytest.mark.parametrize(
    ("allowed", "address"),
    [
        ("amqp:/a", "amqp:/a"),  # listed as it stands
        ("a", "a"),
        ("a/*", "a/b/"),
        ("*", "amqp:/anything"),
        ("amqp:/a*,a*", "amqp:/a1"),
        ("amqp:/a*", "amqp:/a1"),  # below a listed alias
        ("amqp:/_topo/0/QDR/temp.*", "amqp:/_topo/0/QDR/temp.x"),
        ("/*", "/a"),
    ],
)
def test_what_the_operator_listed_is_meant(allowed: str, address: str) -> None:
    """policy 30, 37"""
    net = governed(allowed)
    client = net.client(hostname="v")
    receiver, anonymous = client.receiver(address, credit=5, accepts=True), client.sender(None)
    sender = client.sender(address)
    net.pump()
    assert receiver.is_attached
    assert sender.is_attached
    sendings = [anonymous.send(address=address) for _ in range(2)] + [sender.send()]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED] * 3


def test_raw_spelling_is_compared_still() -> None:
    """policy 29 (§2.5: `amqp:/a` is not `a`)"""
    net = governed("a")
    end = net.client(hostname="v").sender("amqp:/a")
    net.pump()
    assert end.is_detached


@pytest.mark.parametrize("item", ["secret", "amqp:/secret", "amqp://else/secret", "secret.", "amqp:/secret*"])
@pytest.mark.parametrize("address", ["secret", "amqp:/secret", "amqp://host/secret", "/secret", "secret/", "x:/secret"])
def test_what_is_denied_is_denied_by_every_name(address: str, item: str) -> None:
    """policy 29: denyTargets and denySources override, whatever the spelling, the client's or the operator's"""
    net = governed("*", denyTargets=item, denySources=item)
    client = net.client(hostname="v")
    ends = [client.sender(address), client.receiver(address)]
    anonymous = client.sender(None)
    net.pump()
    assert all(end.is_detached for end in ends)
    sending = anonymous.send(address=address)
    net.pump()
    assert sending.outcome == REJECTED
    assert not net.core.table.addresses
