"""The router's side of a connection to an authentication service, on any bytes: docs/spec/policy-and-auth.md §9.3."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth import sasl_frames
from auth.identity import Grants
from auth.relay import Voucher
from router.amqp import headers
from router.amqp.codec import encode
from router.connection.service import ServiceConnection, ServiceTerms
from router.values import Array, Described, symbol, ulong


def frame(code: int, *fields: object) -> bytes:
    body = encode(Described(ulong(code), list(fields)))
    return struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body


PROPERTIES = {
    "authenticated-identity": {symbol("sub"): "alice"},
    symbol("groups"): Array(symbol, (symbol("g"), symbol("h"))),
    "address-authz": {"a": Array(str, ("send", "recv", "fly")), "b": Array(str, ("recv",)), "c": ["send"], "d": "send"},
}
VOUCHER = Voucher(user="alice", groups=("g", "h"), grants=Grants(sources=("a", "b"), targets=("a",)))
NONE = [None] * 7
STREAM = (
    headers.SASL
    + sasl_frames.encode(sasl_frames.Mechanisms(names=("PLAIN",)))
    + sasl_frames.encode(sasl_frames.Challenge(challenge=b""))
    + sasl_frames.encode(sasl_frames.Outcome(code=0))
    + headers.AMQP
    + b"\0\0\0\x08\x02\0\0\0"
    + frame(0x10, "service", "host", *NONE, PROPERTIES)
)


class Told:
    """Notes what it is told; nothing may follow the last word."""

    def __init__(self) -> None:
        self.words: list[object] = []
        self.ends = 0

    def _note(self, word: object, *, is_last: bool = False) -> None:
        assert not self.ends
        self.words.append(word)
        self.ends += is_last

    def offered(self, names: tuple[str, ...]) -> None:
        self._note(names)

    def challenged(self, data: bytes) -> None:
        self._note(data)

    def refused(self, code: int) -> None:
        self._note(code, is_last=True)

    def vouched(self, voucher: Voucher) -> None:
        self._note(voucher, is_last=True)

    def failed(self, why: str) -> None:
        assert why.isprintable()
        self._note("failed", is_last=True)


def connection() -> tuple[ServiceConnection, Told, bytearray]:
    told, written = Told(), bytearray()
    made = ServiceConnection(ServiceTerms(hostname="h", product="p", version="v"), told, written.extend)
    made.start()
    return made, told, written


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_an_honest_service_is_understood_in_any_pieces(size: int) -> None:
    """Policy 60, 61."""
    made, told, written = connection()
    assert bytes(written) == headers.SASL
    for at in range(0, len(STREAM), size):
        made.receive(STREAM[at : at + size])
    assert told.words == [("PLAIN",), b"", VOUCHER]
    assert written.startswith(headers.SASL + headers.AMQP)
    made.receive(b"more")
    made.lost("gone")
    assert told.ends == 1


@pytest.mark.parametrize("end", range(len(STREAM)))
def test_one_that_goes_in_the_middle_has_failed(end: int) -> None:
    made, told, _ = connection()
    made.receive(STREAM[:end])
    made.lost("gone")
    assert told.words[-1] == "failed"


@given(st.integers(0, len(STREAM) - 1), st.binary(min_size=1, max_size=30), st.integers(1, 50))
def test_a_stream_that_is_damaged_does_no_harm(at: int, damage: bytes, size: int) -> None:
    made, told, _ = connection()
    stream = STREAM[:at] + damage + STREAM[at + len(damage) :]
    for begin in range(0, len(stream), size):
        made.receive(stream[begin : begin + size])
    made.lost("gone")
    assert told.ends == 1


SYMBOLS = st.builds(symbol, st.sampled_from(["", "sub"]))
KEYS = st.sampled_from([*map(str, PROPERTIES), "sub"])
PLAIN_VALUES = st.none() | st.booleans() | st.text(max_size=3) | st.binary(max_size=3) | SYMBOLS


@given(st.recursive(PLAIN_VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner)))
def test_any_properties_give_a_name_or_a_failure(properties: object) -> None:
    made, told, _ = connection()
    open_at = STREAM.index(headers.AMQP)
    made.receive(STREAM[:open_at] + headers.AMQP + frame(0x10, "service", None, *NONE, properties))
    assert told.ends == 1
    last = told.words[-1]
    assert last == "failed" or (isinstance(last, Voucher) and last.user.isprintable())
