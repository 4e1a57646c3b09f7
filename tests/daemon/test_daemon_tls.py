"""sslProfiles of a daemon: by host name, read anew, changed by management (policy-and-auth.md §6.7, §6.9)."""

import json
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Certificates
from cryptography import x509
from daemon_process import LISTENER, Daemon, audit_events, eventually

from router.management.client import BadRequestStatus, ForbiddenStatus, InternalServerErrorStatus

pytestmark = pytest.mark.interop

Started = Callable[..., Daemon]
TLS = """
router {{
    id: tls
    auditDir: {folder}/audit
}}
policy {{
    policyDirWatchSeconds: 1
}}
sslProfile {{
    name: own
    caCertFile: {folder}/ca.crt
    certFile: {folder}/server.crt
    privateKeyFile: {folder}/server.key
}}
sslProfile {{
    name: other
    caCertFile: {folder}/ca.crt
    certFile: {folder}/dave.crt
    privateKeyFile: {folder}/dave.key
    protocols: TLSv1.2
}}
listener {{
    name: secure
    host: 127.0.0.1
    port: 0
    sslProfile: own
    sniProfiles: {{"other.example": "other", "*.more.example": "other", "gone.example": "other"}}
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
""" + LISTENER.replace("{", "{{").replace("}", "}}")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, certificates: Certificates) -> Path:
    folder = tmp_path / "tls"
    shutil.copytree(certificates.folder, folder)
    return folder


def shown(router: Daemon, host: str | None) -> tuple[int, str]:
    """Serial number of the certificate that a client gets that wants this host, and the protocol. Errors: OSError"""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", router.port("secure")), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as tls,
    ):
        der, version = tls.getpeercert(binary_form=True), tls.version()
    assert der is not None
    assert version is not None
    return x509.load_der_x509_certificate(der).serial_number, version


def serial(path: Path) -> int:
    return x509.load_pem_x509_certificate(path.read_bytes()).serial_number


def replace(folder: Path, name: str, *, by: str) -> None:
    """Certificate first, then the key: as copying does."""
    for suffix in ("crt", "key"):
        shutil.copyfile(folder / f"{by}.{suffix}", folder / "new")
        os.replace(folder / "new", folder / f"{name}.{suffix}")


def test_the_host_that_a_client_wants_chooses_the_profile(daemon: Started, folder: Path) -> None:
    """policy 47: with the protocols of that profile."""
    router = daemon(TLS.format(folder=folder))
    own, other = (serial(folder / "server.crt"), "TLSv1.3"), (serial(folder / "dave.crt"), "TLSv1.2")
    hosts = {"other.example": other, "OTHER.example": other, "a.more.example": other, "a.b.more.example": own,
             "more.example": own, "nobody.example": own, None: own}  # fmt: skip
    assert {host: shown(router, host) for host in hosts} == hosts


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sniProfiles": {"a.example": "nobody"}}, "sniProfiles: no sslProfile named 'nobody'"),
        ({"sniProfiles": {"a..example": "own"}}, "is no host name"),
        ({"sniProfiles": {"a.example": "own", "A.example.": "own"}}, "'a.example' stands twice"),
        ({"sniProfiles": {"a.example": "own"}, "sslProfile": None}, "sniProfiles without sslProfile"),
    ],
)
def test_wrong_sni_profiles_are_refused(daemon: Started, folder: Path, given: dict[str, object], text: str) -> None:
    router = daemon(TLS.format(folder=folder))
    attributes = {"host": "127.0.0.1", "port": "1", "sslProfile": "own", **given}
    with router.client() as client, pytest.raises(BadRequestStatus, match=text):
        client.create({key: value for key, value in attributes.items() if value}, type="listener", name="wrong")


