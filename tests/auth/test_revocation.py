"""Certificate revocation lists (policy-and-auth.md §6.8): what OpenSSL and we make of them."""

import ssl
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import Encoding

from auth import revocation
from auth.certificates import CertificateId, certificate_id, end_point_binding, issuer_digest
from auth.revocation import MAX_LISTS, RevocationError, list_files, read_lists
from auth.tls import TlsProfileError, TlsTunnel, UntrustedCertificate, client_context, server_context

NOW = datetime.now(UTC)
MakeList = Callable[..., bytes]


@pytest.fixture
def make_list(pki: Any) -> MakeList:
    def make(*revoked: int, days: float = 1, key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
        """PEM of a list of the test authority that ends in so many days."""
        ca = x509.load_pem_x509_certificate(Path(pki.ca).read_bytes())
        builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
        builder = builder.last_update(NOW - timedelta(days=2)).next_update(NOW + timedelta(days=days))
        for serial in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW - timedelta(days=1))
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(key or pki.key_of(pki.ca), hashes.SHA256()).public_bytes(Encoding.PEM)

    return make


def shake_hands(pki: Any, crl_file: str) -> TlsTunnel:
    """The server's tunnel after a handshake with the client's certificate. Errors: TlsFailure, TlsProfileError."""
    accepting = server_context(pki.server_profile(crl_file=crl_file), demand_certificate=True)
    profile = pki.client_profile(cert_file=pki.client_cert, private_key_file=pki.client_key)
    server = TlsTunnel(accepting, server_side=True)
    client = TlsTunnel(client_context(profile, verify_hostname=False), server_side=False, server_hostname="localhost")
    client.start()
    for _ in range(4):
        server.receive(client.take_output())
        client.receive(server.take_output())
    return server


