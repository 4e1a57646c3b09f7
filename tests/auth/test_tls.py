"""TLS tunnels piped to each other in memory, and contexts from profiles."""

import os
import ssl
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from auth.secrets import Secret
from auth.tls import (
    RecordsWithoutData,
    TlsFailure,
    TlsProfileError,
    TlsTunnel,
    UntrustedCertificate,
    client_context,
    server_context,
)

CLIENT_CERTIFICATE = {"cert_file": "client_cert", "private_key_file": "client_key"}
STRANGER_CERTIFICATE = {"cert_file": "stranger_cert", "private_key_file": "stranger_key"}


@dataclass(slots=True)
class Pair:
    server: TlsTunnel
    client: TlsTunnel
    server_failure: str | None = None
    client_failure: str | None = None

    def pump(self, step: int = 1 << 20) -> tuple[bytes, bytes]:
        """Carry everything back and forth; what the server and the client got in plaintext."""
        to_server, to_client = b"", b""
        while (up := self.client.take_output()) + (down := self.server.take_output()):
            for start in range(0, len(up), step):
                try:
                    to_server += self.server.receive(up[start : start + step])
                except TlsFailure as failure:
                    self.server_failure = self.server_failure or str(failure)
            for start in range(0, len(down), step):
                try:
                    to_client += self.client.receive(down[start : start + step])
                except TlsFailure as failure:
                    self.client_failure = self.client_failure or str(failure)
        return to_server, to_client


@pytest.fixture
def connect(pki: Any) -> Callable[..., Pair]:
    """Shake hands; the names of files in `server` and `client` are those of the PKI."""

    def resolve(changes: dict[str, str | None]) -> dict[str, str | None]:
        return {key: getattr(pki, value, value) if isinstance(value, str) else value for key, value in changes.items()}

    def connect(
        *,
        server: dict[str, str | None] | None = None,
        client: dict[str, str | None] | None = None,
        demand: bool = False,
        verify_hostname: bool = True,
        name: str = "localhost",
        step: int = 1 << 20,
    ) -> Pair:
        accepting = server_context(pki.server_profile(**resolve(server or {})), demand_certificate=demand)
        connecting = client_context(pki.client_profile(**resolve(client or {})), verify_hostname=verify_hostname)
        pair = Pair(
            TlsTunnel(accepting, server_side=True),
            TlsTunnel(connecting, server_side=False, server_hostname=name),
        )
        pair.client.start()
        pair.pump(step)
        return pair

    return connect


def test_a_tunnel_tells_what_was_negotiated(connect: Callable[..., Pair]) -> None:
    pair = connect()
    assert (pair.server.is_established, pair.client.is_established) == (True, True)
    assert pair.server.protocol == "TLSv1.3"
    assert pair.server.cipher == pair.client.cipher
    assert pair.server.bits in (128, 256)
    assert pair.server.peer_certificate is None


def test_nothing_is_known_before_the_handshake(pki: Any) -> None:
    tunnel = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    tunnel.start()
    assert (tunnel.is_established, tunnel.protocol, tunnel.cipher, tunnel.bits) == (False, None, None, 0)
    assert tunnel.take_output() == b""


@pytest.mark.parametrize("step", [1, 100, 5000])
def test_the_handshake_may_come_in_pieces(connect: Callable[..., Pair], step: int) -> None:
    pair = connect(demand=True, client=CLIENT_CERTIFICATE, step=step)
    assert pair.server.is_established
    assert pair.client.is_established


def test_bulk_data_arrives_whole_in_both_directions(connect: Callable[..., Pair]) -> None:
    pair = connect()
    data = os.urandom(300_000)
    pair.client.send(data)
    pair.server.send(memoryview(data)[:100_000])
    pair.client.send(b"")
    assert pair.pump(step=3001) == (data, data[:100_000])


def almost_connected(pki: Any) -> tuple[TlsTunnel, TlsTunnel]:
    """Server and client, which has still to hand over what ends the handshake."""
    server = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    client = TlsTunnel(
        client_context(pki.client_profile(), verify_hostname=True), server_side=False, server_hostname="localhost"
    )
    client.start()
    server.receive(client.take_output())
    client.receive(server.take_output())
    return server, client


