"""What is said to an LDAP server, byte by byte, and what its answers may be: RFC 4511, RFC 2696."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from free_ports import free_port

from auth.secrets import Secret
from auth.tls import client_context
from auth.verifiers import ldap_wire
from auth.verifiers.ldap_settings import escape
from auth.verifiers.ldap_wire import (
    BASE,
    SUBTREE,
    Entry,
    FilterError,
    LdapConnection,
    LdapError,
    Limits,
    ServerAddress,
    ServerFault,
    check_filter,
)

ADDRESS = ServerAddress(host="a.example", port=636, is_tls=True)
START_TLS, PAGES = b"1.3.6.1.4.1.1466.20037", b"1.2.840.113556.1.4.319"
SUCCESS = 0

# Tags of BER, as far as LDAP has them here.
SEQUENCE, INTEGER, ENUMERATED, OCTETS, BOOLEAN = 0x30, 0x02, 0x0A, 0x04, 0x01
BOUND, ENTRY, DONE, REFERENCE, EXTENDED = 0x61, 0x64, 0x65, 0x73, 0x78


def tlv(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    length = bytes([len(body)]) if len(body) < 128 else b"\x82" + struct.pack("!H", len(body))
    return bytes([tag]) + length + body


def message(number: int, operation: bytes, *controls: bytes) -> bytes:
    more = (tlv(0xA0, *controls),) if controls else ()
    return tlv(SEQUENCE, tlv(INTEGER, bytes([number])), operation, *more)


def result(kind: int, code: int = SUCCESS) -> bytes:
    return tlv(kind, tlv(ENUMERATED, bytes([code])), tlv(OCTETS), tlv(OCTETS))


def entry(dn: bytes, **values: tuple[bytes, ...]) -> bytes:
    listed = (
        tlv(SEQUENCE, tlv(OCTETS, name.encode()), tlv(0x31, *(tlv(OCTETS, each) for each in found)))
        for name, found in values.items()
    )
    return tlv(ENTRY, tlv(OCTETS, dn), tlv(SEQUENCE, *listed))


def cookie(text: bytes, kind: bytes = PAGES, is_critical: bytes = b"") -> bytes:
    value = tlv(OCTETS, tlv(SEQUENCE, tlv(INTEGER, b"\0"), tlv(OCTETS, text)))
    return tlv(SEQUENCE, tlv(OCTETS, kind), tlv(BOOLEAN, is_critical) if is_critical else b"", value)


Tree = list[tuple[int, Any]]


def parsed(data: bytes) -> Tree:
    """(tag, content): for what is constructed again such a list, else bytes."""
    found: Tree = []
    while data:
        tag, size, start = data[0], data[1], 2
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(data[2:start])
        body = data[start : start + size]
        assert len(body) == size
        found.append((tag, parsed(body) if tag & 0x20 else body))
        data = data[start + size :]
    return found


class Server:
    """The far end of a connection; what it answers is there before it is asked."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        self.connection = LdapConnection(ADDRESS)
        self.connection._socket = near
        self.limits = Limits(5.0, time.monotonic() + 5)

    def says(self, *answers: bytes) -> None:
        self.far.sendall(b"".join(answers))

    def was_told(self) -> Tree:
        """The messages that came, without those that come later."""
        self.far.settimeout(5)
        data = b""
        self.far.setblocking(False)
        try:
            while piece := self.far.recv(65536):
                data += piece
        except BlockingIOError:
            pass
        return parsed(data)

    def search(self, scope: str = SUBTREE, **options: Any) -> list[Entry]:
        return self.connection.search("ou=people", scope, "(uid=alice)", ("uid", "cn"), self.limits, **options)

    def bind(self, dn: str = "cn=x", password: str = "sesame") -> int:
        return self.connection.bind(dn, Secret(password), self.limits)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.connection.close()
    made.far.close()


def fault_of(ask: Callable[[], object], kind: type[LdapError] = ServerFault) -> LdapError:
    with pytest.raises(LdapError) as caught:
        ask()
    assert type(caught.value) is kind
    return caught.value


def said(what: str) -> str:
    return f"ldaps://a.example:636: {what}"


# Binds