def test_a_list_that_does_not_name_the_certificate_lets_it_in(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    (tmp_path / "list.crl").write_bytes(make_list(4711))
    assert shake_hands(pki, str(tmp_path / "list.crl")).peer_certificate == pki.client.public_bytes(Encoding.DER)


def test_a_revoked_certificate_is_refused(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    (tmp_path / "list.crl").write_bytes(make_list(4711, pki.client.serial_number))
    with pytest.raises(UntrustedCertificate, match="certificate verify failed: certificate revoked"):
        shake_hands(pki, str(tmp_path / "list.crl"))


def test_a_hashed_directory_is_read(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    (tmp_path / "0123abcd.r0").write_bytes(make_list(pki.client.serial_number))
    (tmp_path / "notes.txt").write_text("no list")
    with pytest.raises(UntrustedCertificate, match="certificate revoked"):
        shake_hands(pki, str(tmp_path))


def test_an_expired_list_lets_nobody_in(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    (tmp_path / "list.crl").write_bytes(make_list(days=-1))
    with pytest.raises(UntrustedCertificate, match="CRL has expired"):
        shake_hands(pki, str(tmp_path / "list.crl"))


@pytest.mark.parametrize("forged", [False, True])
def test_a_list_of_somebody_else_lets_nobody_in(pki: Any, make_list: MakeList, tmp_path: Path, forged: bool) -> None:
    """Of another authority there is none for ours; one with our authority's name is not signed by it."""
    other = ec.generate_private_key(ec.SECP256R1())
    ca = x509.load_pem_x509_certificate(Path(pki.other_ca).read_bytes())
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(NOW - timedelta(days=1)).next_update(NOW + timedelta(days=1))
    alien = builder.sign(pki.key_of(pki.other_ca), hashes.SHA256()).public_bytes(Encoding.PEM)
    (tmp_path / "list.crl").write_bytes(make_list(key=other) if forged else alien)
    with pytest.raises(UntrustedCertificate, match="CRL signature failure" if forged else "unable to get certificate"):
        shake_hands(pki, str(tmp_path / "list.crl"))


@pytest.mark.parametrize("content", [b"", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", None])
def test_without_a_list_nothing_works(pki: Any, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "list.crl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TlsProfileError, match=r"Cannot set certificate revocation lists: .*list\.crl: "):
        shake_hands(pki, str(path))


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (b"\x06\x03\x55\x04\x03\x0c", b"\x06\x03\x55\x04\x03\x02"),  # a name that is a number
        (b"\x17\x0d", b"\x17\x0c"),  # a time that is too short
    ],
)
def test_a_list_with_a_damaged_part_is_refused_when_it_is_read(
    before: bytes, behind: bytes, make_list: MakeList, tmp_path: Path
) -> None:
    """Attack: to stop the reading of all profiles by a list on its way, which raises only where it is asked."""
    der = x509.load_pem_x509_crl(make_list(7)).public_bytes(Encoding.DER)
    assert before in der
    pem = b64encode(der.replace(before, behind, 1))
    (tmp_path / "list.crl").write_bytes(b"-----BEGIN X509 CRL-----\n" + pem + b"\n-----END X509 CRL-----\n")
    with pytest.raises(RevocationError, match=r"list\.crl: a certificate revocation list that cannot be read"):
        read_lists(str(tmp_path / "list.crl"))


def test_a_certificate_signed_in_an_unknown_way_has_no_binding(pki: Any) -> None:
    der = pki.client.public_bytes(Encoding.DER)
    ecdsa = bytes.fromhex("06082a8648ce3d040302")
    assert end_point_binding(der) is not None
    assert end_point_binding(der.replace(ecdsa, bytes.fromhex("06082a8648ce3d04037f"))) is None


@pytest.mark.parametrize(("names", "text"), [((), "named as `openssl rehash`"), (None, f"more than {MAX_LISTS}")])
def test_a_directory_without_lists_or_with_too_many(tmp_path: Path, names: Any, text: str) -> None:
    for number in range(0 if names is not None else MAX_LISTS + 1):
        (tmp_path / f"0123abcd.r{number}").touch()
    with pytest.raises(RevocationError, match=text):
        read_lists(str(tmp_path))


def test_a_certificate_beside_a_list_becomes_no_authority(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    """Attack: whoever may replace the list adds an authority of his own to it."""
    (tmp_path / "list.crl").write_bytes(Path(pki.other_ca).read_bytes() + make_list())
    context = server_context(pki.server_profile(crl_file=str(tmp_path / "list.crl")), demand_certificate=True)
    assert context.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}


def test_open_connections_are_asked_about(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    client = certificate_id(pki.client.public_bytes(Encoding.DER))
    stranger_der = x509.load_pem_x509_certificate(Path(pki.stranger_cert).read_bytes()).public_bytes(Encoding.DER)
    stranger = certificate_id(stranger_der)
    authorities = Path(pki.ca).read_bytes()
    (tmp_path / "list.crl").write_bytes(make_list(client.serial, stranger.serial))
    lists = read_lists(str(tmp_path / "list.crl"))
    assert lists.revoked({client, stranger}, authorities) == {client}, "a serial number counts for its issuer alone"
    assert lists.revoked({client}, Path(pki.other_ca).read_bytes()) == set(), "nobody who is trusted has signed it"
    (tmp_path / "list.crl").write_bytes(make_list(client.serial, key=ec.generate_private_key(ec.SECP256R1())))
    assert read_lists(str(tmp_path / "list.crl")).revoked({client}, authorities) == set()


# Lists beside each other, and those of others


def ids_of(*serials: int, pki: Any) -> list[CertificateId]:
    issuer = x509.load_pem_x509_certificate(Path(pki.ca).read_bytes()).subject
    return [CertificateId(issuer=issuer_digest(issuer), serial=serial) for serial in serials]


def test_each_list_of_a_file_and_of_a_directory_counts(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    """Attack: whoever is revoked by one list is let in by the next."""
    authorities = Path(pki.ca).read_bytes()
    (tmp_path / "both").write_bytes(make_list(1) + b"words between\n" + make_list(2))
    (tmp_path / "hashed").mkdir()
    for number in (1, 2):
        (tmp_path / "hashed" / f"0123abcd.r{number}").write_bytes(make_list(number))
    shown = ids_of(1, 2, 3, pki=pki)
    for path in ("both", "hashed"):
        lists = read_lists(str(tmp_path / path))
        assert lists.revoked(shown, authorities) == set(shown[:2])
        assert lists.path == str(tmp_path / path)
        assert lists.pem.count(b"-----BEGIN X509 CRL-----") == 2
        assert b"words" not in lists.pem
        assert b"-----END X509 CRL-----\n-----BEGIN X509 CRL-----" in lists.pem.replace(b"\n\n", b"\n")


def test_a_list_counts_that_an_authority_or_one_below_it_has_signed(
    pki: Any, make_list: MakeList, tmp_path: Path
) -> None:
    """Attack: a list, or its absence, of somebody else's."""
    path = tmp_path / "list"
    path.write_bytes(make_list(1))
    lists = read_lists(str(path))
    shown = ids_of(1, pki=pki)
    own, other = Path(pki.ca).read_bytes(), Path(pki.other_ca).read_bytes()
    der = x509.load_pem_x509_certificate(own).public_bytes(Encoding.DER)
    unreadable = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert lists.revoked(shown, unreadable + other + own) == set(shown)
    assert lists.revoked(shown, other) == set()
    assert lists.revoked(shown, other, (b"no certificate", der)) == set(shown)
    issuer = shown[0].issuer
    assert lists.issuers_that_revoke(unreadable + own) == {issuer}
    assert lists.issuers_that_revoke(other) == set()
    path.write_bytes(make_list())
    assert read_lists(str(path)).issuers_that_revoke(own) == set(), "it names nobody"
    path.write_bytes(make_list(1, key=ec.generate_private_key(ec.SECP256R1())))
    assert read_lists(str(path)).revoked(shown, own) == set()
    assert read_lists(str(path)).issuers_that_revoke(own) == set()


def test_an_authority_whose_key_signs_no_lists_is_none(pki: Any, make_list: MakeList, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(make_list(1))
    name = x509.load_pem_x509_certificate(Path(pki.ca).read_bytes()).subject
    key, signing = x25519.X25519PrivateKey.generate(), ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    pem = made.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM)
    assert read_lists(str(path)).revoked(ids_of(1, pki=pki), pem) == set()


def test_lists_have_so_many_bytes_together(
    make_list: MakeList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a directory of lists that are fetched from somewhere, to fill the memory."""
    content = make_list(1)
    for number in range(3):
        (tmp_path / f"0123abcd.r{number}").write_bytes(content)
    monkeypatch.setattr(revocation, "MAX_OTHER_BYTES", 3 * len(content))
    assert len(read_lists(str(tmp_path)).lists) == 3
    monkeypatch.setattr(revocation, "MAX_OTHER_BYTES", 3 * len(content) - 1)
    with pytest.raises(RevocationError, match=f"^{tmp_path}/0123abcd.r2: "):
        read_lists(str(tmp_path))


def test_a_directory_has_so_many_lists(make_list: MakeList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "MAX_LISTS", 2)
    for number in range(2):
        (tmp_path / f"0123abcd.r{number}").write_bytes(make_list(1))
    assert list_files(str(tmp_path)) == [f"{tmp_path}/0123abcd.r{number}" for number in range(2)]
    (tmp_path / "0123abcd.r2").write_bytes(make_list(1))
    assert list_files(str(tmp_path)) == []
    with pytest.raises(RevocationError, match="more than 2 certificate revocation lists"):
        read_lists(str(tmp_path))


def test_a_context_keeps_what_it_demanded_before(make_list: MakeList, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(make_list(1))
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    read_lists(str(tmp_path / "list")).load_into(context)
    both = ssl.VerifyFlags.VERIFY_X509_STRICT | ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    assert context.verify_flags & both == both
