"""Puts the capabilities of links into our Attaches as they are written: proton has no call for them.

They are those of another peer's Attach, on a link that goes on from there; as the guard has read them. Pure.
Source: AMQP 1.0 §2.7.3.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from router.amqp.decoding import skip
from router.amqp.encoding import encoded_list

_ATTACH: Final = b"\x00\x53\x12"
_HEADER_BYTES: Final = 8
_LIST8, _LIST32, _NULL, _TRUE = 0xC0, 0xD0, b"\x40", b"\x41"
_NAME, _ROLE, _OFFERED, _DESIRED = 0, 2, 11, 12


class Capabilities(NamedTuple):
    """Of a link, each encoded; null where there are none."""

    offered: bytes = _NULL
    desired: bytes = _NULL

    @property
    def size(self) -> int:
        return len(self.offered) + len(self.desired)

    def __bool__(self) -> bool:
        return self.size > 2 * len(_NULL)


NO_CAPABILITIES: Final = Capabilities()


class AttachWriter:
    """Writes what an engine writes. Usage: `expect`, then call it with all bytes until it has called `on_done`.

    A frame that comes in pieces and may be one that is expected waits until it is whole.
    """

    def __init__(self, write: Callable[[bytes], None], left: int, on_done: Callable[[], None]) -> None:
        """left  bytes, of the first that come, that belong to a frame begun before"""
        self.write = write
        self._on_done = on_done
        self._left = left
        self._rest = b""
        self._expected: dict[tuple[bytes, bool], Capabilities] = {}

    def expect(self, name: bytes, capabilities: Capabilities, *, is_receiver: bool) -> None:
        """The next Attach of a link of that name and role is to have these."""
        self._expected[name, is_receiver] = capabilities

    def forget(self, name: bytes, *, is_receiver: bool) -> None:
        """The link is gone. Attack: links whose sessions end before they are answered."""
        self._expected.pop((name, is_receiver), None)

    def __call__(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        at, end = min(self._left, len(data)), len(data)
        self._left -= at
        written = bytearray(data[:at])
        while at < end:
            size = int.from_bytes(data[at : at + 4], "big") if end - at >= 4 else _HEADER_BYTES
            frame = data[at : at + size]
            body = frame[_HEADER_BYTES:]
            if len(frame) == size or not _ATTACH.startswith(body[: len(_ATTACH)]):
                written += self._extended(frame) if body.startswith(_ATTACH) else frame
                self._left = size - len(frame)
            else:
                self._rest = frame
            at += len(frame)
        if written:
            self.write(bytes(written))
        if not self._expected and not self._rest:
            self._on_done()

    def _extended(self, frame: bytes) -> bytes:
        fields = _fields(frame)
        name = fields[_NAME][2 if fields[_NAME][0] == 0xA1 else 5 :]
        capabilities = self._expected.pop((name, fields[_ROLE] == _TRUE), None)
        if capabilities is None:
            return frame
        fields += [_NULL] * (_DESIRED + 1 - len(fields))
        fields[_OFFERED], fields[_DESIRED] = capabilities
        body = _ATTACH + encoded_list(b"".join(fields), len(fields))
        return (_HEADER_BYTES + len(body)).to_bytes(4, "big") + frame[4:_HEADER_BYTES] + body


def _fields(attach: bytes) -> list[bytes]:
    """The encoded fields of a frame of our engine's."""
    at = _HEADER_BYTES + len(_ATTACH)
    at += {_LIST8: 3, _LIST32: 9}[attach[at]]
    fields = []
    while at < len(attach):
        end = skip(attach, at)
        fields.append(attach[at:end])
        at = end
    return fields