def test_changed_files_are_read_and_broken_ones_are_not_used(daemon: Started, folder: Path) -> None:
    router = daemon(TLS.format(folder=folder))
    first = shown(router, None)
    replace(folder, "server", by="carol")
    router.wait_for_log(r"CONN_MGR \(info\) Reload of sslProfile own for secure: new connections use its files")
    second = shown(router, None)
    assert second[0] == serial(folder / "carol.crt") != first[0]
    assert not router.log("Reload of sslProfile other")
    (folder / "server.key").write_text("nonsense")
    router.wait_for_log(
        r"CONN_MGR \(error\) Reload of sslProfile own for secure failed, .*: Cannot set SSL credentials"
    )
    assert shown(router, None) == second
    assert len(router.log("Reload of sslProfile own for secure failed")) == 1
    events = eventually(lambda: found if len(found := audit_events(folder / "audit")) == 2 else None)
    assert [(each["stage"], each["decision"], each["reason"]) for each in events] == [
        ("tls", "allow", "allowed"),
        ("tls", "deny", "tls_configuration"),
    ]
    replace(folder, "server", by="dave")
    assert eventually(lambda: shown(router, None)[0] == serial(folder / "dave.crt"))


def test_an_update_of_the_profile_is_used_by_new_connections(daemon: Started, folder: Path) -> None:
    router = daemon(TLS.format(folder=folder))
    with router.client() as client:
        client.update({"protocols": "TLSv1.2"}, type="sslProfile", name="own")
        assert shown(router, None) == (serial(folder / "server.crt"), "TLSv1.2")
        files = {"certFile": f"{folder}/carol.crt", "privateKeyFile": f"{folder}/carol.key"}
        client.update(files, type="sslProfile", name="own")
        assert shown(router, None)[0] == serial(folder / "carol.crt")
        for wrong in (
            {"certFile": f"{folder}/none.crt"},
            {"protocols": "SSLv3"},
            {"privateKeyFile": f"{folder}/ca.crt"},
        ):
            with pytest.raises(BadRequestStatus, match="sslProfile 'own' stays as it was: Cannot set "):
                client.update(wrong, type="sslProfile", name="own")
        assert shown(router, None) == (serial(folder / "carol.crt"), "TLSv1.2")
        assert client.read(type="sslProfile", name="own")["certFile"] == f"{folder}/carol.crt"
        with pytest.raises(BadRequestStatus):
            client.update({"name": "another"}, type="sslProfile", name="own")


def test_an_update_that_names_a_file_takes_the_right_host(daemon: Started, folder: Path) -> None:
    """As a CREATE does."""
    text = TLS.format(folder=folder).replace(
        "policy {", f"policy {{\n    policyDir: {folder}/policy\n    enableVhostPolicy: yes"
    )
    (folder / "policy").mkdir()
    everything = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
    groups = {"$default": {**everything, "management": "administrator"}}
    vhost = {"hostname": "$default", "allowUnknownUser": True, "groups": groups}
    (folder / "policy" / "all.json").write_text(json.dumps([["vhost", vhost]]))
    router = daemon(text)
    with router.client() as client:
        for given in (
            {"crlFile": "/etc/passwd"},
            {"certFile": f"{folder}/carol.crt"},
            {"password": "file:/etc/shadow"},
        ):
            with pytest.raises(ForbiddenStatus, match=r"names a file|names an"):
                client.update(given, type="sslProfile", name="own")
        client.update({"uidFormat": "n"}, type="sslProfile", name="own")


def test_days_to_expiry_and_the_reminder(daemon: Started, folder: Path) -> None:
    """The certificates of the tests last for a day."""
    router = daemon(TLS.format(folder=folder))
    router.wait_for_log(
        rf"CONN_MGR \(warning\) sslProfile own: the certificate in {folder}/server.crt expires in less than a day"
    )
    with router.client() as client:
        rows = client.query("sslProfile", ["name", "daysToExpiry"]).rows
        assert sorted(map(tuple, rows)) == [("other", 0), ("own", 0)]
        names = client.query("sslProfile").attribute_names
        assert "daysToExpiry" not in names
        assert "crlFile" not in names


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can choose them")
def test_suites_of_tls_1_3_are_refused_where_python_cannot_choose_them(daemon: Started, folder: Path) -> None:
    router = daemon(TLS.format(folder=folder))
    with router.client() as client:
        with pytest.raises(InternalServerErrorStatus, match=r"ciphersuites: the suites of TLSv1\.3 cannot be chosen"):
            client.create({"ciphersuites": "TLS_AES_256_GCM_SHA384"}, type="sslProfile", name="suites")
        client.create({"ciphers": "ECDHE+AESGCM:TLS_AES_256_GCM_SHA384"}, type="sslProfile", name="mixed")
    router.wait_for_log(r"sslProfile mixed: TLS_AES_256_GCM_SHA384: ciphers does not touch TLSv1.3")
