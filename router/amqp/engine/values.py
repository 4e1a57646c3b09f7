"""Reads AMQP control values from proton's structures and writes them: termini, conditions, properties."""

from functools import lru_cache
from typing import Any, Final

from router.amqp.codec import CodecError, decode, encode
from router.amqp.engine.library import Pointer, ffi, lib
from router.amqp.guard.shapes import field_of
from router.amqp.terminus import Condition, Terminus, Violation
from router.values import Array, Described, symbol, uint, ulong

# The limit for one value in an Open, Attach or disposition. Attack: frames with megabytes of properties to decode.
MAX_CONTROL_VALUE_BYTES: Final = 256 * 1024
# The limit for capabilities in one list. They stay decoded as long as the link, and take many times their encoded
# bytes.
MAX_SYMBOLS: Final = 256

_EXPIRY = {
    lib.PN_EXPIRE_WITH_LINK: "link-detach",
    lib.PN_EXPIRE_WITH_SESSION: "session-end",
    lib.PN_EXPIRE_WITH_CONNECTION: "connection-close",
    lib.PN_EXPIRE_NEVER: "never",
}
_DISTRIBUTION = {lib.PN_DIST_MODE_COPY: "copy", lib.PN_DIST_MODE_MOVE: "move"}
_EXPIRY_NUMBERS = {name: number for number, name in _EXPIRY.items()}
_DISTRIBUTION_NUMBERS = {name: number for number, name in _DISTRIBUTION.items()}
_TERMINUS_KIND = {lib.PN_SOURCE: "source", lib.PN_TARGET: "target", lib.PN_COORDINATOR: "coordinator"}


_OUT_OF_MEMORY: Final = -10  # proton's error.h
# The key in a dynamic terminus's properties.
ROUTED_AS: Final = "x-opt-qd.address"
# The indexes of fields in a source or target. A coordinator's capabilities are its first field.
_NODE_PROPERTIES, _TARGETS_CAPABILITIES, _SOURCES_OUTCOMES, _SOURCES_CAPABILITIES = 5, 6, 9, 10
_FLOW: Final = 0x13
_ATTACH: Final = b"\x00\x53\x12"
_ATTACH_BYTES: Final = 8 + 3 + 9 + 5 + 5  # the bytes that are read of an Attach: it never has fewer
_LIST8, _STR8, _UINT0, _SMALL_UINT = 0xC0, 0xA1, 0x43, 0x52


class EngineError(Violation):
    """The peer sent something that cannot be decoded."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:decode-error", description)


def text_of(value: Pointer) -> str | None:
    if value == ffi.NULL:
        return None
    try:
        return bytes(ffi.string(value)).decode("utf-8")
    except UnicodeDecodeError:
        raise EngineError("a string is not valid UTF-8") from None


def value_of(encoded: bytes) -> Any:
    """Decodes a value that the peer wrote; None if it is empty.

    The engine is never asked for it, because it would make a node of 72 bytes for each null in it, and keep the nodes.
    """
    if not encoded:
        return None
    if len(encoded) > MAX_CONTROL_VALUE_BYTES:
        raise EngineError(f"a value of {len(encoded)} bytes is over the limit of {MAX_CONTROL_VALUE_BYTES}")
    try:
        value, _ = decode(encoded)
    except CodecError as error:
        raise EngineError(str(error)) from None
    return value


def check(status: int) -> None:
    """Checks that the engine had enough memory for a call. Errors: MemoryError, which ends the connection"""
    if status == _OUT_OF_MEMORY:
        raise MemoryError


def put_value(data: Pointer, value: object) -> None:
    put_encoded(data, encode(value))


def put_encoded(data: Pointer, encoded: bytes) -> None:
    """Writes like `put_value`, but a value that is already encoded."""
    lib.pn_data_clear(data)
    check(lib.pn_data_decode(data, encoded, len(encoded)))


def encoded_data(data: Pointer) -> bytes:
    """Returns the values in the engine's `data`, encoded. Errors: MemoryError"""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    room = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, room, size)
    check(written)
    return bytes(ffi.buffer(room, max(written, 0)))


