"""Which links are taken, which are refused and how, and that nothing of them stays behind."""

from typing import Any

import proton
import pytest
from memory_net import Client, Net, Vhosts
from proton import Terminus, symbol

from router.amqp.codec import encode
from router.values import Described, uint, ulong

SOURCE, TARGET, ADDRESS = 5, 6, 0  # field numbers of Attach and of a terminus


def refusal(client: Client) -> tuple[Any, Any, str, str]:
    """(source, target) of the Attach that refuses, then condition and description of the Detach; it must close."""
    attach, detach = client.frames("attach")[-1], client.frames("detach")[-1]
    assert detach[1] is True
    error = detach[2].value
    return attach[SOURCE], attach[TARGET], str(error[0]), error[1]


@pytest.mark.parametrize("text", ["amqp:/a", "amqp://h:1/a", "/a", "a", "a/", "a."])
def test_spellings_of_one_address_meet(text: str) -> None:
    """routing 36"""
    net = Net()
    receiver = net.client().receiver("a", credit=1)
    sender = net.client().sender(text)
    net.pump()
    sender.send(b"met")
    net.pump()
    assert receiver.bodies == [b"met"]
    assert list(net.core.table.addresses) == ["M0a"]


def test_separators_inside_an_address_are_not_interchangeable() -> None:
    """routing 36: comparison is byte-exact but for the ends (§3.1)"""
    net = Net()
    client = net.client()
    client.receiver("a/b")
    client.sender("a.b")
    net.pump()
    assert sorted(net.core.table.addresses) == ["M0a.b", "M0a/b"]


def test_a_topological_address_of_this_router_is_its_local_one() -> None:
    """routing 38, the part of one router"""
    net = Net()
    receiver = net.client().receiver("_local/x", credit=1)
    sender = net.client().sender("_topo/0/QDR/x")
    net.pump()
    sender.send(b"home")
    net.pump()
    assert receiver.bodies == [b"home"]
    assert list(net.core.table.addresses) == ["Lx"]


def test_a_long_address_works() -> None:
    """routing 36: 2019 characters (§3.1)"""
    net = Net()
    address = "a" * 2019
    receiver, sender = net.client().receiver(address, credit=1), net.client().sender(address)
    net.pump()
    sender.send(b"x")
    net.pump()
    assert len(receiver.complete) == 1


def test_treatment_of_a_live_address_stays_as_it_was() -> None:
    """routing 45"""
    net = Net({"a": "multicast"})
    client = net.client()
    receivers = [client.receiver("a", credit=5), client.receiver("a", credit=5)]
    net.pump()
    net.distributions["a"] = "balanced"
    sender = client.sender("a")
    net.pump()
    sender.send()
    net.pump()
    assert [len(receiver.complete) for receiver in receivers] == [1, 1]


def test_dynamic_source_gets_a_topological_address_that_works() -> None:
    """routing 47"""
    net = Net()
    receiver = net.client().receiver(None, credit=1, source={"dynamic": True})
    net.pump()
    address = receiver.link.remote_source.address
    assert address.startswith("amqp:/_topo/0/QDR/temp.")
    assert len(address) == len("amqp:/_topo/0/QDR/temp.") + 15
    assert receiver.link.remote_source.dynamic
    assert [key[:6] for key in net.core.table.addresses] == ["Ltemp."]
    sender = net.client().sender(address)
    net.pump()
    sender.send(b"reply")
    net.pump()
    assert receiver.bodies == [b"reply"]


def test_dynamic_target_gets_a_mobile_address_that_works() -> None:
    """routing 48"""
    net = Net()
    sender = net.client().sender(None, target={"dynamic": True})
    net.pump()
    address = sender.link.remote_target.address
    assert address.startswith("amqp:/_$temp.")
    assert len(address) == len("amqp:/_$temp.") + 15
    assert [key[:9] for key in net.core.table.addresses] == ["M0_$temp."]
    receiver = net.client().receiver(address, credit=1)
    net.pump()
    sender.send(b"found")
    net.pump()
    assert receiver.bodies == [b"found"]


@pytest.mark.parametrize("default", ["unavailable", "multicast", "closest"])
def test_dynamic_termini_are_balanced_whatever_the_default(default: str) -> None:
    """routing 47, 48: distribution balanced (§5.4)"""
    net = Net(default=default)
    client = net.client()
    sender = client.sender(None, target={"dynamic": True})
    receiver = client.receiver(None, source={"dynamic": True})
    net.pump()
    assert sender.link.remote_target.address
    assert receiver.link.remote_source.address
    assert {address.distribution for address in net.core.table.addresses.values()} == {"balanced"}


