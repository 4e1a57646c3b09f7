"""Decodes the frames that the router wrote."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from router.amqp.codec import decode
from router.values import Described

PERFORMATIVES = {
    0x10: "open",
    0x11: "begin",
    0x12: "attach",
    0x13: "flow",
    0x14: "transfer",
    0x15: "disposition",
    0x16: "detach",
    0x17: "end",
    0x18: "close",
}


@dataclass(frozen=True)
class Frame:
    """One AMQP frame: performative, its fields as the codec returns them, and the size of its payload."""

    channel: int
    name: str
    fields: list[Any]
    payload_bytes: int

    def __getitem__(self, index: int) -> Any:
        return self.fields[index] if index < len(self.fields) else None


def frames(data: bytes) -> Iterator[Frame]:
    """Yields the frames of a recorded AMQP stream, without its header and empty frames."""
    at = 8 if data.startswith(b"AMQP") else 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        frame = data[at : at + size]
        at += size
        if size > 8:
            described, end = decode(frame, 8)
            assert isinstance(described, Described)
            yield Frame(
                int.from_bytes(frame[6:8], "big"), PERFORMATIVES[described.descriptor], described.value, size - end
            )
