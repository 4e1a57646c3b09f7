"""What a TLS tunnel must not let pass, and what its contexts demand: bounds, ends, names and files, one by one."""

import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from auth import tls
from auth.certificates import certificate_id, end_point_binding, expiry_s
from auth.tls import (
    MAX_LATE_HANDSHAKES,
    MAX_RECORDS_WITHOUT_DATA,
    RECORDS_AT_ONCE,
    ChoosingTunnel,
    NamedTunnel,
    NotTls,
    RecordsWithoutData,
    Served,
    TlsFailure,
    TlsProfile,
    TlsProfileError,
    TlsTunnel,
    UntrustedCertificate,
    can_choose_suites,
    client_context,
    failure_text,
    own_end_point,
    peer_chain,
    server_context,
)

sys.path.append(str(Path(__file__).resolve().parent.parent / "attacks"))

from openssl_client import TLS_1_2, TLS_1_3, OpenSslClient

CLIENT_HELLO = b"\x01\x00\x00\x2b\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2b\x01\x00\x00\x00"
END_POINT = "tls-server-end-point"


def accepting(pki: Any, *, demands: bool = False, end_point: bytes | None = None, **changes: Any) -> TlsTunnel:
    context = server_context(pki.server_profile(**changes), demand_certificate=demands)
    return TlsTunnel(context, server_side=True, end_point=end_point)


def connecting(pki: Any, *, shows: bool = False, **changes: Any) -> TlsTunnel:
    own = {"cert_file": pki.client_cert, "private_key_file": pki.client_key} if shows else {}
    context = client_context(pki.client_profile(**{**own, **changes}), verify_hostname=True)
    return TlsTunnel(context, server_side=False, server_hostname="localhost")


def shake(server: TlsTunnel, client: TlsTunnel) -> None:
    client.start()
    for _ in range(3):
        server.receive(client.take_output())
        client.receive(server.take_output())
    assert server.is_established
    assert client.is_established


def connected(pki: Any, *, demands: bool = False, shows: bool = False, **changes: Any) -> tuple[TlsTunnel, TlsTunnel]:
    pair = accepting(pki, demands=demands, **changes), connecting(pki, shows=shows)
    shake(*pair)
    return pair


class Wire:
    """What a client's handshake takes for a socket."""

    def __init__(self, server: TlsTunnel) -> None:
        self.server = server

    def sendall(self, data: bytes) -> None:
        assert self.server.receive(data) == b""

    def recv(self, _size: int) -> bytes:
        return self.server.take_output()


@contextmanager
def freely(pki: Any, version: int) -> Iterator[tuple[TlsTunnel, OpenSslClient]]:
    """A server, and a client that sends records which Python's cannot."""
    server, client = accepting(pki), OpenSslClient(version)
    client.shake_hands(Wire(server))  # type: ignore[arg-type]
    client.put(server.take_output() or b"")
    assert server.is_established
    yield server, client
    client.free()


def records_of(ciphertext: bytes) -> Iterator[bytes]:
    while ciphertext:
        size = 5 + int.from_bytes(ciphertext[3:5])
        yield ciphertext[:size]
        ciphertext = ciphertext[size:]


def one_by_one(server: TlsTunnel, ciphertext: bytes) -> bytes:
    return b"".join(server.receive(record) for record in records_of(ciphertext))


def at_once(server: TlsTunnel, ciphertext: bytes) -> bytes:
    return server.receive(ciphertext)


def byte_by_byte(server: TlsTunnel, data: bytes) -> None:
    for byte in data:
        server.receive(bytes([byte]))


WAYS = pytest.mark.parametrize("give", [one_by_one, at_once])
Give = Callable[[TlsTunnel, bytes], bytes]


# Records that carry nothing


@WAYS
def test_so_many_records_without_data_and_no_more(pki: Any, give: Give) -> None:
    """Attack: KeyUpdates for ever, each in a read of its own or all in one."""
    with freely(pki, TLS_1_3) as (server, client):
        assert give(server, client.key_updates(MAX_RECORDS_WITHOUT_DATA)) == b""
        with pytest.raises(RecordsWithoutData, match=r"^more than 256 records without data$"):
            give(server, client.key_updates(1))


