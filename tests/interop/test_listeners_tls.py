"""TLS and SASL of listeners over real handshakes (docs/spec/policy-and-auth.md §6.3 to §6.5, §8)."""

import contextlib
import datetime
import hashlib
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness import USERS, RunningRouter, connect, eventually
from open_house import OPEN_HOUSE, port_of
from raw_peer import AMQP, OPEN, SASL, RawPeer, open_frame, plain, raw_peer, sasl_init

from router.management.client import BadRequestStatus, InternalServerErrorStatus, ManagementClient
from router.values import Array, symbol

EXPECTED_ERRORS = [
    r"ERROR \(error\) Run Time: Cannot set",
    r"Unrecognized component",
    r"AGENT \(error\) Error performing CREATE",
    r"in the environment variable",
    r"Unable to open password file",
]
MECHANISMS = 0x40
# Everybody who has a name, and those without.
EVERYBODY = """
vhost {
    hostname: anybody
    allowUnknownUser: true
    groups: {
        "$default": {
            remoteHosts: *
            sources: *
            targets: *
        }
    }
}
"""
EXTRA_CONFIGURATION = OPEN_HOUSE + EVERYBODY


@pytest.fixture(scope="module")
def client_certificate(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, bytes]:
    """Certificate and key files and the DER of the certificate of the specification's table, by our own authority."""
    folder = tmp_path_factory.mktemp("client")
    parts = [
        (NameOID.COMMON_NAME, "127.0.0.1"),
        (NameOID.ORGANIZATION_NAME, "Client"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Dev"),
        (NameOID.LOCALITY_NAME, "Raleigh"),
        (NameOID.STATE_OR_PROVINCE_NAME, "NC"),
        (NameOID.COUNTRY_NAME, "US"),
    ]
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "table")])
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in parts])
    made = {}
    for name, whose, of in (("ca", ca, ca_key), ("client", subject, key)):
        now = datetime.datetime.now(datetime.UTC)
        made[name] = (
            x509.CertificateBuilder()
            .subject_name(whose)
            .issuer_name(ca)
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .sign(ca_key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(made[name].public_bytes(serialization.Encoding.PEM))
    (folder / "client.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    # The router is to trust both authorities.
    both = (folder / "ca.crt").read_bytes() + Path(certificates.ca).read_bytes()
    (folder / "both.crt").write_bytes(both)
    der = made["client"].public_bytes(serialization.Encoding.DER)
    return str(folder / "client.crt"), str(folder / "client.key"), der


@contextmanager
def listener(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, profile: dict[str, Any] | None = None,
    **attributes: Any,
) -> Iterator[str]:  # fmt: skip
    """A listener with an sslProfile of its own, until the end of the body; its name."""
    since, name = router.mark(), "tls-test"
    certificate, key = certificates.pair("server")
    files = {"certFile": certificate, "privateKeyFile": key, "caCertFile": certificates.ca}
    client.create(files | (profile or {}), type="sslProfile", name="in-tls")
    given = {"host": "127.0.0.1", "port": "0", "policyVhost": "anybody", "sslProfile": "in-tls", **attributes}
    try:
        client.create(given, type="listener", name=name)
        try:
            port_of(router, name, since=since)
            yield name
        finally:
            router.ports.pop(name, None)
            client.delete(type="listener", name=name)
    finally:
        client.delete(type="sslProfile", name="in-tls")


@contextmanager
def tls_peer(
    router: RunningRouter, name: str, *, pair: tuple[str, str] | None = None, version: ssl.TLSVersion | None = None
) -> Iterator[RawPeer]:
    """Inside TLS; with a certificate, and one version of the protocol, where given. Errors: OSError."""
    context = ssl.create_default_context(cafile=router.certificates.ca)
    if pair is not None:
        context.load_cert_chain(*pair)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    since = router.mark()
    with connect(router, name) as connected:
        peer = RawPeer(connected, since)
        with context.wrap_socket(connected, server_hostname="localhost") as wrapped:
            peer.socket = wrapped
            yield peer


def shakes_hands(router: RunningRouter, name: str) -> bool:
    try:
        with tls_peer(router, name):
            return True
    except OSError:
        return False


def row_of(client: ManagementClient, peer: RawPeer) -> dict[str, Any]:
    """The connection's row after its Open."""
    number = peer.read_until(OPEN)[9]["qd.conn-id"]
    return client.read(type="connection", identity=str(number))


# TLS


def test_one_port_takes_tls_and_clear_text(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 46, 54: in the clear without SASL one is `anonymous`, in TLS without a certificate one has no name."""
    with listener(router, client, certificates) as name:
        with raw_peer(router, name) as peer:
            peer.send(AMQP + open_frame())
            row = row_of(client, peer)
            assert (row["isEncrypted"], row["ssl"], row["user"], row["isAuthenticated"]) == (
                *(False, True),
                *("anonymous", False),
            )
        with raw_peer(router, name, is_encrypted=True) as peer:
            peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
            row = row_of(client, peer)
            assert (row["isEncrypted"], row["sasl"], row["user"]) == (True, "ANONYMOUS", "anonymous")
            assert str(row["sslProto"]).startswith("TLSv1.")
            assert row["sslSsf"] >= 128


@pytest.mark.parametrize("attribute", ["requireSsl", "requireEncryption"])
@pytest.mark.parametrize("hello", [AMQP, SASL], ids=["amqp", "sasl"])
def test_clear_text_is_dropped_where_tls_is_required(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, attribute: str, hello: bytes
) -> None:
    """policy 46"""
    with listener(router, client, certificates, None, **{attribute: True}) as name:
        with raw_peer(router, name) as peer:
            peer.send(hello)
            peer.seconds_until_closed(5)
            router.wait_for_log(
                rf"from {peer.name} .* amqp:connection:policy-error Client connection unencrypted - forbidden",
                since=peer.since,
            )
        with raw_peer(router, name, is_encrypted=True) as peer:
            peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
            assert row_of(client, peer)["isEncrypted"]


@pytest.mark.parametrize(
    ("protocols", "spoken"),
    [("TLSv1.2", {"TLSv1.2"}), ("TLSv1.3", {"TLSv1.3"}), ("TLSv1.2 TLSv1.3", {"TLSv1.2", "TLSv1.3"}),
     ("TLSv1.3,TLSv1.2", {"TLSv1.2", "TLSv1.3"}), (None, {"TLSv1.2", "TLSv1.3"})],
)  # fmt: skip
def test_protocols_restrict_versions(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, protocols: str | None, spoken: set[str]
) -> None:
    """policy 47"""
    profile = {} if protocols is None else {"protocols": protocols}
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    with listener(router, client, certificates, profile) as name:
        found = set()
        for text, version in versions.items():
            try:
                with tls_peer(router, name, version=version) as peer:
                    peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
                    assert row_of(client, peer)["sslProto"] == text
                    found.add(text)
            except ssl.SSLError:
                continue
        assert found == spoken


@pytest.mark.parametrize(
    ("protocols", "version"),
    [("TLSv1", ssl.TLSVersion.TLSv1), ("TLSv1 TLSv1.1 TLSv1.2", ssl.TLSVersion.TLSv1_1)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_protocols_work_in_the_profile_that_names_them_and_nowhere_else(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, protocols: str, version: ssl.TLSVersion
) -> None:
    """A client of TLS 1.0 or 1.1, at OpenSSL's level 0."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version

    def spoken(name: str) -> str | None:
        with socket.create_connection(("127.0.0.1", port_of(router, name)), timeout=5) as plain_socket:
            try:
                with context.wrap_socket(plain_socket, server_hostname="localhost") as tls:
                    tls.sendall(SASL)
                    assert tls.recv(8) == SASL
                    return tls.version()
            except (ssl.SSLError, ConnectionError):
                return None

    since = router.mark()
    with listener(router, client, certificates, {"protocols": protocols}) as old:
        router.wait_for_log(r"CONN_MGR \(warning\) sslProfile \S+ allows TLSv1(, TLSv1.1)?, withdrawn", since=since)
        assert spoken(old) == version.name.replace("_", ".")
    with listener(router, client, certificates, {}) as modern:
        assert spoken(modern) is None


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"protocols": "SSLv3"}, "Cannot set protocols. The protocols string might be invalid."),
        ({"protocols": "TLSv1.2 nonsense"}, "Cannot set protocols. The protocols string might be invalid."),
        ({"ciphers": "nonsense"}, "Cannot set ciphers. The ciphers string might be invalid."),
        ({"certFile": "{folder}/nonexistent"}, "Cannot set SSL credentials"),
        ({"caCertFile": "{folder}/nonexistent"}, "Cannot set trusted SSL CA"),
    ],
)
def test_an_unusable_profile_refuses_connections_and_the_router_runs_on(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, profile: dict[str, Any], text: str
) -> None:
    """policy 47"""
    given = {key: value.format(folder=certificates.folder) for key, value in profile.items()}
    with listener(router, client, certificates, given) as name:
        since = router.mark()
        assert not shakes_hands(router, name)
        router.wait_for_log(rf"ERROR \(error\) Run Time: {text}", since=since)
        router.wait_for_log(rf"SERVER \(info\) .* failed: amqp:internal-error {text}", since=since)
        assert client.query("listener").rows