@pytest.mark.parametrize("is_maker_sending", [True, False])
def test_a_temporary_topic_gives_each_receiver_its_copy(is_maker_sending: bool) -> None:
    """issue 12.7: JMS makes one with a sender; the dynamic receiver of another client may be one, too."""
    net = Net(default="balanced")
    client = net.client()
    terminus = {"dynamic": True, "capabilities": symbol("temporary-topic")}
    receivers = []
    if is_maker_sending:
        maker = client.sender(None, target=terminus)
        net.pump()
        address = maker.link.remote_target.address
    else:
        receivers.append(client.receiver(None, credit=5, source=terminus))
        net.pump()
        address = receivers[0].link.remote_source.address
    while len(receivers) < 2:
        receivers.append(client.receiver(address, credit=5, source={"capabilities": symbol("temporary-topic")}))
    net.pump()
    sender = net.client().sender(address)
    net.pump()
    for body in (b"one", b"two", LARGE):
        sender.send(body)
    net.pump()
    assert [receiver.bodies for receiver in receivers] == [[b"one", b"two", LARGE]] * 2


def test_the_capability_makes_no_topic_of_an_address_that_has_a_name() -> None:
    """issue 12.7: what an address is, its configuration says; a client may not choose for others."""
    net = Net()
    client = net.client()
    topic = {"capabilities": symbol("temporary-topic")}
    receivers = [client.receiver("a", credit=5, source=topic), client.receiver("a", credit=5, source=topic)]
    sender = client.sender("a", target=topic)
    net.pump()
    sender.send()
    net.pump()
    assert sorted(len(receiver.complete) for receiver in receivers) == [0, 1]


LARGE = b"x" * 200_000


def symbols(*texts: symbol) -> proton.Array:
    undescribed: Any = proton.UNDESCRIBED  # proton's type leaves this constant out
    return proton.Array(undescribed, proton.Data.SYMBOL, *texts)


def test_the_reply_repeats_what_the_client_wrote() -> None:
    """routing 49"""
    net = Net()
    client = net.client()
    terminus = {"expiry_policy": Terminus.EXPIRE_WITH_LINK, "capabilities": symbols(symbol("queue"), symbol("special"))}
    client.receiver(
        "q",
        source={
            **terminus,
            "distribution_mode": Terminus.DIST_MODE_COPY,
            "outcomes": symbols(symbol("amqp:accepted:list")),
        },
        target=LASTING,
    )
    client.sender("q", source={**LASTING, "filter": SELECTOR}, target=terminus)
    net.pump()
    sent = [frame for frame in frames_of(client.uttered) if frame.name == "attach"]
    for mine, theirs in zip(sent, client.frames("attach"), strict=True):
        assert filled(theirs[SOURCE]) == filled(mine[SOURCE])
        assert filled(theirs[TARGET]) == filled(mine[TARGET])
        assert theirs[0] == mine[0]


SELECTOR = {symbol("selector"): "color = 'red'"}
LASTING = {"durability": Terminus.DELIVERIES, "expiry_policy": Terminus.EXPIRE_NEVER, "timeout": 77}


@pytest.mark.parametrize(
    ("expiry", "shown"),
    [
        (Terminus.EXPIRE_NEVER, "link-detach"),
        (Terminus.EXPIRE_WITH_CONNECTION, "link-detach"),
        (Terminus.EXPIRE_WITH_SESSION, "session-end"),
        (Terminus.EXPIRE_WITH_LINK, "link-detach"),
    ],
)
def test_the_reply_says_nothing_that_is_not_honoured(expiry: symbol, shown: str) -> None:
    """issue 12.5, routing 49: the router's terminus is not durable, ends with its link, and has no filter."""
    net = Net()
    client = net.client()
    asked = {**LASTING, "expiry_policy": expiry}
    receiver = client.receiver("q", source={**asked, "filter": SELECTOR})
    sender = client.sender("q", target=asked)
    net.pump()
    ours = client.frames("attach")[0][SOURCE], client.frames("attach")[1][TARGET]
    for terminus in ours:
        address, durable, expiry_policy, timeout_s, *_ = [*filled(terminus), None]
        assert (address, durable, expiry_policy, timeout_s) == ("q", 0, shown, 0)
    assert receiver.link.remote_source.filter.next() is None
    assert sender.link.remote_target.durability == Terminus.NONDURABLE