@WAYS
def test_a_record_with_data_makes_good_for_one_without(pki: Any, give: Give) -> None:
    with freely(pki, TLS_1_3) as (server, client):
        for _ in range(MAX_RECORDS_WITHOUT_DATA // 16 + 1):
            assert give(server, client.key_updates(16) + client.write(b"x" * 16, 1)) == b"x" * 16
        give(server, client.key_updates(MAX_RECORDS_WITHOUT_DATA))
        assert give(server, client.write(b"yz", 1)) == b"yz"
        give(server, client.key_updates(2))
        with pytest.raises(RecordsWithoutData):
            give(server, client.key_updates(1))


@WAYS
def test_data_before_makes_good_for_nothing_later(pki: Any, give: Give) -> None:
    """Attack: a long honest beginning, to be let send what carries nothing."""
    with freely(pki, TLS_1_3) as (server, client):
        give(server, client.write(b"x" * 1000, 1))
        give(server, client.key_updates(MAX_RECORDS_WITHOUT_DATA))
        with pytest.raises(RecordsWithoutData):
            give(server, client.key_updates(1))


def test_data_before_makes_good_for_nothing_behind_it_in_the_same_read(pki: Any) -> None:
    with freely(pki, TLS_1_3) as (server, client), pytest.raises(RecordsWithoutData):
        server.receive(client.write(b"x" * 1000, 1) + client.key_updates(MAX_RECORDS_WITHOUT_DATA + RECORDS_AT_ONCE))


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 20])
def test_a_record_without_data_is_billed_once_however_it_is_cut(pki: Any, cut: int) -> None:
    with freely(pki, TLS_1_3) as (server, client):
        for record in records_of(client.key_updates(MAX_RECORDS_WITHOUT_DATA)):
            server.receive(record[:cut])
            server.receive(record[cut:])
        (last,) = records_of(client.key_updates(1))
        server.receive(last[:cut])
        with pytest.raises(RecordsWithoutData):
            server.receive(last[cut:])


@WAYS
def test_so_many_records_of_another_handshake_and_no_more(pki: Any, give: Give) -> None:
    """Attack: each is refused by an alert, and those pile up for a client that does not read."""
    with freely(pki, TLS_1_2) as (server, client):
        *first, last = records_of(client.records(22, CLIENT_HELLO, MAX_LATE_HANDSHAKES + 1))
        give(server, b"".join(first))
        with pytest.raises(RecordsWithoutData, match=r"^more than 16 records of another handshake$"):
            give(server, last)


@WAYS
def test_data_does_not_make_good_for_another_handshake(pki: Any, give: Give) -> None:
    with freely(pki, TLS_1_2) as (server, client):
        assert give(server, client.write(b"x" * 100, 1)) == b"x" * 100
        assert server._late_handshakes == 0


# Turns


def test_a_turn_begins_once_in_a_read_and_is_asked_every_so_many_records(pki: Any) -> None:
    server, client = connected(pki)
    for _ in range(3 * RECORDS_AT_ONCE):
        client.send(b"x")
    asked: list[str] = []

    def begin() -> Callable[[], bool]:
        asked.append("begins")

        def has_time() -> bool:
            asked.append("has time")
            return True

        return has_time

    assert server.receive(client.take_output(), begin) == b"x" * 3 * RECORDS_AT_ONCE
    assert asked == ["begins", "has time", "has time"]
    client.send(b"y")
    assert server.receive(client.take_output(), begin) == b"y"
    assert len(asked) == 3  # one record alone takes no turn


def test_one_record_behind_others_that_wait_keeps_its_place(pki: Any) -> None:
    server, client = connected(pki)
    for number in range(RECORDS_AT_ONCE + 2):
        client.send(b"%d," % number)
    early = server.receive(client.take_output(), lambda: lambda: False)
    client.send(b"last")
    late = server.receive(client.take_output())
    assert (early + late).split(b",") == [*(b"%d" % number for number in range(RECORDS_AT_ONCE + 2)), b"last"]


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 26])
def test_one_record_behind_a_piece_of_another_keeps_its_place(pki: Any, cut: int) -> None:
    server, client = connected(pki)
    client.send(b"first")
    first = client.take_output()
    client.send(b"x" * 255)  # its length takes both bytes
    second = client.take_output()
    assert server.receive(first[:cut]) == b""
    assert server.receive(first[cut:] + second[:cut]) == b"first"
    assert server.receive(second[cut:]) == b"x" * 255
    assert (server._waiting, server._record_left, server.has_more) == (b"", 0, False)


def test_a_length_of_two_bytes_is_read_as_such(pki: Any) -> None:
    """A read that looks like one record, and ends in the middle of it, or has another one behind it."""
    server, client = connected(pki)
    client.send(b"x" * 259)
    long = client.take_output()
    assert long[3:5] == b"\x01\x14"
    assert server.receive(long[: 5 + 0x14]) == b""
    assert server.receive(long[5 + 0x14 :]) == b"x" * 259
    client.send(b"y" * 259)
    client.send(b"z" * 234)
    both = client.take_output()
    assert len(both) == 5 + 0x214
    assert server.receive(both) == b"y" * 259 + b"z" * 234


