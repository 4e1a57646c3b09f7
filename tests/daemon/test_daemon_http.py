"""HTTP listeners as their users meet them: curl, a browser's headers, rhea over ws and wss, Prometheus' own tools."""

import gzip
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from daemon_process import ROOT, Daemon, denials, eventually, start, write_users
from free_ports import free_port

INTEROP = Path(__file__).parent.parent / "interop"
TIMEOUT_S = 40
CONFIGURATION = """
router {{
    id: web
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
sslProfile {{
    name: server
    certFile: {certificate}
    privateKeyFile: {key}
}}
listener {{
    name: files
    host: 127.0.0.1
    port: 0
    httpRootDir: {folder}/root
    websockets: no
    healthz: no
    metrics: no
}}
listener {{
    name: both
    host: 127.0.0.1
    port: 0
    http: yes
    sslProfile: server
    saslMechanisms: ANONYMOUS PLAIN
    httpOrigins: https://console.example
}}
listener {{
    name: safe
    host: 127.0.0.1
    port: 0
    http: yes
    sslProfile: server
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    metricsAuth: basic
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    saslMechanisms: ANONYMOUS
    healthz: no
    httpOrigins: https://console.example
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    daemon: Daemon
    certificates: Certificates

    def port(self, listener: str) -> int:
        pattern = rf"HTTP \(notice\) Listening for HTTP on 127\.0\.0\.1:(\d+) \({listener}\)"
        return int(self.daemon.wait_for_log(pattern)[1])

    def curl(self, scheme: str, listener: str, path: str, *options: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; status 0 where there is no response."""
        url = f"{scheme}://localhost:{self.port(listener)}{path}"
        command = ["curl", "-s", "-i", "-m", str(TIMEOUT_S), "--cacert", self.certificates.ca, *options, url]
        found = subprocess.run(command, capture_output=True, check=False)
        if found.returncode:
            return 0, {}, b""
        head, _, body = found.stdout.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        return int(first.split()[1]), {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in lines}, body


@pytest.fixture(scope="module")
def web(
    certificates: Certificates, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Web]:
    require_tool("curl", "curl")
    folder = tmp_path_factory.mktemp("web")
    root = folder / "root"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<p>the index</p>")
    (root / "data.json").write_text("{}")
    (root / "font.woff2").write_bytes(b"font")
    (root / "thing.unknown").write_bytes(b"?")
    (root / "assets" / "app.js").write_bytes(b"let a = 1;\n" * 100_000)
    (root / "assets" / "app.js.gz").write_bytes(gzip.compress(b"let a = 1;\n" * 100_000))
    certificate, key = certificates.pair("server")
    sasl = write_users(folder, {"ops": "right"})
    text = CONFIGURATION.format(sasl=sasl, folder=folder, certificate=certificate, key=key)
    daemon = start(folder, text)
    yield Web(daemon=daemon, certificates=certificates)
    daemon.end()


def test_health_and_metrics(web: Web) -> None:
    """Checklist routing 30, 31."""
    status, headers, body = web.curl("http", "both", "/healthz")
    assert (status, headers["content-length"], headers["content-type"], body) == (200, "3", "text/plain", b"OK\n")
    status, headers, body = web.curl("http", "both", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"# TYPE qdr_connections_total gauge\nqdr_connections_total " in body
    for name in (b"deliveries_ingress", b"deliveries_delayed_1sec", b"deliveries_delayed_10sec"):
        assert name in body
    assert b"deliveries_redirected_to_fallback" in body


def test_what_is_switched_off_is_not_there(web: Web) -> None:
    """Checklist routing 32, 33."""
    assert web.curl("http", "files", "/healthz")[0] == 404
    assert web.curl("http", "files", "/metrics")[0] == 404


def test_files(web: Web) -> None:
    """Checklist routing 34."""
    status, headers, body = web.curl("http", "files", "/")
    assert (status, headers["content-type"], body) == (200, "text/html; charset=utf-8", b"<p>the index</p>")
    assert web.curl("http", "files", "/index.html")[2] == body
    assert web.curl("http", "files", "/data.json")[1]["content-type"] == "application/json"
    assert web.curl("http", "files", "/font.woff2")[1]["content-type"] == "font/woff2"
    assert web.curl("http", "files", "/thing.unknown")[1]["content-type"] == "application/octet-stream"
    assert web.curl("http", "files", "/missing")[0] == 404


def test_a_file_is_sent_once_and_compressed(web: Web) -> None:
    status, headers, body = web.curl("http", "files", "/assets/app.js")
    assert (status, len(body)) == (200, 1_100_000)
    again = web.curl("http", "files", "/assets/app.js", "-H", f"If-None-Match: {headers['etag']}")
    assert (again[0], again[2]) == (304, b"")
    status, headers, body = web.curl("http", "files", "/assets/app.js", "-H", "Accept-Encoding: gzip")
    assert (headers["content-encoding"], headers["vary"]) == ("gzip", "accept-encoding")
    assert len(gzip.decompress(body)) == 1_100_000
    assert web.curl("http", "files", "/assets/app.js", "-I")[2] == b""


def test_tls_and_clear_on_one_port(web: Web) -> None:
    """Checklist routing 35."""
    assert web.curl("http", "both", "/healthz")[2] == b"OK\n"
    status, headers, body = web.curl("https", "both", "/healthz")
    assert (status, body) == (200, b"OK\n")
    assert headers["strict-transport-security"].startswith("max-age=")
    assert web.curl("https", "safe", "/healthz")[2] == b"OK\n"
    status, _, body = web.curl("http", "safe", "/healthz")
    assert (status, body) == (400, b"this port speaks TLS\n")


def test_metrics_for_users(web: Web) -> None:
    assert web.curl("https", "safe", "/metrics")[0] == 401
    assert web.curl("https", "safe", "/metrics", "-u", "ops:wrong")[0] == 401

    def metrics() -> str:
        status, _, body = web.curl("https", "safe", "/metrics", "-u", "ops:right")
        assert status == 200
        return body.decode()

    # For a second all get the same text: the first one here may be an earlier test's.
    text = eventually(lambda: text if "HTTP-BASIC" in (text := metrics()) else None)
    assert 'palisade_authentications_total{mechanism="HTTP-BASIC",result="refused"} 1.0' in text
    assert re.search(r'palisade_authentications_total\{mechanism="HTTP-BASIC",result="accepted"\} [1-9]\d*\.0', text)
    assert 'palisade_denials_total{reason="sasl_failed",stage="sasl",vhost=""} 1.0' in text


def test_attributes_without_http_are_warned_of(web: Web) -> None:
    text = "healthz, httpOrigins without http: no effect, the listener speaks AMQP alone"
    assert web.daemon.log(re.escape(text))


Rhea = Callable[..., dict[str, Any]]


@pytest.fixture
def rhea(web: Web, require_tool: Callable[[str, str], Path]) -> Rhea:
    """A rhea that sends and receives over a WebSocket."""
    node = require_tool("node", "nodejs")
    if not (INTEROP / "node_modules" / "ws").is_dir():
        pytest.fail("rhea and ws are not installed: npm ci --prefix tests/interop (`make test` does it)")

    def run(url: str, **task: Any) -> dict[str, Any]:
        task |= {"ws": url, "hostname": "localhost"}
        task |= {"send": {"address": "q", "count": 50, "size": 40_000}, "receive": {"address": "q"}}
        command = [node, INTEROP / "rhea_client.js"]
        found = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, check=False, timeout=40)
        assert found.returncode == 0, found.stderr
        result: dict[str, Any] = json.loads(found.stdout)
        return result

    return run