@pytest.mark.parametrize("mode", [proton.Link.SND_SETTLED, proton.Link.SND_UNSETTLED, proton.Link.SND_MIXED])
@pytest.mark.parametrize("settles", [proton.Link.RCV_FIRST, proton.Link.RCV_SECOND])
def test_the_reply_says_which_settlement_modes_are_honoured(mode: int, settles: int) -> None:
    """issue 12.4: a sender's mode is its own; a receiver gets settled messages where it asks. Who receives may settle
    second, the router too.
    """
    net = Net()
    client = net.client()
    sender = client.sender("q", snd_settle_mode=mode, rcv_settle_mode=settles)
    receiver = client.receiver("q", snd_settle_mode=mode, rcv_settle_mode=settles)
    net.pump()
    assert sender.link.remote_snd_settle_mode == mode
    assert sender.link.remote_rcv_settle_mode == settles
    is_settled = mode == proton.Link.SND_SETTLED
    assert receiver.link.remote_snd_settle_mode == (mode if is_settled else proton.Link.SND_MIXED)
    assert receiver.link.remote_rcv_settle_mode == settles


def frames_of(data: bytearray) -> list[Any]:
    from memory_net import frames

    return list(frames(bytes(data)))


def filled(terminus: Described) -> list[Any]:
    """The fields of a terminus with AMQP's defaults filled in and trailing nulls cut off."""
    fields = list(terminus.value)
    defaults = {1: 0, 2: "session-end", 3: 0, 4: False}
    for index, value in defaults.items():
        if index < len(fields) and fields[index] is None:
            fields[index] = value
    while fields and fields[-1] is None:
        fields.pop()
    return fields


def test_null_source_is_refused() -> None:
    """routing 50"""
    net = Net()
    client = net.client()
    receiver = client.receiver(None)
    net.pump()
    assert receiver.is_detached
    assert receiver.was_closed
    source, target, condition, description = refusal(client)
    assert source is None
    assert target.value[ADDRESS] == receiver.link.target.address
    assert (condition, description) == ("qd:no-route-to-dest", "No route to the destination node")
    net.nothing_left()


def test_null_target_is_anonymous_with_full_credit() -> None:
    """routing 51"""
    net = Net(capacity=17)
    sender = net.client().sender(None)
    net.pump()
    assert sender.credit == 17
    assert not net.core.table.addresses


def test_coordinator_is_refused() -> None:
    """routing 52"""
    net = Net()
    client = net.client()
    client.sender(None, target={"type": Terminus.COORDINATOR})
    net.pump()
    source, target, condition, description = refusal(client)
    assert target is None
    assert source is not None
    assert condition == "amqp:precondition-failed"
    assert description == (
        "The router can't coordinate transactions by itself, a linkRoute to a coordinator must be configured to use "
        "transactions."
    )
    net.nothing_left()


def test_unavailable_address_is_refused_both_ways() -> None:
    """routing 54"""
    net = Net({"closed": "unavailable"})
    client = net.client()
    client.sender("closed")
    net.pump()
    assert refusal(client)[1:] == (None, "amqp:not-found", "Node not found")
    client.receiver("closed")
    net.pump()
    source, _, condition, description = refusal(client)
    assert (source, condition, description) == (None, "amqp:not-found", "Node not found")
    assert not net.core.table.addresses
    net.nothing_left()


@pytest.mark.parametrize("address", ["_topo/0/OTHER/x", "_edge/E1/x"])
def test_receiver_on_another_routers_address_is_refused(address: str) -> None:
    """routing 50 (§3.2: a client receiver on a foreign topological address is refused with no-route)"""
    net = Net()
    client = net.client()
    client.receiver(address)
    net.pump()
    assert refusal(client)[2] == "qd:no-route-to-dest"


@pytest.mark.parametrize("capability", ["qd.router", "qd.router-data", "qd.router-edge-downlink"])
def test_router_capability_is_forbidden_to_clients(capability: str) -> None:
    """routing 56"""
    net = Net()
    client = net.client()
    client.sender("a", target={"capabilities": symbol(capability)})
    net.pump()
    assert refusal(client)[2:] == ("qd:forbidden", "Connectivity to the node is forbidden")
    client.receiver("a", source={"capabilities": symbol(capability)})
    net.pump()
    assert refusal(client)[2:] == ("qd:forbidden", "Connectivity to the node is forbidden")
    assert "[C1] Router attach forbidden on non-inter-router connection" in net.log_texts()
    net.nothing_left()


@pytest.mark.parametrize("closed", [True, False])
def test_detach_is_answered_in_kind(closed: bool) -> None:
    """routing 57"""
    net = Net()
    client = net.client()
    ends = [client.sender("a"), client.receiver("a", credit=1)]
    net.pump()
    for end in ends:
        end.close() if closed else end.detach()
        net.pump()
        assert end.is_detached
        assert end.was_closed is closed
        detach = client.frames("detach")[-1]
        assert bool(detach[1]) is closed
        assert detach[2] is None
    assert not net.core.links
    net.nothing_left()


