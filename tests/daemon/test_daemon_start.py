"""A start that fails: what it names, how long it takes; nothing of a configuration is ignored. Issue 12, 11 to 20."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from daemon_process import COMMAND, LISTENER, ROOT, Ran, Started, run, run_configuration, write_configuration
from free_ports import free_port
from process_log import PATIENCE_S

pytestmark = pytest.mark.interop


def place(ran: Ran) -> int:
    """The line in which the last line of the error output says the fault is."""
    found = re.search(r"\(\S+\.conf:(\d+)\)$", ran.err.rstrip())
    assert found is not None, ran.err
    return int(found[1])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("listener {\n port: 1\n cost: x\n}\nlistener {\n nothing: 1\n}\n", 3),
        ("log {\n module: X\n enable: info\n}\nlistener {\n role: nobody\n}\n", 2),
        # Each found in a later step than the one behind it.
        ("log {\n module: DEFAULT\n enable: infos\n}\nlistener {\n port: 1\n cost: x\n}\n", 3),
        ("listener {\n port: 1\n role: edge\n}\nrouter {\n id: a/b\n}\n", 3),
        ("router {\n mode: hub\n}\nlistener {\n cost: 1\n}\n", 2),
        # Role checks would go by a mode that is not read: only what is wrong is told.
        ("listener {\n port: 1\n role: inter-router\n}\nrouter {\n mode: interior\n cost: 1\n}\n", 7),
    ],
)
def test_a_start_that_fails_names_what_is_wrong_first(text: str, line: int, tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, text)
    assert (ran.status, place(ran)) == (1, line)
    assert "Listening" not in ran.err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("router {\n auditDir: /proc/none/at/all\n}\n", 2),
        ("router {\n saslConfigDir: /no/such/folder\n}\n", 2),
        ("log {\n module: DEFAULT\n outputFile: /no/such/folder/log\n}\n", 3),
        ("listener {\n port: 0\n sslProfile: none\n}\n", 3),
        ("listener {\n port: 0\n saslPlugin: none\n}\n", 3),
        ("policy {\n policyDir: /no/such/folder\n}\n", 2),
        ("vhost {\n hostname: h\n groups: {\n  g: {\n   users: a\n   remoteHosts: 300.1.1.1\n  }\n }\n}\n", 6),
    ],
)
def test_what_only_shows_when_it_is_applied_has_its_place_too(text: str, line: int, tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, text)
    assert (ran.status, place(ran)) == (1, line)


def test_a_listener_that_cannot_be_opened_has_its_place(tmp_path: Path) -> None:
    """Told to the process that launched the daemon; in the foreground the log has it."""
    path = write_configuration(tmp_path, "listener {\n host: 192.0.2.1\n port: 5672\n}\n")
    ran = run("-d", "-c", str(path))
    assert (ran.status, place(ran)) == (1, 3)


def test_a_start_that_fails_does_not_wait_for_what_it_does_not_need(tmp_path: Path) -> None:
    """What takes time is loading the router: a configuration that is refused is refused before."""
    path = write_configuration(tmp_path, "listener {\n cost: x\n}\n")
    code = (
        "import sys; from router.io.daemon import main\n"
        "assert main(['qdrouterd', '-c', sys.argv[1]]) == 1\n"
        "late = {'asyncio', 'ssl', 'cproton_ffi', 'cryptography', 'jsonschema', 'router.control.application'}\n"
        "assert not late & set(sys.modules), late & set(sys.modules)\n"
    )
    began = time.monotonic()
    ran = subprocess.run(
        [COMMAND[0], "-c", code, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert time.monotonic() - began < 5  # 0.2 s on a machine that has nothing else to do


# Tells on SIGUSR1, when the router serves, what a test asks of the process.
ASKED = """
import gc, os, signal, sys
from router.io.daemon import main

def answer(*_):
    loaded = sorted({name.rpartition(".")[0] for name in sys.modules if name.startswith("router.linkstate.")})
    os.write(2, f"ANSWER collects={gc.isenabled()} {loaded}\\n".encode())

