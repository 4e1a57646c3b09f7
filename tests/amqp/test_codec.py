"""The value codec: exact encodings, round trips, and what hostile bytes may do (raise CodecError, nothing else)."""

import enum
import math
import struct
import uuid
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.amqp.codec import CodecError, decode, encode, skip
from router.amqp.decoding import MAX_DEPTH, MAX_ZERO_WIDTH_ELEMENTS
from router.values import (
    Array,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float_,
    int_,
    long,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

ENCODINGS = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (ubyte(255), "50ff"),
    (ushort(258), "600102"),
    (uint(0), "43"),
    (uint(255), "52ff"),
    (uint(256), "7000000100"),
    (ulong(0), "44"),
    (ulong(255), "53ff"),
    (ulong(2**64 - 1), "80ffffffffffffffff"),
    (byte(-1), "51ff"),
    (short(-2), "61fffe"),
    (int_(-128), "5480"),
    (int_(128), "7100000080"),
    (long(127), "557f"),
    (long(-129), "81ffffffffffffff7f"),
    (timestamp(-1), "83ffffffffffffffff"),
    (float_(1.5), "723fc00000"),
    (1.5, "823ff8000000000000"),
    (char("\U0001f600"), "730001f600"),
    (UUID, "9800112233445566778899aabbccddeeff"),
    (decimal32(b"1234"), "7431323334"),
    (decimal64(b"12345678"), "843132333435363738"),
    (decimal128(b"1234567890123456"), "94" + b"1234567890123456".hex()),
    (b"\x00\x01", "a0020001"),
    (b"x" * 256, "b000000100" + "78" * 256),
    ("é", "a102c3a9"),
    ("x" * 256, "b100000100" + "78" * 256),
    (symbol("a"), "a30161"),
    ([], "45"),
    ([True, [None]], "c00602" + "41" + "c0020140"),
    ({}, "c10100"),
    ({symbol("a"): int_(1)}, "c10602a301615401"),
    (Described(ulong(0x24), []), "00532445"),
    (Array(symbol, (symbol("a"), symbol("bc"))), "f00000001000000002b3" + "0000000161" + "000000026263"),
    (Array(uint, (uint(7),), ulong(1)), "f00000000c00000001" + "005301" + "70" + "00000007"),
    (Array(Array, (Array(bool, (True,)),)), "f00000000f00000001f0" + "00000006" + "00000001" + "56" + "01"),
]


@pytest.mark.parametrize(("value", "encoded"), ENCODINGS, ids=lambda v: v[:24] if isinstance(v, str) else None)
def test_values_have_exactly_this_encoding_and_decode_to_the_same_class(value: Any, encoded: str) -> None:
    raw = bytes.fromhex(encoded)
    assert encode(value) == raw
    assert decode(raw) == (value, len(raw))
    assert type(decode(raw)[0]) is type(value)
    assert skip(raw) == len(raw)


def test_plain_python_integers_are_int_where_they_fit_and_long_beyond() -> None:
    assert type(decode(encode(2**31 - 1))[0]) is int_
    assert type(decode(encode(2**31))[0]) is long
    with pytest.raises(CodecError):
        encode(2**63)


def test_subclasses_and_lookalikes_are_encoded_as_what_they_are() -> None:
    class Colour(enum.IntEnum):
        RED = 3

    assert encode(Colour.RED) == encode(3)
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"a")) == encode(memoryview(b"a")) == encode(b"a")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("5600", False),
        ("5601", True),
        ("7000000001", uint(1)),
        ("800000000000000001", ulong(1)),
        ("7100000001", int_(1)),
        ("b10000000161", "a"),
        ("d00000000400000000", []),
        ("d1000000080000000254015402", {1: 2}),
        ("e0040254" + "0102", Array(int_, (int_(1), int_(2)))),
        ("e0020341", Array(bool, (True, True, True))),
    ],
)
def test_the_longer_encodings_are_read_too(raw: str, value: Any) -> None:
    assert decode(bytes.fromhex(raw)) == (value, len(raw) // 2)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ("", "cut short"),
        ("5602", "boolean"),
        ("01", "no AMQP format code"),
        ("46", "no AMQP format code"),
        ("a102c328", "UTF-8"),
        ("a301e9", "ASCII"),
        ("730000d800", "code point"),
        ("7300110000", "code point"),
        ("c00101", "more elements than it has bytes"),
        ("c0020040", "longer than its elements"),
        ("c000", "no room"),
        ("c10201", "cut short"),
        ("c1020140", "key without a value"),
        ("c10602a10161" + "4040", "longer than its elements"),
        ("c10904a1016140a1016140", "two equal keys"),
        ("c1030245" + "40", "map key"),
        ("c11302" + "98" + "00" * 16 + "40", "map key"),
        ("e00101", "no constructor"),
        ("e0020147", "no AMQP format code"),
        ("e0030150", "cut short"),
        ("c0c0" + "40" * 8, "cut short"),
    ],
)
def test_malformed_values_are_refused_with_a_reason(raw: str, complaint: str) -> None:
    with pytest.raises(CodecError, match=complaint):
        decode(bytes.fromhex(raw))


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_offset_outside_the_data_is_an_error(offset: int) -> None:
    with pytest.raises(CodecError):
        decode(b"\x40", offset)
    with pytest.raises(CodecError):
        skip(b"\x40", offset)


def test_an_inner_value_cannot_reach_beyond_its_container() -> None:
    # The string inside the list claims 4 bytes; the list has 3 left, the buffer has more.
    with pytest.raises(CodecError):
        decode(bytes.fromhex("c00601a10461626364"[:-2]) + b"dddd")


def nested_lists(depth: int) -> bytes:
    raw = b"\x45"
    for _ in range(depth):
        raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
    return raw