@pytest.mark.parametrize("code", [0, 49, 53])
def test_a_bind_is_simple_and_sends_the_password_as_it_is(server: Server, code: int) -> None:
    """Unicode that looks like other letters is not made into them: the directory compares, and not we."""
    server.says(message(1, result(BOUND, code)))
    assert server.bind("uid=älice", "\uff41\u00a0ß") == code
    request = [(INTEGER, b"\3"), (OCTETS, "uid=älice".encode()), (0x80, "\uff41\u00a0ß".encode())]
    assert server.was_told() == [(SEQUENCE, [(INTEGER, b"\1"), (0x60, request)])]


def test_an_anonymous_bind_has_no_name_and_no_password(server: Server) -> None:
    server.says(message(1, result(BOUND, 48)))
    assert server.connection.bind_anonymously(server.limits) == 48
    assert server.was_told() == [(SEQUENCE, [(INTEGER, b"\1"), (0x60, [(INTEGER, b"\3"), (OCTETS, b""), (0x80, b"")])])]


@pytest.mark.parametrize(("dn", "password"), [("", "sesame"), ("cn=x", ""), ("", "")])
def test_a_bind_that_would_be_anonymous_is_not_sent(server: Server, dn: str, password: str) -> None:
    """Attack: it would succeed."""
    fault = fault_of(lambda: server.bind(dn, password), LdapError)
    assert str(fault) == "a bind without name or password would be anonymous"
    assert server.was_told() == []


def test_questions_are_numbered(server: Server) -> None:
    server.says(message(1, result(BOUND)), message(2, result(BOUND, 49)), message(3, result(DONE)))
    assert [server.bind(), server.bind(), server.search()] == [0, 49, []]
    assert [number for _, ((_, number), *_) in server.was_told()] == [b"\1", b"\2", b"\3"]


# Searches


def test_a_search_asks_for_what_it_is_told_to(server: Server) -> None:
    server.says(message(1, entry(b"uid=alice", UID=(b"alice", b"\xff"), cn=())), message(1, result(DONE)))
    (found,) = server.search(BASE)
    assert found == Entry(dn="uid=alice", values={"uid": (b"alice", b"\xff"), "cn": ()})
    assert list(found.texts("uId")) == ["alice"], "what is no text is left out"
    assert list(found.texts("mail")) == []
    ((_, (_, (tag, request))),) = server.was_told()
    assert tag == 0x63
    base, scope, aliases, entries, seconds, names_only, condition, attributes = request
    assert (base, scope, aliases) == ((OCTETS, b"ou=people"), (ENUMERATED, b"\0"), (ENUMERATED, b"\0"))
    assert (entries, seconds, names_only) == ((INTEGER, b"\0"), (INTEGER, b"\0"), (BOOLEAN, b"\0"))
    assert condition == (0xA3, [(OCTETS, b"uid"), (OCTETS, b"alice")])
    assert attributes == (SEQUENCE, [(OCTETS, b"uid"), (OCTETS, b"cn")])


@pytest.mark.parametrize("name", ["*", "(", ")", "\\", "\\2a", "a*", "é", "\0", " a ", "#x", "\uff41"])
def test_a_name_goes_to_the_server_as_its_bytes(server: Server, name: str) -> None:
    """Attack: a name that is a pattern, or a condition of its own."""
    server.says(message(1, result(DONE)))
    server.connection.search("", BASE, f"(&(a=b)(uid={escape(name)}))", ("uid",), server.limits)
    ((_, (_, (_, request))),) = server.was_told()
    assert request[6] == (0xA0, [
        (0xA3, [(OCTETS, b"a"), (OCTETS, b"b")]), (0xA3, [(OCTETS, b"uid"), (OCTETS, name.encode())])
    ])  # fmt: skip


def test_the_entries_of_all_pages_are_found(server: Server) -> None:
    server.says(
        message(1, entry(b"cn=1")),
        message(1, result(DONE), cookie(b"x", b"1.2.3"), cookie(b"more")),
        message(2, entry(b"cn=2")),
        message(2, entry(b"cn=3")),
        message(2, result(DONE), cookie(b"most", is_critical=b"\0")),
        message(3, result(DONE), cookie(b"")),
    )
    assert [each.dn for each in server.search()] == ["cn=1", "cn=2", "cn=3"]
    told = server.was_told()
    assert len(told) == 3
    for (_, (_, (_, request), controls)), sent in zip(told, (b"", b"more", b"most"), strict=True):
        assert request[1] == (ENUMERATED, b"\2")
        size_and_cookie = tlv(SEQUENCE, tlv(INTEGER, struct.pack("!H", 500)), tlv(OCTETS, sent))
        ((_, control),) = controls[1]
        assert control[0] == (OCTETS, PAGES)
        assert control[-1] == (OCTETS, size_and_cookie)
        assert (BOOLEAN, b"\xff") not in control, "a server without pages may answer all the same"