def test_a_tunnel_that_has_begun_has_nothing_and_is_open(pki: Any) -> None:
    server = accepting(pki)
    assert (server.has_more, server.is_established, server.chosen) == (False, False, None)
    assert not server.is_closed


# The handshake's bounds


def test_bytes_of_a_handshake_are_told_until_it_is_done(pki: Any) -> None:
    """By them the router bounds what peers that have not logged in may have it hold."""
    server = accepting(pki)
    assert server.handshake_bytes == 0
    server.receive(b"\x16\x03\x01")
    assert server.handshake_bytes == 3
    server.receive(b"\x40\x00" + b"\x01\x00\x3f\xfc\x03\x03")
    assert server.handshake_bytes == 11
    server.receive(bytes(100))
    assert server.handshake_bytes == 111
    server, client = connected(pki)
    assert (server.handshake_bytes, client.handshake_bytes) == (0, 0)


def test_a_handshake_may_be_as_long_as_the_limit(pki: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MAX_HANDSHAKE_BYTES", 64)
    server = accepting(pki)
    server.receive(b"\x16\x03\x01\x40\x00" + b"\x01\x00\x3f\xfc\x03\x03" + bytes(53))
    with pytest.raises(TlsFailure, match=r"^handshake of more than 64 bytes$"):
        server.receive(b"\0")


def test_the_limits_are_what_the_documents_say() -> None:
    assert (tls.MAX_HANDSHAKE_BYTES, RECORDS_AT_ONCE, MAX_RECORDS_WITHOUT_DATA) == (48 * 1024, 32, 256)


@pytest.mark.parametrize(
    ("data", "failure"),
    [(b"AMQP\0\1\0\0", NotTls), (b"GET / HTTP/1.1\r\n\r\n", NotTls), (b"\x17\3\3\0\1x", NotTls),
     (b"\x16\3\1\0\5hello", TlsFailure)],
)  # fmt: skip
def test_the_first_byte_tells_whether_it_is_tls(pki: Any, data: bytes, failure: type[TlsFailure]) -> None:
    """The listener then says what the peer may have meant."""
    with pytest.raises(TlsFailure) as caught:
        accepting(pki).receive(data)
    assert type(caught.value) is failure
    server = accepting(pki)
    with pytest.raises(TlsFailure) as caught:
        byte_by_byte(server, data)
    assert type(caught.value) is failure


def test_what_is_no_tls_later_began_as_tls(pki: Any) -> None:
    client = connecting(pki)
    client.start()
    server = accepting(pki)
    server.receive(client.take_output())
    with pytest.raises(TlsFailure) as caught:
        server.receive(b"GET / HTTP/1.1\r\n\r\n")
    assert type(caught.value) is TlsFailure


# Ends


def test_the_end_of_the_socket_ends_a_handshake_and_nothing_else(pki: Any) -> None:
    server, _client = connected(pki)
    server.receive_eof()
    assert server.is_established
    with pytest.raises(TlsFailure, match=r"^unexpected eof while reading$") as caught:
        accepting(pki).receive_eof()
    assert type(caught.value) is TlsFailure


@pytest.mark.parametrize("demands", [False, True])
def test_a_tunnel_that_is_discarded_is_dead_and_harmless(pki: Any, demands: bool) -> None:
    """The connection of it is taken down in steps, each of which may still call."""
    server, client = connected(pki, demands=demands, shows=demands)
    client.send(b"late")
    ciphertext = client.take_output()
    for _ in range(2):
        server.discard()
        assert server.receive(ciphertext) == b""
        server.send(b"x")
        server.close()
        assert (server.is_established, server.is_closed, server.has_more) == (False, True, False)
        assert (server.take_output(), server.peer_certificate, server.peer_expires_at_s) == (b"", None, None)
        assert (server.protocol, server.cipher, server.bits, server.binding(END_POINT)) == (None, None, 0, None)
        assert peer_chain(server) is None


def test_an_end_alone_in_its_record_ends_the_plaintext(pki: Any) -> None:
    server, client = connected(pki)
    client.close()
    assert server.receive(client.take_output()) == b""
    assert server.is_closed


def test_what_follows_the_end_is_not_looked_at(pki: Any) -> None:
    server, client = connected(pki)
    client.send(b"x")
    client.close()
    assert server.receive(client.take_output() + b"\xff" * 4) == b"x"
    assert (server.is_closed, server.has_more, server._waiting) == (True, False, b"")
    assert server.receive(b"\xff" * 100) == b""


def test_only_a_client_with_a_certificate_is_not_told_the_end(pki: Any) -> None:
    """Attack: to resume its session when the certificate has expired. OpenSSL keeps one that ended well."""
    server, client = connected(pki, demands=True, shows=True)
    server.close()
    assert server.take_output() == b""
    client.close()
    assert client.take_output() != b""
    server, client = connected(pki)
    server.close()
    client.receive(server.take_output())
    assert client.is_closed


def test_a_broken_record_alone_breaks_the_tunnel(pki: Any) -> None:
    server, client = connected(pki)
    client.send(b"pay alice")
    (record,) = records_of(client.take_output())
    with pytest.raises(TlsFailure, match=r"^decryption failed or bad record mac$"):
        server.receive(record[:-1] + bytes([record[-1] ^ 1]))


def test_two_records_of_which_one_is_broken_break_the_tunnel(pki: Any) -> None:
    server, client = connected(pki)
    client.send(b"pay alice")
    client.send(b"pay bob")
    ciphertext = client.take_output()
    with pytest.raises(TlsFailure, match=r"^decryption failed or bad record mac$"):
        server.receive(ciphertext[:-1] + bytes([ciphertext[-1] ^ 1]))


def test_what_cannot_be_sent_any_more_is_a_failure_with_its_reason(pki: Any) -> None:
    _server, client = connected(pki)
    client.close()
    with pytest.raises(TlsFailure, match=r"^protocol is shutdown$"):
        client.send(b"late")


# What is known of the peer


def test_a_channel_is_bound_to_the_servers_certificate_at_both_ends(pki: Any) -> None:
    end_point = own_end_point(pki.server_profile())
    server, client = accepting(pki, end_point=end_point), connecting(pki)
    assert (server.binding(END_POINT), client.binding(END_POINT)) == (None, None)
    shake(server, client)
    assert server.binding(END_POINT) == client.binding(END_POINT) == end_point is not None
    assert (server.binding("tls-unique"), client.binding("tls-unique")) == (None, None)
    shown, _ = connected(pki, demands=True, shows=True)
    assert shown.binding(END_POINT) is None  # never that of the client's


def test_the_channel_binding_of_a_profile_is_that_of_its_first_certificate(pki: Any, tmp_path: Path) -> None:
    own, other = (Path(path).read_bytes() for path in (pki.server_cert, pki.ca))
    expected = end_point_binding(x509.load_pem_x509_certificate(own).public_bytes(Encoding.DER))
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"subject=CN = localhost\n" + own + other)
    assert own_end_point(TlsProfile(name="p", cert_file=str(chain))) == expected is not None
    chain.write_bytes(b"no certificate")
    for path in (None, "", str(tmp_path / "nowhere"), str(tmp_path), str(chain)):
        assert own_end_point(TlsProfile(name="p", cert_file=path)) is None


