"""qdstat and qdmanage against a running router, as processes. Management §9, §10; items 73-98 but for networks."""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from daemon_process import LISTENER, ROOT, Daemon, Ran, run_tool, start, write_users
from free_ports import free_port

pytestmark = pytest.mark.interop

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC"


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = start(
        tmp_path_factory.mktemp("router"),
        "router {\n id: toolbox\n workerThreads: 3\n}\n"
        "log {\n module: AGENT\n enable: debug+\n}\n"
        "vhost {\n hostname: example.com\n groups: {\n  staff: {\n   users: alice\n   remoteHosts: *\n"
        "   sources: a.*\n   maxSenders: 3\n  }\n }\n}\n" + LISTENER,
    )
    made.wait_for_log("Listening on")
    yield made
    made.end()


def lines(ran: Ran, status: int = 0) -> list[str]:
    assert (ran.status, ran.err) == (status, ""), ran
    return ran.out.splitlines()


def answer(ran: Ran) -> Any:
    assert (ran.status, ran.err) == (0, ""), ran
    return json.loads(ran.out)


# qdstat


@pytest.mark.parametrize("options", [(), ("-g",), ("--general",)])
def test_general_statistics(router: Daemon, options: tuple[str, ...]) -> None:
    """Management 73, 74."""
    found = lines(router.tool("qdstat", *options))
    assert re.fullmatch(DATE, found[0])
    assert found[1:4] == ["toolbox", "", "Router Statistics"]
    assert "\n".join(found).count("toolbox") == 2
    rows = {line[2:35].rstrip(): line[35:] for line in found[6:]}
    expected = {"Connections": "1", "Nodes": "0", "Link Routes": "0", "Auto Links": "0", "Worker Threads": "3"}
    assert rows.items() >= expected.items()
    assert "  Connections" + 22 * " " + "1" in found
    assert rows["Mode"] == "standalone"


def test_addresses_links_and_their_limits(daemon: Callable[..., Daemon]) -> None:
    """Management 75, 76."""
    fresh = daemon(LISTENER)
    for option, counts in (("-a", (11, 7, 6)), ("-l", (8, 7, 6))):
        everything = lines(fresh.tool("qdstat", option))
        limited = lines(fresh.tool("qdstat", option, "--limit=1"))
        csv = lines(fresh.tool("qdstat", option, "--limit=1", "--csv"))
        assert (len(everything), len(limited), len(csv)) == counts
    links = lines(fresh.tool("qdstat", "-l", "-v"))
    assert links[4].split()[-3:] == ["admin", "oper", "name"]
    assert sum(" endpoint  in " in line or " endpoint  out " in line for line in links) == 2


def test_csv_is_quoted(router: Daemon) -> None:
    """Management 84."""
    found = lines(router.tool("qdstat", "-l", "--csv"))
    header, *rows = found[4:]
    assert header.split(",")[9] == '"pri"'
    for row in rows:
        fields = row.split(",")
        assert len(fields) == len(header.split(","))
        assert all(not field or (field[0] == field[-1] == '"') for field in fields)
        assert "" in fields  # peer is null


@pytest.mark.parametrize(
    ("option", "titles"),
    [
        ("-c", ["Connections"]),
        ("-m", ["Memory Pools", "Memory Summary"]),
        ("-p", ["Policy Configuration", "Policy Status"]),
        ("-n", ["Router is Standalone - No Router List"]),
        ("--autolinks", ["AutoLinks", "No AutoLinks found"]),
        ("--linkroutes", ["Link Routes", "No Link Routes found"]),
        ("--vhosts", ["Vhosts"]),
        ("--vhostgroups", ["Vhost Groups", "Vhost 'example.com' UserGroup 'staff'"]),
        ("--vhoststats", ["Vhost Stats", "Vhost User Stats"]),
        ("--budgets", ["Byte Budgets"]),
    ],
)
def test_each_display_has_its_titles(router: Daemon, option: str, titles: list[str]) -> None:
    """Management 78, 82."""
    found = lines(router.tool("qdstat", option))
    has_header = option not in ("--vhosts", "--vhostgroups", "--vhoststats", "--budgets")
    assert bool(re.fullmatch(DATE, found[0])) == has_header
    at = 0
    for title in titles:
        at = found.index(title, at)


