"""One connection to an LDAP server: simple bind, search, StartTLS. Blocking, with limits of time and bytes.

ldap3 encodes and decodes. Its own connections are not used: they wait forever for an answer that arrives byte by byte,
hold any number of bytes, keep passwords in their attributes and follow referrals.
Sources: RFC 4511, RFC 2696 (pages).
"""

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from ldap3 import ANONYMOUS, SIMPLE
from ldap3.core.exceptions import LDAPExceptionError
from ldap3.operation.bind import bind_operation
from ldap3.operation.extended import extended_operation
from ldap3.operation.search import search_operation
from ldap3.operation.unbind import unbind_operation
from ldap3.protocol.convert import build_controls_list
from ldap3.protocol.rfc2696 import paged_search_control
from ldap3.protocol.rfc4511 import LDAPMessage, MessageID, ProtocolOp
from ldap3.strategy.base import BaseStrategy
from ldap3.utils.asn1 import decode_message_fast, decode_sequence, encode

from auth.secrets import Secret
from auth.tls import failure_text

# Of all messages of one answer. Stops a server from filling the memory.
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
# Entries of one search, over all pages.
MAX_ENTRIES: Final = 5_000
# Active Directory returns at most 1,000 at a time.
PAGE_ENTRIES: Final = 500
# Of a host name: with more, the time for each would be too short.
MAX_ADDRESSES: Final = 4

SUCCESS: Final = 0
NO_SUCH_OBJECT: Final = 32
INVALID_DN: Final = 34
# The results of a search for a value that the attribute cannot have.
CANNOT_MATCH: Final = frozenset((18, 21, INVALID_DN))

BASE, SUBTREE = "BASE", "SUBTREE"

_START_TLS: Final = "1.3.6.1.4.1.1466.20037"
_PAGES: Final = b"1.2.840.113556.1.4.319"
_NEVER: Final = "NEVER"  # aliases are not followed: an entry counts only at its own place
_READ_BYTES: Final = 64 * 1024

# Tags of the answers.
_BIND, _ENTRY, _DONE, _EXTENDED = 1, 4, 5, 24
# The exceptions of ldap3's codec for bytes that are not LDAP.
_UNREADABLE: Final = (
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
    LDAPExceptionError,
)
# Limits of the server, which are not faults: of time, of entries, of its administrator.
_LIMITS: Final = frozenset((3, 4, 11))


class LdapError(Exception):
    """A question cannot be answered. The text is for the log and contains nothing that a client wrote."""


class ServerFault(LdapError):
    """The server cannot be used now; another may be usable.

    is_lost  the server has ended the connection, which it may do with an idle one
    """

    def __init__(self, text: str, *, is_lost: bool = False) -> None:
        super().__init__(text)
        self.is_lost = is_lost


class FilterError(ValueError):
    """The text is not a filter of RFC 4515."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address of a server.

    is_tls  TLS from the first byte on (ldaps)
    """

    host: str
    port: int
    is_tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ldaps' if self.is_tls else 'ldap'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the directory.

    dn      as the server writes it
    values  attribute in lower case → its values
    """

    dn: str
    values: Mapping[str, tuple[bytes, ...]]

    def texts(self, attribute: str) -> Iterator[str]:
        """Yields the values that are UTF-8."""
        for value in self.values.get(attribute.lower(), ()):
            with suppress(UnicodeDecodeError):
                yield value.decode("utf-8")


def check_filter(text: str) -> None:
    """Parses a filter. Errors: FilterError."""
    try:
        search_operation("", text, BASE, _NEVER, ["1.1"], 0, 0, False, False, False)
    except _UNREADABLE:
        raise FilterError(text) from None


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of a question.

    answer_s  seconds for one answer, and for the connection
    ends_at   of the whole question, monotonic seconds
    """

    answer_s: float
    ends_at: float


@dataclass(slots=True)
class _Course:
    """The limits of one answer that is being received: ends_at in monotonic seconds."""

    limits: Limits
    ends_at: float
    bytes_left: int = MAX_ANSWER_BYTES


