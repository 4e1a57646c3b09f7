"""SIGHUP: what is read anew, and that a broken file changes nothing. Management §2.4, issue 4."""

import json
import re
import shutil
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from cryptography import x509
from daemon_process import LISTENER, Daemon, denials, eventually

from router.management.client import ForbiddenStatus, InternalServerErrorStatus, ManagementClient, NotFoundStatus

pytestmark = pytest.mark.interop

VHOST = "org.apache.qpid.dispatch.vhost"
CONNECTION = "org.apache.qpid.dispatch.connection"
# Read when we signal, and not before.
OPEN_POLICY = "policy {{\n enableVhostPolicy: no\n policyDirWatchSeconds: 0\n policyDir: {folder}\n}}\n"


def reload(router: Daemon) -> list[str]:
    """Send SIGHUP, wait for its end; the lines it led to."""
    since = router.mark()
    router.signal(signal.SIGHUP)
    router.wait_for_log(r"SERVER \(notice\) Reload on SIGHUP finished", since)
    return router.log(since=since)


def vhost(hostname: str, **more: Any) -> list[Any]:
    groups = {"g": {"users": "*", "remoteHosts": "*", "sources": "a.*"}}
    return ["vhost", {"hostname": hostname, "groups": groups, **more}]


def hostnames(client: ManagementClient) -> dict[str, Any]:
    found = client.query(VHOST, ["hostname", "maxConnections"])
    return {entity["hostname"]: entity["maxConnections"] for entity in found.entities()}


@pytest.fixture
def policy_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps([vhost("a", maxConnections=1), vhost("b", maxConnections=2)]))
    return folder


def test_policy_dir_is_read_anew(daemon: Callable[..., Daemon], policy_folder: Path) -> None:
    own = "vhost {\n hostname: own\n maxConnections: 7\n}\n"
    router = daemon(OPEN_POLICY.format(folder=policy_folder) + own + LISTENER)
    with router.client() as client:
        assert hostnames(client) == {"own": 7, "a": 1, "b": 2}
        (policy_folder / "a.json").write_text(json.dumps([vhost("b", maxConnections=20)]))
        (policy_folder / "c.json").write_text(json.dumps([vhost("c", maxConnections=3)]))
        lines = reload(router)
        done = "POLICY (info) Reload of policyDir: 1 vhosts created, 1 updated, 1 deleted"
        assert any(done in line for line in lines)
        assert hostnames(client) == {"own": 7, "b": 20, "c": 3}
        stats = {row["name"] for row in client.query("org.apache.qpid.dispatch.vhostStats").entities()}
        assert "vhostStats/c" in stats
        # A vhost of the folder is an entity like any other afterwards.
        client.update({"maxConnections": 4}, type=VHOST, name="vhost/c")
        client.delete(type=VHOST, name="vhost/b")
        assert hostnames(client) == {"own": 7, "c": 4}
        reload(router)
        assert hostnames(client) == {"own": 7, "b": 20, "c": 3}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[", r"Expecting value.*\(\S+z\.json:1\)"),
        (json.dumps([["vhost", {"hostname": "z", "nonsense": 1}]], indent=1), r"nonsense.*\(\S+z\.json:\d+\)"),
        (json.dumps([vhost("a")]), "duplicates unique attribute 'name'"),
        (json.dumps([vhost("own")]), "'own' is defined more than once"),
        (json.dumps([vhost("z", maxConnections=-1)]), r"Policy 'z' is invalid.*\(\S+z\.json:\d+\)"),
        ("\x00\xff", "z.json"),
    ],
)
def test_a_broken_file_in_policy_dir_changes_nothing(
    daemon: Callable[..., Daemon], policy_folder: Path, text: str, why: str
) -> None:
    own = "vhost {\n hostname: own\n maxConnections: 7\n}\n"
    router = daemon(OPEN_POLICY.format(folder=policy_folder) + own + LISTENER)
    with router.client() as client:
        before = hostnames(client)
        (policy_folder / "a.json").write_text(json.dumps([vhost("a", maxConnections=9)]))
        (policy_folder / "z.json").write_text(text, "latin-1")
        lines = reload(router)
        assert any(
            re.search(rf"POLICY \(error\) Reload of policyDir failed, the rules in force stay: .*{why}", line)
            for line in lines
        ), lines
        assert hostnames(client) == before
        (policy_folder / "z.json").unlink()
        reload(router)
        assert hostnames(client) == {"own": 7, "a": 9}


