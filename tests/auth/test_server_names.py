"""Host names in certificates, in ClientHellos and in sniProfiles (policy-and-auth.md §6.6, §6.9)."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from auth.client_hello import MAX_HELLO_BYTES, MAX_NAME_CHARACTERS, MAX_RECORDS, Unfinished, server_name
from auth.host_names import chosen, names_host, pattern_of
from auth.tls import (
    ChoosingTunnel,
    NamedTunnel,
    Served,
    TlsProfileError,
    TlsTunnel,
    UntrustedCertificate,
    UnusableProfile,
    client_context,
    server_context,
)

NOW = datetime.now(UTC)
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(common: Sequence[str] = ("server",), names: Sequence[x509.GeneralName] = ()) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def dns(*names: str) -> list[x509.GeneralName]:
    return [x509.DNSName(name) for name in names]


@pytest.mark.parametrize(
    ("common", "names", "host", "is_named"),
    [
        (["a.example"], [], "a.example", True),
        (["a.example"], [], "A.Example.", True),
        (["a.example"], dns("b.example"), "b.example", True),
        (["a.example"], dns("b.example"), "a.example", True),  # then the common names
        (["x", "a.example"], [], "a.example", True),
        ([], dns("*.example"), "a.example", True),
        ([], dns("w*.example"), "www.example", True),
        ([], dns("w*w.example"), "w.example", False),
        ([], dns("*.example"), "example", False),
        ([], dns("*.example"), "a.b.example", False),
        ([], dns("*"), "a.example", False),
        ([], dns("**.example"), "a.example", False),
        ([], dns("a.example\0.evil.example"), "a.example", False),
        (["a.example\0.evil.example"], [], "a.example", False),
        ([], dns(""), "a.example", False),
        ([], dns(""), "", False),
        ([], dns("."), ".", False),
        ([], dns("xn--bcher-kva.example"), "bücher.example", True),
        (["127.0.0.1"], [], "127.0.0.1", True),
        (["127.*.0.1"], [], "127.0.0.1", False),
        ([], dns("*.0.0.1"), "127.0.0.1", False),
        (["::1"], [], "0:0:0:0:0:0:0:1", True),
        (["server"], [], "a.example", False),
        ([], [x509.IPAddress(ip_address("192.0.2.1"))], "192.0.2.1", True),
        ([], [x509.IPAddress(ip_address("192.0.2.1"))], "192.0.2.2", False),
        ([], [x509.IPAddress(ip_address("2001:db8::1"))], "2001:DB8:0::1", True),
        ([], [x509.IPAddress(ip_address("192.0.2.1")), *dns("a.example")], "a.example", True),
        ([], [x509.IPAddress(ip_address("192.0.2.1"))], "None", False),
        ([], dns("a.example."), "a.example", True),
        ([], dns("a"), "a", True),
        ([], dns(f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}"), f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}", True),
        (
            [],
            dns(f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 62}"),
            f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 62}",
            False,
        ),
    ],
)
def test_who_a_server_may_call_itself_by_the_rules_of_1_20(
    common: list[str], names: list[x509.GeneralName], host: str, is_named: bool
) -> None:
    """policy 50"""
    assert names_host(certificate(common, names), host) is is_named


def test_ten_thousand_names_are_looked_through() -> None:
    many = certificate(names=dns(*(f"n{number}.example" for number in range(10_000))))
    assert names_host(many, "n9999.example")
    assert not names_host(many, "n10000.example")


@given(st.binary(max_size=400))
def test_what_is_no_certificate_names_nobody(data: bytes) -> None:
    assert not names_host(data, "a.example")


def test_an_altered_certificate_names_its_host_or_nobody() -> None:
    der = certificate(names=dns("b.example"))
    for at in range(len(der)):
        altered = der[:at] + bytes([der[at] ^ 0x20]) + der[at + 1 :]
        assert names_host(altered, "b.example") in (True, False)


# ClientHellos


def hello_of(host: str | None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    tunnel = TlsTunnel(context, server_side=False, server_hostname=host)
    tunnel.start()
    return tunnel.take_output()


def in_records(hello: bytes, size: int) -> bytes:
    """The same message in records of so many bytes."""
    body = hello[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


@pytest.mark.parametrize(("host", "name"), [("A.Example", "a.example"), ("bücher.example", "xn--bcher-kva.example"),
                                            (None, None), ("127.0.0.1", None)])  # fmt: skip
def test_the_name_in_a_hello_of_openssl(host: str | None, name: str | None) -> None:
    assert server_name(hello_of(host)) == name


def test_a_hello_in_pieces_is_waited_for() -> None:
    hello = in_records(hello_of("a.example"), 100)
    for at in range(len(hello)):
        with pytest.raises(Unfinished):
            server_name(hello[:at])
    assert server_name(hello) == "a.example"
    assert server_name(hello + b"early data") == "a.example"


def test_a_hello_of_a_thousand_records_names_nobody() -> None:
    """Attack: each byte that comes has us look through all of them again."""
    assert server_name(in_records(hello_of("a.example"), 1)) is None


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 255))
def test_whatever_comes_is_read_or_refused(junk: bytes, at: int, value: int) -> None:
    good = hello_of("a.example")
    altered = good[:at] + bytes([value]) + good[at + 1 :]
    for data in (junk, b"\x16\x03\x01" + junk, good[:43] + junk, altered):
        try:
            name = server_name(data)
        except Unfinished:
            continue
        assert name is None or name.isprintable()


def test_a_hello_is_held_no_longer_than_it_may_be() -> None:
    announced = b"\x16\x03\x01\x40\x00\x01" + (MAX_HELLO_BYTES + 1).to_bytes(3)
    assert server_name(announced) is None


# Which profile


def test_a_star_is_a_label_and_never_none() -> None:
    by_name = {"*.a.example": 1, "*.": 2, "*.b": 3}
    assert [chosen(by_name, name) for name in ("x.a.example", ".a.example", "a", "", "x.b", None)] == [
        *(1, None, None, None, 3, None),
    ]


def test_names_choose_and_a_star_is_one_label() -> None:
    by_name = {pattern_of("A.Example."): 1, pattern_of("*.example"): 2, pattern_of("bücher.de"): 3}
    names = ("a.example", "b.example", "b.a.example", "example", "xn--bcher-kva.de", "*.example", None, "")
    assert [chosen(by_name, name) for name in names] == [1, 2, None, None, 3, 2, None, None]


@pytest.mark.parametrize("written", ["", "*", "*.", "a.*.example", "a b", "a..example", "127.0.0.1", "::1", "a\0b.de"])
def test_what_is_no_name_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"is no host name|is an address"):
        pattern_of(written)


def served(pki: Any, name: str, *, demands: bool = False, **changes: object) -> Served:
    context = server_context(pki.server_profile(name=name, **changes), demand_certificate=demands)
    return Served(profile=name, context=context, end_point=name.encode())


def talk(server: TlsTunnel, client: TlsTunnel) -> None:
    client.start()
    for _ in range(4):
        for byte in client.take_output():
            server.receive(bytes([byte]))
        client.receive(server.take_output())


def client_for(pki: Any, host: str, **changes: object) -> TlsTunnel:
    context = client_context(pki.client_profile(**changes), verify_hostname=False)
    return TlsTunnel(context, server_side=False, server_hostname=host)


def test_the_chosen_profile_counts_in_everything(pki: Any) -> None:
    """Its protocols, its demand for a certificate and its channel binding: nothing of the listener's own."""
    own, other = served(pki, "own"), served(pki, "other", demands=True, protocols="TLSv1.2")

    def choose(name: str | None) -> Served | None:
        return other if name == "other.example" else None

    server, client = ChoosingTunnel(own, choose), client_for(pki, "own.example")
    talk(server, client)
    assert (server.chosen, server.protocol, server.binding("tls-server-end-point")) == (None, "TLSv1.3", b"own")
    pair = {"cert_file": pki.client_cert, "private_key_file": pki.client_key}
    server, client = ChoosingTunnel(own, choose), client_for(pki, "other.example", **pair)
    talk(server, client)
    assert (server.chosen, server.protocol, server.binding("tls-server-end-point")) == ("other", "TLSv1.2", b"other")
    assert server.peer_certificate == pki.client.public_bytes(Encoding.DER)
    with pytest.raises(ConnectionError, match="peer did not return a certificate"):
        talk(ChoosingTunnel(own, choose), client_for(pki, "other.example"))