def test_the_log_is_shown(router: Daemon) -> None:
    """Management 82."""
    found = lines(router.tool("qdstat", "--log", "--limit=5"))
    assert len(found) == 5
    form = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} [A-Z_]+ \(\w+\) ")
    assert all(form.match(line) for line in found)
    assert any(re.search(r"AGENT \(debug\) .*GET-LOG", line) for line in found)


@pytest.mark.parametrize("extra", [(), ("--all-routers",)])
def test_everything_at_once(router: Daemon, extra: tuple[str, ...]) -> None:
    """Management 81."""
    text = "\n".join(lines(router.tool("qdstat", "--all-entities", *extra)))
    counts = {"UTC": 1, "Router Links": 1, "Router Addresses": 1, "AutoLinks": 2, "Router Statistics": 1}
    counts |= {"Memory Pools": 1, "Link Routes": 3, "Vhosts": 1}
    assert {title: text.count(title) for title in counts} == counts


@pytest.mark.parametrize("options", [("-g", "-c"), ("-r", "a", "-d", "b"), ("--all-routers", "-r", "a"), ("extra",)])
def test_a_wrong_command_line_is_a_usage_error(router: Daemon, options: tuple[str, ...]) -> None:
    """Management 83."""
    ran = router.tool("qdstat", *options)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("usage: qdstat")
    assert "qdstat: error: " in ran.err


@pytest.mark.parametrize("tool", ["qdstat", "qdmanage"])
def test_a_router_that_is_not_there(tool: str) -> None:
    """Management 86: one line, on standard output, with a class."""
    arguments = ["query"] if tool == "qdmanage" else []
    ran = run_tool(tool, "-b", f"127.0.0.1:{free_port()}", *arguments)
    assert (ran.status, ran.err) == (1, "")
    assert re.fullmatch(r"ConnectionException: Connection to 127\.0\.0\.1:\d+ failed: Connection refused\n", ran.out)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--limit", "x"), "argument --limit: wants a number of rows, or 0 for all, not 'x'"),
        (("--limit", "-1"), "argument --limit: wants a number of rows, or 0 for all, not '-1'"),
        (("-t", "soon"), "argument -t/--timeout: wants a number of seconds, not 'soon'"),
        (("secret",), "takes options only, and something besides them was given"),
    ],
)
def test_a_usage_error_says_what_is_wanted(options: tuple[str, ...], text: str) -> None:
    ran = run_tool("qdstat", *options)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == f"qdstat: error: {text}"


@pytest.mark.parametrize("option", ["-r", "-d"])
def test_a_router_that_nobody_knows_of(router: Daemon, option: str) -> None:
    """Nobody refuses such a request; after the timeout the tool says what it waited for."""
    ran = router.tool("qdstat", option, "Nowhere", "-t", "1")
    assert ran.status == 1
    awaited = r"waited for _(topo/0|edge)/Nowhere/\$management to answer QUERY \(is there a router of this name\?\)$"
    assert re.search(f"timed out after 1 s: {awaited}", ran.out)


@pytest.mark.parametrize("tool", [("qdstat", "-a"), ("qdmanage", "get-schema")])
def test_output_to_a_full_disk_is_an_error_and_not_a_traceback(router: Daemon, tool: tuple[str, ...]) -> None:
    name, *arguments = tool
    command = [sys.executable, "-m", f"router.tools.{name}", "-b", f"127.0.0.1:{router.port()}", *arguments]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "OSError: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("command", ["router.tools.qdstat", "router.tools.qdmanage", "router.io.daemon"])
