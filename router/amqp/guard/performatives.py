"""Reads the fields of one frame's performative that the guard needs. Strict and pure.

Constructors show the types of all fields. The inside of a compound field is measured, not decoded. The AMQP engine
treats a mistyped or cut field as absent. So it must get nothing that it would read differently. Sources: AMQP 1.0 §2.3
(frames), §2.7 (performatives).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from router.amqp.decoding import Buffer, CodecError
from router.amqp.guard.shapes import Room, TooManyValues, measure
from router.amqp.terminus import Violation

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
NAMES: Final = {
    OPEN: "open", BEGIN: "begin", ATTACH: "attach", FLOW: "flow", TRANSFER: "transfer", DISPOSITION: "disposition",
    DETACH: "detach", END: "end", CLOSE: "close",
}  # fmt: skip
FRAME_HEADER_BYTES: Final = 8
# Attack: on a listener with large frames, measuring megabytes of properties would take about 25 ms at once.
MAX_CONTROL_FRAME_BYTES: Final = 320 * 1024
# The limit of elements in all lists, maps and arrays of one performative. Attack: frames of thousands of empty
# capabilities. Each frame was measured, decoded and shown for a hundredth of a second.
MAX_VALUES: Final = 2048
MAX_TAG_BYTES: Final = 32  # AMQP 1.0 §2.8.7

# The constructors that a field of each type may have. Null is allowed everywhere: it means "left out".
_BOOL, _UINT, _USHORT, _UBYTE, _ULONG = "boolean", "uint", "ushort", "ubyte", "ulong"
_STRING, _BINARY, _SYMBOLS, _MAP, _DESCRIBED = "string", "binary", "symbol", "map", "described"
# Wrong types that do no harm and that some programs write. They are read as the intended type. A list for `multiple`:
# proton 0.37 in Python, for offered and desired capabilities (engine.values.symbols_of).
_LISTS: Final = frozenset((0x45, 0xC0, 0xD0))
_CONSTRUCTORS: Final = {
    _BOOL: frozenset((0x41, 0x42, 0x56)),
    _UINT: frozenset((0x43, 0x52, 0x70)),
    _USHORT: frozenset((0x60,)),
    _UBYTE: frozenset((0x50,)),
    _ULONG: frozenset((0x44, 0x53, 0x80)),
    _STRING: frozenset((0xA1, 0xB1)),
    _BINARY: frozenset((0xA0, 0xB0)),
    _SYMBOLS: frozenset((0xA3, 0xB3, 0xE0, 0xF0)) | _LISTS,  # one symbol, or an array of symbols
    _MAP: frozenset((0xC1, 0xD1)),
    _DESCRIBED: frozenset((0x00,)),
}
_NULL: Final = b"\x40"
_OFFERED, _DESIRED = "offered-capabilities", "desired-capabilities"
_STATE_AND_BEFORE: Final = 5  # the number of fields of a disposition up to its state
# The fields whose bytes the engine keeps unchanged. True if the router may ask for the values in them: then the engine
# makes a node of each value.
_KEPT: Final[Mapping[int, Mapping[str, bool]]] = {
    OPEN: {"offered-capabilities": True, "desired-capabilities": True, "properties": True},
    ATTACH: {"source": True, "target": True, "properties": True},
    TRANSFER: {"state": True},
    DISPOSITION: {"state": True},
    DETACH: {"error": True},
    END: {"error": False},
    CLOSE: {"error": False},
}
# performative -> its fields in order: (name, type, True if mandatory)
_FIELDS: Final[dict[int, tuple[tuple[str, str, bool], ...]]] = {
    OPEN: (
        ("container-id", _STRING, True), ("hostname", _STRING, False), ("max-frame-size", _UINT, False),
        ("channel-max", _USHORT, False), ("idle-time-out", _UINT, False), ("outgoing-locales", _SYMBOLS, False),
        ("incoming-locales", _SYMBOLS, False), ("offered-capabilities", _SYMBOLS, False),
        ("desired-capabilities", _SYMBOLS, False), ("properties", _MAP, False),
    ),
    BEGIN: (
        ("remote-channel", _USHORT, False), ("next-outgoing-id", _UINT, True), ("incoming-window", _UINT, True),
        ("outgoing-window", _UINT, True), ("handle-max", _UINT, False), ("offered-capabilities", _SYMBOLS, False),
        ("desired-capabilities", _SYMBOLS, False), ("properties", _MAP, False),
    ),
    ATTACH: (
        ("name", _STRING, True), ("handle", _UINT, True), ("role", _BOOL, True), ("snd-settle-mode", _UBYTE, False),
        ("rcv-settle-mode", _UBYTE, False), ("source", _DESCRIBED, False), ("target", _DESCRIBED, False),
        ("unsettled", _MAP, False), ("incomplete-unsettled", _BOOL, False), ("initial-delivery-count", _UINT, False),
        ("max-message-size", _ULONG, False), ("offered-capabilities", _SYMBOLS, False),
        ("desired-capabilities", _SYMBOLS, False), ("properties", _MAP, False),
    ),
    FLOW: (
        ("next-incoming-id", _UINT, False), ("incoming-window", _UINT, True), ("next-outgoing-id", _UINT, True),
        ("outgoing-window", _UINT, True), ("handle", _UINT, False), ("delivery-count", _UINT, False),
        ("link-credit", _UINT, False), ("available", _UINT, False), ("drain", _BOOL, False), ("echo", _BOOL, False),
        ("properties", _MAP, False),
    ),
    TRANSFER: (
        ("handle", _UINT, True), ("delivery-id", _UINT, False), ("delivery-tag", _BINARY, False),
        ("message-format", _UINT, False), ("settled", _BOOL, False), ("more", _BOOL, False),
        ("rcv-settle-mode", _UBYTE, False), ("state", _DESCRIBED, False), ("resume", _BOOL, False),
        ("aborted", _BOOL, False), ("batchable", _BOOL, False),
    ),
    DISPOSITION: (
        ("role", _BOOL, True), ("first", _UINT, True), ("last", _UINT, False), ("settled", _BOOL, False),
        ("state", _DESCRIBED, False), ("batchable", _BOOL, False),
    ),
    DETACH: (("handle", _UINT, True), ("closed", _BOOL, False), ("error", _DESCRIBED, False)),
    END: (("error", _DESCRIBED, False),),
    CLOSE: (("error", _DESCRIBED, False),),
}  # fmt: skip


class Refused(Violation):
    """The guard does not admit a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performative:
    """One performative, as far as the guard needs it.

    size_bytes  of the frame
    fields  values by their AMQP names: bool, int, and len() of a string or binary; other types as True. Fields that are
            null or left out are missing.
    link_name  of an Attach
    kept       the encoded fields that the engine keeps, if present
    values     elements of all lists, maps and arrays in those kept fields whose values the engine may be asked for;
               plus two for each described value
    capabilities  of an Attach: offered and desired, each encoded; null if there are none
    """

    code: int
    channel: int
    size_bytes: int
    fields: dict[str, int]
    link_name: bytes = b""
    kept: Mapping[str, bytes] = field(default_factory=dict)
    values: int = 0
    capabilities: tuple[bytes, bytes] = (_NULL, _NULL)

    @property
    def kept_bytes(self) -> int:
        """The bytes of the fields that the engine keeps."""
        return sum(map(len, self.kept.values()))

    def get(self, name: str) -> int | None:
        return self.fields.get(name)


