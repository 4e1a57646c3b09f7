"""Router annotations: who may write them, who gets to see them; and what is never touched."""

from typing import Any

import pytest
from memory_net import Net, encoded
from proton import symbol

from router.amqp.codec import decode_message, encode
from router.values import int_
from router.values import symbol as sym

MODES = ("no", "in", "out", "both")


def annotated(annotations: dict[Any, Any], *, to: str | None = None, body: bytes = b"body") -> bytes:
    fields: dict[str, Any] = {"address": to} if to else {}
    plain = encoded(body, **fields)
    cut = plain.index(b"\x00\x53\x73")
    return plain[:cut] + b"\x00\x53\x72" + encode(annotations) + plain[cut:]


def seen(net: Net, payload: bytes, *, strip_in: str, strip_out: str, target: str | None = "a") -> dict[Any, Any]:
    receiver = net.client(strip=strip_out).receiver("a", credit=10)
    sender = net.client(strip=strip_in).sender(target)
    net.pump()
    sender.send_bytes(payload)
    net.pump()
    (item,) = receiver.complete
    return dict(decode_message(bytes(item.payload)).message_annotations)


@pytest.mark.parametrize("strip_out", ["no", "in"])
@pytest.mark.parametrize("target", ["a", None])
def test_receivers_that_do_not_strip_see_ingress_trace_and_to(strip_out: str, target: str | None) -> None:
    """routing 99, 101"""
    annotations = seen(Net(), encoded(address="a"), strip_in="both", strip_out=strip_out, target=target)
    expected: dict[str, Any] = {"x-opt-qd.ingress": "0/QDR", "x-opt-qd.trace": ["0/QDR"]}
    if target is not None:
        expected["x-opt-qd.to"] = "a"
    assert annotations == expected
    order = ["x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace"]
    assert list(annotations) == [key for key in order if key in expected]
    assert all(isinstance(key, sym) for key in annotations)


@pytest.mark.parametrize("strip_out", ["out", "both"])
def test_receivers_that_strip_see_the_message_as_it_was(strip_out: str) -> None:
    """routing 99, 104: no annotations, so no section at all"""
    net = Net()
    payload = encoded(b"untouched", address="elsewhere", id="1", subject="s", priority=7, ttl=5, durable=True)
    receiver = net.client(strip=strip_out).receiver("a", credit=1)
    sender = net.client().sender("a")
    net.pump()
    sender.send_bytes(payload)
    net.pump()
    assert bytes(receiver.complete[0].payload) == payload


@pytest.mark.parametrize("mode", MODES)
def test_user_annotations_pass_in_every_mode(mode: str) -> None:
    """routing 99: wherever they stand in the map (§26.5)"""
    mine = {sym("x-opt-before"): "b", sym("x-opt-qd.trace"): ["0/X"], sym("x-opt-after"): [1, 2]}
    annotations = seen(Net(), annotated(mine), strip_in=mode, strip_out=mode)
    assert annotations["x-opt-before"] == "b"
    assert annotations["x-opt-after"] == [1, 2]
    if mode in ("out", "both"):
        assert list(annotations) == ["x-opt-before", "x-opt-after"]
    else:
        assert list(annotations)[:2] == ["x-opt-before", "x-opt-after"]


CLAIMED = {sym("x-opt-qd.ingress"): "ingress-router", sym("x-opt-qd.trace"): ["0/QDR.1"]}


@pytest.mark.parametrize("mode", ["in", "both"])
def test_clients_annotations_are_discarded_where_stripping_in(mode: str) -> None:
    """routing 100"""
    annotations = seen(Net(), annotated(CLAIMED | {sym("x-opt-qd.to"): "elsewhere"}), strip_in=mode, strip_out="no")
    assert annotations == {"x-opt-qd.to": "a", "x-opt-qd.ingress": "0/QDR", "x-opt-qd.trace": ["0/QDR"]}


@pytest.mark.parametrize("mode", ["no", "out"])
def test_clients_annotations_are_honoured_where_not(mode: str) -> None:
    """routing 100, 101"""
    annotations = seen(Net(), annotated(CLAIMED), strip_in=mode, strip_out="no")
    assert annotations == {
        "x-opt-qd.to": "a",
        "x-opt-qd.ingress": "ingress-router",
        "x-opt-qd.trace": ["0/QDR.1", "0/QDR"],
    }


@pytest.mark.parametrize("mode", MODES)
def test_no_router_annotation_of_a_client_reaches_a_stripping_receiver(mode: str) -> None:
    """routing 99: reserved keys too"""
    mine = CLAIMED | {sym("x-opt-qd.class"): 1, sym("x-opt-qd.whatever"): "x", sym("x-opt-qd.stream"): int_(1)}
    assert seen(Net(), annotated(mine), strip_in=mode, strip_out="both") == {}


def test_to_override_on_an_anonymous_link() -> None:
    """routing 102"""
    net = Net()
    override, named = net.client().receiver("override", credit=5), net.client().receiver("named", credit=5)
    message = annotated({sym("x-opt-qd.to"): "override"}, to="named")
    for mode, wins in (("no", override), ("out", override), ("in", named), ("both", named)):
        sender = net.client(strip=mode).sender(None)
        net.pump()
        before = len(wins.complete)
        sender.send_bytes(message)
        net.pump()
        assert len(wins.complete) == before + 1, mode
        assert wins.complete[-1].message.address == "named"


