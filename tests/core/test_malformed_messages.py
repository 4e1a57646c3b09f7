"""Messages that cannot be routed: refused by name, at the cost of nothing but themselves."""

from typing import Any

import pytest
from memory_net import ACCEPTED, REJECTED, Fleet, Net, Vhosts, encoded

from router.amqp.codec import encode
from router.values import symbol

EMPTY_HEADER = b"\x00\x53\x70\x45"
BODY = b"\x00\x53\x77\x40"

MALFORMED = {
    "empty": b"",
    "header is a map": b"\x00\x53\x70\xc1\x01\x00" + BODY,
    "header cut short": b"\x00\x53\x70\xc0\x10\x01",
    "header twice": EMPTY_HEADER + EMPTY_HEADER + BODY,
    "annotations before header": b"\x00\x53\x72\xc1\x01\x00" + EMPTY_HEADER + BODY,
    "properties before annotations": b"\x00\x53\x73\x45\x00\x53\x72\xc1\x01\x00" + BODY,
    "header and properties before annotations": EMPTY_HEADER + b"\x00\x53\x73\x45\x00\x53\x72\xc1\x01\x00" + BODY,
    "properties twice": EMPTY_HEADER + b"\x00\x53\x73\x45\x00\x53\x73\xc0\x06\x02\x40\xa0\x02me" + BODY,
    "application-properties before properties": EMPTY_HEADER + b"\x00\x53\x74\xc1\x01\x00\x00\x53\x73\x45" + BODY,
    "size beyond the end": EMPTY_HEADER + b"\x00\x53\x72\xd1\xff\xff\xff\xff\x00\x00\x00\x00",
    "header without a value": b"\x00\x53\x70",
}

# What begins with no section's descriptor.
OPAQUE = {
    "not described": b"\x40\x40\x40\x40\x40\x40\x40\x40\x40",
    "no descriptor": b"\x00",
    "unknown section": b"\x00\x53\x6f\x45" + BODY,
    "section beyond the last": b"\x00\x53\x79\x45" + BODY,
    "symbolic nonsense": b"\x00\xa3\x05hello\x45" + BODY,
    "wide descriptor of nothing": b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x01\x45" + BODY,
    "half a wide descriptor": b"\x00\x80\x00\x00\x00",
    "half a symbolic descriptor": b"\x00\xa3\x10amqp:header",
    "text": b"hello, world: this is no AMQP",
    "a described descriptor": b"\x00\x00\x53\x70\x45" + BODY,
    "behind a header": EMPTY_HEADER + b"hello",
    "behind the annotations": EMPTY_HEADER + b"\x00\x53\x72\xc1\x01\x00" + b"\x40" * 9,
    "behind the properties": b"\x00\x53\x73\x45hello" + BODY,
    "behind the application-properties": b"\x00\x53\x74\xc1\x01\x00hello",
}


