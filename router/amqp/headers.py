"""The 8-byte protocol headers: the protocol that a peer's first bytes announce.

Sources: AMQP 1.0 §2.2 version negotiation, §5.3.1 SASL; docs/spec/policy-and-auth.md §6.2, §8.3.
"""

from enum import Enum

HEADER_BYTES = 8
AMQP = b"AMQP\x00\x01\x00\x00"
TLS = b"AMQP\x02\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"

# A TLS record of type handshake (22), major version 3: how a ClientHello starts.
_TLS_RECORD = b"\x16\x03"


class Protocol(Enum):
    """The protocol of a layer, by its first bytes."""

    AMQP = "AMQP"
    AMQP_TLS = "AMQP TLS header"
    TLS_RECORD = "TLS"
    SASL = "SASL"
    UNKNOWN = "unknown"


_EXACT = {AMQP: Protocol.AMQP, TLS: Protocol.AMQP_TLS, SASL: Protocol.SASL}


def sniff(data: bytes | bytearray) -> Protocol | None:
    """Returns the protocol that `data` begins with; None while more bytes are needed.

    Only an exact header counts: `AMQP` with other version bytes is UNKNOWN. So the AMQP engine never gets bytes that we
    have not understood.
    """
    start = bytes(data[:HEADER_BYTES])
    if start[:2] == _TLS_RECORD:
        return Protocol.TLS_RECORD
    if len(start) == HEADER_BYTES:
        return _EXACT.get(start, Protocol.UNKNOWN)
    could_be = any(known.startswith(start) for known in (AMQP, _TLS_RECORD))
    could_be = could_be or any(known.startswith(start) for known in _EXACT)
    return None if could_be else Protocol.UNKNOWN
