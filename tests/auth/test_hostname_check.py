"""The name in a server's certificate, compared by OpenSSL or as 1.20 does (policy-and-auth.md §6.6, item 50)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from auth.host_names import as_dns
from auth.tls import TlsProfile, TlsTunnel, UntrustedCertificate, client_context, server_context
from router.control.security import HostnameCheck, client_tunnels

NOW = datetime.now(UTC)
KEY = ec.generate_private_key(ec.SECP256R1())


def named(common: str, names: Sequence[str], folder: Path) -> TlsProfile:
    """A server's profile with a certificate of its own making, which is its authority too."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(subject).public_key(KEY.public_key()).serial_number(1)
        .not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )  # fmt: skip
    if names:
        alternatives: list[x509.GeneralName] = [
            x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    (folder / "cert.pem").write_bytes(builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return TlsProfile(
        name="server",
        cert_file=str(folder / "cert.pem"),
        private_key_file=str(folder / "key.pem"),
        ca_cert_file=str(folder / "cert.pem"),
    )


def is_taken(profile: TlsProfile, check: HostnameCheck, host: str) -> bool:
    """Returns whether a connector with this check speaks to the server as `host`."""
    context = client_context(profile, verify_hostname=False)
    context.check_hostname = check is HostnameCheck.STRICT
    files: Any = SimpleNamespace(context=context)
    client = client_tunnels(files, check)(host)
    server = TlsTunnel(server_context(profile, demand_certificate=False), server_side=True)
    client.start()
    try:
        for _ in range(4):
            server.receive(client.take_output())
            client.receive(server.take_output())
    except UntrustedCertificate:
        return False
    return client.is_established


@pytest.mark.parametrize(
    ("common", "names", "host", "by_strict", "by_compatible"),
    [
        ("broker.example", ["broker.example"], "broker.example", True, True),
        ("broker.example", ["broker.example"], "Broker.Example.", True, True),
        ("broker.example", [], "broker.example", True, True),
        ("other", ["*.site.example"], "broker.site.example", True, True),
        ("other", ["xn--bcher-kva.example"], "bücher.example", True, True),
        ("other", ["192.0.2.1"], "192.0.2.1", True, True),
        # Attack: the authority has looked at the DNS names. What the holder writes into the common name is free text.
        ("broker.example", ["mallory.example"], "broker.example", False, True),
        ("*", ["mallory.example"], "broker", False, True),
        ("other", ["*.example"], "broker.example", False, True),
        ("other", ["b*.site.example"], "broker.site.example", False, True),
        ("other", ["*.site.example"], "a.broker.site.example", False, False),
        ("other", ["mallory.example"], "broker.example", False, False),
        ("192.0.2.1", [], "192.0.2.1", False, True),
    ],
)
def test_server_is_taken_by_the_names_that_its_authority_has_checked(
    tmp_path: Path, common: str, names: list[str], host: str, by_strict: bool, by_compatible: bool
) -> None:
    profile = named(common, names, tmp_path)
    assert is_taken(profile, HostnameCheck.STRICT, host) is by_strict
    assert is_taken(profile, HostnameCheck.COMPATIBLE, host) is by_compatible
    assert is_taken(profile, HostnameCheck.OFF, host)


@pytest.mark.parametrize(
    ("attributes", "check"),
    [
        ({"verifyHostname": True, "hostnameMatch": "strict"}, HostnameCheck.STRICT),
        ({"verifyHostname": True, "hostnameMatch": "compatible"}, HostnameCheck.COMPATIBLE),
        ({"verifyHostname": True}, HostnameCheck.STRICT),  # an authServicePlugin
        ({"verifyHostname": False, "hostnameMatch": "compatible"}, HostnameCheck.OFF),
    ],
)
def test_attributes_choose_the_check(attributes: dict[str, Any], check: HostnameCheck) -> None:
    assert HostnameCheck.of(attributes) is check


@pytest.mark.parametrize(
    ("host", "name"),
    [("Straße.example", "xn--strae-oqa.example"), ("a.example.", "a.example"), ("a b", "a b"), ("x" * 300, "x" * 300)],
)
def test_host_name_is_written_as_certificates_have_it(host: str, name: str) -> None:
    """By IDNA 2008 ß stays what it is; by that of 2003 it would be ss, another name."""
    assert as_dns(host) == name