def test_refused_changes_are_counted_and_audited(
    daemon: Callable[..., Daemon], policy_folder: Path, tmp_path: Path
) -> None:
    """issue 5: a broken file, and a broken change by management, leave a log line, a count and an audit event"""
    audit = f"router {{\n auditDir: {tmp_path}/audit\n}}\n"
    router = daemon(audit + OPEN_POLICY.format(folder=policy_folder) + LISTENER)
    with router.client() as client:

        def counters() -> tuple[int, int]:
            (row,) = client.query("policy", ["policyChanges", "policyChangeFailures"]).rows
            return row[0], row[1]

        assert counters() == (0, 0)
        client.update({"maxConnections": 4}, type=VHOST, name="vhost/a")
        assert counters() == (1, 0)
        with pytest.raises(InternalServerErrorStatus, match="PolicyError"):
            client.update({"maxConnections": -1}, type=VHOST, name="vhost/a")
        (policy_folder / "z.json").write_text("[")
        reload(router)
        assert counters() == (1, 2)
        (policy_folder / "z.json").unlink()
        reload(router)
        assert counters() == (2, 2)
    events = denials(tmp_path / "audit")
    assert [(event["stage"], event["reason"]) for event in events] == [("policy", "invalid_policy")] * 2
    assert [event["rule"]["file"] if event["rule"] else None for event in events] == [
        None, str(policy_folder / "z.json")
    ]  # fmt: skip
    assert all("the rules in force stay: " in event["detail"] for event in events)


def test_what_its_author_should_know_of_a_vhost_is_logged_when_it_comes_into_force(
    daemon: Callable[..., Daemon], policy_folder: Path
) -> None:
    """policy 9, policy-and-auth.md §2.6: at a reload of what has changed, and over management"""
    router = daemon(OPEN_POLICY.format(folder=policy_folder) + LISTENER)
    groups = {"g": {"users": "*", "remoteHosts": "*", "sourcePattern": "#.#", "whim": 1}}
    lines = [
        r"POLICY \(warning\) Policy vhost 'NAME' user group 'g' option 'whim' is ignored\.",
        r"DEFAULT \(notice\) configured pattern '#\.#' optimized and re-written to '#'",
    ]
    with router.client() as client:
        since = router.mark()
        (policy_folder / "c.json").write_text(json.dumps([["vhost", {"hostname": "c", "groups": groups}]]))
        reload(router)
        assert [len(router.log(line.replace("NAME", "c"), since)) for line in lines] == [1, 1]
        since = router.mark()
        reload(router)
        client.create({"hostname": "d", "groups": groups}, type=VHOST, name="d")
        assert [len(router.log(line.replace("NAME", "d"), since)) for line in lines] == [1, 1]
        assert not router.log("vhost 'c'", since)


def test_a_missing_policy_dir_changes_nothing(daemon: Callable[..., Daemon], policy_folder: Path) -> None:
    router = daemon(OPEN_POLICY.format(folder=policy_folder) + LISTENER)
    with router.client() as client:
        before = hostnames(client)
        shutil.rmtree(policy_folder)
        assert any("POLICY (error) Reload of policyDir failed" in line for line in reload(router))
        assert hostnames(client) == before


def test_rules_from_policy_dir_decide_at_once(daemon: Callable[..., Daemon], policy_folder: Path) -> None:
    """The next link is judged by the new rules; a connection that is open keeps its group's."""
    anybody = {"users": "*", "remoteHosts": "*", "allowDynamicSource": True, "sources": "*", "targets": "$management"}

    def write(**settings: Any) -> None:
        groups = {"$default": {**anybody, **settings}}
        rules = {"hostname": "$default", "groups": groups, "allowUnknownUser": True}
        (policy_folder / "a.json").write_text(json.dumps([["vhost", rules]]))

    write(allowAdminStatusUpdate=True)
    router = daemon(f"policy {{\n enableVhostPolicy: yes\n policyDir: {policy_folder}\n}}\n" + LISTENER)
    with router.client() as first:
        write(allowAdminStatusUpdate=False)
        reload(router)
        with router.client() as second:
            identity = next(second.query(CONNECTION, ["identity"]).entities())["identity"]
            with pytest.raises(ForbiddenStatus):
                second.update({"adminStatus": "deleted"}, type=CONNECTION, identity=identity)
            # Whoever was let in before keeps the settings of its group.
            answer = first.update({"adminStatus": "deleted"}, type=CONNECTION, identity=newest(first))
            assert answer["adminStatus"] == "deleted"