class LdapConnection:
    """A connection that one thread uses at a time. Any thread may call `abort`."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._socket: socket.socket | None = None
        self._unread = b""
        self._next_id = 0
        self._is_aborted = False

    def open(self, limits: Limits, tls: Callable[[], ssl.SSLContext] | None) -> None:
        """Connects, and begins TLS: at once, or by StartTLS.

        tls     None: unencrypted
        Errors  ServerFault.
        """
        ends_at = min(time.monotonic() + limits.answer_s, limits.ends_at)
        try:
            self._connect(ends_at)
            if tls is not None:
                context = tls()
                if not self.address.is_tls:
                    self._start_tls(limits)
                self._shake_hands(context, ends_at)
        except (ssl.SSLError, ssl.CertificateError) as fault:
            self.close()
            raise ServerFault(f"{self.address}: TLS: {failure_text(fault)}") from None
        except TimeoutError:
            self.close()
            raise ServerFault(f"{self.address}: no connection within {limits.answer_s:g} s") from None
        except (OSError, ValueError) as fault:
            self.close()
            raise ServerFault(f"{self.address}: {getattr(fault, 'strerror', None) or fault}") from None
        except LdapError:
            self.close()
            raise

    @property
    def is_idle(self) -> bool:
        """Returns whether it is open and nothing has arrived since the last answer.

        A closed connection counts as an arrival.
        """
        if self._socket is None or self._unread:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def bind(self, dn: str, password: Secret, limits: Limits) -> int:
        """Binds and returns the result code. The password must not be empty. Errors: LdapError."""
        secret = password.reveal().encode("utf-8")
        if not dn or not secret:
            raise LdapError("a bind without name or password would be anonymous")
        # Bytes are sent unchanged; ldap3 would normalise a text.
        return self._bind(bind_operation(3, SIMPLE, dn, secret), limits)

    def bind_anonymously(self, limits: Limits) -> int:
        """Binds anonymously and returns the result code. Errors: LdapError."""
        return self._bind(bind_operation(3, ANONYMOUS), limits)

    def search(
        self,
        base: str,
        scope: str,
        condition: str,
        attributes: Sequence[str],
        limits: Limits,
        *,
        nothing: frozenset[int] = frozenset(),
    ) -> list[Entry]:
        """Returns the entries of all pages. Entries on other servers (referrals, references) are left out.

        condition  a filter of RFC 4515
        nothing    result codes that mean that there are none
        Errors     LdapError, also for more than MAX_ENTRIES.
        """
        found: list[Entry] = []
        cookie = b""
        while True:
            request = search_operation(
                base, condition, scope, _NEVER, list(attributes), 0, 0, False, False, False, None, None, False
            )
            control = paged_search_control(False, PAGE_ENTRIES, cookie or None)
            pages = [control] if scope == SUBTREE else None
            code, cookie = self._read_page(self._send("searchRequest", request, pages), found, limits)
            if code in nothing:
                return []
            if code != SUCCESS:
                raise self._refusal("search", code)
            if len(found) > MAX_ENTRIES:
                raise LdapError(f"{self.address}: more than {MAX_ENTRIES} entries found")
            if not cookie:
                return found

    def close(self) -> None:
        """Sends an unbind, if that is possible at once, and closes."""
        found, self._socket = self._socket, None
        if found is None:
            return
        with suppress(OSError, ValueError):
            found.setblocking(False)
            found.send(_message(self._next_id + 1, "unbindRequest", unbind_operation()))
        with suppress(OSError):
            found.close()

    def abort(self) -> None:
        """Wakes up the thread that waits for this server."""
        self._is_aborted = True
        found = self._socket
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    # Connecting

    def _connect(self, ends_at: float) -> None:
        addresses = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)[:MAX_ADDRESSES]
        fault: OSError = TimeoutError()
        for tried, (family, kind, protocol, _, place) in enumerate(addresses):
            left_s = ends_at - time.monotonic()
            if left_s <= 0 or self._is_aborted:
                break
            attempt = socket.socket(family, kind, protocol)
            self._socket = attempt
            try:
                attempt.settimeout(left_s / (len(addresses) - tried))
                attempt.connect(place)
            except OSError as error:
                fault = error
                attempt.close()
                self._socket = None
            else:
                attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
        raise fault

    def _start_tls(self, limits: Limits) -> None:
        code = self._result(self._send("extendedReq", extended_operation(_START_TLS)), _EXTENDED, limits)
        if code != SUCCESS:
            raise self._refusal("StartTLS", code)
        # Attack: a man in the middle appends unencrypted answers, to be taken for answers inside TLS.
        if self._unread:
            raise ServerFault(f"{self.address}: more than the answer to StartTLS before TLS")

    def _shake_hands(self, context: ssl.SSLContext, ends_at: float) -> None:
        plain = self._open_socket()
        plain.settimeout(max(ends_at - time.monotonic(), 0.001))
        inside = context.wrap_socket(plain, server_hostname=self.address.host, do_handshake_on_connect=False)
        self._socket = inside
        inside.do_handshake()

    # Messages

    def _bind(self, request: Any, limits: Limits) -> int:
        return self._result(self._send("bindRequest", request), _BIND, limits)

    def _send(self, kind: str, request: Any, controls: list[Any] | None = None) -> int:
        self._next_id += 1
        try:
            self._open_socket().sendall(_message(self._next_id, kind, request, controls))
        except OSError as fault:
            raise ServerFault(f"{self.address}: {fault.strerror or 'lost'}", is_lost=True) from None
        return self._next_id

    def _result(self, message_id: int, kind: int, limits: Limits) -> int:
        with self._decoding():
            tag, payload, _ = self._answer(message_id, self._start(limits))
            if tag == kind:
                return int(payload[0][3])
        raise ServerFault(f"{self.address}: an answer to something else")

    def _read_page(self, message_id: int, found: list[Entry], limits: Limits) -> tuple[int, bytes]:
        """Reads one page. Returns the result code and the cookie for the next page, b"" after the last."""
        course = self._start(limits)
        with self._decoding():
            while True:
                tag, payload, controls = self._answer(message_id, course)
                if tag == _ENTRY:
                    found.append(_entry(payload))
                elif tag == _DONE:
                    return int(payload[0][3]), _cookie(controls)

    def _start(self, limits: Limits) -> "_Course":
        return _Course(limits=limits, ends_at=time.monotonic() + limits.answer_s)

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Turns any exception of the codec into a fault of the server."""
        try:
            yield
        except _UNREADABLE:
            raise ServerFault(f"{self.address}: an answer that is no LDAP") from None

    def _answer(self, message_id: int, course: "_Course") -> tuple[int, Any, Any]:
        """Returns the next message: tag, payload, controls. Errors: LdapError, and the exceptions of the codec."""
        message = decode_message_fast(self._read_message(course))
        number = message["messageID"]
        if number != message_id:
            # Number 0: the server announces that it will close.
            raise ServerFault(f"{self.address}: an answer that nobody asked for", is_lost=number == 0)
        return int(message["protocolOp"]), message["payload"], message["controls"]

    def _read_message(self, course: "_Course") -> bytes:
        held = bytearray(self._unread)
        self._unread = b""
        while True:
            wanted = int(BaseStrategy.compute_ldap_message_size(held[:16]))
            if max(wanted, len(held)) > course.bytes_left:
                raise LdapError(f"{self.address}: an answer of more than {MAX_ANSWER_BYTES} bytes")
            if 0 < wanted <= len(held):
                course.bytes_left -= wanted
                self._unread = bytes(held[wanted:])
                return bytes(held[:wanted])
            held += self._receive(course)

    def _receive(self, course: "_Course") -> bytes:
        limits, now = course.limits, time.monotonic()
        left_s = min(course.ends_at, limits.ends_at) - now
        try:
            if left_s <= 0:
                raise TimeoutError
            found = self._open_socket()
            found.settimeout(left_s)
            piece = found.recv(_READ_BYTES)
        except TimeoutError:
            if limits.ends_at <= course.ends_at:
                raise LdapError(f"{self.address}: the question took too long") from None
            raise ServerFault(f"{self.address}: no answer within {limits.answer_s:g} s") from None
        except OSError as fault:
            raise ServerFault(f"{self.address}: {fault.strerror or 'lost'}", is_lost=True) from None
        if not piece:
            raise ServerFault(f"{self.address}: closed the connection", is_lost=True)
        return piece

    def _open_socket(self) -> socket.socket:
        if self._socket is None or self._is_aborted:
            raise ServerFault(f"{self.address}: the connection is closed")
        return self._socket

    def _refusal(self, what: str, code: int) -> LdapError:
        kind = LdapError if code in _LIMITS else ServerFault
        return kind(f"{self.address}: {what} refused with LDAP result {code}")


def _message(number: int, kind: str, request: Any, controls: list[Any] | None = None) -> bytes:
    message = LDAPMessage()
    message["messageID"] = MessageID(number)
    message["protocolOp"] = ProtocolOp().setComponentByName(kind, request)
    if controls:
        message["controls"] = build_controls_list(controls)
    return bytes(encode(message))


def _entry(payload: Any) -> Entry:
    try:
        dn = payload[0][3].decode("utf-8")
    except UnicodeDecodeError:
        # Not a fault of the server: a user who can create an entry must not make the server count as failed.
        raise LdapError("an entry whose name is no UTF-8") from None
    attributes = ((each[3][0][3], each[3][1][3]) for each in payload[1][3])
    return Entry(
        dn=dn,
        values={
            bytes(name).decode("ascii").lower(): tuple(bytes(value[3]) for value in values)
            for name, values in attributes
        },
    )


def _cookie(controls: Any) -> bytes:
    for control in controls or ():
        parts = control[3]
        if bytes(parts[0][3]) == _PAGES:
            value = bytes(parts[-1][3])
            return bytes(decode_sequence(value, 0, len(value))[0][3][1][3])
    return b""