def test_what_is_on_other_servers_is_left_out(server: Server) -> None:
    server.says(
        message(1, tlv(REFERENCE, tlv(OCTETS, b"ldap://evil.example/"))),
        message(1, entry(b"cn=1")),
        message(1, result(DONE)),
    )
    assert [each.dn for each in server.search()] == ["cn=1"]


def test_codes_that_mean_nothing_was_found(server: Server) -> None:
    server.says(message(1, entry(b"cn=1")), message(1, result(DONE, 32)))
    assert server.search(nothing=frozenset((32,))) == []


@pytest.mark.parametrize(
    ("code", "kind"), [(3, LdapError), (4, LdapError), (11, LdapError), (32, ServerFault), (1, ServerFault)]
)
def test_a_search_that_is_refused(server: Server, code: int, kind: type[LdapError]) -> None:
    """Limits of the server are no fault of it: they would take it away from everybody."""
    server.says(message(1, entry(b"cn=1")), message(1, result(DONE, code)))
    fault = fault_of(server.search, kind)
    assert str(fault) == said(f"search refused with LDAP result {code}")


def test_more_entries_than_there_may_be_are_no_answer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ldap_wire, "MAX_ENTRIES", 2)
    server.says(message(1, entry(b"cn=1")), message(1, entry(b"cn=2")), message(1, result(DONE)))
    assert len(server.search()) == 2
    pages = [message(2 + page, entry(b"cn=1")) + message(2 + page, result(DONE), cookie(b"more")) for page in range(3)]
    server.says(*pages)
    assert str(fault_of(server.search, LdapError)) == said("more than 2 entries found")


def test_an_entry_whose_name_is_no_text_is_no_fault_of_the_server(server: Server) -> None:
    """Attack: who may make an entry would bring the directory down for everybody."""
    server.says(message(1, entry(b"cn=\xff")), message(1, result(DONE)))
    assert str(fault_of(server.search, LdapError)) == "an entry whose name is no UTF-8"


# Answers that are none