def test_an_unknown_profile_is_refused(client: ManagementClient) -> None:
    """policy 52: with the names there are."""
    given = {"host": "127.0.0.1", "port": "5671", "sslProfile": "nowhere"}
    for entity in ("listener", "connector"):
        with pytest.raises(BadRequestStatus, match=r"no sslProfile named 'nowhere' .*interop-tls"):
            client.create(given, type=entity, name="refused")


def test_profiles_come_and_go_at_run_time(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 52"""
    for _ in range(3):
        with listener(router, client, certificates) as name, tls_peer(router, name) as peer:
            peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
            assert row_of(client, peer)["isEncrypted"]


# Passwords of keys


@pytest.fixture(scope="module")
def locked_key(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server's key, under the password `key password`."""
    key = serialization.load_pem_private_key(Path(certificates.pair("server")[1]).read_bytes(), None)
    path = tmp_path_factory.mktemp("locked") / "server.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"key password"),
        )
    )
    return str(path)


@pytest.mark.parametrize(
    ("password", "is_right"),
    [
        ("pass:key password", True),
        ("literal:key password", True),
        ("key password", True),
        ("file:{file}", True),
        ("pass:wrong", False),
        ("file:{file}.none", False),
        (None, False),
    ],
)
def test_forms_of_the_keys_password(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, locked_key: str, tmp_path: Path,
    password: str | None, is_right: bool,
) -> None:  # fmt: skip
    """policy 51"""
    (tmp_path / "password").write_text("key password\n")
    profile = {"privateKeyFile": locked_key}
    if password is not None:
        profile["password"] = password.format(file=tmp_path / "password")
    with listener(router, client, certificates, profile) as name:
        if is_right:
            with tls_peer(router, name) as peer:
                peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
                assert row_of(client, peer)["isEncrypted"]
        else:
            assert not shakes_hands(router, name)
        assert client.read(type="sslProfile", name="in-tls").get("password") != profile.get("password", 1)