def test_the_first_certificate_is_taken_whatever_stands_around_it(tmp_path: Path) -> None:
    end, key = b"-----END CERTIFICATE-----\n", ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    der = b"x"
    while len(der) % 3:  # its last bytes in base64 then say nothing of an end
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a" * (1 + len(der) % 7))])
        made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
        certificate = made.sign(key, hashes.SHA256())
        der = certificate.public_bytes(Encoding.DER)
    path = tmp_path / "own.pem"
    pem = certificate.public_bytes(Encoding.PEM)
    for content in (pem, end + pem, pem + end, pem + b"junk\n" + end):
        path.write_bytes(content)
        assert own_end_point(TlsProfile(name="p", cert_file=str(path))) == end_point_binding(der)


@pytest.mark.parametrize("is_able", [False, True])
def test_whether_suites_can_be_chosen(monkeypatch: pytest.MonkeyPatch, is_able: bool) -> None:
    monkeypatch.delattr(ssl.SSLContext, "set_ciphersuites", raising=False)
    if is_able:
        monkeypatch.setattr(ssl.SSLContext, "set_ciphersuites", lambda _context, _suites: None, raising=False)
    assert can_choose_suites() is is_able


def test_when_the_certificate_of_the_peer_ends(pki: Any) -> None:
    server, client = connected(pki, demands=True, shows=True)
    assert server.peer_expires_at_s == expiry_s(pki.client.public_bytes(Encoding.DER))
    assert client.peer_expires_at_s is not None
    assert connected(pki)[0].peer_expires_at_s is None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ssl.SSLError(1, "x"), "TLS failure"),
        (ssl.SSLEOFError(8, "x"), "unexpected eof while reading"),
        (ssl.SSLZeroReturnError(6, "x"), "unexpected eof while reading"),
        (ValueError("x"), "TLS failure"),
    ],
)
def test_a_failure_has_a_text_whatever_it_is(fault: Exception, text: str) -> None:
    assert failure_text(fault) == text


# A server's name


def named(pki: Any, host: str, **changes: object) -> NamedTunnel:
    return NamedTunnel(client_context(pki.client_profile(**changes), verify_hostname=False), host)