def read_frame(frame: Buffer) -> Performative | None:
    """Returns the performative of one whole frame; None for an empty frame.

    Errors: Refused, framing-error or decode-error.
    """
    start = 4 * frame[4]
    if not FRAME_HEADER_BYTES <= start <= len(frame):
        raise Refused(FRAMING, f"a frame of {len(frame)} bytes whose data begin at byte {start}")
    if frame[5] != 0:
        raise Refused(FRAMING, f"a frame of type {frame[5]}, where only AMQP's type 0 is expected")
    channel = frame[6] << 8 | frame[7]
    if start == len(frame):
        return None
    try:
        return _read(frame, start, channel)
    except TooManyValues:
        raise Refused(
            "amqp:resource-limit-exceeded", f"a frame holds more than {MAX_VALUES} values in lists, maps and arrays"
        ) from None
    except CodecError as error:
        raise Refused(_DECODE, f"a frame cannot be decoded: {error}") from None


FRAMING: Final = "amqp:connection:framing-error"
_DECODE: Final = "amqp:decode-error"


def _read(frame: Buffer, start: int, channel: int) -> Performative:
    code, at = _descriptor(frame, start)
    layout = _FIELDS.get(code)
    if layout is None:
        raise Refused("amqp:not-implemented", f"no performative has the descriptor 0x{code:02x}")
    name = NAMES[code]
    if code != TRANSFER and len(frame) > MAX_CONTROL_FRAME_BYTES:
        raise Refused(FRAMING, f"{name} of {len(frame)} bytes is over the limit of {MAX_CONTROL_FRAME_BYTES}")
    count, at, end = _list(frame, at, name)
    if count > len(layout):
        _refuse(f"{name} has {count} fields, more than the {len(layout)} that there are")
    fields: dict[str, int] = {}
    link_name = b""
    kept: dict[str, bytes] = {}
    values, keeps = 0, _KEPT.get(code, {})
    capabilities = {_OFFERED: _NULL, _DESIRED: _NULL}
    room = Room(MAX_VALUES)
    for what, kind, _ in layout[:count]:
        if at >= end:
            _refuse(f"{name} ends before its field {what}")
        before = room.left
        behind = measure(frame, at, end, room)
        if frame[at] != 0x40:
            if frame[at] not in _CONSTRUCTORS[kind]:
                _refuse(f"field {what} of {name} is no {kind}")
            fields[what] = _value(frame, at, behind, kind, f"field {what} of {name}")
            if code == ATTACH and what == "name":
                link_name = bytes(frame[behind - fields[what] : behind])
            elif code == ATTACH and what in capabilities:
                capabilities[what] = bytes(frame[at:behind])
            if what in keeps:
                kept[what] = bytes(frame[at:behind])
                values += (before - room.left) * keeps[what]
        at = behind
    # proton's clients write the content of a non-standard state twice, and its engine reads nothing after it.
    # INVARIANT: the engine reads fields as long as there are bytes, whatever their stated number is.
    if at != end and not (code == DISPOSITION and count == _STATE_AND_BEFORE):
        _refuse(f"{name} has bytes behind its last field")
    if end != len(frame) and code != TRANSFER:
        _refuse(f"{name} is followed by {len(frame) - end} bytes that belong to nothing")
    for what, _, is_mandatory in layout:
        if is_mandatory and what not in fields:
            raise Refused("amqp:invalid-field", f"{name} lacks its field {what}")
    return Performative(
        code=code,
        channel=channel,
        size_bytes=len(frame),
        fields=fields,
        link_name=link_name,
        kept=kept,
        values=values,
        capabilities=(capabilities[_OFFERED], capabilities[_DESIRED]),
    )


