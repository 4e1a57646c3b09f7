"""Finding sections, reading two properties, moving annotations: on honest messages and on any bytes at all."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.amqp import sections
from router.amqp.codec import decode, encode
from router.amqp.sections import ABSENT, LOOK_CLOSER, Annotations, MessageFault, RouterAnnotations
from router.values import Described, int_, symbol, ulong

BODY = b"\x00\x53\x77\x40"


def section(code: int, value: Any) -> bytes:
    return encode(Described(ulong(code), value))


def message(
    *,
    header: list[Any] | None = None,
    delivery: dict[Any, Any] | None = None,
    annotations: dict[Any, Any] | None = None,
    properties: list[Any] | None = None,
    application: dict[str, Any] | None = None,
    body: bytes = BODY,
) -> bytes:
    parts = [(0x70, header), (0x71, delivery), (0x72, annotations), (0x73, properties), (0x74, application)]
    return b"".join(section(code, value) for code, value in parts if value is not None) + body


HONEST = {
    "body only": message(),
    "header": message(header=[True, None, 5]),
    "empty header and properties": message(header=[], properties=[]),
    "properties": message(properties=["id", b"me", "to", "subject"]),
    "all": message(
        header=[True],
        delivery={symbol("d"): 1},
        annotations={symbol("x-opt-mine"): "v", symbol("x-opt-qd.to"): "a"},
        properties=["id", b"me", "to"],
        application={"k": "v" * 300},
        body=b"\x00\x53\x75\xa0\x03abc",
    ),
    "long": message(properties=["i" * 300, b"u" * 300, "t" * 300], application={}),
    "symbolic": b"\x00\xa3\x10amqp:header:list\x45" + BODY,
    "wide descriptors": b"\x00\x80" + (0x73).to_bytes(8, "big") + encode([None, b"me"]) + BODY,
}


@pytest.mark.parametrize("which", HONEST)
def test_honest_messages_are_laid_out(which: str) -> None:
    """routing 95"""
    payload = HONEST[which]
    envelope = sections.find(payload, len(payload))
    assert payload[envelope.body_at : envelope.body_at + 2] == b"\x00\x53"
    assert payload[envelope.body_at + 2] in (0x75, 0x77)
    quick = sections.find_properties(payload, len(payload))
    assert quick in (envelope.properties_at, LOOK_CLOSER)
    if sections.is_plain(payload, len(payload)):
        assert (envelope.annotations_at, quick in (ABSENT, 7)) == (-1, True)


def test_the_quick_look_suffices_for_everyday_messages() -> None:
    """routing 95: what clients write by default takes the short way"""
    for which in ("header", "properties", "long", "empty header and properties"):
        payload = HONEST[which]
        assert sections.find_properties(payload, len(payload)) != LOOK_CLOSER
    for which in ("all", "symbolic", "wide descriptors"):
        assert sections.find_properties(HONEST[which], len(HONEST[which])) == LOOK_CLOSER
    assert sections.is_plain(b"\x00\x53\x75\xa0\x08" + bytes(8), 13)


def test_user_id_and_to_are_read() -> None:
    """routing 106, 104"""
    long = (b"u" * 300, "t" * 300)
    for which, expected in (("all", (b"me", "to")), ("long", long), ("wide descriptors", (b"me", None))):
        payload = HONEST[which]
        at = sections.find(payload, len(payload)).properties_at
        assert sections.user_id(payload, len(payload), at) == expected[0]
        assert sections.to(payload, len(payload), at) == expected[1]
    assert sections.user_id(BODY, len(BODY), -1) is None


@pytest.mark.parametrize("value", ["text", 7, [b"me"], symbol("me"), Described(symbol("x"), b"me")])
def test_user_id_of_another_type_is_malformed(value: Any) -> None:
    """routing 106: no encoding of a user-id passes for none"""
    payload = message(properties=["id", value, "to"])
    with pytest.raises(MessageFault):
        sections.user_id(payload, len(payload), sections.find(payload, len(payload)).properties_at)


def test_a_field_beyond_the_lists_end_is_not_a_field() -> None:
    """routing 106: a list that claims more elements than it has room for, with an honest user-id behind it"""
    payload = b"\x00\x53\x73\xc0\x03\x02\xa1\x00" + b"\xa0\x02me" + BODY
    at = sections.find_properties(payload, len(payload))
    assert at == LOOK_CLOSER or at == 3
    with pytest.raises(MessageFault):
        sections.user_id(payload, len(payload), 3)


@pytest.mark.parametrize("which", HONEST)
def test_every_truncation_is_a_fault_or_an_honest_layout(which: str) -> None:
    """routing 95: truncated at every offset; stale bytes behind the end are never looked at"""
    whole = HONEST[which]
    for length in range(len(whole)):
        buffer = bytearray(whole[:length] + b"\x00\x53\x73\xc0\x07\x02\x40\xa0\x02evil")
        try:
            envelope = sections.find(buffer, length)
        except MessageFault:
            assert sections.find_properties(buffer, length) == LOOK_CLOSER
            continue
        assert envelope.body_at <= length
        assert envelope.properties_at < length
        try:
            claimed = sections.user_id(buffer, length, envelope.properties_at)
        except MessageFault:
            continue
        assert claimed != b"evil"


codes = st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x6F])
constructors = st.sampled_from([0x40, 0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xA0, 0xA1, 0xB0, 0xB1, 0x56, 0x00, 0xA3])
pieces = st.one_of(
    st.builds(lambda code, made: bytes((0, 0x53, code, made)), codes, constructors),
    st.binary(max_size=6),
    st.sampled_from([section(0x73, ["i", b"me"]), section(0x72, {symbol("x-opt-qd.to"): "a"})]),
    st.sampled_from([section(0x70, []), BODY]),
    st.sampled_from([b"x-opt-qd.", b"\xa3\x0bx-opt-qd.to", b"\x00\xa3\x10amqp:header:list", b"\xff\xff\xff\xff"]),
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(pieces, max_size=8).map(b"".join), st.binary(max_size=16))
@example(b"\x00Sp\xc0", b"")
def test_no_bytes_lead_to_anything_but_a_fault(payload: bytes, stale: bytes) -> None:
    """routing 95, 103: MessageFault is the only exception, and the two looks agree"""
    buffer, size = bytearray(payload + stale), len(payload)
    quick = sections.find_properties(buffer, size)
    plain = sections.is_plain(buffer, size)
    lenient = None
    with suppress(MessageFault):
        lenient = sections.find(buffer, size, may_be_opaque=True)
        assert lenient.body_at <= size
        sections.put_together(buffer, lenient, sections.take_apart(buffer, lenient))
    try:
        envelope = sections.find(buffer, size)
    except MessageFault:
        assert quick == LOOK_CLOSER
        assert not plain
        return
    assert lenient == envelope  # whoever tolerates more finds the same in what nobody has to tolerate
    assert quick in (envelope.properties_at, LOOK_CLOSER)
    if plain:
        assert envelope.annotations_at == -1
    for read in (sections.user_id, sections.to):
        with suppress(MessageFault):
            read(buffer, size, envelope.properties_at)
    try:
        annotations = sections.take_apart(buffer, envelope)
        sections.router_annotations(annotations.routers)
    except MessageFault:
        return
    own = RouterAnnotations(to="t", ingress="0/A", trace=("0/A",))
    made = sections.put_together(buffer, envelope, annotations, own)
    assert made.startswith(payload[: envelope.insert_annotations_at])
    assert made.endswith(payload[envelope.body_at :])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(HONEST)), st.data())
def test_mutated_messages_lead_to_nothing_but_a_fault(which: str, data: st.DataObject) -> None:
    """routing 95"""
    payload = bytearray(HONEST[which])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MessageFault):
        envelope = sections.find(payload, len(payload))
        sections.user_id(payload, len(payload), envelope.properties_at)
        sections.to(payload, len(payload), envelope.properties_at)
        sections.router_annotations(sections.take_apart(payload, envelope).routers)


scalars = (st.none(), st.booleans(), st.text(max_size=5), st.binary(max_size=5), st.integers(0, 2**31 - 1).map(int_))
values = st.recursive(
    st.one_of(*scalars),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
keys = st.text(st.characters(codec="ascii"), min_size=1, max_size=8).map(symbol)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(keys, values, max_size=6), st.booleans())
def test_users_annotations_keep_their_bytes_and_their_order(users: dict[Any, Any], has_header: bool) -> None:
    """routing 99, 104"""
    router: dict[Any, Any] = {symbol("x-opt-qd.trace"): ["0/X"], symbol("x-opt-qd.class"): int_(1)}
    mixed = dict(list(users.items())[:2]) | router | dict(list(users.items())[2:])
    payload = message(header=[] if has_header else None, annotations=mixed, properties=["id"])
    envelope = sections.find(payload, len(payload))
    annotations = sections.take_apart(payload, envelope)
    assert annotations.routers == {"x-opt-qd.trace": ["0/X"], "x-opt-qd.class": None}
    assert annotations.users == b"".join(encode(key) + encode(value) for key, value in users.items())
    stripped = sections.put_together(payload, envelope, annotations)
    expected = message(header=[] if has_header else None, properties=["id"])
    if not users:
        assert stripped == expected
        return
    again = sections.find(stripped, len(stripped))
    assert decode(stripped, again.annotations_at)[0].value == users
    assert stripped[: again.annotations_at] + stripped[again.annotations_end :] == expected


def test_own_annotations_come_last_and_in_order() -> None:
    """routing 99"""
    payload = message(annotations={symbol("mine"): 1}, properties=["id"])
    envelope = sections.find(payload, len(payload))
    own = RouterAnnotations(to="t", phase=3, ingress="0/A", trace=("0/A", "0/B"))
    made = sections.put_together(payload, envelope, sections.take_apart(payload, envelope), own)
    value = decode(made, 0)[0].value
    assert list(value) == ["mine", "x-opt-qd.phase", "x-opt-qd.to", "x-opt-qd.ingress", "x-opt-qd.trace"]
    assert value["x-opt-qd.trace"] == ["0/A", "0/B"]
    assert sections.put_together(payload, envelope, Annotations()) == message(properties=["id"])


def test_large_maps_become_large_maps() -> None:
    """routing 99"""
    users = {symbol(f"key-{number}"): "value" for number in range(200)}
    payload = message(annotations=users)
    envelope = sections.find(payload, len(payload))
    own = RouterAnnotations(ingress="0/A", trace=("0/A",))
    made = sections.put_together(payload, envelope, sections.take_apart(payload, envelope), own)
    assert decode(made, 0)[0].value == users | {"x-opt-qd.ingress": "0/A", "x-opt-qd.trace": ["0/A"]}


def test_strings_do_not_pass_for_users_keys() -> None:
    """routing 100: a router's key written as a string instead of a symbol"""
    payload = message(annotations={"x-opt-qd.trace": ["0/EVIL"], symbol("mine"): 1})
    annotations = sections.take_apart(payload, sections.find(payload, len(payload)))
    assert annotations.users_count == 2
    assert list(annotations.routers) == ["x-opt-qd.trace"]


def test_maps_beyond_the_limits_are_refused_only_where_they_would_be_work() -> None:
    """routing 103"""
    many = {symbol(f"k{number}"): None for number in range(sections.MAX_ANNOTATIONS + 1)}
    payload = message(annotations=many)
    assert sections.take_apart(payload, sections.find(payload, len(payload))).users_count == 2 * len(many)
    for annotations in (many | {symbol("x-opt-qd.to"): "a"}, {symbol("x-opt-qd.trace"): ["0/X" * 10] * 1000}):
        payload = message(annotations=annotations)
        with pytest.raises(MessageFault):
            sections.take_apart(payload, sections.find(payload, len(payload)))
