"""A router whose users and groups are in an LDAP directory: policy §8.10."""

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates
from daemon_process import LISTENER, Daemon, denials, run_configuration
from directory import GROUPS, PEOPLE, SERVICE, SERVICE_PASSWORD, Slapd, dn_of, running
from process_log import PATIENCE_S
from raw_peer import RawPeer

from auth.secrets import Secret
from router.management.client import ConnectionException

pytestmark = pytest.mark.interop

OUTCOME = 0x44
OK, AUTH, SYS_TEMP = 0, 1, 4

CONFIGURATION = """
router {{
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    onPolicyChange: enforce
    revalidateInterval: 1
}}
sslProfile {{
    name: tls
    caCertFile: {tls}/ca.crt
    certFile: {tls}/server.crt
    privateKeyFile: {tls}/server.key
    uidFormat: n
}}
ldapAuthenticator {{
    name: staff
    urls: {urls}
    caCertFile: {tls}/ca.crt
    bindDn: {service}
    bindPassword: file:{folder}/password
    userBase: {people}
    groupBase: {groups}
    nestedGroups: yes
    timeoutSeconds: 2
    retrySeconds: 1
    cacheSeconds: 0
    negativeCacheSeconds: 0
    {more}
}}
listener {{
    name: password
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
    authenticators: staff
}}
listener {{
    name: certificate
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    authenticators: staff
}}
vhost {{
    hostname: $default
    groups: {{
        employees: {{
            authenticatorGroups: everybody, machines
            remoteHosts: *
            sources: *
            targets: *
            allowDynamicSource: true
            allowAnonymousSender: true
            management: administrator
        }}
    }}
}}
"""


@pytest.fixture
def slapd(
    certificates: Certificates, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slapd]:
    with running(require_tool("slapd", "slapd"), tmp_path_factory.mktemp("slapd"), certificates) as made:
        yield made


Start = Callable[..., Daemon]


@pytest.fixture
def start(daemon: Start, certificates: Certificates, tmp_path: Path) -> Start:
    (tmp_path / "audit").mkdir()
    (tmp_path / "password").write_text(SERVICE_PASSWORD)

    def begin(urls: str, more: str = "", **changes: str) -> Daemon:
        text = CONFIGURATION.format(
            folder=tmp_path,
            tls=certificates.folder,
            urls=urls,
            more=more,
            service=SERVICE,
            people=PEOPLE,
            groups=GROUPS,
        )
        for old, new in changes.items():
            text = text.replace(f"\n    {old}:", f"\n    {old}: {new}\n    #")
        return daemon(text + LISTENER)

    return begin


