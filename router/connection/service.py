"""The router's side of one connection to an authentication service: TLS, SASL frames, one Open each way. Sans-IO.

Bytes go in with `receive` and leave through `write`. Whatever the service sends, the asker gets an answer or a failure.
Source: docs/spec/policy-and-auth.md §9.2, §9.3, §9.5.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from auth import sasl_frames
from auth.credentials import MAX_USER_BYTES
from auth.identity import Grants
from auth.relay import Voucher
from auth.sasl_frames import FrameReader, SaslFrameError
from auth.tls import TlsFailure, TlsTunnel
from router.amqp import headers
from router.amqp.codec import CodecError, encode
from router.amqp.decoding import decode_counted
from router.values import Array, Described, symbol, uint, ulong, ushort

AUTHZ: Final = "ADDRESS-AUTHZ"
IDENTITY_KEY: Final = "authenticated-identity"
AUTHZ_KEY: Final = "address-authz"
GROUPS_KEY: Final = "groups"

# Values in the Open that services of the C router have always received.
_MAX_FRAME_BYTES: Final = 32768
_CHANNEL_MAX: Final = 32767

# Limits on what the router holds and decodes after the outcome. Attack: a service that has been taken over; also a
# wrong port. A user in 500 groups with names from a directory takes 50 KiB.
MAX_OPEN_BYTES: Final = 128 * 1024
MAX_OPEN_VALUES: Final = 8192
# Limits for one user: each group is compared with rules, or compiled, at every connection, and is part of audit events.
MAX_GROUPS: Final = 1024
MAX_NAME_BYTES: Final = 1024
MAX_GRANTED: Final = 1024
MAX_GRANTED_BYTES: Final = 32 * 1024

_FRAME: Final = struct.Struct(">IBBH")
_OPEN, _CLOSE, _ERROR = 0x10, 0x18, 0x1D
_DESCRIPTORS: Final = {"amqp:open:list": _OPEN, "amqp:close:list": _CLOSE}
_PROPERTIES: Final = 9  # the index of the properties in the fields of an Open


class Asker(Protocol):
    """Receives what the service says: each call is one step; `vouched`, `refused` or `failed` is the last one.

    code  of a sasl-outcome, not 0
    why   for the log
    """

    def offered(self, names: tuple[str, ...]) -> None: ...
    def challenged(self, data: bytes) -> None: ...
    def refused(self, code: int) -> None: ...
    def vouched(self, voucher: Voucher) -> None: ...
    def failed(self, why: str) -> None: ...


class ServiceFault(ValueError):
    """The service sent something unusable. The text is for the log, and contains nothing unprintable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTerms:
    """Terms for the Open and for TLS.

    hostname  hostname of the service in the Open; None: absent
    product, version  name and version of this router
    tunnel    makes a TLS tunnel to the service; raises auth.tls.TlsProfileError. None: no TLS
    """

    hostname: str | None
    product: str
    version: str
    tunnel: Callable[[], TlsTunnel] | None = None


class _State(Enum):
    TLS = auto()
    SASL_HEADER = auto()
    SASL = auto()
    AMQP_HEADER = auto()
    OPEN = auto()
    OVER = auto()