def test_nobody_complains_when_the_reader_has_seen_enough(command: str) -> None:
    """`qdrouterd --help | head -1`"""
    reader, writer = os.pipe()
    os.close(reader)
    asked = [sys.executable, "-m", command, "--help"]
    ran = subprocess.run(asked, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert ran.stderr == ""


def test_help_and_version() -> None:
    for tool in ("qdstat", "qdmanage"):
        assert "--ssl-trustfile" in "\n".join(lines(run_tool(tool, "--help")))
        assert re.fullmatch(r"\S+", lines(run_tool(tool, "--version"))[0])


# qdmanage


def test_an_entity_is_made_read_changed_and_removed(router: Daemon) -> None:
    """Management 87, 88."""
    made = answer(router.tool("qdmanage", "create", "name=d1", "type=dummy", "arg1=START"))
    assert (made["name"], made["arg1"], made["type"]) == ("d1", "START", "org.apache.qpid.dispatch.dummy")
    many = [{"type": "dummy", "name": f"in{n}", "arg1": "x"} for n in range(3)]
    one = router.tool("qdmanage", "create", "--stdin", stdin=json.dumps({"type": "dummy", "name": "single"}))
    assert answer(one)["name"] == "single"
    assert [each["name"] for each in answer(router.tool("qdmanage", "create", "--stdin", stdin=json.dumps(many)))] == [
        "in0", "in1", "in2"
    ]  # fmt: skip
    assert answer(router.tool("qdmanage", "update", "name=d1", "arg1=CHANGED"))["arg1"] == "CHANGED"
    assert answer(router.tool("qdmanage", "read", "--name", "d1"))["identity"] == made["identity"]
    assert answer(router.tool("qdmanage", "read", "--identity", made["identity"]))["name"] == "d1"
    assert answer(router.tool("qdmanage", "read", "--id", made["identity"]))["name"] == "d1"
    found = answer(router.tool("qdmanage", "query", "--type=dummy", "name", "arg1", "arg2"))
    assert {"name": "in1", "arg1": "x"} in found
    assert all(value is not None for entity in found for value in entity.values())
    for name in ("d1", "single", "in0", "in1", "in2"):
        assert lines(router.tool("qdmanage", "delete", "--name", name)) == []
    assert answer(router.tool("qdmanage", "query", "--type=dummy")) == []
    assert lines(router.tool("qdmanage", "delete", "--name", "d1"), 1) == ["NotFoundStatus: No entity with name=d1"]


def test_a_listener_whose_peers_get_auto_links(router: Daemon) -> None:
    """Issue 34, peer 9: the router begins a session on the connection of the tool"""
    terms = {"host": "127.0.0.1", "port": "0", "role": "route-container", "saslMechanisms": "ANONYMOUS"}
    with router.client() as client:
        client.create(terms, type="listener", name="containers")
        for direction in ("in", "out"):
            link = {"address": "q", "direction": direction, "connection": "containers"}
            client.create(link, type="autoLink", name=direction)
        assert any(" Auto Links" in line for line in lines(router.tool("qdstat", "-g", name="containers")))
        found = answer(router.tool("qdmanage", "query", "--type=autoLink", name="containers"))
        assert {row["name"] for row in found} == {"in", "out"}
        for name in ("in", "out"):
            client.delete(type="autoLink", name=name)
        client.delete(type="listener", name="containers")


def test_listeners_and_connectors(router: Daemon) -> None:
    """Management 91, 92."""
    port = free_port()
    made = answer(router.tool("qdmanage", "create", "type=listener", "name=l", "host=127.0.0.1", f"port={port}"))
    assert (made["role"], made["port"]) == ("normal", str(port))
    assert lines(router.tool("qdmanage", "delete", "--type=listener", "--name=l")) == []
    found = lines(router.tool("qdmanage", "delete", "--type=listener", "--name=l"), 1)
    assert found == ["NotFoundStatus: No entity with name=l"]
    create = ("create", "type=connector", "name=c", "host=127.0.0.1", f"port={port}")
    assert answer(router.tool("qdmanage", *create))["role"] == "normal"
    ran = router.tool("qdmanage", *create)
    assert ran.status == 1
    assert "duplicates unique attribute 'name'" in ran.out
    assert lines(router.tool("qdmanage", "delete", "--type=connector", "--name=c")) == []


def test_addresses_take_either_name_of_fallback(router: Daemon) -> None:
    """Management §6.5: `fallback` and `enableFallback`."""
    for number, name in enumerate(("fallback", "enableFallback")):
        create = ("create", "--type=address", f"--name=a{number}", f"prefix=p{number}", f"{name}=true")
        made = answer(router.tool("qdmanage", *create))
        assert (made["fallback"], made["enableFallback"]) == (True, True)
        assert lines(router.tool("qdmanage", "delete", "--type=address", f"--name=a{number}")) == []


def test_the_schema_is_printed(router: Daemon) -> None:
    """Management 89, 90."""
    text = router.tool("qdmanage", "get-json-schema")
    as_map = router.tool("qdmanage", "get-schema", "--indent=-1")
    assert answer(text) == answer(as_map)
    assert len(as_map.out.splitlines()) == 1
    assert len(router.tool("qdmanage", "get-json-schema", "indent=2").out.splitlines()) > 1000
    assert len(answer(router.tool("qdmanage", "get-types"))) == 29
    operations = answer(router.tool("qdmanage", "get-operations", "org.apache.qpid.dispatch.sslProfile"))
    assert operations == {"org.apache.qpid.dispatch.sslProfile": ["CREATE", "DELETE", "READ"]}


def test_usage_and_typing_mistakes(router: Daemon) -> None:
    """Management 95, 97."""
    for arguments in ((), ("read", "extra")):
        ran = router.tool("qdmanage", *arguments)
        assert (ran.status, ran.out) == (2, "")
        assert "qdmanage <operation>: error: " in ran.err
    ran = router.tool("qdmanage", "create", "--type=nosuch", "a=b")
    assert lines(ran, 1) == ["ValidationError: No such entity type 'org.apache.qpid.dispatch.nosuch'"]
    ran = router.tool("qdmanage", "create", "--type=listener", "prot=1")
    expected = "ValidationError: Unknown attribute 'prot' for 'org.apache.qpid.dispatch.listener'"
    assert lines(ran, 1)[0].startswith(expected)


def test_logs_are_changed_in_every_way_the_books_show(router: Daemon, tmp_path: Path) -> None:
    """Management 98, §10.2."""
    path = tmp_path / "A.log"
    long_form = ("update", "--type=org.apache.qpid.dispatch.log", "--name", "log/ROUTER_MA", "enable=trace+")
    found = answer(router.tool("qdmanage", *long_form, f"outputFile={path}"))
    assert (found["enable"], found["outputFile"]) == ("trace+", str(path))
    assert answer(router.tool("qdmanage", "update", "name=log/ROUTER_MA", "enable=info+"))["enable"] == "info+"
    assert answer(router.tool("qdmanage", "update", "log/ROUTER_MA", "enable=debug+"))["enable"] == "debug+"
    ran = router.tool("qdmanage", "update", "--name", "log/ROUTER_MA", "outputFile=")
    text = "InternalServerErrorStatus: CError: Configuration: Failed to open log file ''"
    assert lines(ran, 1) == [text]


def test_a_path_in_the_url_is_the_address(router: Daemon) -> None:
    """Management 96: it overrides -r and -d."""
    port = router.port()

    def ask(bus: str, *options: str) -> Ran:
        return run_tool("qdmanage", "-b", bus, *options, "-t", "3", "get-mgmt-nodes")

    assert answer(ask(f"127.0.0.1:{port}", "-r", "toolbox")) == []
    for options in ((), ("-r", "nosuch"), ("-d", "nosuch")):
        assert answer(ask(f"amqp://127.0.0.1:{port}/_topo/0/toolbox/$management", *options)) == []
    assert ask(f"127.0.0.1:{port}", "-r", "nosuch").status == 1
    assert ask(f"amqp://127.0.0.1:{port}/nosuch", "-r", "toolbox").status == 1
    assert lines(run_tool("qdstat", "-b", f"amqp://127.0.0.1:{port}/_local/$management", "-g"))[1] == "toolbox"


# TLS and SASL


TLS = """
router {{
    id: safe
    saslConfigDir: {folder}
}}
sslProfile {{
    name: tls
    caCertFile: {tls}/ca.crt
    certFile: {tls}/server.crt
    privateKeyFile: {tls}/server.key
}}
listener {{
    name: any
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
listener {{
    name: certificate
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}}
listener {{
    name: password
    host: 127.0.0.1
    port: 0
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("safe")
    sasl = write_users(folder, {"alice": "her password"}, "PLAIN EXTERNAL ANONYMOUS")
    made = start(folder, TLS.format(folder=sasl, tls=certificates.folder))
    for name in ("any", "certificate", "password"):
        made.port(name)
    yield made
    made.end()


def stat(safe: Daemon, listener: str, *options: str, host: str = "localhost", scheme: str = "amqps") -> Ran:
    return run_tool("qdstat", "-b", f"{scheme}://{host}:{safe.port(listener)}", "-t", "5", "-c", *options)


def test_the_server_must_be_vouched_for(safe: Daemon, certificates: Certificates, tmp_path: Path) -> None:
    """Management 85."""
    assert "certificate verify failed" in lines(stat(safe, "any"), 1)[0]
    assert "TLSv1" in lines(stat(safe, "any", "--ssl-trustfile", certificates.ca))[-1]
    stranger = tmp_path / "stranger.crt"
    shutil.copyfile(certificates.folder / "stranger.crt", stranger)
    assert "certificate verify failed" in lines(stat(safe, "any", "--ssl-trustfile", str(stranger)), 1)[0]
    missing = lines(stat(safe, "any", "--ssl-trustfile", "/no/such/file"), 1)[0]
    assert missing.startswith("ConnectionException: ")
    assert "/no/such/file" in missing


def test_the_server_must_have_the_name_we_asked_for(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Management 85: a certificate for localhost is none for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, der = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "server.crt").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "server.key").write_bytes(key.private_bytes(pem, der, serialization.NoEncryption()))
    shutil.copyfile(tmp_path / "server.crt", tmp_path / "ca.crt")
    (tmp_path / "sasl").mkdir()
    (tmp_path / "sasl" / "qdrouterd.conf").write_text("mech_list: ANONYMOUS\n")
    profile, any_listener = TLS.partition("listener {{")[0], "listener {{" + TLS.split("listener {{")[1]
    local = daemon((profile + any_listener).format(folder=tmp_path / "sasl", tls=tmp_path))
    trust = ("--ssl-trustfile", str(tmp_path / "ca.crt"))
    assert stat(local, "any", *trust).status == 0
    mismatch = lines(stat(local, "any", *trust, host="127.0.0.1"), 1)[0]
    assert "--ssl-disable-peer-name-verify" in mismatch
    assert stat(local, "any", *trust, "--ssl-disable-peer-name-verify", host="127.0.0.1").status == 0


def test_plain_sockets_are_refused_where_tls_is_required(safe: Daemon) -> None:
    """Management 85."""
    ran = stat(safe, "any", scheme="amqp")
    assert ran.status == 1
    assert ran.out.startswith("ConnectionException: ")


def test_a_certificate_is_a_login(safe: Daemon, certificates: Certificates, tmp_path: Path) -> None:
    """Management 85: EXTERNAL wants certificate, key and the key's password."""
    certificate, key = certificates.pair("carol")
    trust = ("--ssl-trustfile", certificates.ca)
    found = lines(stat(safe, "certificate", *trust, "--ssl-certificate", certificate, "--ssl-key", key))
    assert "(x.509)" in found[-1]
    without = stat(safe, "certificate", *trust)
    assert without.status == 1
    assert "SSL Failure" in without.out
    locked = tmp_path / "locked.key"
    private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    locked.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )
    shown = (*trust, "--ssl-certificate", certificate, "--ssl-key", str(locked))
    assert stat(safe, "certificate", *shown, "--ssl-password", "open sesame").status == 0
    password_file = tmp_path / "password"
    password_file.write_text("open sesame\n")
    both = ("--ssl-password", "x", "--ssl-password-file", str(password_file))
    assert stat(safe, "certificate", *shown, *both).status == 0
    assert stat(safe, "certificate", *shown, "--ssl-password", "wrong").status == 1
    assert stat(safe, "certificate", *shown).status == 1


def test_a_password_is_a_login(safe: Daemon, certificates: Certificates, tmp_path: Path) -> None:
    """Management §9.1."""
    trust = ("--ssl-trustfile", certificates.ca)
    path = tmp_path / "password"
    path.write_text("her password\n")
    by_file = (*trust, "--sasl-username", "alice", "--sasl-password-file", str(path))
    assert "alice(PLAIN)" in lines(stat(safe, "password", *by_file))[-1]
    by_url = f"amqps://alice:her%20password@localhost:{safe.port('password')}"
    assert run_tool("qdstat", "-b", by_url, *trust).status == 0
    wrong = stat(safe, "password", *trust, "--sasl-username", "alice", "--sasl-password", "not hers")
    assert wrong.status == 1
    assert "amqp:unauthorized-access" in wrong.out
    assert "not hers" not in wrong.out + wrong.err
    nobody = stat(safe, "password", *trust)
    assert nobody.status == 1
    assert "--sasl-username" in nobody.out