def test_a_missing_variable_fails_the_profile(client: ManagementClient) -> None:
    """policy 51"""
    text = "Failed to find a password in the environment variable 'PALISADE_NO_SUCH'"
    with pytest.raises(InternalServerErrorStatus, match=text):
        client.create({"password": "env:PALISADE_NO_SUCH"}, type="sslProfile", name="refused")


# Certificates


SUBJECT = "C=US,ST=NC,L=Raleigh,OU=Dev,O=Client,CN=127.0.0.1"


@pytest.mark.parametrize(
    ("uid_format", "user"),
    [
        ("1", "{sha1}"),
        ("2", "{sha256}"),
        ("5", "{sha512}"),
        ("2noucs", "{sha256};127.0.0.1;Client;Dev;US;NC"),
        ("1cs", "{sha1};US;NC"),
        ("cs5", "US;NC;{sha512}"),
        ("nsuco", "127.0.0.1;NC;Dev;US;Client"),
        ("scounl", "NC;US;Client;Dev;127.0.0.1;Raleigh"),
        (None, SUBJECT),
        ("1x", SUBJECT),
        ("abxd", SUBJECT),
    ],
)
def test_who_a_certificate_makes_one(
    router: RunningRouter,
    client: ManagementClient,
    certificates: Certificates,
    client_certificate: tuple[str, str, bytes],
    uid_format: str | None,
    user: str,
) -> None:
    """policy 48"""
    certificate, key, der = client_certificate
    profile = {"caCertFile": str(Path(certificate).parent / "both.crt")}
    if uid_format is not None:
        profile["uidFormat"] = uid_format
    prints = {name: hashlib.new(name, der).hexdigest() for name in ("sha1", "sha256", "sha512")}
    with (
        listener(router, client, certificates, profile, saslMechanisms="EXTERNAL", authenticatePeer=True) as name,
        tls_peer(router, name, pair=(certificate, key)) as peer,
    ):
        peer.send(SASL + sasl_init("EXTERNAL") + AMQP + open_frame())
        row = row_of(client, peer)
        assert (row["user"], row["sasl"], row["isAuthenticated"]) == (user.format(**prints), "EXTERNAL", True)
        if uid_format in ("1x", "abxd"):
            router.wait_for_log(r"SERVER \(critical\) .*Unrecognized component '[xab]' in uidFormat", since=peer.since)