@pytest.mark.parametrize(
    "bomb",
    [
        nested_lists(MAX_DEPTH + 1),
        nested_lists(5000),
        b"\x00" * 100_000,
        b"\x00\x40" * 50_000 + b"\x40",
    ],
    ids=["lists", "many lists", "descriptors of descriptors", "described described"],
)
def test_nesting_bombs_are_refused(bomb: bytes) -> None:
    with pytest.raises(CodecError):
        decode(bomb)


def test_the_deepest_permitted_nesting_is_read_back() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH):
        value = [value]
    assert decode(encode(value))[0] == value
    with pytest.raises(CodecError):
        encode([value])


@pytest.mark.parametrize("code", ["40", "41", "42", "43", "44", "45"])
def test_arrays_of_nothing_with_a_huge_count_are_refused(code: str) -> None:
    with pytest.raises(CodecError, match="width zero"):
        decode(bytes.fromhex("f000000005ffffffff" + code))


def test_many_small_arrays_of_nothing_share_one_budget() -> None:
    one = bytes.fromhex("f000000005") + struct.pack(">I", MAX_ZERO_WIDTH_ELEMENTS // 2) + b"\x40"
    raw = b"\xd0" + struct.pack(">II", 4 + 3 * len(one), 3) + 3 * one
    with pytest.raises(CodecError, match="width zero"):
        decode(raw)


@pytest.mark.parametrize("head", ["d0000000ffffffffff40", "d1000000fffffffffe40", "f0000000ffffffffff50"])
def test_huge_element_counts_are_refused_before_looping(head: str) -> None:
    with pytest.raises(CodecError, match="more elements than it has bytes"):
        decode(bytes.fromhex(head) + bytes(300))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        "\ud800",
        ["\ud800"],
        Array(set, ()),
        Array(uint, (1.5,)),
        Array(int, (2**40,)),
        Array(type(None), (1,)),
        Array(str, ("\ud800",)),
    ],
)
def test_what_has_no_encoding_is_refused(value: Any) -> None:
    with pytest.raises(CodecError):
        encode(value)


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError, match="nested"):
        encode(loop)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(ubyte, 256), (ubyte, -1), (byte, 128), (ushort, -1), (uint, 2**32), (ulong, -1), (long, 2**63), (float_, 1e39)],
)
def test_scalar_classes_refuse_what_does_not_fit(kind: type[Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"between|fit"):
        kind(value)


@pytest.mark.parametrize(("kind", "value"), [(symbol, "é"), (char, "ab"), (char, "\ud800"), (decimal32, b"123")])
def test_text_like_classes_refuse_what_they_are_not(kind: type[Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"ASCII|one Unicode code point|4 bytes"):
        kind(value)


def integers(kind: type[Any]) -> st.SearchStrategy[Any]:
    return st.integers(kind.LOWEST, kind.HIGHEST).map(kind)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=8).map(symbol)
KINDS = (ubyte, ushort, uint, ulong, byte, short, int_, long, timestamp)
KEYS = st.one_of(TEXT, SYMBOLS, integers(ulong), st.binary(max_size=8))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    *map(integers, KINDS),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(float_),
    st.uuids(),
    st.characters(exclude_categories=["Cs"]).map(char),
    TEXT,
    SYMBOLS,
    st.binary(max_size=300),
    st.binary(min_size=8, max_size=8).map(decimal64),
)
ARRAYS = st.one_of(
    *(
        st.builds(Array, st.just(kind), st.lists(elements, max_size=4).map(tuple), st.none() | SYMBOLS)
        for kind, elements in [
            *((kind, integers(kind)) for kind in KINDS),
            (str, TEXT),
            (symbol, SYMBOLS),
            (bytes, st.binary(max_size=8)),
            (type(None), st.none()),
            (bool, st.booleans()),
            (uuid.UUID, st.uuids()),
            (char, st.characters(exclude_categories=["Cs"]).map(char)),
            (list, st.lists(SCALARS, max_size=3)),
            (dict, st.dictionaries(KEYS, SCALARS, max_size=3)),
        ]
    )
)
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(KEYS, inner, max_size=5),
        st.builds(Described, SYMBOLS | integers(ulong), inner),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal and of the same classes all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        return left.type is right.type and same(left.values, right.values) and same(left.descriptor, right.descriptor)
    return bool(left == right)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(VALUES, st.binary(max_size=3), st.binary(max_size=3))
def test_every_value_survives_the_round_trip_anywhere_in_a_buffer(value: Any, before: bytes, after: bytes) -> None:
    raw = encode(value)
    found, end = decode(memoryview(before + raw + after), len(before))
    assert same(found, value)
    assert end == len(before) + len(raw) == skip(before + raw + after, len(before))


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_a_value_truncated_at_any_offset_is_refused(value: Any) -> None:
    raw = encode(value)
    for length in range(len(raw)):
        with pytest.raises(CodecError):
            decode(raw[:length])
        with pytest.raises(CodecError):
            skip(raw[:length])


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=64))
@example(b"\xff" * 64)
def test_random_bytes_decode_or_raise_codec_error_and_skip_agrees(raw: bytes) -> None:
    try:
        _, end = decode(raw)
    except CodecError:
        end = None
    try:
        skipped = skip(raw)
    except CodecError:
        assert end is None
    else:
        assert end in (None, skipped)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(VALUES, st.data())
def test_one_changed_byte_never_causes_another_exception(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(raw)
    except CodecError:
        return


def test_not_a_number_stays_not_a_number() -> None:
    assert math.isnan(decode(encode(math.nan))[0])
    assert math.isnan(decode(encode(float_(math.nan)))[0])