@pytest.mark.parametrize(
    ("which", "target"),
    [(which, target) for target in ("a", None) for which in MALFORMED] + [(which, None) for which in OPAQUE],
)
def test_malformed_messages_are_rejected(which: str, target: str | None) -> None:
    """routing 95; issue 12, point 3: on an anonymous link, where each message is judged, also what is no section"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender(target)
    net.pump()
    payload = {**MALFORMED, **OPAQUE}[which]
    sending = sender.send_bytes(payload)
    sender.send_bytes(payload, is_settled=True)
    net.pump()
    (update,) = sending.updates
    assert update.condition is not None
    assert update.state == REJECTED
    assert (update.condition.name, update.condition.description) == ("amqp:decode-error", "invalid message format")
    assert not receiver.received
    assert sender.credit == 250
    sender.send(b"fine", address="a")
    net.pump()
    assert receiver.bodies == [b"fine"]
    net.nothing_left()


@pytest.mark.parametrize("which", OPAQUE)
@pytest.mark.parametrize("strip", ["both", "no"])
@pytest.mark.parametrize("is_governed", [True, False])
def test_bytes_that_are_no_section_are_forwarded_where_nothing_is_checked(
    which: str, strip: str, is_governed: bool
) -> None:
    """Issue 12, point 3; routing 95 (§10.5): the sections that may be absent are"""
    net = governed(allowUserIdProxy=True) if is_governed else Net()
    vhost = "v" if is_governed else None
    receiver = net.client(strip=strip, hostname=vhost).receiver("a", credit=10)
    sender = net.client(strip=strip, hostname=vhost).sender("a")
    net.pump()
    sending = sender.send_bytes(OPAQUE[which])
    sender.send_bytes(OPAQUE[which], is_settled=True)
    net.pump()
    receiver.accept_all()
    net.pump()
    assert sending.outcome == ACCEPTED
    assert len(receiver.complete) == 2
    payload = OPAQUE[which]
    for item in receiver.complete:
        if strip == "both":
            assert item.payload == payload
        else:  # the router's annotations stand where they belong, and nothing is lost
            assert b"x-opt-qd.trace" in item.payload
            assert len(item.payload) > len(payload)
            tail = 12 if which == "behind the application-properties" else 5
            assert item.payload.endswith(payload[-tail:])
    assert sender.credit == 250
    net.nothing_left()


def test_annotations_are_put_before_bytes_that_are_no_section() -> None:
    """Issue 12, point 3"""
    net = Net()
    receiver = net.client(strip="no").receiver("a", credit=10)
    sender = net.client(strip="no").sender("a")
    net.pump()
    for payload in (b"hello", EMPTY_HEADER + b"hello"):
        sender.send_bytes(payload)
        net.pump()
        got = bytes(receiver.complete[-1].payload)
        before, after = payload[: payload.index(b"hello")], b"hello"
        assert got.startswith(before + b"\x00\x53\x72")
        assert got.endswith(after)
    net.no_errors()


@pytest.mark.parametrize(
    "group",
    [
        {"allowUserIdProxy": False},
        {"maxMessageSize": 1_000_000},
        {"maxMessageSize": 9, "allowUserIdProxy": False},
    ],
)
@pytest.mark.parametrize("which", [*OPAQUE, "large"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_bytes_that_are_no_section_are_refused_where_messages_are_checked(
    group: dict[str, Any], which: str, is_settled: bool
) -> None:
    """Issue 12, point 3: by user-id or by size"""
    net = governed(**group)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v").sender("a")
    net.pump()
    sending = sender.send_bytes(OPAQUE.get(which, b"large" * 100_000), is_settled=is_settled)
    net.pump()
    assert not receiver.received
    if not is_settled:
        assert sending.updates[0].state == REJECTED
    net.nothing_left()


def test_a_candidate_policy_refuses_no_bytes() -> None:
    """Issue 12, point 3: only the policy in force makes a link one whose messages are checked"""
    rules = {"remoteHosts": "*", "sources": "*", "targets": "*"}
    policy, strict = (
        Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": {**rules, "allowUserIdProxy": True, **more}}}})
        for more in ({}, {"maxMessageSize": 1_000_000})
    )
    net = Net(vhosts=policy, candidate=strict)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v").sender("a")
    net.pump()
    sender.send_bytes(b"hello")
    net.pump()
    assert [item.payload for item in receiver.complete] == [b"hello"]


@pytest.mark.parametrize("distribution", ["balanced", "multicast"])
@pytest.mark.parametrize("ends", [True, False])
def test_large_bytes_that_are_no_section_are_streamed(distribution: str, ends: bool) -> None:
    """Issue 12, point 3: streamed; and aborted to the receivers where the sender aborts"""
    net = Net({"a": distribution}, session_bytes=1 << 20)
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sending = sender.start()
    sender.append(b"hello" * 60_000)
    net.pump()
    assert receiver.received
    if ends:
        sender.append(b"hello" * 60_000)
        sender.finish()
    else:
        sending.abort()
    net.pump()
    assert receiver.received[0].is_aborted is not ends
    if ends:
        assert receiver.complete[0].payload == b"hello" * 120_000
        receiver.accept_all()
        net.pump()
        assert sending.outcome == ACCEPTED
    assert sender.credit == 250
    net.nothing_left()


def test_bytes_that_are_no_section_reach_a_consumer_inside_the_router() -> None:
    """Issue 12, point 3: management reads each message for itself"""
    net = Net()
    taken: list[bytes] = []
    net.core.subscribe("agent", lambda payload, link: taken.append(payload))
    sender = net.client().sender("agent")
    net.pump()
    sending = sender.send_bytes(b"hello")
    net.pump()
    assert (taken, sending.outcome) == ([b"hello"], ACCEPTED)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00\x53\x75\xa0\xff",  # the body itself is not looked at
        EMPTY_HEADER + b"\x00\x53\x77\xd1\xff\xff\xff\xff",
        EMPTY_HEADER,  # a message may be without a body
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\x45" + BODY,
        b"\x00\xa3\x10amqp:header:list\x45" + BODY,
    ],
)
@pytest.mark.parametrize("strip", ["both", "no"])
def test_what_lies_beyond_is_not_validated(payload: bytes, strip: str) -> None:
    """routing 95 (§10.5: anything beyond that depth, in particular the body)"""
    net = Net()
    receiver = net.client(strip=strip).receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sender.send_bytes(payload)
    net.pump()
    assert len(receiver.complete) == 1
    net.no_errors()


@pytest.mark.parametrize("strip", ["both", "no"])
def test_garbage_in_the_application_properties_crashes_nobody(strip: str) -> None:
    """routing 95: a receiver that wants annotations makes the router look closer, not fall over"""
    net = Net()
    net.client(strip=strip).receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    for garbage in (b"\xc1\xff\x01\x02", b"\xd1", b"\x40\x40\x40\x40\x40"):
        payload = EMPTY_HEADER + b"\x00\x53\x74" + garbage
        sender.send_bytes(payload)
        net.pump()
    assert sender.is_attached
    net.no_errors()


def test_large_application_properties_are_no_reason_to_reject() -> None:
    """routing 93, 95: only what is needed for routing must have come when streaming begins (§10.1)"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    for target in ("a", None):
        sender = net.client().sender(target)
        net.pump()
        sending = sender.send(b"x", address="a", properties={"key": "v" * 400_000})
        net.pump()
        receiver.accept_all()
        net.pump()
        assert sending.outcome == ACCEPTED
    assert [len(item.payload) > 400_000 for item in receiver.complete] == [True, True]


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_large_malformed_message_is_read_to_its_end(is_settled: bool) -> None:
    """routing 95 (§10.5: rejected at once, settled at the end)"""
    net = Net(session_bytes=1 << 20)
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    for _ in range(3):
        sending = sender.send_bytes(b"\x00\x53\x70" + bytes(1_500_000), is_settled=is_settled)
        net.pump()
        if not is_settled:
            assert sending.outcome == REJECTED
            assert sending.updates[0].refusal.name == "amqp:decode-error"
    assert not receiver.received
    assert sender.credit == 250
    sender.send(b"fine")
    net.pump()
    assert receiver.bodies == [b"fine"]
    net.nothing_left()