@pytest.mark.parametrize("attribute", ["uidNameMappingFile", "displayNameFile"])
@pytest.mark.parametrize(("names", "user"), [({"carol": "Carol herself"}, "Carol herself"), ({"dave": "D"}, "carol"),
                                             ({"carol": ""}, "carol")])  # fmt: skip
def test_names_are_mapped(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, tmp_path: Path,
    attribute: str, names: dict[str, str], user: str,
) -> None:  # fmt: skip
    """policy 49: unknown and empty names leave the user as it is."""
    (tmp_path / "names.json").write_text(json.dumps(names))
    profile = {"uidFormat": "n", attribute: str(tmp_path / "names.json")}
    with (
        listener(router, client, certificates, profile, saslMechanisms="EXTERNAL", authenticatePeer=True) as name,
        tls_peer(router, name, pair=certificates.pair("carol")) as peer,
    ):
        peer.send(SASL + sasl_init("EXTERNAL") + AMQP + open_frame())
        assert row_of(client, peer)["user"] == user


@pytest.mark.parametrize("who", [None, "stranger"])
def test_external_demands_a_certificate_of_ours(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, who: str | None
) -> None:
    """policy 48"""
    pair = certificates.pair(who) if who is not None else None
    with listener(router, client, certificates, saslMechanisms="EXTERNAL PLAIN") as name:
        since = router.mark()
        # A TLSv1.3 client is done with its part before the server has looked at it.
        with contextlib.suppress(OSError), tls_peer(router, name, pair=pair) as peer:
            peer.send(SASL + sasl_init("EXTERNAL") + AMQP + open_frame())
            peer.seconds_until_closed(5)
            assert peer.received == b""
        router.wait_for_log(r"failed: amqp:connection:framing-error SSL Failure: ", since=since)