def first_binary(data: Pointer) -> bytes | None:
    """Returns the first value of the list in the engine's `data`; None if that is no binary."""
    lib.pn_data_rewind(data)
    is_there = lib.pn_data_next(data) and lib.pn_data_enter(data) and lib.pn_data_next(data)
    if not is_there or lib.pn_data_type(data) != lib.PN_BINARY:
        return None
    found = lib.pn_data_get_binary(data)
    return bytes(ffi.buffer(found.start, found.size)) if found.size else b""


@lru_cache(maxsize=16)
def encoded_symbols(symbols: Array) -> bytes:
    """Encodes our own symbols, which are always the same."""
    return encode(symbols)


def symbols_of(encoded: bytes) -> tuple[str, ...]:
    """Returns the symbols of a capabilities field: one symbol or an array of them (AMQP 1.0 `multiple`)."""
    value = value_of(encoded)
    if value is None:
        return ()
    if isinstance(value, str):
        return (str(value),)
    if isinstance(value, (list, Array)):
        if len(value) > MAX_SYMBOLS:
            raise Violation(
                "amqp:resource-limit-exceeded", f"{len(value)} capabilities are over the limit of {MAX_SYMBOLS}"
            )
        return tuple(str(item) for item in value if isinstance(item, str))
    return ()


def condition_of(condition: Pointer) -> Condition | None:
    if not lib.pn_condition_is_set(condition):
        return None
    return Condition(
        name=text_of(lib.pn_condition_get_name(condition)) or "",
        description=text_of(lib.pn_condition_get_description(condition)) or "",
    )


def close_frame(condition: Condition) -> bytes:
    """Returns a Close with an error, for cases in which proton does not write it."""
    error = Described(ulong(0x1D), [symbol(condition.name), condition.description])
    body = encode(Described(ulong(0x18), [error]))
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def place_of_attach(output: memoryview) -> tuple[int, int] | None:
    """Returns channel and handle of the first Attach among our frames in `output`, which begins with a whole frame.

    None if there is no Attach. Proton chooses both, and they are visible only in the written frame.
    """
    at = 0
    while at + _ATTACH_BYTES <= len(output):
        if bytes(output[at + 8 : at + 11]) == _ATTACH:
            name = at + (14 if output[at + 11] == _LIST8 else 20)
            handle = name + (2 + output[name + 1] if output[name] == _STR8 else 5 + _be32(output, name + 1))
            channel = output[at + 6] << 8 | output[at + 7]
            if handle + 5 > len(output):
                return None
            code = output[handle]
            if code == _UINT0:
                return channel, 0
            return channel, output[handle + 1] if code == _SMALL_UINT else _be32(output, handle + 1)
        at += max(_be32(output, at), 8)
    return None