def newest(client: ManagementClient) -> str:
    """The identity of the connection that was opened last."""
    return str(max(int(row[0]) for row in client.query(CONNECTION, ["identity"]).rows))


TLS = """
sslProfile {{
    name: tls
    caCertFile: {folder}/ca.crt
    certFile: {folder}/server.crt
    privateKeyFile: {folder}/server.key
}}
listener {{
    name: tls-listener
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
"""


def served_serial(port: int, ca: str) -> int:
    """The serial number of the certificate the router shows now."""
    context = ssl.create_default_context(cafile=ca)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        der = tls.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
def tls_folder(tmp_path: Path, certificates: Certificates) -> Path:
    folder = tmp_path / "tls"
    shutil.copytree(certificates.folder, folder)
    return folder


def copy_identity(folder: Path, name: str) -> None:
    for suffix in ("crt", "key"):
        shutil.copyfile(folder / f"{name}.{suffix}", folder / f"server.{suffix}")


def test_new_certificates_are_shown_to_new_connections(daemon: Callable[..., Daemon], tls_folder: Path) -> None:
    router = daemon(TLS.format(folder=tls_folder) + LISTENER)
    port, ca = router.port("tls-listener"), str(tls_folder / "ca.crt")
    with router.client("tls-listener", is_tls=True, trust_file=ca) as client:
        first = served_serial(port, ca)
        server = (tls_folder / "server.crt").read_bytes()
        copy_identity(tls_folder, "dave")
        assert served_serial(port, ca) == first  # only a signal makes it look
        reload(router)
        assert served_serial(port, ca) != first
        assert client.query("router").rows  # who was connected stays so
        assert server != (tls_folder / "server.crt").read_bytes()


@pytest.mark.parametrize("broken", ["server.crt", "server.key", "ca.crt"])
def test_a_broken_certificate_file_keeps_the_old_ones(
    daemon: Callable[..., Daemon], tls_folder: Path, certificates: Certificates, broken: str
) -> None:
    router = daemon(TLS.format(folder=tls_folder) + LISTENER)
    port = router.port("tls-listener")
    first = served_serial(port, certificates.ca)
    (tls_folder / broken).write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    lines = reload(router)
    assert any(
        "CONN_MGR (error) Reload of sslProfile tls for tls-listener failed, what it had stays in use: " in line
        for line in lines
    )
    assert served_serial(port, certificates.ca) == first


def test_a_listener_that_is_gone_is_not_reloaded(daemon: Callable[..., Daemon], tls_folder: Path) -> None:
    router = daemon(TLS.format(folder=tls_folder) + LISTENER)
    with router.client() as client:
        client.delete(type="org.apache.qpid.dispatch.listener", name="tls-listener")
        with pytest.raises(NotFoundStatus):
            client.read(type="org.apache.qpid.dispatch.listener", name="tls-listener")
    (tls_folder / "server.crt").unlink()
    assert not any("(error)" in line for line in reload(router))


def test_log_files_are_opened_anew(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Log rotation: the old name is moved away, and the next line makes a new file."""
    log_file, kept = tmp_path / "router.log", tmp_path / "router.log.1"
    router = daemon(f"log {{\n module: AGENT\n enable: debug+\n outputFile: {log_file}\n}}\n" + LISTENER)
    with router.client() as client:
        client.query("router")
        log_file.rename(kept)
        client.query("router")
        assert not log_file.exists()
        reload(router)
        size = kept.stat().st_size
        client.query("router")
        assert eventually(lambda: log_file.exists() and "Agent request" in log_file.read_text())
        assert kept.stat().st_size == size


def test_a_log_file_that_cannot_be_opened_anew_goes_on(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    router = daemon(f"log {{\n module: AGENT\n enable: debug+\n outputFile: {folder}/agent.log\n}}\n" + LISTENER)
    moved = folder.rename(tmp_path / "moved")
    lines = reload(router)
    assert any(f"ERROR (error) Configuration: Failed to open log file '{folder}/agent.log'" in line for line in lines)
    with router.client() as client:
        client.query("router")
    assert "Agent request" in (moved / "agent.log").read_text()