def test_a_chosen_profile_that_cannot_be_used(pki: Any) -> None:
    def choose(name: str | None) -> Served | None:
        raise TlsProfileError("Cannot set SSL credentials")

    with pytest.raises(UnusableProfile, match=r"^Cannot set SSL credentials$"):
        talk(ChoosingTunnel(served(pki, "own"), choose), client_for(pki, "a.example"))


def test_nothing_of_ours_is_shown_to_a_server_of_another_name(pki: Any) -> None:
    """policy 50: in TLSv1.3."""
    profile = pki.client_profile(cert_file=pki.client_cert, private_key_file=pki.client_key)
    context = client_context(profile, verify_hostname=False)
    server, client = TlsTunnel(served(pki, "own", demands=True).context, server_side=True), NamedTunnel(context, "b")
    client.start()
    server.receive(client.take_output())
    with pytest.raises(UntrustedCertificate, match="Hostname mismatch, certificate is not valid for 'b'"):
        client.receive(server.take_output())
    assert client.take_output() == b""


def crafted(*extensions: tuple[int, bytes], more: bytes = b"") -> bytes:
    """A ClientHello in one record, with these extensions in their order."""
    listed = b"".join(kind.to_bytes(2) + len(content).to_bytes(2) + content for kind, content in extensions)
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(listed).to_bytes(2) + listed
    message = b"\1" + len(body).to_bytes(3) + body
    return b"\x16\3\1" + len(message).to_bytes(2) + message + more


