"""Attack: a certificate whose name fields, put together, give another user's name.

`CN="alice;Corp"` without an organisation gave the user of CN=alice, O=Corp, as O=alice gave the user of CN=alice. Also,
a common name that equals another user's display name in the mapping file was taken for that display name.
"""

import json
import ssl
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates
from cryptography import x509
from cryptography.x509.oid import NameOID
from daemon_process import Daemon, Started, audit_events, eventually
from daemons import peer_of
from raw_peer import RawPeer
from test_resumed_certificates import Authority

CONFIGURATION = """
router {{
    id: names
    auditDir: {folder}/audit
}}
sslProfile {{
    name: tls
    caCertFile: {folder}/second-ca.crt
    certFile: {server}
    privateKeyFile: {key}
    uidFormat: {format}
    {mapping}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}}
"""
OIDS = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME}


def subject(**names: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(OIDS[each], value) for each, value in names.items()])


def configured(folder: Path, certificates: Certificates, uid_format: str, mapping: str = "") -> str:
    server, key = certificates.pair("server")
    return CONFIGURATION.format(folder=folder, server=server, key=key, format=uid_format, mapping=mapping)


def open_as(router: Daemon, pair: tuple[str, str], ca: str) -> str | None:
    """The user that the router takes a certificate's owner for; None where it refuses the login."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(*pair)
    with peer_of(router) as peer:
        name = peer.name
        inside = RawPeer(context.wrap_socket(peer.socket, server_hostname="localhost"), 0)
        inside.send(raw_peer.SASL + raw_peer.sasl_init("EXTERNAL", b"") + raw_peer.AMQP + raw_peer.open_frame())
        outcome = inside.read_until(0x44)
        if outcome[0] != 0:
            return None
        inside.read_until(raw_peer.OPEN)
        return router.wait_for_log(rf"Connection Opened: dir=in host={name} .* user=(.*) container_id=")[1]


def test_different_names_are_different_users(tmp_path: Path, certificates: Certificates, daemon: Started) -> None:
    authority = Authority.make(tmp_path)
    router = daemon(configured(tmp_path, certificates, "no"))
    names = [
        subject(CN="alice", O="Corp"),
        subject(CN="alice;Corp"),
        subject(O="alice;Corp"),
        subject(CN="alice"),
        subject(O="alice"),
        subject(CN="alice\\", O="Corp"),
        subject(CN="alice\\;Corp"),
        subject(CN="O=alice"),
    ]
    users = [open_as(router, authority.issue(name, 3600), certificates.ca) for name in names]
    assert users[0] == "alice;Corp"
    assert None not in users
    assert len(set(users)) == len(names)


@pytest.mark.parametrize("name", [subject(CN="alice"), subject(O="Corp")], ids=["its id", "its subject"])
def test_nobody_takes_a_name_that_the_mapping_file_gives_to_others(
    name: x509.Name, tmp_path: Path, certificates: Certificates, daemon: Started
) -> None:
    authority = Authority.make(tmp_path)
    (tmp_path / "names.json").write_text(json.dumps({"id-1": "alice", "id-2": "O=Corp", "bob": "bob"}))
    router = daemon(configured(tmp_path, certificates, "n", f"uidNameMappingFile: {tmp_path}/names.json"))
    assert open_as(router, authority.issue("id-1", 3600), certificates.ca) == "alice"
    assert open_as(router, authority.issue("bob", 3600), certificates.ca) == "bob"
    assert open_as(router, authority.issue("eve", 3600), certificates.ca) == "eve"
    assert open_as(router, authority.issue(name, 3600), certificates.ca) is None
    router.wait_for_log(r"SERVER \(error\) The client's certificate gives no user name: '.*' is not in the mapping")
    (event,) = eventually(lambda: audit_events(tmp_path / "audit"))
    assert (event["reason"], event["mechanism"]) == ("sasl_failed", "EXTERNAL")