def test_rhea_over_ws(web: Web, rhea: Rhea) -> None:
    """Checklist routing 33."""
    result = rhea(f"ws://localhost:{web.port('both')}/any/path")
    assert (result["outcomes"], result["errors"]) == ({"accepted": 50}, [])
    assert result["received"] == [40_000] * 50


def test_rhea_over_wss_logs_in(web: Web, rhea: Rhea) -> None:
    tls = {"ca": web.certificates.ca}
    result = rhea(f"wss://localhost:{web.port('safe')}", tls=tls, user="ops", password="right")
    assert (result["outcomes"], result["errors"]) == ({"accepted": 50}, [])
    refused = rhea(f"wss://localhost:{web.port('safe')}", tls=tls, user="ops", password="wrong")
    assert not refused["outcomes"]
    events = eventually(lambda: [each for each in denials(web.daemon.folder / "audit") if each["user"] == "ops"])
    assert {(each["stage"], each["reason"]) for each in events} == {("sasl", "sasl_failed")}


def test_rhea_of_a_page(web: Web, rhea: Rhea) -> None:
    port = web.port("both")
    assert rhea(f"ws://localhost:{port}", origin="https://console.example")["outcomes"]
    assert not rhea(f"ws://localhost:{port}", origin="https://evil.example")["outcomes"]
    assert not rhea(f"ws://localhost:{web.port('files')}")["outcomes"]


def test_an_http_listener_comes_and_goes_by_management(web: Web) -> None:
    with web.daemon.client() as client:
        attributes = {"host": "127.0.0.1", "port": "0", "http": True}
        client.create(type="listener", name="late", attributes=attributes)
        assert web.curl("http", "late", "/")[0] == 200
        client.delete(type="listener", name="late")
        web.daemon.wait_for_log(r"HTTP \(notice\) Stopped listening for HTTP on 127\.0\.0\.1:0")


def test_prometheus_reads_the_metrics(web: Web, require_tool: Callable[[str, str], Path]) -> None:
    """What its linter finds is about the C router's names alone."""
    promtool = require_tool("promtool", "prometheus")
    body = web.curl("http", "both", "/metrics")[2]
    found = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    complaints = found.stderr.decode().splitlines()
    assert complaints
    assert [line for line in complaints if not line.startswith("qdr_")] == []


PROMETHEUS = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: palisade
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def test_a_prometheus_scrapes_it(web: Web, require_tool: Callable[[str, str], Path], tmp_path: Path) -> None:
    program, port = require_tool("prometheus", "prometheus"), free_port()
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS.format(port=web.port("both")))
    rules = ROOT / "deploy" / "monitoring" / "palisade.rules.yml"
    with (tmp_path / "prometheus.yml").open("a") as configuration:
        configuration.write(f"rule_files: [{rules}]\n")
    command = [str(program), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]

    def answer(query: str) -> list[Any]:
        url = f"http://127.0.0.1:{port}/api/v1/{query}"
        found = subprocess.run(["curl", "-s", "-m", "5", url], capture_output=True, check=False).stdout
        return json.loads(found or b"{}").get("data", {}).get("result", []) if found.startswith(b"{") else []

    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        (found,) = eventually(lambda: answer("query?query=palisade_info"))
        assert found["metric"]["router_id"] == "web"
        assert eventually(lambda: answer("query?query=palisade_event_loop_lag_seconds_bucket"))
    finally:
        running.kill()
        running.wait()