def test_a_server_of_the_right_name_is_spoken_to(pki: Any) -> None:
    server, client = (
        accepting(pki, demands=True),
        named(pki, "localhost", cert_file=pki.client_cert, private_key_file=pki.client_key),
    )
    shake(server, client)
    client.send(b"hello")
    assert server.receive(client.take_output()) == b"hello"


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_a_server_of_another_name_is_never_established(pki: Any, protocols: str) -> None:
    server, client = accepting(pki, protocols=protocols), named(pki, "example.com")
    text = r"^certificate verify failed: Hostname mismatch, certificate is not valid for 'example\.com'$"
    with pytest.raises(UntrustedCertificate, match=text):
        shake(server, client)


def test_the_name_that_is_wanted_is_told_to_the_server(pki: Any) -> None:
    wanted: list[str | None] = []
    own = Served(profile="own", context=server_context(pki.server_profile(), demand_certificate=False), end_point=None)

    def choose(name: str | None) -> None:
        wanted.append(name)

    shake(ChoosingTunnel(own, choose), named(pki, "localhost"))
    assert wanted == ["localhost"]


# A server's choice


def choosing(pki: Any, *, own_demands: bool, other_demands: bool) -> ChoosingTunnel:
    """The listener's own profile, and the other one, which every client gets."""
    own, other = (
        Served(
            profile=name,
            context=server_context(pki.server_profile(name=name), demand_certificate=demands),
            end_point=name.encode(),
        )
        for name, demands in (("own", own_demands), ("other", other_demands))
    )
    return ChoosingTunnel(own, lambda _name: other)


@pytest.mark.parametrize("other_demands", [False, True])
def test_a_chosen_profile_demands_what_it_demands(pki: Any, other_demands: bool) -> None:
    server = choosing(pki, own_demands=not other_demands, other_demands=other_demands)
    shake(server, connecting(pki, shows=True))
    assert server.chosen == "other"
    assert server.binding(END_POINT) == b"other"
    assert (server.peer_certificate is not None) is other_demands
    server.close()
    assert bool(server.take_output()) is not other_demands


def test_a_turn_ends_where_profiles_are_chosen(pki: Any) -> None:
    """Attack: thousands of records in one read, to keep everybody else waiting."""
    server, client = choosing(pki, own_demands=False, other_demands=False), connecting(pki)
    shake(server, client)
    for _ in range(2 * RECORDS_AT_ONCE):
        client.send(b"x")
    assert server.receive(client.take_output(), lambda: lambda: False) == b"x" * RECORDS_AT_ONCE
    assert server.has_more


def test_a_choice_is_made_once_and_bytes_before_it_are_bounded(pki: Any) -> None:
    server = choosing(pki, own_demands=False, other_demands=False)
    server.receive(b"\x16\x03\x01\x3f\x00\x01\x00\x3e\xfc" + bytes(100))
    assert (server.handshake_bytes, server.chosen, server.take_output()) == (109, None, b"")
    server.discard()
    assert server.receive(b"x") == b""


def test_what_is_no_tls_is_refused_where_profiles_are_chosen(pki: Any) -> None:
    with pytest.raises(NotTls):
        choosing(pki, own_demands=False, other_demands=False).receive(b"AMQP\0\1\0\0")


# Contexts


def test_a_context_of_a_server_promises_nothing_to_those_that_come_again(pki: Any) -> None:
    plain = server_context(pki.server_profile(), demand_certificate=False)
    demanding = server_context(pki.server_profile(), demand_certificate=True)
    assert (plain.num_tickets, demanding.num_tickets) == (0, 0)
    assert [bool(each.options & ssl.OP_NO_TICKET) for each in (plain, demanding)] == [False, True]
    assert demanding.options == plain.options | ssl.OP_NO_TICKET
    assert (plain.verify_mode, demanding.verify_mode) == (ssl.CERT_NONE, ssl.CERT_REQUIRED)


def test_every_context_takes_an_authority_in_between_for_one_of_its_own(pki: Any) -> None:
    """policy 47: §6.5; and none speaks less than TLSv1.2 that was not told to."""
    for context in (
        server_context(pki.server_profile(), demand_certificate=True),
        client_context(pki.client_profile(), verify_hostname=True),
    ):
        assert context.verify_flags & ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("verify_hostname", [True, False])
