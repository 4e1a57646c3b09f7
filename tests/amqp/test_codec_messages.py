"""Whole messages: what we write reads back, and what others may send."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.codec import CodecError, Message, decode, decode_message, encode, encode_message
from router.values import Described, symbol, ubyte, uint, ulong


def section(code: int, value: Any) -> bytes:
    return encode(Described(ulong(code), value))


def test_what_is_written_reads_back() -> None:
    raw = encode_message(
        to="$management",
        reply_to="amqp:/_topo/0/R/temp.x",
        correlation_id="1",
        subject="s",
        application_properties={"operation": "QUERY", "count": 500},
        body={"attributeNames": []},
    )
    assert decode_message(raw) == Message(
        durable=False,
        to="$management",
        reply_to="amqp:/_topo/0/R/temp.x",
        correlation_id="1",
        raw_correlation_id=encode("1"),
        subject="s",
        application_properties={"operation": "QUERY", "count": 500},
        body={"attributeNames": []},
        body_kind="value",
    )


def test_a_minimal_message_has_header_properties_and_a_null_body() -> None:
    assert encode_message(body=None) == bytes.fromhex("005370c0020142005373d00000000a0000000640404040404000537740")


@pytest.mark.parametrize(
    "raw_id",
    [encode(uuid.UUID(int=5)), encode(ulong(7)), bytes.fromhex("800000000000000007"), encode(ubyte(1)), encode(b"\0")],
)
def test_any_correlation_id_is_echoed_in_its_exact_encoding(raw_id: bytes) -> None:
    """management 43"""
    request = decode_message(section(0x73, [None] * 5 + [decode(raw_id)[0]]))
    assert request.correlation_id == decode(raw_id)[0]
    reply = decode_message(encode_message(raw_correlation_id=raw_id, body=None))
    assert reply.raw_correlation_id == raw_id


def test_the_raw_correlation_id_keeps_a_long_encoding_as_it_came() -> None:
    raw_id = bytes.fromhex("800000000000000007")
    fields = b"\x40" * 5 + raw_id
    for listed in (b"\xc0" + bytes((len(fields) + 1, 6)), b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\6"):
        assert decode_message(b"\x00\x53\x73" + listed + fields).raw_correlation_id == raw_id


@pytest.mark.parametrize("raw_id", [b"", b"\x40\x40", b"\xa1\x05x"])
def test_a_raw_correlation_id_that_is_not_one_value_is_refused(raw_id: bytes) -> None:
    with pytest.raises(CodecError):
        encode_message(raw_correlation_id=raw_id, body=None)


def test_all_sections_and_fields_are_read() -> None:
    raw = b"".join(
        (
            section(0x70, [True, ubyte(9), uint(5000), True, uint(2)]),
            section(0x71, {symbol("x-d"): 1}),
            section(0x72, {symbol("x-m"): 2}),
            section(0x73, ["id", b"user", "to", "subject", "reply", ulong(3), symbol("text/plain")]),
            section(0x74, {"a": 1}),
            section(0x75, b"one"),
            section(0x75, b"two"),
            section(0x78, {symbol("f"): 1}),
        )
    )
    message = decode_message(memoryview(raw))
    assert (message.durable, message.priority, message.ttl_ms, message.is_first_acquirer) == (True, 9, 5000, True)
    assert message.delivery_count == 2
    assert message.delivery_annotations == {"x-d": 1}
    assert message.message_annotations == {"x-m": 2}
    assert (message.message_id, message.user_id, message.content_type) == ("id", b"user", "text/plain")
    assert (message.body, message.body_kind) == (b"onetwo", "data")


def test_sequence_bodies_are_joined_and_a_missing_body_is_none() -> None:
    assert decode_message(section(0x76, [1]) + section(0x76, [2, 3])).body == [1, 2, 3]
    assert decode_message(b"") == Message()
    assert decode_message(section(0x74, {})).body_kind is None


def test_symbolic_descriptors_are_the_same_sections() -> None:
    raw = encode(Described(symbol("amqp:amqp-value:*"), "x"))
    assert decode_message(raw).body == "x"


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"\x40", "described sections"),
        (encode(Described(ulong(1), [])), "unknown kind"),
        (encode(Described(None, [])), "unknown kind"),
        (encode(Described([], [])), "unknown kind"),
        (section(0x77, 1) + section(0x77, 1), "repeated"),
        (section(0x73, []) + section(0x70, []), "out of order"),
        (section(0x75, b"") + section(0x77, 1), "two kinds"),
        (section(0x70, {}), "holds a dict"),
        (section(0x74, []), "holds a list"),
        (section(0x74, {1: 2}), "not text"),
        (section(0x73, [None] * 14), "more than 13"),
        (section(0x73, [None, None, 5]), "field to"),
        (section(0x70, ["yes"]), "field durable"),
        (section(0x77, 1)[:-1], "cut short"),
    ],
)
def test_malformed_messages_are_refused_with_a_reason(raw: bytes, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        decode_message(raw)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(range(0x70, 0x79)))
def test_random_sections_decode_or_raise_codec_error(raw: bytes, code: int) -> None:
    try:
        decode_message(b"\x00\x53" + bytes((code,)) + raw)
    except CodecError:
        return


def test_a_message_truncated_at_any_offset_is_refused_or_shorter_by_whole_sections() -> None:
    raw = encode_message(to="a", correlation_id=1, application_properties={"x": "y"}, body=["z"])
    whole = {0, 7, raw.index(b"\x00\x53\x74"), raw.index(b"\x00\x53\x77")}
    for length in set(range(len(raw))) - whole:
        with pytest.raises(CodecError):
            decode_message(raw[:length])
