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
    assert {audit["address"] for audit in net.audits} == {address}
    assert [audit["detail"].partition(": ")[2] for audit in net.audits] == [f"the address is '{reached}'"] * 3
    lines = [log.text for log in net.logs if "DENY" in log.text]
    assert len(lines) == 3
    for line in lines:
        assert f" '{address}' for user " in line
        assert line.endswith(f", the address is '{reached}']")
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


@pytest.mark.parametrize("allowed", ["*", "public"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_an_anonymous_message_to_a_blank_address_is_a_denial_of_policy(allowed: str, is_settled: bool) -> None:
    """policy §3.9: with its condition, log line and audit event; a blank address matches no item, not even `*`"""
    net = governed(allowed)
    client = net.client(hostname="v")
    anonymous = client.sender(None)
    net.pump()
    payloads = [b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa1\x00" + b"\x00\x53\x75\xa0\x01x"] * 3
    sendings = [anonymous.send_bytes(payload, is_settled=is_settled) for payload in payloads]
    net.pump()
    if not is_settled:
        refusals = [sending.updates[0].refusal for sending in sendings]
        assert {(each.name, each.description) for each in refusals} == {
            ("amqp:unauthorized-access", "policy violation on target")
        }
    assert [(each["reason"], each["address"], each["stage"]) for each in net.audits] == [
        ("message_target_not_allowed", "", "transfer")
    ] * 3
    lines = [log.text for log in net.logs if "DENY AMQP message to '' for user " in log.text]
    assert len(lines) == 3
    assert "[message_target_not_allowed: targets of group '$default' of vhost 'v'" in lines[0]
    assert anonymous.credit == 250
    assert not client.is_closed_by_router


def test_a_message_without_an_address_at_all_is_refused_by_the_router_and_not_by_policy() -> None:
    net = governed("*")
    anonymous = net.client(hostname="v").sender(None)
    net.pump()
    sending = anonymous.send()
    net.pump()
    assert sending.updates[0].refusal.name == "amqp:precondition-failed"
    assert not net.audits


def test_a_denial_in_a_tenants_space_names_what_was_written_and_what_it_is() -> None:
    """policy §3.13"""
    net = governed("x")
    client = net.client(hostname="v", is_multi_tenant=True)
    refused, anonymous = client.sender("out"), client.sender(None)
    net.pump()
    assert refused.is_detached
    anonymous.send(address="out")
    net.pump()
    assert {(each["address"], each["detail"].partition(": ")[2]) for each in net.audits} == {
        ("out", "the address is 'v/out'")
    }
    lines = [log.text for log in net.logs if "DENY" in log.text]
    assert [" 'out' for user " in line and line.endswith(", the address is 'v/out']") for line in lines] == [True] * 2


def test_what_a_long_address_is_is_cut() -> None:
    net = governed("x")
    client = net.client(hostname="v", is_multi_tenant=True)
    client.sender("a" * 5000)
    net.pump()
    (line,) = [log.text for log in net.logs if "DENY" in log.text]
    assert line.endswith(f", the address is 'v/{'a' * 198}...']")
