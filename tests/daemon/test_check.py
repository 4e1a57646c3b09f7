"""`qdrouterd --check`, `qdpolicy lint` and the start give one verdict on a configuration. Issue 37, point 1.

Most starts are those of this process, up to the ports; a few are real ones, to hold the check against.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from cryptography.hazmat.primitives import serialization
from daemon_process import LISTENER, ROOT, Daemon, run, start

from policy.cli.main import main as qdpolicy
from router.io.daemon import main as qdrouterd

pytestmark = pytest.mark.interop

NORMAL = "listener {\n    host: 127.0.0.1\n    port: 0\n"
CONNECTOR = "connector {\n    name: broker\n    host: 127.0.0.1\n    port: 1\n"
# name -> (configuration, the line that is wrong, the rule). All stop the start.
REFUSED = {
    "comment after a role": (f"{CONNECTOR}    role: route-container // the broker\n}}\n", 5, "PAL150"),
    "distribution": ("address {\n    prefix: a\n    distribution: roundrobin\n}\n", 3, "PAL150"),
    "mode": ("router {\n    mode: standallone\n}\n", 2, "PAL150"),
    "role": (f"{NORMAL}    role: nromal\n}}\n", 4, "PAL150"),
    "module": ("log {\n    module: ROUTR\n}\n", 2, "PAL150"),
    "level": ("log {\n    module: ROUTER\n    enable: infoo\n}\n", 3, "PAL150"),
    "number": (f"{NORMAL}    maxFrameSize: big\n}}\n", 4, "PAL150"),
    "range": (f"{NORMAL}    maxFrameSize: -5\n}}\n", 4, "PAL150"),
    "boolean": (f"{NORMAL}    authenticatePeer: maybe\n}}\n", 4, "PAL150"),
    "bytes": ("router {\n    auditMaxBytes: 1127.0.0.1000\n}\n", 2, "PAL150"),
    "port": ("listener {\n    host: 127.0.0.1\n    port: 99999\n}\n", 3, "PAL150"),
    "id": ("router {\n    id: a b\n}\n", 2, "PAL150"),
    "direction": ("autoLink {\n    address: a\n    connection: c\n}\n", 1, "PAL150"),
    "two routers": ("router {\n    id: A\n}\nrouter {\n    id: B\n}\n", 4, "PAL150"),
    "two names": (f"{CONNECTOR}}}\n{CONNECTOR}}}\n", 7, "PAL150"),
    "standalone": (f"{CONNECTOR}    role: inter-router\n}}\n", 5, "PAL150"),
    "edge": ("router {\n    mode: edge\n}\n" + NORMAL + "    role: edge\n}\n", 7, "PAL150"),
    "authenticators": (f"{NORMAL}    authenticators: nope\n}}\n", 4, "PAL150"),
    "plugin": (f"{NORMAL}    saslPlugin: nope\n}}\n", 4, "PAL150"),
    "profile": (f"{NORMAL}    sslProfile: nope\n}}\n", 4, "PAL038"),
    "reserved": (NORMAL + '    openProperties: {"product": "x"}\n}\n', 4, "PAL150"),
    "identity": (f"{NORMAL}    identity: 1\n}}\n", 4, "PAL150"),
    "attribute": (f"{NORMAL}    prt: 1\n}}\n", 4, "PAL042"),
    "section": ("listner {\n    port: 0\n}\n", 1, "PAL042"),
    "adaptor": ("tcpListener {\n    port: 0\n}\n", 1, "PAL042"),
    "operational": ("connection {\n    name: c\n}\n", 1, "PAL150"),
    "sni": (NORMAL + '    sniProfiles: {"a.example": "p"}\n}\n', 4, "PAL150"),
    "session": ("authServicePlugin {\n    name: s\n    host: h\n    maxSessionSeconds: -1\n}\n", 4, "PAL150"),
    "service": ("authServicePlugin {\n    name: s\n    host: http://h\n}\n", 3, "PAL150"),
    "token": (f"{CONNECTOR}    saslToken: literal\n}}\n", 5, "PAL150"),
    "name of SASL": ("router {\n    saslConfigName: a/b\n}\n", 2, "PAL150"),
    "twice": ("policy {\n    policyDir: x\n    policyDir: y\n}\n", 3, ""),
}
# These are left out, with a line in the log.
LEFT_OUT = {
    "both keys": ("linkRoute {\n prefix: a\n direction: in\n connection: c\n containerId: d\n}\n", 1),
    "both forms": ("address {\n prefix: a\n pattern: b\n}\n", 1),
    "no form": ("address {\n distribution: closest\n}\n", 1),
    "priority": ("address {\n prefix: a\n priority: 99\n}\n", 1),
    "phase": ("exchange {\n name: e\n address: e\n phase: 99\n}\n", 1),
    "twice": ("address {\n prefix: foo.bar\n}\naddress {\n prefix: /foo/bar\n}\n", 4),
    "binding to itself": (
        "exchange {\n name: e\n address: e.x\n}\nbinding {\n exchangeName: e\n nextHopAddress: amqp:/e.x\n}\n",
        7,
    ),
    "alternate to itself": ("exchange {\n name: e\n address: e\n alternateAddress: amqp:/e\n}\n", 4),
    "exchange of the router": ("exchange {\n name: e\n address: $management\n}\n", 1),
    "binding": ("binding {\n name: b\n exchangeName: e\n nextHopAddress: a\n}\n", 1),
}


def checked(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and texts of --check."""
    capsys.readouterr()
    status = qdrouterd(["qdrouterd", "--check", str(path)])
    return status, capsys.readouterr().err