class ServiceConnection:
    """One connection, from its first byte to the service's Open."""

    def __init__(self, terms: ServiceTerms, asker: Asker, write: Callable[[bytes], None]) -> None:
        """write  hands bytes to the socket"""
        self._terms = terms
        self._asker = asker
        self._write_below = write
        self._tunnel: TlsTunnel | None = None
        self._reader = FrameReader()
        self._state = _State.SASL_HEADER
        self._pending = bytearray()  # bytes of headers and AMQP frames
        self._amqp_bytes = 0

    def start(self) -> None:
        """Begins after the socket is connected. Errors: auth.tls.TlsProfileError."""
        if self._terms.tunnel is None:
            self._write(headers.SASL)
            return
        self._state = _State.TLS
        self._tunnel = self._terms.tunnel()
        self._tunnel.start()
        self._write_below(self._tunnel.take_output())

    def send(self, frame: sasl_frames.Init | sasl_frames.Response) -> None:
        """Sends the client's next SASL frame."""
        if self._state is not _State.SASL:
            return
        try:
            self._write(sasl_frames.encode(frame, sasl_frames.MAX_RECEIVED_FRAME_BYTES))
        except (SaslFrameError, TlsFailure) as fault:
            self._fail(str(fault))

    def receive(self, data: bytes) -> None:
        """Takes bytes from the socket."""
        if self._state is _State.OVER:
            return
        try:
            if self._tunnel is not None:
                data = self._through(self._tunnel, data)
            self._take(data)
        except (ServiceFault, SaslFrameError, TlsFailure) as fault:
            what = "SSL Failure: " if isinstance(fault, TlsFailure) else ""
            self._fail(f"{what}{fault}")

    def lost(self, why: str) -> None:
        """Called when the socket is closed, or when the service did not answer in time."""
        self._fail(why)

    def stop(self) -> None:
        """Stops, because no caller waits for an answer any more."""
        self._state = _State.OVER
        if self._tunnel is not None:
            self._tunnel.discard()

    # Bytes

    def _write(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.send(data)
            data = self._tunnel.take_output()
        self._write_below(data)

    def _through(self, tunnel: TlsTunnel, data: bytes) -> bytes:
        try:
            plaintext = tunnel.receive(data)
        finally:
            if output := tunnel.take_output():
                self._write_below(output)
        if self._state is _State.TLS and tunnel.is_established:
            self._state = _State.SASL_HEADER
            self._write(headers.SASL)
        return plaintext

    def _take(self, data: bytes) -> None:
        """Takes plaintext from the service. Errors: ServiceFault, SaslFrameError."""
        if self._state is _State.SASL_HEADER:
            self._pending += data
            if not self._has_header(headers.SASL, "SASL"):
                return
            data = bytes(self._pending)
            self._pending.clear()
            self._state = _State.SASL
        if self._state is _State.SASL:
            self._reader.feed(data)
            self._take_sasl()
            return
        if self._state in (_State.AMQP_HEADER, _State.OPEN):
            self._take_amqp(data)

    def _take_sasl(self) -> None:
        while self._state is _State.SASL and (frame := self._reader.next_frame()) is not None:
            match frame:
                case sasl_frames.Mechanisms(names=names):
                    self._asker.offered(names)
                case sasl_frames.Challenge(challenge=data):
                    self._asker.challenged(data)
                case sasl_frames.Outcome(code=sasl_frames.OUTCOME_OK):
                    self._state = _State.AMQP_HEADER
                    self._write(headers.AMQP + self._open())
                    self._take_amqp(self._reader.take_rest())
                case sasl_frames.Outcome(code=code):
                    self._state = _State.OVER
                    self._asker.refused(code)
                case _:
                    raise ServiceFault(f"it sent a SASL frame of a client: {type(frame).__name__.lower()}")

    def _has_header(self, wanted: bytes, name: str) -> bool:
        """Takes the wanted header out, and returns True, once it is complete.

        Errors: ServiceFault if another header comes.
        """
        found = bytes(self._pending[: headers.HEADER_BYTES])
        if not wanted.startswith(found):
            raise ServiceFault(f"expected its {name} protocol header, and it sent something else")
        if len(found) < headers.HEADER_BYTES:
            return False
        del self._pending[: headers.HEADER_BYTES]
        return True

    # AMQP

    def _open(self) -> bytes:
        properties = {symbol("product"): self._terms.product, symbol("version"): self._terms.version}
        sizes = (uint(_MAX_FRAME_BYTES), ushort(_CHANNEL_MAX))
        desired = Array(symbol, (symbol(AUTHZ),))
        fields = ["", self._terms.hostname, *sizes, None, None, None, None, desired, properties]
        body = encode(Described(ulong(_OPEN), fields))
        return _FRAME.pack(_FRAME.size + len(body), 2, 0, 0) + body

    def _take_amqp(self, data: bytes) -> None:
        self._amqp_bytes += len(data)
        if self._amqp_bytes > MAX_OPEN_BYTES:
            raise ServiceFault(f"it sent more than {MAX_OPEN_BYTES} bytes in the place of its Open")
        self._pending += data
        if self._state is _State.AMQP_HEADER:
            if not self._has_header(headers.AMQP, "AMQP"):
                return
            self._state = _State.OPEN
        opened: list[Any] | None = None
        while (frame := self._next_frame()) is not None:
            code, fields = frame
            if code == _CLOSE:
                # An Open followed by a Close is a refusal if the Close has an error (our own policy sends one).
                error = _error_of(fields)
                if opened is None or error:
                    raise ServiceFault(f"it closed the connection: {error or 'it does not say why'}")
                break
            if opened is not None or code != _OPEN:
                raise ServiceFault("it sent another frame in the place of its Open")
            opened = fields
        if opened is not None:
            voucher = _voucher_of(opened)
            self._state = _State.OVER
            self._asker.vouched(voucher)

    def _next_frame(self) -> tuple[int, list[Any]] | None:
        """Returns code and fields of the next frame; None if the frame is incomplete. Errors: ServiceFault."""
        while len(self._pending) >= _FRAME.size:
            size, offset, kind, _ = _FRAME.unpack_from(self._pending)
            if kind != 0 or not _FRAME.size <= offset * 4 <= size or size > MAX_OPEN_BYTES:
                raise ServiceFault(f"it sent a frame of {size} bytes, type {kind}, in the place of its Open")
            if len(self._pending) < size:
                return None
            body = bytes(self._pending[offset * 4 : size])
            del self._pending[:size]
            if body:
                return _performative(body)
        return None

    def _fail(self, why: str) -> None:
        if self._state is not _State.OVER:
            self._state = _State.OVER
            self._asker.failed(why)


def _performative(body: bytes) -> tuple[int, list[Any]]:
    try:
        found, _, _ = decode_counted(body, 0, MAX_OPEN_VALUES)
    except CodecError as fault:
        raise ServiceFault(f"it sent a malformed frame: {fault}") from None
    code = found.descriptor if isinstance(found, Described) else None
    code = _DESCRIPTORS.get(code) if isinstance(code, symbol) else code
    if not isinstance(code, int) or not isinstance(found.value, list):
        raise ServiceFault("it sent a frame that holds no AMQP performative")
    return int(code), found.value


def _error_of(fields: list[Any]) -> str:
    """Returns condition and description of a Close's error; "" if it has none."""
    error = fields[0] if fields else None
    if not isinstance(error, Described) or not isinstance(error.value, list):
        return ""
    words = [word for word in error.value[:2] if isinstance(word, str)]
    return " ".join(words) if all(word.isprintable() for word in words) else "for an unprintable reason"


def _voucher_of(fields: list[Any]) -> Voucher:
    """Returns what the service's Open says about the user.

    Errors: ServiceFault if the name, the groups or the map of rights cannot be used. Unclear permissions give no right.
    """
    properties = fields[_PROPERTIES] if len(fields) > _PROPERTIES else None
    if not isinstance(properties, Mapping):
        return Voucher()
    identity = properties.get(IDENTITY_KEY)
    user = identity.get("sub") if isinstance(identity, Mapping) else None
    return Voucher(
        user=_name(user, "user", MAX_USER_BYTES) if isinstance(user, str) and _is_string(user) else "",
        groups=_groups_of(properties.get(GROUPS_KEY)),
        grants=_grants_of(properties[AUTHZ_KEY]) if AUTHZ_KEY in properties else None,
    )


def _is_string(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, symbol)


def _name(text: str, what: str, max_bytes: int) -> str:
    # A name with line breaks or terminal escapes would forge log lines and audit reports.
    if not text.isprintable() or len(text.encode()) > max_bytes:
        raise ServiceFault(f"it gave the {what} a name that is not printable or longer than {max_bytes} bytes")
    return text


def _groups_of(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, Array | list) or not all(isinstance(each, str) for each in value):
        raise ServiceFault(f"its {GROUPS_KEY} are no array of strings")
    if len(value) > MAX_GROUPS:
        raise ServiceFault(f"it gave the user {len(value)} groups, at most {MAX_GROUPS} are taken")
    return tuple(dict.fromkeys(_name(str(each), "group", MAX_NAME_BYTES) for each in value))


def _grants_of(value: object) -> Grants:
    """Returns the rights in the map of §9.6. Permissions that are not arrays of strings give no right."""
    if not isinstance(value, Mapping):
        raise ServiceFault(f"its {AUTHZ_KEY} is no map")
    if len(value) > MAX_GRANTED or sum(len(str(key).encode()) for key in value) > MAX_GRANTED_BYTES:
        raise ServiceFault(f"its {AUTHZ_KEY} has more than {MAX_GRANTED} addresses or {MAX_GRANTED_BYTES} bytes")
    granted: dict[str, list[str]] = {"send": [], "recv": []}
    for address, permissions in value.items():
        if not _is_string(address) or not isinstance(permissions, Array) or permissions.descriptor is not None:
            continue
        for permission in dict.fromkeys(each for each in permissions if _is_string(each)):
            if permission in granted:
                granted[permission].append(address)
    return Grants(sources=tuple(granted["recv"]), targets=tuple(granted["send"]))