def test_an_answer_may_have_so_many_bytes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its messages together."""
    answers = (message(1, entry(b"cn=1", x=(b"y" * 300,))), message(1, result(DONE)))
    size = sum(map(len, answers))
    monkeypatch.setattr(ldap_wire, "_READ_BYTES", 1)  # never more than one of them at once
    monkeypatch.setattr(ldap_wire._Course, "__init__", _course_of(size))
    server.says(*answers)
    assert len(server.search()) == 1
    monkeypatch.setattr(ldap_wire._Course, "__init__", _course_of(size - 1))
    server.says(*(each.replace(b"\x02\x01\x01", b"\x02\x01\x02", 1) for each in answers))
    assert str(fault_of(server.search, LdapError)) == said("an answer of more than 8388608 bytes")


def _course_of(size: int) -> Callable[..., None]:
    def begin(self: Any, *, limits: Limits, ends_at: float) -> None:
        self.limits, self.ends_at, self.bytes_left = limits, ends_at, size

    return begin


def test_a_message_that_is_announced_too_long_is_not_waited_for(server: Server) -> None:
    server.says(b"\x30\x84\x00\x80\x00\x01")
    assert "an answer of more than" in str(fault_of(server.bind, LdapError))


def test_an_answer_may_come_in_pieces(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ldap_wire, "_READ_BYTES", 3)
    server.says(message(1, entry(b"cn=1", x=(b"y" * 300,))), message(1, result(DONE)))
    assert len(server.search()) == 1


@pytest.mark.parametrize(
    ("answer", "why", "is_lost"),
    [
        (message(2, result(BOUND)), "an answer that nobody asked for", False),
        (message(0, result(EXTENDED)), "an answer that nobody asked for", True),
        (message(1, result(DONE)), "an answer to something else", False),
        (message(1, result(EXTENDED)), "an answer to something else", False),
        (message(1, tlv(BOUND)), "an answer that is no LDAP", False),
        (message(1, b""), "an answer that is no LDAP", False),
    ],
)
def test_what_is_no_answer_is_a_fault_of_the_server(server: Server, answer: bytes, why: str, is_lost: bool) -> None:
    server.says(answer)
    fault = fault_of(server.bind)
    assert (str(fault), fault.is_lost) == (said(why), is_lost)  # type: ignore[attr-defined]


def test_a_server_that_closes_is_lost(server: Server) -> None:
    server.far.shutdown(socket.SHUT_WR)
    fault = fault_of(server.bind)
    assert (str(fault), fault.is_lost) == (said("closed the connection"), True)  # type: ignore[attr-defined]
    server.far.close()
    fault = fault_of(server.bind)
    assert (str(fault), fault.is_lost) == (said("Broken pipe"), True)  # type: ignore[attr-defined]


def test_a_server_that_does_not_answer_is_at_fault_and_one_of_many_late_answers_is_not(server: Server) -> None:
    """A question of many answers may take too long with a server that answers each in time."""
    now = time.monotonic()
    server.limits = Limits(0.05, now + 60)
    fault = fault_of(server.bind)
    assert (str(fault), fault.is_lost) == (said("no answer within 0.05 s"), False)  # type: ignore[attr-defined]
    assert time.monotonic() - now < 5
    for ends_at in (time.monotonic() + 0.05, now - 1):
        server.limits = Limits(60, ends_at)
        assert str(fault_of(server.bind, LdapError)) == said("the question took too long")
    assert time.monotonic() - now < 5


def test_an_answer_that_is_there_is_read_however_little_time_is_left(server: Server) -> None:
    server.says(message(1, result(BOUND)))
    server.limits = Limits(0.9, time.monotonic() + 0.9)
    assert server.bind() == 0


def test_no_time_is_no_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auth.verifiers.ldap_wire.time.monotonic", lambda: 1000.0)
    server.limits = Limits(0.0, 2000.0)
    assert str(fault_of(server.bind)) == said("no answer within 0 s")


def test_an_answer_byte_by_byte_ends_in_time(server: Server) -> None:
    """Attack: each byte would begin the time anew."""
    stopped = threading.Event()

    def drip() -> None:
        for byte in b"\x30\x82\x10\x00" + b"x" * 200:
            if stopped.wait(0.02):
                return
            server.far.sendall(bytes([byte]))

    server.limits = Limits(0.2, time.monotonic() + 60)
    began = time.monotonic()
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        assert "no answer within 0.2 s" in str(fault_of(server.bind))
        assert time.monotonic() - began < 2
    finally:
        stopped.set()
        thread.join()


# Connections that are kept, closed and aborted


def test_a_connection_is_idle_where_nothing_has_come_since(server: Server) -> None:
    assert server.connection.is_idle
    server.says(message(1, result(BOUND)))
    assert not server.connection.is_idle
    server.bind()
    assert server.connection.is_idle
    server.says(message(2, result(BOUND)), message(3, result(BOUND)))
    server.bind()
    assert not server.connection.is_idle, "attack: an answer in advance"
    assert not LdapConnection(ADDRESS).is_idle


def test_a_connection_that_the_server_has_closed_is_not_idle(server: Server) -> None:
    server.far.close()
    assert not server.connection.is_idle


def test_a_connection_is_closed_with_a_good_bye(server: Server) -> None:
    server.says(message(1, result(BOUND)))
    server.bind()
    near = server.connection._socket
    server.connection.close()
    server.connection.close()
    assert server.was_told()[1:] == [(SEQUENCE, [(INTEGER, b"\2"), (0x42, b"")])]
    assert near is not None
    assert near.fileno() == -1
    assert not server.connection.is_idle
    assert str(fault_of(server.bind)) == said("the connection is closed")


def test_closing_waits_for_nobody(server: Server) -> None:
    """Attack: a server that does not read."""
    near = server.connection._socket
    assert near is not None
    near.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65536)
    near.settimeout(60)
    began = time.monotonic()
    server.connection.close()
    assert time.monotonic() - began < 5
    assert near.fileno() == -1


class Odd(socket.socket):
    """A socket whose faults have no text of the system's."""

    def sendall(self, _data: Any, _flags: int = 0) -> None:
        raise OSError("odd")

    def recv(self, _size: int, _flags: int = 0) -> bytes:
        raise OSError("odd")


