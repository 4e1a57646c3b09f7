"""A block that is taken as a whole is one whose every line the validator takes (issue 15)."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_events import DELETED, EVENT, FOLDED, MANAGEMENT, SHADOW
from test_audit_lines import BROKEN, GOOD, WHOLE

pytest.importorskip("jsonschema_rs")

from spark.lines import quick
from spark.lines.judge import judge


def compact(text: str) -> bytes:
    """As the router writes it, without blanks."""
    return text.replace('": ', '":').replace(', "', ',"').encode("utf-8", "surrogatepass")


KNOWN = compact(GOOD)


def taken_as_columns(block: bytes) -> "pa.RecordBatch | None":
    return quick.columns(block, *quick.bounds(block))


def agrees(lines: list[bytes]) -> bool:
    """Whether the block was taken; if so, every line is valid and the events are the same."""
    found = taken_as_columns(b"".join(line + b"\n" for line in lines))
    if found is None:
        return False
    one_by_one = judge(lines)
    assert one_by_one.faults == {}
    assert found.equals(one_by_one.events)
    return True


def test_the_schema_has_no_rule_that_the_quick_way_does_not_know() -> None:
    assert taken_as_columns(KNOWN + b"\n") is not None


@pytest.mark.parametrize("text", WHOLE, ids=range(len(WHOLE)))
def test_valid_lines_of_every_kind_are_taken_or_left(text: str) -> None:
    is_ours = text.isascii() and "\\ud" not in text and '": ' not in text.replace('": ', '":')
    # Of an object whose members are not all required every line is looked at: only `deleted`, once for a deleted file.
    is_rare = '"deleted": {' in text
    taken = agrees([KNOWN, compact(text), KNOWN])
    assert taken or not is_ours or is_rare or text != text.strip() or '"schema_version": 1' in text


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_block_with_one_bad_line_is_left(text: str) -> None:
    for line in (compact(text), text.encode("utf-8", "surrogatepass")):
        assert taken_as_columns(line + b"\n") is None
        assert taken_as_columns(KNOWN + b"\n" + line + b"\n" + KNOWN + b"\n") is None


@pytest.mark.parametrize("tail", [b'\\"', b'\\":', b'a\\":\\":\\\\', b"\\\\", b"\\u0022:", b"\\/"])
def test_backslashes_in_a_value_are_no_members(tail: bytes) -> None:
    assert agrees([KNOWN, KNOWN.replace(b'"detail":""', b'"detail":"%s"' % tail), KNOWN])


@pytest.mark.parametrize("escape", [b"\\ud83d\\ude00", b"\\uD83D\\uDE00"])
def test_a_pair_of_surrogates_is_left_to_the_validator(escape: bytes) -> None:
    line = KNOWN.replace(b'"detail":""', b'"detail":"%s"' % escape)
    assert taken_as_columns(line + b"\n") is None
    assert judge([line]).faults == {}


def without(name: str) -> bytes:
    return json.dumps(
        {member: value for member, value in EVENT.items() if member != name}, separators=(",", ":")
    ).encode()


TRICKS = {
    "two objects on a line, none on the next": [KNOWN + KNOWN, b"{}"],
    "one object on two lines": [KNOWN[: KNOWN.index(b'"user"')], KNOWN[KNOWN.index(b'"user"') :]],
    "a blank line": [KNOWN, b"", KNOWN],
    "one member missing, an optional one null in another line": [
        without("user"), KNOWN[:-1] + b',"attempts":null}',
    ],
    "one member missing, two times another": [without("user"), KNOWN[:-1] + b',"vhost":"x"}'],
    "one member missing, a name of a member in a text": [
        without("user").replace(b'"detail":""', b'"detail":"\\"user\\":null"'),
    ],
    "half a surrogate pair": [KNOWN.replace(b'"detail":""', b'"detail":"\\udc00"')],
    "a capital escape": [KNOWN.replace(b'"detail":""', b'"detail":"\\uDC00"')],
    "a float": [KNOWN.replace(b'"connection":3', b'"connection":3.5')],
    "an infinite number": [KNOWN.replace(b'"connection":3', b'"connection":Infinity')],
    "a zero before a number": [KNOWN.replace(b'"connection":3', b'"connection":03')],
    "the 30th of February": [KNOWN.replace(b"2026-11-20", b"2026-02-30")],
    "the year 0": [KNOWN.replace(b"2026-11-20", b"0000-11-20")],
    "24 o'clock": [KNOWN.replace(b"T14:05:06", b"T24:00:00")],
    "a second too many": [KNOWN.replace(b"T14:05:06", b"T23:59:60")],
    "a control character": [KNOWN.replace(b'"detail":""', b'"detail":"\x01"')],
    "a comma too many": [KNOWN[:-1] + b",}"],
    "a comment": [KNOWN[:-1] + b"/* */}"],
}  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_what_only_arrow_would_take_is_left(trick: str) -> None:
    lines = TRICKS[trick]
    assert agrees(lines) is False
    assert judge(lines).faults


def test_a_name_with_an_escape_is_that_name() -> None:
    agrees([KNOWN.replace(b'"user":', b'"\\u0075ser":')])


EXTRA: dict[str, Any] = {
    "attempts": 3, "folded": FOLDED, "shadow": SHADOW, "management": MANAGEMENT, "deleted": DELETED, "lost": 1,
    "granted": "{}", "redecision": None, "start": "1" * 32, "sequence": 5, "flavour": "x",
}  # fmt: skip
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**64), st.floats(), st.text(max_size=5), st.just("x" * 300),
    st.sampled_from(
        ["deny", "shadow_deny", "events_lost", "file_deleted", "management", "audit", "policy_change", "0" * 32]
    ),
    st.builds(dict, a=st.none()), st.just(SHADOW), st.just(EVENT["rule"]),
)  # fmt: skip
NAMES = st.sampled_from([*EVENT, *EXTRA])


@st.composite
def varied(draw: st.DrawFn) -> bytes:
    event = dict(EVENT)
    for name in draw(st.lists(st.sampled_from([*EXTRA]), max_size=3)):
        event[name] = EXTRA[name]
    for name in draw(st.lists(NAMES, max_size=2)):
        event.pop(name, None)
    for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=2)):
        event[name] = value
    line = json.dumps(event, separators=(",", ":")).encode("ascii")
    for at, byte in draw(
        st.lists(st.tuples(st.integers(0, len(line) - 1), st.sampled_from(b'"{}:,\\ 0nu')), max_size=1)
    ):
        line = line[:at] + bytes([byte]) + line[at + 1 :]
    return line


@settings(max_examples=600, deadline=None)
@given(st.lists(varied(), min_size=1, max_size=3))
def test_what_is_taken_the_validator_takes_too(lines: list[bytes]) -> None:
    agrees(lines)