def test_a_detached_link_can_be_attached_again() -> None:
    """routing 57"""
    net = Net()
    client = net.client()
    for _ in range(3):
        receiver = client.receiver("a", credit=1, name="same")
        net.pump()
        assert len(net.core.links) == 1
        receiver.detach()
        net.pump()
        receiver.link.free()
        net.pump()
        assert not net.core.links
    net.nothing_left()


def test_links_are_logged() -> None:
    """routing 58"""
    net = Net()
    client = net.client()
    sender = client.sender("a")
    receiver = client.receiver(None, source={"dynamic": True}, credit=1)
    net.pump()
    sender.close()
    net.pump()
    texts = net.log_texts()
    assert any(
        text.startswith("[C1][L1] Link attached: dir=in source={from-c1 expire:sess} target={a expire:sess}")
        for text in texts
    )
    dynamic = "[C1][L2] Link attached: dir=out source={(dyn)<none> expire:sess} target={to-c1"
    assert any(text.startswith(dynamic) for text in texts)
    ending = "del=0 presett=0 psdrop=0 acc=0 rej=0 rel=0 mod=0 delay1=0 delay10=0 blocked=no"
    assert f"[C1][L1] Link detached: {ending}" in texts
    assert receiver.is_attached
    client.kill()
    assert f"[C1][L2] Link closed due to connection loss: {ending}" in net.log_texts()


def test_attach_and_detach_in_one_breath_leaves_nothing() -> None:
    """routing 59"""
    net = Net()
    client = net.client()
    net.pump()
    for address, makes in (("a", client.sender), ("a", client.receiver), (None, client.receiver)):
        end = makes(address)
        end.close()
        net.pump()
        assert end.is_detached
    assert not net.core.links
    assert not net.core.table.addresses
    assert not net.peer(client).engine.links
    net.nothing_left()


def test_policy_counts_every_link_once() -> None:
    """routing 59: the gate's counts return to nothing, however a link ends (routing §5.7)"""
    net = Net(
        vhosts=Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": {
            "remoteHosts": "*", "sources": "a,b", "targets": "a,b", "allowDynamicSource": False}}}}))  # fmt: skip
    client = net.client(hostname="v")
    second = client.connection.session()
    second.open()
    ends = [client.sender("a"), client.receiver("b", session=second), client.sender("no"), client.receiver("no")]
    net.pump()
    gate = client.router.gate
    assert (gate.open_sessions, gate.open_senders, gate.open_receivers) == (2, 1, 1)
    second.close()
    net.pump()
    assert (gate.open_sessions, gate.open_senders, gate.open_receivers) == (1, 1, 0)
    ends[0].close()
    net.pump()
    assert (gate.open_sessions, gate.open_senders, gate.open_receivers) == (1, 0, 0)
    assert {end.refusal.name for end in ends[2:]} == {"amqp:unauthorized-access"}
    client.close()
    net.pump()
    net.nothing_left()
    assert net.ledger.usage("v", "anonymous", "10.0.0.1").total == 0


def test_ending_a_session_takes_its_links_along() -> None:
    """routing 88 (§1.5: links of an ended session are lost)"""
    net = Net()
    client = net.client()
    session = client.connection.session()
    session.open()
    receiver = client.receiver("a", credit=2, session=session)
    sender = net.client().sender("a")
    net.pump()
    sent, unsent = sender.send(), [sender.send() for _ in range(3)][-1]
    net.pump()
    assert len(receiver.complete) == 2
    session.close()
    net.pump()
    assert sent.outcome == proton.Delivery.MODIFIED
    assert unsent.outcome == proton.Delivery.RELEASED
    assert len(net.core.links) == 1
    net.nothing_left()


def test_refused_links_that_the_peer_never_lets_go_of_are_bounded() -> None:
    """Attack: attach what is refused, never answer the Detach, attach again."""
    net = Net()
    client = net.client()
    net.pump()
    opening = bytes(client.uttered)
    silent = net.client(opens=False)
    silent.say(opening)
    for handle in range(1100):
        # A receiver with a null source is refused (routing 50).
        body = encode(Described(ulong(0x12), [f"l{handle}", uint(handle), True, None, None, None, None]))
        silent.say((len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
        if silent.router.stage == "closed":
            break
    assert handle == 1001
    assert "closed by us without an answer" in net.audits[-1]["detail"]
