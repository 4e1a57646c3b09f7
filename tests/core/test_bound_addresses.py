"""The key that the core binds is the key that policy judged: for every address, tenant, alias and kind of link."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import REJECTED, Net, Vhosts, at

from policy.addressing.address import Address, Unclear
from policy.facts import LinkFacts, MessageFacts
from router.admission import connection_gate as gate_module
from router.core.treatments import AddressBook

PIECES = (
    *("/", ".", ":", "a", "t", "$", "_", "#", "*", "x:/", "//h/", "amqp:/", "_topo/0/QDR/", "_topo/all/QDR/"),
    *("_topo/0/X/", "_topo/0/all/", "_edge/QDR/", "_edge/X/", "_local/", "$management", "$_management_internal", "q"),
)
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
DENIED = "$management, t/a, _local/a, a*"


class Judged:
    """What policy was asked about, in the order of the questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: list[Address | Unclear | None] = []
        for name in ("decide_link", "decide_message"):
            monkeypatch.setattr(gate_module, name, self.seen(getattr(gate_module, name)))

    def seen(self, decide: Any) -> Any:
        def asked(granted: Any, facts: LinkFacts | MessageFacts) -> Any:
            decision = decide(granted, facts)
            address = facts.address if isinstance(facts, LinkFacts) else facts.target
            self.addresses.append(address if decision.is_allowed else None)
            return decision

        return asked


def net_of(denied: str) -> Net:
    group = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
    vhosts = {name: {"groups": {"g": {**group, "denyTargets": denied, "denySources": denied}}} for name in ("t", "u")}
    book = AddressBook()
    book.add({"prefix": "q", "distribution": "balanced", "ingressPhase": 0, "egressPhase": 1})
    book.add({"prefix": "t/q", "distribution": "multicast", "ingressPhase": 3, "egressPhase": 4})
    net = Net(vhosts=Vhosts(vhosts))
    net.core.table.treatment_of = book.treatment_of
    return net


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(texts, min_size=1, max_size=4, unique=True), st.booleans(), st.sampled_from(["", DENIED]))
def test_the_key_that_is_bound_is_the_key_that_was_judged(
    addresses: list[str], is_multi_tenant: bool, denied: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        judged = Judged(patch)
        net = net_of(denied)
        client = net.client(hostname="t", is_multi_tenant=is_multi_tenant)
        anonymous = client.sender(None)
        net.pump()
        for text in addresses:
            for is_sender in (True, False):
                judged.addresses.clear()
                link = client.sender(text) if is_sender else client.receiver(text, credit=10, accepts=True)
                net.pump()
                if not link.is_attached or link.is_detached:
                    continue
                (address,) = judged.addresses
                assert isinstance(address, Address)
                bound = next(
                    each for each in net.core.links.values() if each.wire.named is address and each.address is not None
                )
                treatment = net.core.table.treatment(address)
                phase = treatment.ingress_phase if is_sender else treatment.egress_phase
                assert bound.address is not None
                assert bound.address.key == address.key_in(phase)
                assert address == at(text, "t" if is_multi_tenant else None)
                if is_multi_tenant and address.is_mobile:
                    assert bound.address.key[2:].startswith("t/")
            judged.addresses.clear()
            counts = {key: live.ingress_count for key, live in net.core.table.addresses.items()}
            sending = anonymous.send(address=text)
            net.pump()
            grown = [key for key, live in net.core.table.addresses.items() if live.ingress_count > counts.get(key, 0)]
            assert sending.outcome == REJECTED or len(judged.addresses) == 1
            for key in grown:
                (address,) = judged.addresses
                assert isinstance(address, Address)
                assert key == address.key_in(net.core.table.treatment(address).ingress_phase)
            if sending.outcome != REJECTED:
                # The second message is known, and goes the same way.
                before = {key: live.ingress_count for key, live in net.core.table.addresses.items()}
                anonymous.send(address=text)
                net.pump()
                assert len(judged.addresses) == 1
                after = {key: live.ingress_count for key, live in net.core.table.addresses.items()}
                assert [key for key, count in after.items() if count > before.get(key, 0)] == grown


@settings(max_examples=100, deadline=None)
@given(texts, st.booleans())
def test_what_is_denied_is_bound_by_nobody(text: str, is_multi_tenant: bool) -> None:
    """A key that a denial names is bound by no link of those whom it is denied."""
    net = net_of(DENIED)
    client = net.client(hostname="t", is_multi_tenant=is_multi_tenant)
    net.pump()
    client.sender(text)
    client.receiver(text)
    net.pump()
    keys = set(net.core.table.addresses)
    assert not keys & {"M0$management", "L$management", "L$_management_internal", "M0t/a", "La"}
    assert not any(key[2:].startswith("a") for key in keys if key[0] == "M")