signal.signal(signal.SIGUSR1, answer)
sys.exit(main(["qdrouterd", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(("mode", "loaded"), [("standalone", []), ("edge", []), ("interior", ["router.linkstate"])])
def test_a_router_loads_the_routing_protocol_where_it_is_interior_and_collects_garbage(
    mode: str, loaded: list[str], daemon: Started
) -> None:
    """While it starts it collects none: that was a tenth of a start, and a third with thousands of vhosts."""
    router = daemon(f"router {{\n id: A\n mode: {mode}\n}}\n" + LISTENER, command=(COMMAND[0], "-c", ASKED))
    router.client().close()  # it has been answered: the start is over
    router.signal(signal.SIGUSR1)
    router.wait_for_log(rf"ANSWER collects=True {re.escape(str(loaded))}$")


@pytest.mark.parametrize(
    ("section", "line", "what"),
    [
        ("listener {\n port: 0\n http: yes\n httpOrigins: console.example\n}\n", 4, "'console.example' is no origin"),
        ("listener {\n port: 0\n httpRoot: /srv\n httpOrigins: https://*\n}\n", 4, "'https://*' is no origin"),
    ],
)
@pytest.mark.parametrize("options", [(), ("-d",)], ids=["foreground", "daemon"])
def test_an_entry_that_cannot_be_served_stops_the_start(
    section: str, line: int, what: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    path = write_configuration(tmp_path, section + LISTENER)
    ran = run("-c", str(path), *options)
    assert ran.status == 1
    assert f"httpOrigins: {what}: expected https://HOST" in ran.err
    assert place(ran) == line
    if options:
        assert len(ran.err.splitlines()) == 1


def test_an_address_that_1_20_passes_over_is_told_to_who_started_the_daemon(tmp_path: Path) -> None:
    """The router runs, as with 1.20; its log goes to /dev/null."""
    pidfile, port = tmp_path / "pid", free_port()
    text = (
        "address {\n prefix: a\n pattern: b\n}\naddress {\n prefix: c\n}\naddress {\n prefix: c\n}\n"
        f"listener {{\n host: 127.0.0.1\n port: {port}\n}}\n"
    )
    path = write_configuration(tmp_path, text)
    ran = run("-d", "-P", str(pidfile), "-c", str(path))
    subprocess.run(["kill", pidfile.read_text().strip()], check=True)
    assert ran.status == 0
    both, twice = ran.err.splitlines()
    assert both.endswith(f": Cannot set both 'prefix' and 'pattern': ignoring configured address a, b ({path}:1)")
    assert twice.endswith(f"config.address: Already exists ({path}:8)")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        (
            "saslMechanisms: GSSAPI",
            "GSSAPI wants a keytab (SASL configuration, kerberosAuthenticator), and a mech_list",
        ),
        ("saslMechanisms: DIGEST-MD5", "there is nobody to answer DIGEST-MD5"),
        ("saslMechanisms: PLAIN", "PLAIN wants users (saslConfigDir of the router, or "),
        (
            "saslMechanisms: PLAIN\n authenticatePeer: yes",
            "PLAIN wants users (saslConfigDir of the router, or ",
        ),
        ("saslMechanisms: ANONYMOUS\n authenticatePeer: yes", "ANONYMOUS wants authenticatePeer: no"),
        ("saslMechanisms: EXTERNAL\n authenticatePeer: yes", "EXTERNAL wants an sslProfile with caCertFile"),
        ("saslMechanisms: GSSAPI, SCRAM-SHA-256", "there is nobody to answer SCRAM-SHA-256"),
    ],
)
def test_a_listener_none_of_whose_mechanisms_can_be_served_does_not_start(
    attributes: str, why: str, tmp_path: Path
) -> None:
    ran = run_configuration(tmp_path, f"listener {{\n host: 127.0.0.1\n port: 0\n {attributes}\n}}\n")
    assert (ran.status, place(ran)) == (1, 4)
    assert "none of its saslMechanisms can be served: " in ran.err
    assert why in ran.err
    assert "Listening" not in ran.err


@pytest.mark.parametrize(
    "section",
    [
        "listener {\n port:\n}\n",
        "listener {\n sslProfile:\n}\n",
        "listener {\n saslMechanisms: # later\n}\n",
        "listener {\n cost:\n}\n",
        "listener {\n http:\n}\n",
        "listener {\n role:\n}\n",
        "router {\n id:\n}\n",
        "router {\n auditDir:\n}\n",
        "connector {\n sslProfile:\n}\n",
        "connector {\n saslPassword:\n}\n",
        "sslProfile {\n caCertFile:\n name: p\n}\n",
        "listener {\n logMessage: message-id, to\n}\n",
    ],
)
def test_an_empty_value_that_would_be_laxer_than_meant_is_refused(section: str, tmp_path: Path) -> None:
    ran = run_configuration(tmp_path, section)
    assert (ran.status, place(ran)) == (1, 2)
