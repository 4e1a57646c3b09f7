"""Adds the capabilities of links to our Attaches as they are written, because proton has no call for that.

They are the capabilities of another peer's Attach, as the guard read them, on a link that continues that peer's link.
Pure. Source: AMQP 1.0 §2.7.3.
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
    """The capabilities of a link, each encoded; null if there are none."""

    offered: bytes = _NULL
    desired: bytes = _NULL

    @property
    def size(self) -> int:
        return len(self.offered) + len(self.desired)

    def __bool__(self) -> bool:
        return self.size > 2 * len(_NULL)


NO_CAPABILITIES: Final = Capabilities()


class AttachWriter:
    """Writes the output of an engine. Usage: `expect`, then call it with all bytes until it has called `on_done`.

    A frame that arrives in pieces, and may be an expected Attach, waits until it is complete.
    """

    def __init__(self, write: Callable[[bytes], None], left: int, on_done: Callable[[], None]) -> None:
        """Starts in the middle of the output.

        left  the number of the first bytes that belong to a frame begun earlier
        """
        self.write = write
        self._on_done = on_done
        self._left = left
        self._rest = b""
        self._expected: dict[tuple[bytes, bool], Capabilities] = {}

    def expect(self, name: bytes, capabilities: Capabilities, *, is_receiver: bool) -> None:
        """Adds these capabilities to the next Attach of a link with that name and role."""
        self._expected[name, is_receiver] = capabilities

    def forget(self, name: bytes, *, is_receiver: bool) -> None:
        """Removes a link that is gone. Attack: links whose sessions end before they are answered."""
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
    """Returns the encoded fields of an Attach that our engine wrote."""
    at = _HEADER_BYTES + len(_ATTACH)
    at += {_LIST8: 3, _LIST32: 9}[attach[at]]
    fields = []
    while at < len(attach):
        end = skip(attach, at)
        fields.append(attach[at:end])
        at = end
    return fields