@pytest.mark.parametrize("can_send", [True, False])
def test_a_fault_without_a_text_is_a_lost_connection(can_send: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = LdapConnection(ADDRESS)
    connection._socket = Odd()
    if can_send:
        monkeypatch.setattr(Odd, "sendall", lambda *_: None)
    fault = fault_of(lambda: connection.bind("cn=x", Secret("p"), limits()))
    assert (str(fault), fault.is_lost) == (said("lost"), True)  # type: ignore[attr-defined]
    connection.close()


class Failing(socket.socket):
    """A socket of a connection that the network has lost."""

    def shutdown(self, _how: int) -> None:
        raise OSError(107, "Transport endpoint is not connected")

    def close(self) -> None:
        super().close()
        raise ConnectionResetError(104, "Connection reset by peer")


def test_a_connection_that_the_network_has_lost_is_closed_and_aborted_all_the_same() -> None:
    connection = LdapConnection(ADDRESS)
    connection._socket = Failing()
    connection.abort()
    connection.close()
    assert connection._socket is None


def test_aborting_wakes_who_waits_and_nothing_is_asked_any_more(server: Server) -> None:
    server.limits = Limits(60, time.monotonic() + 60)
    faults: list[LdapError] = []
    waits = threading.Thread(target=lambda: faults.append(fault_of(server.bind)))
    waits.start()
    server.far.recv(1)  # it has asked
    server.connection.abort()
    waits.join(10)
    assert len(faults) == 1
    assert str(fault_of(server.bind)) == said("the connection is closed")
    LdapConnection(ADDRESS).abort()


# Opening


class Listener:
    """Answers the first connection: what it is to say in the clear, and then TLS with `context`."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received: list[bytes] = []
        self.clear = b""
        self.context: ssl.SSLContext | None = None
        self.inside = b""
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            near, _ = self.socket.accept()
            with near:
                near.settimeout(10)
                if self.clear:
                    self.received.append(near.recv(4096))
                    near.sendall(self.clear)
                if self.context is None:
                    self.received.append(near.recv(4096))
                    return
                with self.context.wrap_socket(near, server_side=True) as inside:
                    self.received.append(inside.recv(4096))
                    inside.sendall(self.inside)
                    inside.recv(4096)
        except OSError:
            return

    def close(self) -> None:
        self.socket.close()
        if self._thread is not None:
            self._thread.join(10)

    def connection(self, *, host: str = "localhost", is_tls: bool = False) -> LdapConnection:
        return LdapConnection(ServerAddress(host=host, port=self.port, is_tls=is_tls))


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def server_context(pki: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server_cert, pki.server_key)
    return context


def limits(answer_s: float = 5.0, whole_s: float = 10.0) -> Limits:
    return Limits(answer_s, time.monotonic() + whole_s)


Tls = Callable[[], ssl.SSLContext]


@pytest.fixture
def tls(pki: Any) -> Tls:
    return lambda: client_context(pki.client_profile(), verify_hostname=True)


@pytest.mark.parametrize("is_tls", [True, False])
def test_tls_begins_at_once_or_by_starttls_and_the_password_goes_inside(
    listener: Listener, server_context: ssl.SSLContext, tls: Tls, is_tls: bool
) -> None:
    number = 1 if is_tls else 2
    listener.clear = b"" if is_tls else message(1, result(EXTENDED))
    listener.context, listener.inside = server_context, message(number, result(BOUND))
    listener.serve()
    connection = listener.connection(is_tls=is_tls)
    connection.open(limits(), tls)
    assert connection.bind("cn=x", Secret("sesame"), limits()) == 0
    connection.close()
    *clear, inside = listener.received
    started = [(SEQUENCE, [(INTEGER, b"\1"), (0x77, [(0x80, START_TLS)])])]
    assert [parsed(each) for each in clear] == ([] if is_tls else [started])
    assert b"sesame" in inside


def test_without_tls_nothing_is_begun(listener: Listener) -> None:
    listener.clear = message(1, result(BOUND))
    listener.serve()
    connection = listener.connection()
    connection.open(limits(0.9), None)
    assert connection.bind("cn=x", Secret("sesame"), limits()) == 0
    found = connection._socket
    assert found is not None
    assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    connection.close()


@pytest.mark.parametrize(
    ("clear", "why"),
    [
        (message(1, result(EXTENDED, 2)), "StartTLS refused with LDAP result 2"),
        (message(1, result(EXTENDED)) + message(2, result(BOUND)), "more than the answer to StartTLS before TLS"),
        (message(1, result(BOUND)), "an answer to something else"),
        (message(2, result(EXTENDED)), "an answer that nobody asked for"),
    ],
)
def test_a_starttls_that_is_not_begun_ends_the_connection(listener: Listener, tls: Tls, clear: bytes, why: str) -> None:
    """Attack: answers of somebody in between, to be taken for those inside TLS; or no TLS at all."""
    listener.clear = clear
    listener.serve()
    connection = listener.connection()
    assert str(fault_of(lambda: connection.open(limits(), tls))) == f"ldap://localhost:{listener.port}: {why}"
    assert connection._socket is None


def test_a_server_that_nobody_vouches_for_is_told_nothing(
    listener: Listener, server_context: ssl.SSLContext, pki: Any, tls: Tls
) -> None:
    listener.context = server_context
    listener.serve()
    connection = listener.connection(is_tls=True)
    stranger = client_context(pki.client_profile(ca_cert_file=pki.other_ca), verify_hostname=True)
    fault = str(fault_of(lambda: connection.open(limits(), lambda: stranger)))
    assert fault.startswith(f"ldaps://localhost:{listener.port}: TLS: certificate verify failed: ")
    assert connection._socket is None
    assert listener.received == []


def test_the_name_in_the_certificate_is_the_hosts(listener: Listener, server_context: ssl.SSLContext, tls: Tls) -> None:
    listener.context = server_context
    listener.serve()
    connection = listener.connection(host="127.1", is_tls=True)  # leads there too
    assert "certificate verify failed: " in str(fault_of(lambda: connection.open(limits(), tls)))


def test_files_of_tls_that_cannot_be_used_are_a_fault(listener: Listener) -> None:
    listener.serve()
    connection = listener.connection()

    def broken() -> ssl.SSLContext:
        raise ValueError("SSL CA configuration failed")

    fault = fault_of(lambda: connection.open(limits(), broken))
    assert str(fault) == f"ldap://localhost:{listener.port}: SSL CA configuration failed"
    assert connection._socket is None


def test_a_server_that_does_not_listen_is_named_with_the_reason(listener: Listener) -> None:
    listener.close()
    connection = listener.connection(host="127.0.0.1")
    fault = fault_of(lambda: connection.open(limits(), None))
    assert str(fault) == f"ldap://127.0.0.1:{listener.port}: Connection refused"
    assert connection._socket is None


@pytest.mark.parametrize(("answer_s", "whole_s"), [(0.1, 10.0), (10.0, 0.1)])
def test_a_server_that_does_not_shake_hands_is_given_up(
    listener: Listener, tls: Tls, answer_s: float, whole_s: float
) -> None:
    connection = listener.connection(is_tls=True)
    began = time.monotonic()
    fault = fault_of(lambda: connection.open(limits(answer_s, whole_s), tls))
    assert str(fault) == f"ldaps://localhost:{listener.port}: no connection within {answer_s:g} s"
    assert time.monotonic() - began < 5
    assert connection._socket is None


def test_a_server_that_resets_the_connection_is_lost(listener: Listener) -> None:
    connection = listener.connection()
    connection.open(limits(), None)
    near, _ = listener.socket.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection._send("unbindRequest", None)
    near.close()
    fault = fault_of(lambda: connection._receive(connection._start(limits())))
    assert str(fault) == f"ldap://localhost:{listener.port}: Connection reset by peer"
    assert fault.is_lost  # type: ignore[attr-defined]
    connection.close()


def test_who_shakes_hands_can_be_woken(listener: Listener, tls: Tls) -> None:
    """An authenticator that is deleted waits for no server."""
    connection = listener.connection(is_tls=True)
    faults: list[LdapError] = []
    waits = threading.Thread(target=lambda: faults.append(fault_of(lambda: connection.open(limits(60, 60), tls))))
    waits.start()
    near, _ = listener.socket.accept()
    assert near.recv(1) == b"\x16", "it has begun"
    connection.abort()
    waits.join(10)
    near.close()
    assert len(faults) == 1


class Deadline:
    """In the place of a context: what a handshake is given."""

    seconds: float | None = None

    def wrap_socket(self, plain: socket.socket, **_: Any) -> Any:
        self.seconds = plain.gettimeout()
        raise TimeoutError


def test_a_handshake_has_the_time_that_is_left(listener: Listener) -> None:
    context: Any = Deadline()
    fault_of(lambda: listener.connection(is_tls=True).open(limits(0.5), lambda: context))
    assert context.seconds is not None
    assert 0 < context.seconds < 0.5


def resolve(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> list[Any]:
    """Whatever host is asked for has these addresses. The questions."""
    asked: list[Any] = []

    def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        asked.append((host, port, options))
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

    monkeypatch.setattr("auth.verifiers.ldap_wire.socket.getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(("refusing", "is_reached"), [(0, True), (3, True), (4, False)])
def test_the_addresses_of_a_host_are_tried_in_turn(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, refusing: int, is_reached: bool
) -> None:
    """Four of them: each of more would have too little time."""
    refused = ("127.0.0.1", free_port())
    asked = resolve(monkeypatch, *[refused] * refusing, ("127.0.0.1", listener.port))
    connection = LdapConnection(ServerAddress(host="many.example", port=389, is_tls=False))
    if is_reached:
        connection.open(limits(), None)
        assert connection.is_idle
        connection.close()
    else:
        fault = fault_of(lambda: connection.open(limits(), None))
        assert str(fault) == "ldap://many.example:389: Connection refused"
    assert asked == [("many.example", 389, {"type": socket.SOCK_STREAM})]


def test_each_address_has_its_share_of_the_time(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer leaves time for the next."""
    shares: list[float | None] = []
    now = [100.0]

    class Deaf(socket.socket):
        def settimeout(self, seconds: float | None) -> None:
            shares.append(seconds)

        def connect(self, _place: Any) -> None:
            now[0] += shares[-1] or 0.0
            raise TimeoutError

    resolve(monkeypatch, *[("127.0.0.1", 1)] * 4)
    monkeypatch.setattr("auth.verifiers.ldap_wire.socket.socket", Deaf)
    monkeypatch.setattr("auth.verifiers.ldap_wire.time.monotonic", lambda: now[0])
    connection = LdapConnection(ServerAddress(host="many.example", port=389, is_tls=False))
    fault = fault_of(lambda: connection.open(Limits(8.0, 1000.0), None))
    assert str(fault) == "ldap://many.example:389: no connection within 8 s"
    assert shares == [2.0, 2.0, 2.0, 2.0]
    shares.clear()
    fault_of(lambda: connection.open(Limits(8.0, now[0]), None))
    assert shares == [], "no time is left"


def test_a_host_that_nobody_knows_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("auth.verifiers.ldap_wire.socket.getaddrinfo", unknown)
    connection = LdapConnection(ServerAddress(host="none.example", port=389, is_tls=False))
    fault = fault_of(lambda: connection.open(limits(), None))
    assert str(fault) == "ldap://none.example:389: Name or service not known"


def test_an_aborted_connection_is_not_opened(listener: Listener) -> None:
    connection = listener.connection()
    connection.abort()
    fault_of(lambda: connection.open(limits(), None))
    assert connection._socket is None


# Texts


@pytest.mark.parametrize(
    ("host", "is_tls", "text"),
    [
        ("a.example", True, "ldaps://a.example:7"),
        ("a.example", False, "ldap://a.example:7"),
        ("::1", True, "ldaps://[::1]:7"),
    ],
)
def test_how_a_server_is_named(host: str, is_tls: bool, text: str) -> None:
    assert str(ServerAddress(host=host, port=7, is_tls=is_tls)) == text


def test_what_is_a_filter() -> None:
    for text in ("(uid=x)", "(&(a=b)(|(c=d)(!(e=*))))", "(cn:1.2.3:=x)"):
        check_filter(text)
    for text in ("", "uid=x", "(uid=x", "(uid=x))", "(a=b)(c=d)"):
        with pytest.raises(FilterError) as caught:
            check_filter(text)
        assert str(caught.value) == text