def by_certificate(router: Daemon, certificates: Certificates, name: str) -> int:
    """The code of the SASL outcome for EXTERNAL."""
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(*certificates.pair(name))
    with (
        socket.create_connection(("127.0.0.1", router.port("certificate")), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as inside,
    ):
        peer = RawPeer(inside, 0)
        peer.send(raw_peer.SASL + raw_peer.sasl_init("EXTERNAL"))
        return int(peer.read_until(OUTCOME)[0])


def test_groups_of_the_directory_decide(slapd: Slapd, start: Start, tmp_path: Path) -> None:
    """alice is in everybody by way of two other groups; bob is in groups that the policy does not list."""
    router = start(slapd.ldaps)
    with router.client("password", username="alice", password=Secret("of alice")) as alice:
        rows = alice.query("connection", ["user", "sasl"]).rows
        assert ["alice", "PLAIN"] in [list(row) for row in rows]
    for user, password in (("bob", "of bob"), ("alice", "of bob"), ("nobody", "x"), ("ALICE", "of alice")):
        with pytest.raises(ConnectionException):
            router.client("password", username=user, password=Secret(password)).query("router")
    router.end()
    reasons = {(event["user"], event["reason"]) for event in denials(tmp_path / "audit")}
    assert {user for user, reason in reasons if reason == "sasl_failed"} == {"alice", "nobody", "ALICE"}
    assert {user for user, reason in reasons if reason != "sasl_failed"} == {"bob"}


def test_a_certificate_is_not_enough(slapd: Slapd, start: Start, certificates: Certificates) -> None:
    """The directory decides about its user, too: unknown is refused, and no answer lets nobody in."""
    router = start(slapd.ldap)
    assert by_certificate(router, certificates, "carol") == OK
    assert by_certificate(router, certificates, "dave") == AUTH
    slapd.change(dn_of("carol"), "pwdAccountLockedTime", ["000001010000Z"])
    assert by_certificate(router, certificates, "carol") == AUTH
    slapd.stop()
    assert by_certificate(router, certificates, "carol") == SYS_TEMP


def test_who_leaves_a_group_is_disconnected(slapd: Slapd, start: Start, tmp_path: Path) -> None:
    """Within revalidateInterval; an outage of the directory ends nobody."""
    router = start(slapd.ldaps)
    with router.client("password", username="alice", password=Secret("of alice")) as alice:
        slapd.stop()
        with socket.create_server(("127.0.0.1", slapd.tls_port)) as stand_in:
            stand_in.accept()[0].close()  # the router asks, and gets no answer
            stand_in.accept()[0].close()
        assert alice.query("router").rows
        router.wait_for_log(r"AUTHSERVICE \(warning\) Authenticator staff: ldaps://.* It is left alone")
        slapd.start()
        router.wait_for_log(r"AUTHSERVICE \(warning\) Authenticator staff: ldaps://127.0.0.1:\d+ answers again")
        slapd.change(dn_of("company", is_group=True), "member", [dn_of("mallory")])
        router.wait_for_log(r"Authenticator staff: the credentials of 'alice' hold no more: 1 connections closed")
        with pytest.raises(ConnectionException):
            alice.query("router")
    router.end()
    assert [event["reason"] for event in denials(tmp_path / "audit")] == ["credentials_revoked"]


def test_no_secret_is_written(slapd: Slapd, start: Start, tmp_path: Path) -> None:
    """Not the service's password, nor those of users, whatever fails."""
    router = start(slapd.ldap, "startTls: no", bindPassword=f"literal:{SERVICE_PASSWORD}")
    router.wait_for_log(r"AUTHSERVICE \(warning\) Authenticator staff: ldap://.*: passwords are sent in the clear")
    router.wait_for_log(r"AUTHSERVICE \(warning\) Authenticator staff: bindPassword stands in the configuration")
    with router.client("password", username="alice", password=Secret("of alice")) as operator:
        rows = operator.read(type="org.apache.qpid.dispatch.ldapAuthenticator", name="staff")
        assert SERVICE_PASSWORD not in str(rows)
    for password in ("of-alice-but-wrong", "of alice"):
        try:
            router.client("password", username="alice", password=Secret(password)).query("router")
        except ConnectionException:
            continue
    slapd.stop()
    with pytest.raises(ConnectionException):
        router.client("password", username="alice", password=Secret("of alice")).query("router")
    router.end()
    written = "\n".join([*router.lines, *(file.read_text() for file in (tmp_path / "audit").iterdir())])
    for secret in (SERVICE_PASSWORD, "of-alice-but-wrong", "of alice"):
        assert secret not in written


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"urls": "http://127.0.0.1"}, "urls: 'http://127.0.0.1': expected ldaps://HOST"),
        ({"caCertFile": "/no/such/file"}, "TLS: SSL CA configuration failed"),
        ({"bindPassword": "file:/no/such/file"}, "bindPassword: Unable to open password file /no/such/file"),
        ({"userBase": "x\n    userDn: uid=x"}, "either userBase"),
        ({"userBase": "x\n    userFilter: uid=x"}, "userFilter: expected a filter in parentheses"),
        ({"timeoutSeconds": "0"}, "timeoutSeconds: expected 1 to"),
    ],
)
def test_mistakes_end_the_start(changes: dict[str, str], text: str, certificates: Certificates, tmp_path: Path) -> None:
    given = {
        "name": "staff", "urls": "ldaps://127.0.0.1", "caCertFile": certificates.ca, "bindDn": "cn=x",
        "bindPassword": "literal:x", "userBase": "x",
    } | changes  # fmt: skip
    section = "".join(f"    {key}: {value}\n" for key, value in given.items())
    ran = run_configuration(tmp_path, f"ldapAuthenticator {{\n{section}}}\n" + LISTENER)
    assert ran.status == 1
    assert f"authenticator 'staff': {text}" in ran.err