def asks_for(name: bytes) -> tuple[int, bytes]:
    entry = b"\0" + len(name).to_bytes(2) + name
    return 0, len(entry).to_bytes(2) + entry


@pytest.mark.parametrize(
    ("name", "host"),
    [
        (b"a", "a"),
        (b"A.Example.", "a.example"),
        (b".a.example", ".a.example"),
        (b"", None),
        (b".", None),
        (b"a\nb", None),
        (b"a\0b", None),
        (b"\xff", None),
        (b"a" * MAX_NAME_CHARACTERS, "a" * MAX_NAME_CHARACTERS),
        (b"a" * (MAX_NAME_CHARACTERS + 1), None),
    ],
)
def test_the_name_in_a_hello_is_one_that_may_be_logged_and_looked_up(name: bytes, host: str | None) -> None:
    assert server_name(crafted(asks_for(name))) == host


def test_the_name_may_stand_behind_other_extensions() -> None:
    """Browsers put them in another order each time."""
    assert server_name(crafted((23, b""), (43, b"\2\3\4"), asks_for(b"a.example"))) == "a.example"
    assert server_name(crafted((23, b""))) is None
    assert server_name(crafted(asks_for(b"a.example"), more=b"\x14\3\3\0\1\1")) == "a.example"


def test_a_hello_is_waited_for_byte_by_byte() -> None:
    whole = crafted(asks_for(b"a.example"), (21, bytes(600)))  # its length takes more than one byte
    for end in range(len(whole)):
        with pytest.raises(Unfinished):
            server_name(whole[:end])
    assert server_name(whole) == "a.example"


def test_a_hello_may_be_in_so_many_records_and_no_more() -> None:
    """Attack: each byte that comes has us look through all of them again."""
    hello = crafted((21, bytes(400)), asks_for(b"a.example"))
    size = len(hello) - 5
    assert server_name(in_records(hello, -(-size // MAX_RECORDS))) == "a.example"
    assert server_name(in_records(hello, -(-size // (MAX_RECORDS + 1)))) is None


def test_a_hello_may_be_so_long_and_no_longer() -> None:
    """Attack: to have as much held, and looked at, as the three bytes of a length can say."""
    shortest = len(crafted((21, b""), asks_for(b"a.example"))) - 5 - 4
    longest = crafted((21, bytes(MAX_HELLO_BYTES - shortest)), asks_for(b"a.example"))
    assert server_name(longest) == "a.example"
    assert server_name(crafted((21, bytes(MAX_HELLO_BYTES - shortest + 1)), asks_for(b"a.example"))) is None
    whole = crafted(asks_for(b"a.example"))
    assert server_name(whole[:6] + b"\x01" + whole[7:]) is None  # 64 KiB more, by the length's first byte