def test_a_client_always_verifies_the_chain(pki: Any, verify_hostname: bool) -> None:
    context = client_context(pki.client_profile(), verify_hostname=verify_hostname)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, verify_hostname)
    without_file = client_context(pki.client_profile(ca_cert_file=None), verify_hostname=verify_hostname)
    assert without_file.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("verify_hostname", "authorities", "is_believed"),
    [(True, None, True), (False, None, True), (True, "other_ca", True), (False, "other_ca", False)],
)
def test_the_systems_authorities_are_believed_but_for_a_file_without_names(
    pki: Any, monkeypatch: pytest.MonkeyPatch, verify_hostname: bool, authorities: str | None, is_believed: bool
) -> None:
    """policy 50"""
    monkeypatch.setenv("SSL_CERT_FILE", pki.ca)
    profile = pki.client_profile(ca_cert_file=authorities and getattr(pki, authorities))
    client = TlsTunnel(
        client_context(profile, verify_hostname=verify_hostname), server_side=False, server_hostname="localhost"
    )
    if is_believed:
        shake(accepting(pki), client)
        return
    with pytest.raises(UntrustedCertificate, match=r"^certificate verify failed: "):
        shake(accepting(pki), client)


@pytest.mark.parametrize("name", ["cert_file", "private_key_file", "ca_cert_file"])
def test_a_file_that_never_ends_is_not_waited_for(pki: Any, tmp_path: Path, name: str) -> None:
    """OpenSSL would wait for the writer of a FIFO."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TlsProfileError, match=r"^Cannot set "):
        server_context(pki.server_profile(**{name: str(tmp_path / "fifo")}), demand_certificate=False)
    own = {"cert_file": pki.client_cert, "private_key_file": pki.client_key}
    with pytest.raises(TlsProfileError, match=r" configuration failed$"):
        client_context(pki.client_profile(**{**own, name: str(tmp_path / "fifo")}), verify_hostname=True)


def test_a_key_may_stand_in_the_certificates_file_of_a_client(pki: Any, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pki.client_cert).read_bytes() + Path(pki.client_key).read_bytes())
    client = connecting(pki, cert_file=str(both))
    server = accepting(pki, demands=True)
    shake(server, client)
    assert server.peer_certificate == pki.client.public_bytes(Encoding.DER)


def test_demanding_certificates_wants_authorities_in_the_file(pki: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")
    with pytest.raises(TlsProfileError, match=r"^Cannot set (trusted SSL CA|peer authentication)$"):
        server_context(pki.server_profile(ca_cert_file=str(tmp_path / "empty.pem")), demand_certificate=True)


def test_a_directory_of_authorities_is_looked_into(pki: Any, tmp_path: Path) -> None:
    """By names that `openssl rehash` gives: without them nobody in it is believed."""
    assert client_context(pki.client_profile(ca_cert_file=str(tmp_path)), verify_hostname=True)
    client = connecting(pki, ca_cert_file=str(tmp_path))
    with pytest.raises(UntrustedCertificate):
        shake(accepting(pki), client)
    server_context(pki.server_profile(ca_cert_file=str(tmp_path)), demand_certificate=False)


@pytest.mark.parametrize("is_able", [False, True])
def test_suites_of_tls_1_3_are_chosen_or_refused_never_ignored(
    pki: Any, monkeypatch: pytest.MonkeyPatch, is_able: bool
) -> None:
    """policy 47: a profile that asks for what Python cannot do is not used with others."""

    def choose(_context: ssl.SSLContext, suites: str) -> None:
        if suites != "TLS_AES_256_GCM_SHA384":
            raise ssl.SSLError("no cipher match")
        chosen.append(suites)

    chosen: list[str] = []
    if is_able:
        monkeypatch.setattr(ssl.SSLContext, "set_ciphersuites", choose, raising=False)
    else:
        monkeypatch.delattr(ssl.SSLContext, "set_ciphersuites", raising=False)
    for suites, is_good in (("TLS_AES_256_GCM_SHA384", is_able), ("nonsense", False)):
        ways: Any = (
            (lambda made: server_context(made, demand_certificate=False), pki.server_profile, "Cannot set ciphers. "),
            (lambda made: client_context(made, verify_hostname=True), pki.client_profile, "SSL cipher configuration"),
        )
        for make, profile, text in ways:
            if is_good:
                make(profile(ciphersuites=suites))
                assert chosen.pop() == suites
            else:
                with pytest.raises(TlsProfileError, match=f"^{text}"):
                    make(profile(ciphersuites=suites))
    assert chosen == []


def test_which_protocols_are_withdrawn() -> None:
    for protocols, withdrawn in (
        (None, ()), ("TLSv1.2 TLSv1.3", ()), ("TLSv1.1,TLSv1", ("TLSv1", "TLSv1.1")), ("TLSv1.3;TLSv1.1", ("TLSv1.1",)),
    ):  # fmt: skip
        assert TlsProfile(name="p", protocols=protocols).withdrawn_protocols == withdrawn


def test_a_gap_between_versions_stays_a_gap(pki: Any) -> None:
    """policy 47"""
    context = server_context(pki.server_profile(protocols="TLSv1.1 TLSv1.3"), demand_certificate=False)
    assert bool(context.options & ssl.OP_NO_TLSv1_2)
    assert not context.options & ssl.OP_NO_TLSv1_3
    assert not context.options & ssl.OP_NO_TLSv1_1


def test_a_context_of_a_client_is_not_lowered_and_not_for_servers(pki: Any) -> None:
    """Attack: to break a weak suite, which the level for withdrawn protocols would let a client offer."""
    plain = client_context(pki.client_profile(), verify_hostname=True)
    lowered = client_context(pki.client_profile(protocols="TLSv1"), verify_hostname=True)
    assert (plain.security_level > 0, lowered.security_level) == (True, 0)
    assert plain.protocol == lowered.protocol == ssl.PROTOCOL_TLS_CLIENT


def test_hardening_keeps_what_openssl_demands_of_itself(pki: Any) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).verify_flags
    context = client_context(pki.client_profile(), verify_hostname=True)
    assert context.verify_flags == own | ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def test_a_server_revoked_by_the_list_of_the_clients_profile_is_refused(pki: Any, tmp_path: Path) -> None:
    """policy 50; attack: to be the broker with a key that was stolen, and revoked."""
    server = x509.load_pem_x509_certificate(Path(pki.server_cert).read_bytes())
    now = datetime.now(UTC)
    for serial in (4711, server.serial_number):
        builder = x509.CertificateRevocationListBuilder().issuer_name(server.issuer)
        builder = builder.last_update(now - timedelta(hours=1)).next_update(now + timedelta(hours=1))
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - timedelta(hours=1))
        made = builder.add_revoked_certificate(entry.build()).sign(pki.key_of(pki.ca), hashes.SHA256())
        (tmp_path / f"{serial}.crl").write_bytes(made.public_bytes(Encoding.PEM))
    shake(accepting(pki), connecting(pki, crl_file=str(tmp_path / "4711.crl")))
    with pytest.raises(UntrustedCertificate, match="certificate revoked"):
        shake(accepting(pki), connecting(pki, crl_file=str(tmp_path / f"{server.serial_number}.crl")))


@pytest.mark.parametrize("content", [b"", b"words", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_of_authorities_that_has_none_is_told_as_such(pki: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ca.pem").write_bytes(content)
    for demand in (False, True):
        with pytest.raises(TlsProfileError, match=r"^Cannot set trusted SSL CA$"):
            server_context(pki.server_profile(ca_cert_file=str(tmp_path / "ca.pem")), demand_certificate=demand)
    with pytest.raises(TlsProfileError, match=r"^SSL CA configuration failed$"):
        client_context(pki.client_profile(ca_cert_file=str(tmp_path / "ca.pem")), verify_hostname=True)


def test_a_file_of_lists_alone_has_no_authorities(pki: Any, tmp_path: Path) -> None:
    ca = x509.load_pem_x509_certificate(Path(pki.ca).read_bytes())
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(now).next_update(now + timedelta(hours=1))
    made = builder.sign(pki.key_of(pki.ca), hashes.SHA256())
    (tmp_path / "list.pem").write_bytes(made.public_bytes(Encoding.PEM))
    with pytest.raises(TlsProfileError, match=r"^Cannot set peer authentication$"):
        server_context(pki.server_profile(ca_cert_file=str(tmp_path / "list.pem")), demand_certificate=True)


def test_a_server_wants_its_key_in_a_file_of_its_own(pki: Any, tmp_path: Path) -> None:
    """§6.5: certFile and privateKeyFile are required of a listener; neither is guessed."""
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pki.server_cert).read_bytes() + Path(pki.server_key).read_bytes())
    with pytest.raises(TlsProfileError, match=r"^Cannot set SSL credentials$"):
        server_context(pki.server_profile(cert_file=str(both), private_key_file=None), demand_certificate=False)


def test_all_protocols_may_be_named(pki: Any) -> None:
    context = server_context(pki.server_profile(protocols="TLSv1 TLSv1.1 TLSv1.2 TLSv1.3"), demand_certificate=False)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_3)


def test_a_version_that_openssl_does_not_have_is_refused(pki: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never left out silently: another version than those that were named would be spoken."""
    monkeypatch.setitem(tls._VERSIONS, "TLSv1", 4711)
    text = (
        "Cannot set protocols. The protocols string might be invalid. This list is a space separated string of the "
        "allowed TLS protocols (TLSv1 TLSv1.1 TLSv1.2)"
    )
    with pytest.raises(TlsProfileError) as caught:
        server_context(pki.server_profile(protocols="TLSv1"), demand_certificate=False)
    assert str(caught.value) == text