def found_by_lint(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[int, str, str]]]:
    """Exit status; line, level and rule of each finding, of a file that cannot be read line and `invalid`."""
    capsys.readouterr()
    status = qdpolicy(["lint", str(path), "--format", "concise"])
    out = capsys.readouterr().out
    return status, [
        (int(line), level, rule or "") for line, level, rule in re.findall(r":(\d+):\d+: (\w+)(?: (PAL\d+))?:", out)
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_what_stops_the_start_is_an_error_with_its_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, line, rule = REFUSED[name]
    path = tmp_path / "r.conf"
    path.write_text(text)
    status, texts = checked(path, capsys)
    assert status == 1
    assert f"{path}:{line})" in texts
    status, found = found_by_lint(path, capsys)
    assert status == (1 if rule else 3)
    assert (line, "error" if rule else "invalid", rule) in found


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_a_warning(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, line = LEFT_OUT[name]
    path = tmp_path / "r.conf"
    path.write_text(text)
    status, texts = checked(path, capsys)
    assert status == 0
    assert re.search(r"ignoring|Error performing CREATE of .*r\.conf:\d+\)$", texts, re.MULTILINE), texts
    assert (line, "warning", "PAL151") in found_by_lint(path, capsys)[1]


# name -> (its text, the listener's saslMechanisms, may others read the users, line, rule)
SASL = {
    "users for everybody": ("auxprop_plugin: userfile\nuserfile_path: users\n", "PLAIN", True, 2, "PAL166"),
    "no users": ("auxprop_plugin: userfile\nuserfile_path: nowhere\n", "PLAIN", False, 2, "PAL166"),
    "sasldb for everybody": ("auxprop_plugin: sasldb\nsasldb_path: users\n", "PLAIN", True, 5, "PAL166"),
    "no line": ("mech_list PLAIN\n", "ANONYMOUS", False, 2, "PAL166"),
    "other database": ("auxprop_plugin: sql\n", "PLAIN", False, 5, "PAL166"),
    "not in the list": ("mech_list: PLAIN\n", "ANONYMOUS", False, 8, "PAL087"),
    "nobody to ask": ("mech_list: PLAIN\n", "PLAIN", False, 8, "PAL087"),
    "not there": ("", "ANONYMOUS", False, 2, "PAL166"),
    "anonymous": ("mech_list: ANONYMOUS\nauxprop_plugin: sasldb\nsasldb_path: nowhere\n", "ANONYMOUS", False, 0, ""),
    "right": ("mech_list: PLAIN\nauxprop_plugin: userfile\nuserfile_path: users\n", "PLAIN", False, 0, ""),
}


@pytest.mark.parametrize("name", SASL)
def test_lint_reads_the_sasl_configuration(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lint was silent about users that others may read, a mech_list without the mechanism, a file that is missing."""
    text, mechanism, is_open, line, rule = SASL[name]
    folder = tmp_path / "sasl"
    folder.mkdir()
    (folder / "users").touch(mode=0o600)
    (folder / "users").chmod(0o644 if is_open else 0o600)
    if text:
        (folder / "qdrouterd.conf").write_text(text)
    path = tmp_path / "r.conf"
    path.write_text(
        f"router {{\n    saslConfigDir: {folder}\n    id: A\n}}\nlistener {{\n    host: 127.0.0.1\n    port: 0\n"
        f"    saslMechanisms: {mechanism}\n}}\n"
    )
    status, texts = checked(path, capsys)
    errors = [each for each in found_by_lint(path, capsys)[1] if each[1] == "error"]
    assert (status, errors) == ((1, [(line, "error", rule)]) if rule else (0, [])), texts


def test_a_sasl_configuration_of_another_host_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.conf"
    path.write_text("router {\n    id: A\n    saslConfigDir: /nowhere/sasl\n}\n")
    assert (3, "note", "PAL166") in found_by_lint(path, capsys)[1]


def test_all_faults_are_said_and_each_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.conf"
    path.write_text(f"{NORMAL}    role: nromal\n    maxFrameSize: big\n}}\nrouter {{\n    mode: standallone\n}}\n")
    _, texts = checked(path, capsys)
    assert re.findall(r"r\.conf:(\d+)\)", texts) == ["4", "5", "8"]


def test_two_entities_of_one_name_are_called_by_name_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is not after 700 characters of attributes."""
    path = tmp_path / "r.conf"
    path.write_text(REFUSED["two names"][0])
    _, texts = checked(path, capsys)
    wanted = f"adding connector 'broker' duplicates unique attribute 'name' from existing connector 'broker' ({path}:1)"
    assert f"{wanted} ({path}:7)" in texts


def test_a_deprecated_name_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning named neither file nor line."""
    path = tmp_path / "r.conf"
    path.write_text("autoLink {\n addr: a\n direction: in\n connection: c\n}\n")
    _, texts = checked(path, capsys)
    assert (
        f"warning: Attribute 'addr' of entity 'autoLink' has been deprecated. Use 'address' instead ({path}:1)\n"
    ) in texts


def test_a_router_to_which_nobody_can_connect_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It started in silence."""
    path = tmp_path / "r.conf"
    path.write_text("router {\n    id: A\n}\n")
    text = "warning: Nothing listens: the configuration has no listener section\n"
    assert checked(path, capsys) == (0, text)


def test_settings_of_http_without_http_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`healthz: yes` is what it is by default, and went without a word."""
    path = tmp_path / "r.conf"
    path.write_text(f"{NORMAL}    name: n\n    healthz: yes\n    metrics: true\n}}\n")
    _, texts = checked(path, capsys)
    assert texts.splitlines() == [
        f"warning: listener 'n': '{name}' has no effect without 'http: yes' ({path}:1)"
        for name in ("healthz", "metrics")
    ]
    path.write_text(f"{NORMAL}    http: yes\n    healthz: yes\n}}\n")
    assert checked(path, capsys) == (0, "")


def mutations() -> Iterator[str]:
    """200 configurations: samples with a line taken out, doubled, or with another value."""
    chance = random.Random(37)
    names = ("old-broker", "old-clients", "old-policies", "old-sharded", "old-standalone")
    texts = [(ROOT / "tests/management/configs" / f"{name}.conf").read_text() for name in names]
    texts += [text for text, _, rule in REFUSED.values() if rule]
    values = ("yes", "-1", "99999", "normal", "nothing", "a b", '"', "127.0.0.1", "inter-router")
    for _ in range(200):
        lines = chance.choice(texts).splitlines()
        at = chance.randrange(len(lines))
        match chance.randrange(3):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case _ if ":" in lines[at]:
                lines[at] = f"{lines[at].partition(':')[0]}: {chance.choice(values)}"
            case _:
                lines[at] += chance.choice((" {", "}", " x: y"))
        yield "\n".join(lines) + "\n"


def test_lint_and_the_check_agree_on_mutated_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of these rules, or a file that cannot be read, are what stops the start: neither kinder nor stricter."""
    rules = {"PAL001", "PAL002", "PAL003", "PAL038", "PAL042", "PAL086", "PAL087", "PAL150", "PAL166", ""}
    rules.add("PAL152")  # the name of a service, which lint cannot know: a warning
    wrong = []
    for number, text in enumerate(mutations()):
        path = tmp_path / f"{number}.conf"
        path.write_text(text)
        status, texts = checked(path, capsys)
        found = found_by_lint(path, capsys)[1]
        errors = [
            each for each in found if each[2] in rules and (each[1] in ("error", "invalid") or each[2] == "PAL152")
        ]
        if (status == 1) != bool(errors):
            wrong.append((text, texts, errors))
    assert wrong == []


@pytest.mark.parametrize("name", ["role", "two names", "plugin"])
def test_the_start_refuses_what_the_check_refuses(name: str, tmp_path: Path) -> None:
    path = tmp_path / "r.conf"
    path.write_text(REFUSED[name][0])
    started, asked = run("-c", str(path)), run("--check", str(path))
    assert (started.status, asked.status) == (1, 1)
    reason = started.err.splitlines()[-1].partition(": ")[2]
    assert f"error: {reason}" in asked.err.splitlines()
    assert len(started.err.splitlines()) == 2


@pytest.mark.slow
def test_the_start_and_the_check_agree_on_mutated_configurations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every tenth of the 200, started for real: it runs where the check says so, and else ends with status 1."""
    for number, text in enumerate(list(mutations())[::10]):
        path = tmp_path / f"{number}.conf"
        path.write_text(text)
        status, texts = checked(path, capsys)
        folder = tmp_path / str(number)
        folder.mkdir()
        router = start(folder, text)
        try:
            # Operational is said before ports are opened, which the check does not do.
            said = router.wait_for_log(r"MAIN \(critical\)|SERVER \(notice\) Operational")[0]
        finally:
            router.end()
        assert ("critical" in said) == (status == 1), (text, texts, said)


@pytest.mark.parametrize("kind", ["certFile", "privateKeyFile", "other key", "password"])
def test_a_key_that_does_not_fit_is_named_and_stops_a_listener_that_requires_tls(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], certificates: Certificates
) -> None:
    certificate, key = certificates.pair("server")
    junk = tmp_path / "junk.pem"
    junk.write_text("no key\n")
    files = {"certFile": Path(certificate), "privateKeyFile": Path(key)}
    match kind:
        case "certFile" | "privateKeyFile":
            files[kind], wanted = junk, "in PEM"
        case "other key":
            files["privateKeyFile"], wanted = Path(certificates.pair("carol")[1]), "it is not the key of certFile"
        case _:
            loaded = serialization.load_pem_private_key(files["privateKeyFile"].read_bytes(), None)
            form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            files["privateKeyFile"] = tmp_path / "encrypted.key"
            encryption = serialization.BestAvailableEncryption(b"secret")
            files["privateKeyFile"].write_bytes(loaded.private_bytes(*form, encryption))
            wanted = "it is encrypted, and the profile has no password"
    profile = "sslProfile {\n name: p\n" + "".join(f" {name}: {path}\n" for name, path in files.items()) + "}\n"
    listener = f"{NORMAL} sslProfile: p\n saslMechanisms: ANONYMOUS\n"
    path = tmp_path / "r.conf"
    path.write_text(f"{profile}{listener}}}\n")
    status, texts = checked(path, capsys)
    assert (status, wanted in texts) == (0, True), texts
    path.write_text(f"{profile}{listener} requireSsl: yes\n}}\n")
    status, texts = checked(path, capsys)
    assert status == 1
    assert wanted in texts
    assert str(files["certFile" if kind == "certFile" else "privateKeyFile"]) in texts


def test_the_check_leaves_nothing_and_calls_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No log, no folder of the audit log, no connection; a running router is not disturbed."""
    path = tmp_path / "r.conf"
    path.write_text(
        f"router {{\n auditDir: {tmp_path}/audit\n}}\nlog {{\n module: DEFAULT\n outputFile: {tmp_path}/log\n}}\n"
        f"{CONNECTOR}}}\n{NORMAL}}}\n"
    )
    status, texts = checked(path, capsys)
    assert (status, texts) == (0, "")
    assert [each.name for each in tmp_path.iterdir()] == ["r.conf"]


@pytest.mark.parametrize(
    ("mode", "mechanisms", "offered", "text"),
    [
        (0o644, "PLAIN", "PLAIN", "lets others at the passwords"),
        (0o600, "PLAIN", "ANONYMOUS", "ANONYMOUS wants a mech_list that has it"),
        (None, "PLAIN", "ANONYMOUS", "no SASL configuration qdrouterd.conf in"),
    ],
)
def test_the_configuration_of_sasl_is_read(
    mode: int | None, mechanisms: str, offered: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sasldb that others may read, a mech_list without the only mechanism of a listener, and none at all."""
    sasl = tmp_path / "sasl"
    if mode is not None:
        sasl.mkdir()
        (sasl / "db").touch()
        (sasl / "db").chmod(mode)
        lines = f"auxprop_plugin: sasldb\nsasldb_path: {sasl}/db\nmech_list: {mechanisms}\n"
        (sasl / "qdrouterd.conf").write_text(lines)
    path = tmp_path / "r.conf"
    path.write_text(f"router {{\n saslConfigDir: {sasl}\n}}\n{NORMAL} saslMechanisms: {offered}\n}}\n")
    status, texts = checked(path, capsys)
    assert (status, text in texts) == (1, True), texts


def test_a_folder_that_cannot_be_made_is_found_by_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.conf"
    for text in ("router {\n auditDir: /dev/null/x\n}\n", "log {\n module: DEFAULT\n outputFile: /no/such/x\n}\n"):
        path.write_text(text)
        assert checked(path, capsys)[0] == 1


def test_the_check_of_a_running_routers_configuration_passes(tmp_path: Path) -> None:
    text = f"router {{\n auditDir: {tmp_path}/audit\n}}\n{LISTENER}"
    router: Daemon = start(tmp_path, text)
    try:
        router.port()
        ran = run("--check", str(tmp_path / "qdrouterd.conf"))
        assert (ran.status, ran.out) == (0, f"{tmp_path}/qdrouterd.conf: the router would start\n")
    finally:
        router.end()