def test_data_in_the_same_read_as_the_end_of_the_handshake_is_not_lost(pki: Any) -> None:
    server, client = almost_connected(pki)
    client.send(b"early bird")
    assert server.receive(client.take_output()) == b"early bird"


def test_the_server_sends_no_session_tickets(pki: Any) -> None:
    """A client that never reads must not get bytes it did not ask for; nor may resumption skip the certificate."""
    server, client = almost_connected(pki)
    server.receive(client.take_output())
    assert server.is_established
    assert server.take_output() == b""


def test_close_notify_ends_the_plaintext(connect: Callable[..., Pair]) -> None:
    pair = connect()
    pair.client.send(b"last words")
    pair.client.close()
    assert pair.server.receive(pair.client.take_output()) == b"last words"
    assert pair.server.is_closed
    pair.server.close()
    assert pair.client.receive(pair.server.take_output()) == b""
    assert pair.client.is_closed


def test_closing_before_the_handshake_is_harmless(pki: Any) -> None:
    tunnel = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    tunnel.close()


# Client certificates ----------------------------------------------------------------------------------------------


def test_a_demanded_certificate_is_shown_and_verified(connect: Callable[..., Pair], pki: Any) -> None:
    """policy 48"""
    pair = connect(demand=True, client=CLIENT_CERTIFICATE)
    assert pair.server.peer_certificate == pki.client.public_bytes(Encoding.DER)


@pytest.mark.parametrize("protocols", ["TLSv1.2", "TLSv1.3"])
def test_a_client_without_the_demanded_certificate_fails(connect: Callable[..., Pair], protocols: str) -> None:
    """policy 48"""
    pair = connect(demand=True, server={"protocols": protocols})
    assert pair.server_failure == "peer did not return a certificate"
    assert not pair.server.is_established
    assert pair.client_failure is not None
    assert "alert" in pair.client_failure


def test_a_client_certificate_of_another_authority_fails(connect: Callable[..., Pair]) -> None:
    pair = connect(demand=True, client=STRANGER_CERTIFICATE)
    assert pair.server_failure == "certificate verify failed: unable to get local issuer certificate"


def test_clients_are_never_trusted_by_the_system_s_store(
    connect: Callable[..., Pair], pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", pki.other_ca)
    pair = connect(demand=True, client=STRANGER_CERTIFICATE)
    assert pair.server_failure is not None


def test_a_certificate_that_was_not_demanded_is_never_seen(connect: Callable[..., Pair]) -> None:
    pair = connect(demand=False, client=CLIENT_CERTIFICATE)
    assert pair.server.is_established
    assert pair.server.peer_certificate is None


# Server certificates ----------------------------------------------------------------------------------------------


def test_a_server_of_another_authority_is_refused(connect: Callable[..., Pair]) -> None:
    """policy 50"""
    pair = connect(client={"ca_cert_file": "other_ca"})
    assert pair.client_failure is not None
    assert pair.client_failure.startswith("certificate verify failed")
    assert not pair.server.is_established


def test_a_server_of_a_private_authority_is_refused_without_a_trust_file(connect: Callable[..., Pair]) -> None:
    pair = connect(client={"ca_cert_file": None})
    assert "certificate verify failed" in (pair.client_failure or "")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "127.0.0.1"])
def test_a_server_with_the_right_name_is_accepted(connect: Callable[..., Pair], name: str) -> None:
    assert connect(name=name).client.is_established


def test_a_server_with_a_wrong_name_is_refused_unless_told_not_to_look(connect: Callable[..., Pair]) -> None:
    """policy 50"""
    assert "Hostname mismatch" in (connect(name="example.com").client_failure or "")
    assert connect(name="example.com", verify_hostname=False).client.is_established
    still = connect(name="example.com", verify_hostname=False, client={"ca_cert_file": "other_ca"})
    assert "certificate verify failed" in (still.client_failure or "")