def test_a_header_alone_behind_so_many_records_waits_for_the_next_turn(pki: Any) -> None:
    """It may be one that breaks the tunnel, and is judged as soon as it is there."""
    server, client = connected(pki)
    for _ in range(RECORDS_AT_ONCE):
        client.send(b"x")
    server.receive(client.take_output() + b"\x16\x03\x09\x00\x01", lambda: lambda: False)
    assert server.has_more
    with pytest.raises(TlsFailure):
        server.receive(b"")


# What is given to a tunnel before there is anything to read


def test_no_bytes_before_the_handshake_are_none(pki: Any) -> None:
    server = accepting(pki)
    assert server.receive(b"") == b""
    shake(server, connecting(pki))


def test_records_of_a_handshake_that_wait_are_counted_once(pki: Any) -> None:
    """An honest ClientHello in many pieces is not mistaken for one that is too long."""
    server = accepting(pki)
    pieces = b"".join(b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in b"\x01\x00\x3f\xfc\x03\x03" + bytes(94))
    server.receive(pieces, lambda: lambda: True)
    assert not server.has_more
    assert server.handshake_bytes == len(pieces) == 600


def test_a_piece_of_a_hello_is_no_plaintext_where_profiles_are_chosen(pki: Any) -> None:
    """Attack: bytes that nobody has encrypted, read as those of a peer."""
    server, client = choosing(pki, own_demands=False, other_demands=False), connecting(pki)
    client.start()
    hello = client.take_output()
    assert [server.receive(bytes([byte])) for byte in hello] == [b""] * len(hello)
    client.receive(server.take_output())
    assert server.receive(client.take_output()) == b""
    assert server.is_established


