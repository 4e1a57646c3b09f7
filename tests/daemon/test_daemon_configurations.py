"""Configurations in the manner of the books, through the whole daemon. Issue 4; management 3, 4, 7, 9, 11, 13."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import ROOT, Daemon, run, start
from process_log import PATIENCE_S

from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport

pytestmark = pytest.mark.interop

CONFIGURATIONS = sorted((ROOT / "tests" / "management" / "configs").iterdir())
REFUSED = sorted((ROOT / "tests" / "management" / "refused_configs").iterdir())
PREFIX = "org.apache.qpid.dispatch."
# A connector of the samples leads to a port where nobody is.
EXPECTED = r"Connection to 127.0.0.1:1 failed"


@pytest.fixture(params=CONFIGURATIONS, ids=[path.name for path in CONFIGURATIONS])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Daemon, ManagementClient]]:
    path: Path = request.param
    (tmp_path / path.name).write_text(path.read_text())
    made = start(tmp_path, "# not used\n", "-c", str(tmp_path / path.name))
    try:
        port = int(made.wait_for_log(r"Listening on 127\.0\.0\.1:(\d+)")[1])
        options = ConnectionOptions(host="127.0.0.1", port=port, timeout_s=PATIENCE_S)
        with ManagementClient(SocketTransport(options)) as client:
            yield path.name, made, client
    finally:
        made.end()
    assert made.process.returncode == 0


def test_a_sample_loads(running: tuple[str, Daemon, ManagementClient]) -> None:
    name, router, client = running
    unexpected = [line for line in router.log(r"\((error|critical)\) ") if line not in router.log(EXPECTED)]
    assert unexpected == []

    def names(kind: str, attribute: str) -> list[object]:
        return [row[0] for row in client.query(f"{PREFIX}{kind}", [attribute]).rows]

    match name:
        case "old-standalone.conf":
            assert names("router", "id") == ["Router.A"]
            assert names("router.config.address", "prefix") == ["unicast", "exclusive", "broadcast", None]
            assert names("router.config.address", "pattern")[-1] == "reports.#.daily"
            assert client.read(name="server_tls")["privateKeyFile"] == "/etc/pki/tls/private/server.key"
            assert client.query(f"{PREFIX}listener", ["stripAnnotations"]).rows == (("no",),)
            deprecated = ("helloInterval", "raInterval", "debugDump", "timestamp", "certDb", "keyFile", "logMessage")
            for old in deprecated:
                assert router.log(f"AGENT .warning. Attribute '{old}' of entity '.*' has been deprecated. Use '")
        case "old-policies.conf":
            assert sorted(map(str, names("vhost", "hostname"))) == ["$default", "example.com", "traders.com"]
            example = client.read(name="vhost/example.com")
            assert example["maxConnectionsPerHost"] == 5
            assert example["groups"]["$default"]["targets"].startswith("chat*")
            assert client.read(name="vhost/traders.com")["groups"]["feeds"]["maxFrameSize"] == 60000
        case "old-broker.conf":
            assert names("connector", "name") == ["broker"]
            assert names("router.config.address", "waypoint") == [True]
            assert router.log("deprecated")
        case "old-sharded.conf":
            assert names("connector", "name") == ["broker1", "broker2"]
            assert names("listener", "role") == ["normal", "route-container"]
            addresses = client.query(f"{PREFIX}router.config.address", ["prefix", "waypoint", "fallback", "priority"])
            assert addresses.rows == (
                ("queue", True, False, -1),
                ("archive", False, True, -1),
                ("alarms", False, False, 9),
                (None, True, False, -1),
            )
        case "old-clients.conf":
            assert names("listener", "failoverUrls") == ["secondary.example.com:20000, tertiary.example.com"]
            assert client.read(name="policy/None")["maxConnections"] == 100
            assert client.read(identity="vhost/$default")["maxConnectionsPerUser"] == 10
        case "generated.json":
            assert names("router", "metadata") == ["made by a script"]
            assert router.log(r"Listening on .* \(router/control/router\.py:\d+\)$")
            assert names("vhost", "hostname") == ["json.example.com"]
        case _:
            pytest.fail(f"{name} has no expectations")


@pytest.mark.parametrize("path", REFUSED, ids=[path.stem for path in REFUSED])
def test_a_sample_that_cannot_be_is_refused_with_what_is_wrong(path: Path) -> None:
    """The text that is expected stands in the file's second line; PATH in it is the file as it was named."""
    expected = path.read_text("latin-1").splitlines()[1].removeprefix("# expected: ").replace("PATH", str(path))
    ran = run("-c", str(path))
    assert ran.status == 1
    assert expected in ran.err.splitlines()[-1]