def test_without_the_name_check_public_authorities_are_not_trusted_beside_the_configured_one(
    connect: Callable[..., Pair], pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: any certificate of any public CA would do."""
    monkeypatch.setenv("SSL_CERT_FILE", pki.ca)
    pair = connect(verify_hostname=False, client={"ca_cert_file": "other_ca"})
    assert "certificate verify failed" in (pair.client_failure or "")


# Versions and ciphers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "client", "agreed"),
    [
        (None, None, "TLSv1.3"),
        ("TLSv1.2", None, "TLSv1.2"),
        ("TLSv1.3", None, "TLSv1.3"),
        ("TLSv1.2 TLSv1.3", "TLSv1.2", "TLSv1.2"),
        ("TLSv1,TLSv1.1; TLSv1.2", None, "TLSv1.2"),
        ("TLSv1.1 TLSv1.3", "TLSv1.2", None),
        ("TLSv1.3", "TLSv1.2", None),
        ("TLSv1", None, None),
        ("TLSv1", "TLSv1", "TLSv1"),
        ("TLSv1.1", "TLSv1.1", "TLSv1.1"),
        ("TLSv1 TLSv1.1", "TLSv1", "TLSv1"),
        ("TLSv1 TLSv1.1 TLSv1.2", "TLSv1,TLSv1.1", "TLSv1.1"),
        ("TLSv1.2", "TLSv1 TLSv1.1", None),
        (None, "TLSv1 TLSv1.1", None),
    ],
)
def test_protocols_restrict_the_versions_exactly(
    connect: Callable[..., Pair], server: str | None, client: str | None, agreed: str | None
) -> None:
    """policy 47"""
    pair = connect(server={"protocols": server}, client={"protocols": client})
    assert pair.client.protocol == agreed
    assert (pair.server_failure or pair.client_failure or "") if agreed is None else pair.server.is_established


@pytest.mark.parametrize("protocols", ["", " ,;", "SSLv3", "TLSv1.2 SSLv3", "tlsv1.2", "TLSv1.4", "TLSv1.2:TLSv1.3"])
def test_an_invalid_protocol_list_is_refused(pki: Any, protocols: str) -> None:
    """policy 47"""
    with pytest.raises(TlsProfileError, match=r"^Cannot set protocols\. The protocols string might be invalid\."):
        server_context(pki.server_profile(protocols=protocols), demand_certificate=False)
    with pytest.raises(TlsProfileError, match=r"^Permitted TLS protocols configuration failed$"):
        client_context(pki.client_profile(protocols=protocols), verify_hostname=True)


@pytest.mark.parametrize("ciphers", [None, "ECDHE-ECDSA-AES128-SHA", "DEFAULT"])
def test_a_profile_that_names_withdrawn_protocols_lowers_the_security_level_for_itself_alone(
    connect: Callable[..., Pair], pki: Any, ciphers: str | None
) -> None:
    lowered = server_context(pki.server_profile(protocols="TLSv1", ciphers=ciphers), demand_certificate=False)
    beside = server_context(pki.server_profile(ciphers=ciphers), demand_certificate=False)
    assert (lowered.security_level, beside.security_level > 0) == (0, True)
    assert not [cipher for cipher in lowered.get_ciphers() if "NULL" in cipher["name"] or "RC4" in cipher["name"]]
    pair = connect(server={"protocols": "TLSv1", "ciphers": ciphers}, client={"protocols": "TLSv1"})
    assert pair.server.protocol == "TLSv1"


def test_ciphers_may_say_the_security_level(pki: Any) -> None:
    profile = pki.server_profile(protocols="TLSv1 TLSv1.2", ciphers="DEFAULT@SECLEVEL=1")
    assert server_context(profile, demand_certificate=False).security_level == 1


@pytest.mark.parametrize("protocols", ["TLSv1", "TLSv1.1 TLSv1.2 TLSv1.3"])
def test_a_client_certificate_is_taken_over_withdrawn_protocols(connect: Callable[..., Pair], protocols: str) -> None:
    pair = connect(demand=True, server={"protocols": protocols}, client=CLIENT_CERTIFICATE | {"protocols": protocols})
    assert pair.server.is_established
    assert pair.server.peer_certificate is not None


@pytest.mark.parametrize("protocols", ["TLSv1", "TLSv1.1 TLSv1.2 TLSv1.3"])
def test_a_weak_certificate_is_no_better_where_the_security_level_is_low(
    pki: Any, tmp_path: Path, protocols: str
) -> None:
    """Attack: to break the key of a client's certificate, which OpenSSL's level 0 lets pass."""
    authority, key = (rsa.generate_private_key(public_exponent=65537, key_size=size) for size in (2048, 1024))
    names = {name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("ca", "weak")}
    now = datetime.now(UTC)
    files = {}
    for name, of in (("ca", authority), ("weak", key)):
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .sign(authority, hashes.SHA256())
        )
        files[name] = tmp_path / f"{name}.pem"
        files[name].write_bytes(made.public_bytes(Encoding.PEM))
    files["key"] = tmp_path / "key.pem"
    files["key"].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.minimum_version = ssl.TLSVersion.TLSv1
    client.load_cert_chain(files["weak"], files["key"])
    profile = pki.server_profile(ca_cert_file=str(files["ca"]), protocols=protocols)
    pair = Pair(
        TlsTunnel(server_context(profile, demand_certificate=True), server_side=True),
        TlsTunnel(client, server_side=False),
    )
    pair.client.start()
    pair.pump()
    assert pair.server_failure == "certificate verify failed: its key has 1024 bits, fewer than 2048"


def test_ciphers_choose_the_suite(connect: Callable[..., Pair]) -> None:
    pair = connect(server={"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256", "protocols": "TLSv1.2"})
    assert (pair.server.cipher, pair.server.bits) == ("ECDHE-ECDSA-AES128-GCM-SHA256", 128)


def test_ciphers_cannot_switch_authentication_or_encryption_off(pki: Any) -> None:
    context = server_context(pki.server_profile(ciphers="ALL:eNULL:aNULL:@SECLEVEL=0"), demand_certificate=False)
    assert not [cipher for cipher in context.get_ciphers() if cipher.get("auth") == "auth-null"]
    assert not [cipher for cipher in context.get_ciphers() if cipher["strength_bits"] == 0]


# Profiles that cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cert_file": None}, "Cannot set SSL credentials"),
        ({"private_key_file": None}, "Cannot set SSL credentials"),
        ({"cert_file": "/nowhere.pem"}, "Cannot set SSL credentials"),
        ({"private_key_file": "/nowhere.pem"}, "Cannot set SSL credentials"),
        ({"ca_cert_file": "/nowhere.pem"}, "Cannot set trusted SSL CA"),
        ({"ciphers": "no such cipher"}, "Cannot set ciphers. The ciphers string might be invalid. "),
    ],
)
def test_an_unusable_server_profile_has_the_text_of_the_log(pki: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TlsProfileError) as caught:
        server_context(pki.server_profile(**changes), demand_certificate=False)
    assert str(caught.value).startswith(text)


def test_a_key_that_is_not_the_certificate_s_is_refused(pki: Any) -> None:
    with pytest.raises(TlsProfileError, match="Cannot set SSL credentials"):
        server_context(pki.server_profile(private_key_file=pki.client_key), demand_certificate=False)


@pytest.mark.parametrize("password", [None, "", "wrong", "x" * 2000])
def test_a_locked_key_without_its_password_is_refused_and_asks_nobody(pki: Any, password: str | None) -> None:
    secret = None if password is None else Secret(password)
    with pytest.raises(TlsProfileError, match="Cannot set SSL credentials"):
        server_context(pki.server_profile(private_key_file=pki.locked_key, password=secret), demand_certificate=False)


def test_a_locked_key_opens_with_its_password(connect: Callable[..., Pair], pki: Any) -> None:
    profile = pki.server_profile(private_key_file=pki.locked_key, password=Secret("sesame"))
    assert server_context(profile, demand_certificate=False)
    assert "sesame" not in repr(profile)


def test_demanding_certificates_wants_a_file_of_authorities(pki: Any, tmp_path: Path) -> None:
    for authorities in (None, str(tmp_path)):
        with pytest.raises(TlsProfileError, match="Cannot set peer authentication"):
            server_context(pki.server_profile(ca_cert_file=authorities), demand_certificate=True)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ca_cert_file": "/nowhere.pem"}, "SSL CA configuration failed"),
        ({"cert_file": "/nowhere.pem"}, "SSL local certificate configuration failed"),
        ({"ciphers": "no such cipher"}, "SSL cipher configuration failed"),
    ],
)
def test_an_unusable_client_profile_has_the_text_of_the_log(pki: Any, changes: dict[str, Any], text: str) -> None:
    """policy 50"""
    with pytest.raises(TlsProfileError, match=f"^{text}$"):
        client_context(pki.client_profile(**changes), verify_hostname=True)


# Hostile bytes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"AMQP\x00\x01\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"])
def test_what_is_not_tls_fails(pki: Any, data: bytes) -> None:
    tunnel = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    with pytest.raises(TlsFailure):
        tunnel.receive(data)


def test_an_altered_record_breaks_the_tunnel(connect: Callable[..., Pair]) -> None:
    pair = connect()
    pair.client.send(b"pay alice")
    ciphertext = bytearray(pair.client.take_output())
    ciphertext[-1] ^= 1
    with pytest.raises(TlsFailure, match="bad record mac"):
        pair.server.receive(bytes(ciphertext))


def test_an_end_within_the_handshake_fails(pki: Any) -> None:
    tunnel = TlsTunnel(client_context(pki.client_profile(), verify_hostname=False), server_side=False)
    tunnel.start()
    with pytest.raises(TlsFailure, match="unexpected eof while reading"):
        tunnel.receive_eof()


def test_a_handshake_that_never_ends_is_cut(pki: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: keep the handshake going for ever. OpenSSL has limits of its own, so ours is lowered to be met first."""
    monkeypatch.setattr("auth.tls.MAX_HANDSHAKE_BYTES", 64)
    tunnel = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    start_of_a_long_hello = b"\x16\x03\x01\x40\x00" + b"\x01\x00\x3f\xfc\x03\x03"
    assert tunnel.receive(start_of_a_long_hello) == b""
    with pytest.raises(TlsFailure, match="handshake of more than 64 bytes"):
        tunnel.receive(b"\x00" * 64)


def test_renegotiation_and_compression_are_off(pki: Any) -> None:
    for context in (
        server_context(pki.server_profile(), demand_certificate=False),
        client_context(pki.client_profile(), verify_hostname=True),
    ):
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION


# Turns, and records without data


@pytest.mark.parametrize("step", [1, 3, 7, 29, 1 << 20])
def test_what_is_taken_in_slices_is_what_was_sent(connect: Callable[..., Pair], step: int) -> None:
    """However reads cut the records, and however short the turns are."""
    pair = connect()
    sent = b""
    for size in (1, 5, 2, 3000, 1, 40_000) * 30:
        pair.client.send(piece := os.urandom(size) if step > 7 or size < 10 else b"x" * 10)
        sent += piece
    ciphertext = pair.client.take_output()
    received = b""
    for at in range(0, len(ciphertext), step):
        received += pair.server.receive(ciphertext[at : at + step], lambda: lambda: False)
        while pair.server.has_more:
            received += pair.server.receive(b"", lambda: lambda: False)
    assert received == sent


def test_a_turn_ends_when_there_is_no_time_left(connect: Callable[..., Pair]) -> None:
    pair = connect()
    for _ in range(100):
        pair.client.send(b"x")
    ciphertext = pair.client.take_output()
    turns: list[int] = []
    while not turns or pair.server.has_more:
        turns.append(len(pair.server.receive(b"" if turns else ciphertext, lambda: lambda: False)))
    assert turns == [32, 32, 32, 4]


def test_what_comes_while_something_waits_is_not_lost(connect: Callable[..., Pair]) -> None:
    pair = connect()
    received = b""
    for _ in range(10):
        for _ in range(40):
            pair.client.send(b"x")
        received += pair.server.receive(pair.client.take_output(), lambda: lambda: False)
    assert pair.server.has_more
    received += pair.server.receive(b"")
    assert (received, pair.server.has_more) == (b"x" * 400, False)


def test_nothing_waits_behind_the_peers_end(connect: Callable[..., Pair]) -> None:
    pair = connect()
    for _ in range(40):
        pair.client.send(b"x")
    pair.client.close()
    pair.server.receive(pair.client.take_output() + b"\x17\x03\x03\x00\x05junk" * 10, lambda: lambda: False)
    assert pair.server.receive(b"") == b"x" * 8
    assert pair.server.is_closed
    assert not pair.server.has_more
    assert pair.server.receive(b"more") == b""


def test_records_without_data_are_billed(pki: Any) -> None:
    """Attack: KeyUpdates for ever. Python's ssl cannot send them; tests/attacks has the real ones."""
    tunnel = TlsTunnel(server_context(pki.server_profile(), demand_certificate=False), server_side=True)
    for _ in range(8):
        tunnel._bill(32, 0)
    for _ in range(1000):
        tunnel._bill(32, 16)  # one for each with data, for ever
    tunnel._bill(32, 32)
    tunnel._bill(32, 0)
    with pytest.raises(RecordsWithoutData, match="more than 256 records without data"):
        tunnel._bill(1, 0)


@pytest.mark.parametrize("junk", [b"HTTP/1.1 200 OK\r\n", b"\x16\x03\x01\xff\xff" + bytes(40), b"\xff" * 60])
def test_what_is_no_tls_is_refused_at_once(pki: Any, junk: bytes) -> None:
    """OpenSSL gets the beginning of a record without its end, so that it can say so."""
    tunnel = TlsTunnel(client_context(pki.client_profile(), verify_hostname=False), server_side=False)
    tunnel.start()
    with pytest.raises(TlsFailure):
        tunnel.receive(junk)


# Resumed sessions of TLSv1.2


class Resuming:
    """A server that demands certificates, and a client that would resume its first session."""

    def __init__(self, pki: Any) -> None:
        profile = pki.server_profile(protocols="TLSv1.2")
        self._accepting = server_context(profile, demand_certificate=True)
        shown = {each: getattr(pki, name) for each, name in CLIENT_CERTIFICATE.items()}
        self._connecting = client_context(pki.client_profile(**shown), verify_hostname=True)
        self.first = self.connect(None)

    def connect(self, session: ssl.SSLSession | None) -> Pair:
        pair = self.begin(session)
        pair.pump()
        return pair

    def begin(self, session: ssl.SSLSession | None) -> Pair:
        """The client has said its ClientHello."""
        client = TlsTunnel(self._connecting, server_side=False, server_hostname="localhost")
        if session is not None:
            client._ssl.session = session
        client.start()
        return Pair(TlsTunnel(self._accepting, server_side=True), client)

    def again(self) -> Pair:
        return self.connect(self.first.client._ssl.session)


def test_a_session_is_resumed_with_its_certificate_while_its_connection_is_open(pki: Any) -> None:
    resuming = Resuming(pki)
    again = resuming.again()
    assert again.server.is_established
    assert again.server._ssl.session_reused
    assert again.server.peer_certificate == resuming.first.server.peer_certificate is not None


@pytest.mark.parametrize("late_s", [0.0, 1.0])
def test_a_session_whose_certificate_has_expired_meanwhile_is_not_resumed(
    pki: Any, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """OpenSSL does not look at the certificate of a session again: it shakes hands, and we refuse."""
    resuming = Resuming(pki)
    ends_at_s = resuming.first.server.peer_expires_at_s
    assert ends_at_s is not None
    again = resuming.begin(resuming.first.client._ssl.session)
    again.server.receive(again.client.take_output())
    again.client.receive(again.server.take_output())
    monkeypatch.setattr("auth.tls.time.time", lambda: ends_at_s + late_s)
    with pytest.raises(UntrustedCertificate, match=r"^certificate verify failed: certificate has expired$"):
        again.server.receive(again.client.take_output())
    monkeypatch.setattr("auth.tls.time.time", lambda: ends_at_s - 1.0)
    assert resuming.again().server.is_established


def test_a_session_is_forgotten_with_its_connection(pki: Any) -> None:
    resuming = Resuming(pki)
    session = resuming.first.client._ssl.session
    resuming.first.server.discard()
    again = resuming.connect(session)
    assert again.server.is_established
    assert not again.server._ssl.session_reused