def _be32(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def drained_frame(session_flow: memoryview, handle: int, delivery_count: int) -> bytes | None:
    """Returns a Flow that tells a draining receiver that our link has no credit left.

    session_flow  the engine's own Flow of the link's session, whose windows are copied. Returns None if it is another
                  frame
    """
    try:
        flow, size = decode(bytes(session_flow[8:]))
    except CodecError:
        return None
    if not isinstance(flow, Described) or flow.descriptor != _FLOW or size != len(session_flow) - 8:
        return None
    link = [uint(handle), uint(delivery_count), uint(0), None, True]
    body = encode(Described(ulong(_FLOW), [*flow.value[:4], *link]))
    return (len(body) + 8).to_bytes(4, "big") + bytes(session_flow[4:8]) + body


def set_condition(target: Pointer, condition: Condition) -> None:
    lib.pn_condition_set_name(target, condition.name.encode())
    lib.pn_condition_set_description(target, condition.description.encode())


def put_terminus(pointer: Pointer, terminus: Terminus | None, kind: int) -> None:
    """Writes a source or target of our own.

    kind  PN_SOURCE or PN_TARGET, if the terminus is no coordinator
    """
    if terminus is None:
        lib.pn_terminus_set_type(pointer, lib.PN_UNSPECIFIED)
        return
    lib.pn_terminus_set_type(pointer, lib.PN_COORDINATOR if terminus.is_coordinator else kind)
    if terminus.address is not None:
        lib.pn_terminus_set_address(pointer, terminus.address.encode())
    lib.pn_terminus_set_dynamic(pointer, terminus.is_dynamic)
    lib.pn_terminus_set_durability(pointer, terminus.durability)
    lib.pn_terminus_set_expiry_policy(pointer, _EXPIRY_NUMBERS[terminus.expiry_policy])
    lib.pn_terminus_set_timeout(pointer, terminus.timeout_s)
    if terminus.distribution_mode is not None:
        lib.pn_terminus_set_distribution_mode(pointer, _DISTRIBUTION_NUMBERS[terminus.distribution_mode])
    if len(terminus.capabilities) == 1:
        # AMQP allows both forms. Routers recognise each other only by the bare symbol (network §4.1).
        put_value(lib.pn_terminus_capabilities(pointer), symbol(terminus.capabilities[0]))
    elif terminus.capabilities:
        put_value(lib.pn_terminus_capabilities(pointer), Array(symbol, tuple(map(symbol, terminus.capabilities))))


def terminus_of(pointer: Pointer, encoded: bytes, *, is_source: bool) -> Terminus | None:
    """Reads a terminus.

    encoded  the terminus as the peer wrote it, for fields with several values; empty if the peer wrote none
    """
    kind = _TERMINUS_KIND.get(lib.pn_terminus_get_type(pointer))
    is_coordinator = kind == "coordinator"
    index = _SOURCES_CAPABILITIES if is_source else 0 if is_coordinator else _TARGETS_CAPABILITIES
    capabilities = symbols_of(field_of(encoded, index))
    if kind is None:
        # proton treats a source without an address as null. Those of routers have a capability.
        return Terminus(capabilities=capabilities) if capabilities else None
    is_dynamic = bool(lib.pn_terminus_is_dynamic(pointer))
    return Terminus(
        is_coordinator=is_coordinator,
        address=text_of(lib.pn_terminus_get_address(pointer)) or None,
        is_dynamic=is_dynamic,
        durability=lib.pn_terminus_get_durability(pointer),
        expiry_policy=_EXPIRY.get(lib.pn_terminus_get_expiry_policy(pointer), "session-end"),
        timeout_s=lib.pn_terminus_get_timeout(pointer),
        distribution_mode=_DISTRIBUTION.get(lib.pn_terminus_get_distribution_mode(pointer)),
        capabilities=capabilities,
        routed_as=_routed_as(node_properties_of(encoded)) if is_dynamic else None,
    )


def node_properties_of(terminus: bytes) -> bytes:
    """Returns the dynamic-node-properties of an encoded source or target; empty if it has none."""
    return field_of(terminus, _NODE_PROPERTIES)


def outcomes_of(source: bytes) -> bytes:
    """Returns the outcomes of an encoded source; empty if it names none."""
    return field_of(source, _SOURCES_OUTCOMES)


def _routed_as(encoded: bytes) -> str | None:
    """Returns the value for Terminus.routed_as. Unreadable properties count as absent."""
    try:
        properties = value_of(encoded)
    except EngineError:
        return None
    key, value = next(iter(properties.items()), (None, None)) if isinstance(properties, dict) else (None, None)
    is_said = isinstance(key, symbol) and key == ROUTED_AS and isinstance(value, str) and not isinstance(value, symbol)
    return str(value) if is_said else None


def put_routed_as(terminus: Pointer, node_properties: bytes, address: str) -> None:
    """Replaces the address for link route lookups in the properties of a terminus that has one."""
    put_value(lib.pn_terminus_properties(terminus), {**value_of(node_properties), symbol(ROUTED_AS): address})