def test_a_phase_is_passed_on() -> None:
    """routing 100 (§11.3: anonymous, from the message)"""
    mine = {sym("x-opt-qd.to"): "a", sym("x-opt-qd.phase"): int_(3)}
    annotations = seen(Net(), annotated(mine), strip_in="no", strip_out="no", target=None)
    assert annotations["x-opt-qd.phase"] == 3


BAD: dict[str, dict[Any, Any]] = {
    "to-override not a valid string type": {sym("x-opt-qd.to"): int_(1)},
    "trace annotation is not a list": {sym("x-opt-qd.trace"): "0/X"},
    "trace list contains non-string entries": {sym("x-opt-qd.trace"): ["0/X", int_(1)]},
    "ingress router not a string type": {sym("x-opt-qd.ingress"): int_(1)},
}


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("target", ["a", None])
def test_bad_router_annotations_are_rejected(text: str, target: str | None) -> None:
    """routing 103"""
    net = Net(strip="no")
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender(target)
    net.pump()
    sending = sender.send_bytes(annotated(BAD[text], to="a"))
    sender.send_bytes(annotated(BAD[text], to="a"), is_settled=True)
    net.pump()
    (update,) = sending.updates
    assert update.condition is not None
    assert (update.condition.name, update.condition.description) == ("amqp:invalid-field", text)
    assert not receiver.received
    assert sender.credit == 250


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("section", "text"),
    [
        (b"\xc0\x01\x00", "Invalid message annotations section - missing map type"),
        (b"\xa1\x01x", "Invalid message annotations section - missing map type"),
        (b"\xc1\x04\x01\xa3\x01k", "Invalid MA map count (odd number of fields)"),
    ],
)
def test_the_form_of_the_map_is_always_checked(mode: str, section: bytes, text: str) -> None:
    """routing 103 (§11.5)"""
    net = Net(strip=mode)
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sending = sender.send_bytes(b"\x00\x53\x72" + section + b"\x00\x53\x77\x40")
    net.pump()
    (update,) = sending.updates
    assert update.condition is not None
    assert (update.condition.name, update.condition.description) == ("amqp:invalid-field", text)
    assert not receiver.received


def test_annotations_of_a_streamed_message() -> None:
    """routing 99, 93"""
    net = Net()
    body = bytes(700_000)
    payload = annotated(CLAIMED | {sym("x-opt-mine"): "v"}, body=body)
    plain, curious = net.client().receiver("a", credit=1), net.client(strip="no").receiver("a", credit=1)
    sender = net.client().sender("a")
    net.pump()
    sender.send_bytes(payload)
    sender.send_bytes(payload)
    net.pump()
    (one,), (two,) = plain.complete, curious.complete
    assert decode_message(bytes(one.payload)).message_annotations == {"x-opt-mine": "v"}
    assert list(decode_message(bytes(two.payload)).message_annotations) == [
        "x-opt-mine", "x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace",
    ]  # fmt: skip
    assert one.body == two.body == body


def test_delivery_annotations_pass_and_the_order_of_sections_stays() -> None:
    """routing 104 (§11.6)"""
    payload = (
        b"\x00\x53\x70\xc0\x02\x01\x41"
        + b"\x00\x53\x71" + encode({sym("d"): "a"})
        + b"\x00\x53\x73\xc0\x07\x01\xa1\x04same"
        + b"\x00\x53\x74" + encode({"k": "v"})
        + b"\x00\x53\x75\xa0\x01x"
        + b"\x00\x53\x78" + encode({sym("f"): 1})
    )  # fmt: skip
    net = Net()
    receivers = [net.client(strip=strip).receiver("a", credit=1) for strip in ("both", "no")]
    sender = net.client().sender("a")
    net.pump()
    sender.send_bytes(payload)
    sender.send_bytes(payload)
    net.pump()
    assert bytes(receivers[0].complete[0].payload) == payload
    changed = bytes(receivers[1].complete[0].payload)
    at = payload.index(b"\x00\x53\x73")
    assert changed.startswith(payload[:at])
    assert changed.endswith(payload[at:])
    assert changed[at : at + 3] == b"\x00\x53\x72"


def test_messages_the_proton_client_writes_come_out_as_they_went_in() -> None:
    """routing 104"""
    net = Net()
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    sender.send(
        b"body",
        address="to",
        reply_to="reply",
        subject="subject",
        correlation_id="c",
        user_id=b"me",
        properties={"p": 1},
        annotations={symbol("x-opt-mine"): "v"},
        instructions={symbol("i"): 1},
        priority=9,
        ttl=12.5,
        first_acquirer=True,
        delivery_count=3,
    )
    net.pump()
    message = receiver.complete[0].message
    assert (message.address, message.reply_to, message.subject) == ("to", "reply", "subject")
    assert (message.priority, message.ttl, message.first_acquirer, message.delivery_count) == (9, 12.5, True, 3)
    assert message.annotations == {"x-opt-mine": "v"}
    assert message.instructions == {"i": 1}
    assert message.user_id == b"me"
