"""What the first bytes of a connection announce."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.headers import AMQP, SASL, TLS, Protocol, sniff

EXACT = {AMQP: Protocol.AMQP, TLS: Protocol.AMQP_TLS, SASL: Protocol.SASL}
RECORD = b"\x16\x03\x01\x02\x00\x01\x00\x01"


@pytest.mark.parametrize("header", EXACT)
def test_exact_headers_are_named_with_their_last_byte(header: bytes) -> None:
    """routing 1: and not before"""
    for length in range(8):
        assert sniff(header[:length]) is None
    assert sniff(header) is EXACT[header]
    assert sniff(bytearray(header + b"more")) is EXACT[header]


def test_a_tls_record_is_named_by_two_bytes() -> None:
    assert sniff(RECORD[:1]) is None
    for length in range(2, 9):
        assert sniff(RECORD[:length]) is Protocol.TLS_RECORD


@pytest.mark.parametrize("header", [AMQP, TLS, SASL])
@pytest.mark.parametrize("at", range(8))
def test_one_wrong_byte_is_unknown(header: bytes, at: int) -> None:
    """routing 1: other versions and protocols never reach the AMQP engine"""
    wrong = bytearray(header)
    wrong[at] ^= 0x40
    assert sniff(wrong) is Protocol.UNKNOWN


def test_no_prefix_of_a_wrong_header_is_waited_for_longer_than_it_could_be_right() -> None:
    """routing 27: nobody is waited for who cannot get it right any more"""
    assert sniff(b"G") is Protocol.UNKNOWN
    assert sniff(b"AMQX") is Protocol.UNKNOWN
    assert sniff(b"AMQP\x01") is Protocol.UNKNOWN
    assert sniff(b"AMQP\x00\x00") is Protocol.UNKNOWN
    assert sniff(b"\x16\x02") is Protocol.UNKNOWN


@given(st.binary(max_size=12))
def test_more_bytes_never_change_a_verdict(data: bytes) -> None:
    verdict = sniff(data)
    if verdict is not None:
        assert sniff(data + b"\x00") is verdict
    else:
        assert len(data) < 8


@given(st.binary(min_size=8, max_size=16))
def test_eight_bytes_always_tell(data: bytes) -> None:
    assert sniff(data) is not None
