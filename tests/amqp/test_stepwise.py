"""Long values in steps: the same as in one go, no step is long, and no input does worse than CodecError."""

import random
from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from router.amqp.codec import CodecError, decode, encode
from router.amqp.stepwise import AT_ONCE, decode_in_steps, encode_wide, encode_wide_in_steps
from router.values import Array, Described, int_, symbol, ubyte, ulong

MANY = 10**9
UPDATE = {
    symbol("id"): "A",
    symbol("mobile_seq"): 7,
    symbol("add"): [f"M0a/{number}" for number in range(1000)],
    symbol("del"): [],
    symbol("hints"): [int_(number % 6) for number in range(1000)],
}
Result = TypeVar("Result")


def count(steps: Generator[None, None, Result]) -> tuple[Result, int]:
    """What they return, and how many there were."""
    number = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, number
        number += 1


def types(value: Any) -> Any:
    if isinstance(value, dict):
        return [(type(key), types(part)) for key, part in value.items()]
    return [types(part) for part in value] if isinstance(value, list) else type(value)


@pytest.mark.parametrize(
    "value",
    [
        UPDATE,
        {},
        [],
        [None, True, 1.5, "x" * 5000, b"y" * 300, symbol("s"), {"a": [1, [2, [3]]]}],
        [["x" * 100] * 10] * 20,
        {number: [str(number)] * 20 for number in range(300)},
        [-1, int_(-128), int_(127), int_(128), ubyte(3), "ü" * 200],
        [Described(ulong(1), "a"), Array(str, ("b", "c"))] * 30,
    ],
)
def test_they_are_the_values_that_decode_gives(value: Any) -> None:
    for encoded in (encode(value), encode_wide(value)):
        found, end = count(decode_in_steps(encoded, 0, MANY))[0]
        assert (found, end) == decode(encoded)
        assert types(found) == types(decode(encoded)[0])


def test_what_is_written_in_steps_is_what_is_written_in_one_go() -> None:
    written, steps = count(encode_wide_in_steps(UPDATE))
    assert written == encode_wide(UPDATE)
    assert decode(written)[0] == UPDATE
    assert steps >= 2 * 1000 // AT_ONCE


def test_no_step_reads_more_than_it_should() -> None:
    sizes: list[tuple[Any, int]] = [
        *((UPDATE, 2000), ([None] * 5000, 5000), ([["x"] * 10] * 500, 5000)),
        *((dict.fromkeys(range(5000), "x"), 5000), (["x" * 300] * 300, 300)),
    ]
    for value, size in sizes:
        _, steps = count(decode_in_steps(encode(value), 0, MANY))
        assert steps >= size // (2 * AT_ONCE)


@pytest.mark.parametrize(
    "value",
    [
        Described(ulong(1), ["x"] * 1000),
        [Array(int_, tuple(map(int_, range(1000))))],
        {"a": Described(ulong(1), b"x" * 1000)},
    ],
)
def test_what_cannot_be_read_in_steps_is_refused(value: Any) -> None:
    """Attack: a value that would be read in one go."""
    with pytest.raises(CodecError):
        count(decode_in_steps(encode(value), 0, MANY))


def test_the_number_of_values_is_limited() -> None:
    """Attack: four million values of one byte each."""
    encoded = encode([None] * 5000)
    assert count(decode_in_steps(encoded, 0, 5000))[0][0] == [None] * 5000
    with pytest.raises(CodecError, match="more values"):
        count(decode_in_steps(encoded, 0, 4999))


def test_nesting_is_limited() -> None:
    """Attack: lists in lists, which would exhaust the stack."""
    encoded = encode("x" * 300)
    for _ in range(40):
        encoded = b"\xd0" + (len(encoded) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + encoded
    with pytest.raises(CodecError, match="deep"):
        count(decode_in_steps(encoded, 0, MANY))


def test_every_truncation_is_an_error() -> None:
    encoded = encode({**UPDATE, symbol("add"): ["M0a"] * 300})
    for end in range(0, len(encoded), 7):
        with pytest.raises(CodecError):
            count(decode_in_steps(encoded[:end], 0, MANY))


def test_mutations_decode_alike_or_not_at_all() -> None:
    """What is accepted in steps is what `decode` accepts; that takes a little more."""
    chance = random.Random(14)
    whole = encode({**UPDATE, "more": [[1, 2, {"x": "y" * 300}]] * 3, "add": ["M0b"] * 300})
    agreed = 0
    for _ in range(3000):
        octets = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.choice((chance.randrange(len(octets)), chance.randrange(60)))
            octets[at] = chance.randrange(256)
        encoded = bytes(octets)
        try:
            found = count(decode_in_steps(encoded, 0, MANY))[0]
        except CodecError:
            continue
        assert repr(found) == repr(decode(encoded))
        agreed += 1
    assert agreed > 300