def governed(**group: Any) -> Net:
    rules = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, **group}
    return Net(vhosts=Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": rules}}}))


@pytest.mark.parametrize("target", ["a", None])
@pytest.mark.parametrize(("user_id", "passes"), [(b"anonymous", True), (b"somebody", False), (b"", True), (None, True)])
def test_user_id_is_checked_where_policy_says_so(target: str | None, user_id: bytes | None, passes: bool) -> None:
    """routing 106"""
    net = governed(allowUserIdProxy=False)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v").sender(target)
    net.pump()
    fields: dict[str, Any] = {"user_id": user_id} if user_id is not None else {}
    sending = sender.send(address="a", **fields)
    sender.send(address="a", is_settled=True, **fields)
    sender.send(bytes(300_000), address="a", is_settled=True, **fields)
    net.pump()
    assert len(receiver.complete) == (3 if passes else 0)
    if not passes:
        assert sending.updates[0].refusal.name == "amqp:unauthorized-access"
        assert sending.updates[0].refusal.description == "user_id proxy violation"


@pytest.mark.parametrize("which", ["properties twice", "application-properties before properties"])
def test_user_id_check_cannot_be_led_astray_by_a_second_section(which: str) -> None:
    """routing 106: receivers take the last section they find; a forged one must not hide"""
    net = governed(allowUserIdProxy=False)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v").sender("a")
    net.pump()
    sending = sender.send_bytes(MALFORMED[which])
    net.pump()
    assert sending.outcome == REJECTED
    assert not receiver.received


@pytest.mark.parametrize("size", [5000, 200_000, 400_000])
@pytest.mark.parametrize("is_settled", [True, False])
def test_oversize_messages_end_the_connection(size: int, is_settled: bool) -> None:
    """routing 96: reject, detach without an error, close (policy-and-auth §3.10)"""
    net = governed(maxMessageSize=4000)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    client = net.client(hostname="v")
    sender = client.sender("a")
    net.pump()
    assert sender.link.remote_max_message_size == 4000
    sending = sender.send(bytes(size), is_settled=is_settled)
    net.pump()
    assert client.router_closed
    assert (client.refusal.name, client.refusal.description) == ("amqp:connection:forced", "Message size exceeded")
    detach = client.frames("detach")[-1]
    assert (detach[1], detach[2]) == (True, None)
    if not is_settled:
        assert sending.updates[0].refusal.name == "amqp:link:message-size-exceeded"
    assert not receiver.complete
    assert any("maxMessageSize exceeded" in text for text in net.log_texts("POLICY"))
    net.nothing_left()


def test_oversize_found_while_streaming_aborts_the_copies() -> None:
    """routing 96, 92"""
    net = governed(maxMessageSize=300_000)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    client = net.client(hostname="v")
    sender = client.sender("a")
    net.pump()
    sender.start()
    sender.append(encoded(bytes(500_000))[:250_000])
    net.pump()
    assert receiver.received
    sender.append(bytes(200_000))
    net.pump()
    assert receiver.received[0].is_aborted
    assert client.router_closed
    assert client.refusal.name == "amqp:connection:forced"
    net.nothing_left()


def test_annotation_maps_cost_what_they_weigh() -> None:
    """routing 103: a map of many thousand keys is no way to keep the router busy"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    many = encode({symbol(f"k{number}"): number for number in range(9000)})
    sending = sender.send_bytes(b"\x00\x53\x72" + many + BODY)
    net.pump()
    assert len(receiver.complete) == 1 or sending.outcome == REJECTED


@pytest.mark.parametrize("way", [("A", "B"), ("E", "A"), ("A", "E"), ("E", "B"), ("B", "E"), ("E", "F")])
def test_bytes_that_are_no_section_pass_over_other_routers(way: tuple[str, str]) -> None:
    """routing 95 (§10.5): the router where they enter lets them pass; later ones read the way in annotations"""
    fleet = Fleet("A", "B", edges=("E", "F"))
    fleet.connect("B", "A")
    fleet.connect("E", "A", role="edge")
    fleet.connect("F", "B", role="edge")
    fleet.settle()
    near, far = way
    receiver = fleet[far].client().receiver("a", credit=100, accepts=True)
    sender = fleet[near].client().sender("a")
    fleet.settle()
    is_empty = b"\x00\x53\x72\xc1\x01\x00"  # annotations that say nothing do not arrive
    payloads = [payload.replace(is_empty, b"") for payload in OPAQUE.values()]
    for payload in [*payloads, b"0123456789" * 2_000, b"0123456789" * 20_000]:
        for is_settled in (False, True):
            sender.send_bytes(payload, is_settled=is_settled)
            fleet.pump()
            assert bytes(receiver.complete[-1].payload) == payload
    assert len(receiver.complete) == len(sender.sent)
    assert set(sender.outcomes[::2]) == {ACCEPTED}
    fleet.no_errors()


@pytest.mark.parametrize("target", ["a", None])
def test_bytes_that_are_no_section_are_refused_to_an_edge_whose_messages_are_checked(target: str | None) -> None:
    """routing 95 (§10.5): an edge under policy brings other users' messages, and may not bring other user-ids"""
    net = governed(allowUserIdProxy=False, allowAnonymousSender=True)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v", role="edge").sender(target)
    net.pump()
    to = b"\x00\x53\x72" + encode({symbol("x-opt-qd.to"): "a"})
    sendings = [sender.send_bytes(to + payload) for payload in OPAQUE.values()]
    net.pump()
    assert {sending.outcome for sending in sendings} == {REJECTED}
    assert not receiver.received
    net.nothing_left()


def test_a_footer_before_the_body_passes_where_user_ids_are_checked() -> None:
    """Issue 34, clients/09: so rhea writes it, with texts for its keys; routing §13"""
    net = governed(allowUserIdProxy=False, maxMessageSize=1_000_000)
    receiver = net.client(hostname="v").receiver("a", credit=10, accepts=True)
    sender = net.client(hostname="v").sender("a")
    net.pump()
    footer = b"\x00\x53\x78\xd1\0\0\0\x09\0\0\0\x02\xa1\x01f\x52\x01"
    someones = b"\x00\x53\x73" + encode([None, b"somebody"])
    body = b"\x00\x53\x77\xa1\x01x"
    payload = EMPTY_HEADER + b"\x00\x53\x73\x45" + footer + body
    large = EMPTY_HEADER + footer + b"\x00\x53\x75\xb0" + (300_000).to_bytes(4, "big") + bytes(300_000)
    honest = [sender.send_bytes(each) for each in (payload, large)]
    hiding = [
        sender.send_bytes(each) for each in (footer + someones + body, someones + footer + body, large + someones)
    ]
    net.pump()
    assert [sending.outcome for sending in honest] == [ACCEPTED] * 2
    assert [sending.outcome for sending in hiding] == [REJECTED] * 3
    assert [bytes(item.payload) for item in receiver.complete] == [payload, large]
    net.nothing_left()


@pytest.mark.parametrize("part", [8, 60_000, 131_071])
@pytest.mark.parametrize("ends", ["exceeds", "detaches"])
def test_nothing_of_a_message_that_is_broken_off_is_sent_where_the_limit_is_small(part: int, ends: str) -> None:
    """Issue 34, clients/05: rhea's programs end when a message that they receive is aborted; docs/clients.md"""
    net = governed(maxMessageSize=131_071)
    receiver = net.client(hostname="v").receiver("a", credit=10)
    sender = net.client(hostname="v").sender("a")
    net.pump()
    sending = sender.start()
    sender.append(b"\x00\x53\x75\xb0" + (200_000).to_bytes(4, "big") + bytes(part - 8))
    net.pump()
    if ends == "exceeds":
        sender.append(bytes(200_000 - part))
        net.pump()
        assert sending.updates[-1].state == REJECTED
    else:
        sender.detach()
        net.pump()
    assert not receiver.received