def test_a_certificate_alone_does_not_authenticate(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 53: authenticatePeer wants SASL even of who has shown a certificate; 54: else the subject is the user."""
    attributes: dict[str, Any] = {"saslMechanisms": "EXTERNAL", "authenticatePeer": True}
    with (
        listener(router, client, certificates, **attributes) as name,
        tls_peer(router, name, pair=certificates.pair("carol")) as peer,
    ):
        peer.send(AMQP + open_frame())
        peer.seconds_until_closed(5)
        router.wait_for_log(r"amqp:connection:policy-error Client skipped authentication - forbidden", since=peer.since)
    with (
        listener(router, client, certificates, {"uidFormat": "n"}, saslMechanisms="EXTERNAL") as name,
        tls_peer(router, name, pair=certificates.pair("carol")) as peer,
    ):
        peer.send(AMQP + open_frame())
        row = row_of(client, peer)
        assert (row["user"], row["isAuthenticated"]) == ("CN=carol", False)


# SASL


def offered(router: RunningRouter, name: str, *, pair: tuple[str, str] | None = None) -> list[str]:
    with tls_peer(router, name, pair=pair) as peer:
        peer.send(SASL)
        (names,) = peer.read_until(MECHANISMS)
        assert isinstance(names, Array)
        assert names.type is symbol
        return [str(name) for name in names]


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({}, {"PLAIN", "ANONYMOUS"}),
        ({"saslMechanisms": "plain"}, {"PLAIN"}),
        ({"saslMechanisms": "PLAIN NOSUCH"}, {"PLAIN"}),
        ({"saslMechanisms": "ANONYMOUS"}, {"ANONYMOUS"}),
        ({"authenticatePeer": True}, {"PLAIN"}),
    ],
)
def test_what_is_offered(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, attributes: dict[str, Any],
    wanted: set[str],
) -> None:  # fmt: skip
    """policy 53, 55: EXTERNAL not without a certificate, ANONYMOUS not where one must authenticate."""
    with listener(router, client, certificates, **attributes) as name:
        assert set(offered(router, name)) == wanted


@pytest.mark.parametrize(
    "attributes",
    [
        {"saslMechanisms": "NOSUCH"},
        {"saslMechanisms": "ANONYMOUS", "authenticatePeer": True},
        {"saslMechanisms": "PLAINER"},
    ],
)
def test_a_listener_none_of_whose_mechanisms_can_be_served_is_not_created(
    router: RunningRouter, client: ManagementClient, certificates: Certificates, attributes: dict[str, Any]
) -> None:
    with (
        pytest.raises(BadRequestStatus, match="none of its saslMechanisms can be served: "),
        listener(router, client, certificates, **attributes),
    ):
        pytest.fail("it listens")


def test_external_is_offered_to_who_has_shown_a_certificate(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 48, 55"""
    with listener(router, client, certificates, saslMechanisms="EXTERNAL PLAIN") as name:
        assert set(offered(router, name, pair=certificates.pair("carol"))) == {"EXTERNAL", "PLAIN"}


def test_a_password_makes_one_a_user(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 56"""
    with (
        listener(router, client, certificates, saslMechanisms="PLAIN", authenticatePeer=True) as name,
        tls_peer(router, name) as peer,
    ):
        peer.send(SASL + plain("alice", USERS["alice"]) + AMQP + open_frame())
        row = row_of(client, peer)
        assert (row["user"], row["sasl"], row["isAuthenticated"]) == ("alice", "PLAIN", True)


def test_a_wrong_password_is_refused_and_never_logged(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 57, from the listener's side"""
    with (
        listener(router, client, certificates, saslMechanisms="PLAIN", authenticatePeer=True) as name,
        tls_peer(router, name) as peer,
    ):
        peer.send(SASL + plain("alice", "a wrong password") + AMQP + open_frame())
        peer.seconds_until_closed(10)
        router.wait_for_log(r"unauthorized-access .*Failed to authenticate client \[mech=PLAIN\]", since=peer.since)
    assert eventually(lambda: router.audit_events(), 5.0)
    assert not router.has_logged("a wrong password")
    assert "a wrong password" not in json.dumps(router.audit_events())


def test_a_mechanism_that_was_not_offered(
    router: RunningRouter, client: ManagementClient, certificates: Certificates
) -> None:
    """policy 55"""
    with (
        listener(router, client, certificates, saslMechanisms="PLAIN") as name,
        tls_peer(router, name) as peer,
    ):
        peer.send(SASL + sasl_init("ANONYMOUS") + AMQP + open_frame())
        peer.seconds_until_closed(10)
        router.wait_for_log(
            r"Client mechanism not in mechanism inclusion list\. "
            r"\(Failed to authenticate client \[mech=ANONYMOUS\]\)",
            since=peer.since,
        )