def _refuse(description: str) -> NoReturn:
    raise Refused(_DECODE, description)


def _descriptor(frame: Buffer, at: int) -> tuple[int, int]:
    """Returns a performative's code, and the offset of its list."""
    if len(frame) - at >= 4 and frame[at] == 0 and frame[at + 1] == 0x53:
        return frame[at + 2], at + 3
    if len(frame) - at >= 11 and frame[at] == 0 and frame[at + 1] == 0x80:
        return int.from_bytes(frame[at + 2 : at + 10], "big"), at + 10
    _refuse("a frame does not begin with a performative's numeric descriptor")


def _list(frame: Buffer, at: int, name: str) -> tuple[int, int, int]:
    """Returns (number of elements, offset of the first, offset after the last)."""
    code, room = frame[at], len(frame) - at - 1
    if code == 0x45:
        return 0, at + 1, at + 1
    width = {0xC0: 1, 0xD0: 4}.get(code)
    if width is None:
        _refuse(f"{name} is not a list")
    size = int.from_bytes(frame[at + 1 : at + 1 + width], "big")
    if room < 2 * width or not width <= size <= room - width:
        _refuse(f"{name} is a list of {size} bytes where the frame has {max(room - width, 0)}")
    first = at + 1 + 2 * width
    return int.from_bytes(frame[at + 1 + width : first], "big"), first, at + 1 + width + size


def _value(frame: Buffer, at: int, behind: int, kind: str, what: str) -> int:
    """Returns the value of a field that is present, as far as the guard needs it."""
    code = frame[at]
    if kind == _BOOL:
        if code == 0x56 and frame[at + 1] > 1:
            _refuse(f"{what} is a boolean of neither 0x00 nor 0x01")
        return code == 0x41 or (code == 0x56 and frame[at + 1] == 1)
    if kind in (_UINT, _USHORT, _UBYTE, _ULONG):
        return int.from_bytes(frame[at + 1 : behind], "big")
    if kind in (_STRING, _BINARY):
        return behind - at - (2 if code & 0xF0 == 0xA0 else 5)
    return True