def test_a_read_that_begins_with_the_hello_has_its_turn_where_profiles_are_chosen(pki: Any) -> None:
    """Attack: thousands of records behind the ClientHello in the same read, to keep everybody else waiting."""
    server, client = choosing(pki, own_demands=False, other_demands=False), connecting(pki)
    client.start()
    behind = b"\x16\x03\x03\x00\x01\x00" * 100
    turns = 0

    def begin_turn() -> Callable[[], bool]:
        nonlocal turns
        turns += 1
        return lambda: False

    with pytest.raises(TlsFailure):
        server.receive(client.take_output() + behind, begin_turn)
    assert turns == 1


class Sparing:
    """An OpenSSL that takes a piece of what it is given, as it may."""

    def __init__(self, real: ssl.SSLObject) -> None:
        self.real = real

    def write(self, data: bytes | memoryview) -> int:
        return self.real.write(bytes(data[:700]))


def test_nothing_is_lost_where_openssl_takes_a_piece_at_a_time(pki: Any) -> None:
    server, client = connected(pki)
    data = os.urandom(2000)
    client._ssl = Sparing(client._ssl)  # type: ignore[assignment]
    client.send(data)
    assert server.receive(client.take_output()) == data


# The certificates by which a peer was believed


def test_the_chain_of_a_peer_has_all_that_a_list_may_revoke(pki: Any, tmp_path: Path) -> None:
    """Attack: to stay when the authority in between is revoked, whose certificate only the peer has shown."""
    ca = x509.load_pem_x509_certificate(Path(pki.ca).read_bytes())
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    between = _signed("between", keys[0], ca.subject, pki.key_of(pki.ca), is_ca=True)
    own = _signed("client", keys[1], between.subject, keys[0], is_ca=False)
    chain, key_file = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(own.public_bytes(Encoding.PEM) + between.public_bytes(Encoding.PEM))
    key_file.write_bytes(keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    server = accepting(pki, demands=True)
    shake(server, connecting(pki, cert_file=str(chain), private_key_file=str(key_file)))
    found = peer_chain(server)
    ders = [each.public_bytes(Encoding.DER) for each in (own, between, ca)]
    assert found is not None
    assert found.shown == tuple(map(certificate_id, ders))
    assert found.signers == tuple(ders[1:])
    assert found.is_whole
    server._ssl = NewerPython(ders)  # type: ignore[assignment]
    assert peer_chain(server) == found
    assert peer_chain(connected(pki)[0]) is None


class NewerPython:
    """As `ssl` since Python 3.13, of a client with this chain."""

    def __init__(self, ders: list[bytes]) -> None:
        self.ders = ders

    def getpeercert(self, *, binary_form: bool) -> bytes:
        assert binary_form
        return self.ders[0]

    def get_verified_chain(self) -> list[bytes]:
        return self.ders


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    name: str, of: ec.EllipticCurvePrivateKey, by: x509.Name, signer: ec.EllipticCurvePrivateKey, *, is_ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(by).public_key(of.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    return made.sign(signer, hashes.SHA256())
