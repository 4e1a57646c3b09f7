"""`qdaudit recommend` and `report`, in processes of their own, on the trail of a router (issue 15).

What they write is judged by those who use it: qdpolicy lints the recommended policy, a router enforces it, and what was
used is used again; a parser of HTML and one of CSV read the report, in which peers named themselves after attacks.
"""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "interop"))
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))
sys.path.insert(0, str(Path(__file__).parent.parent / "attacks"))

import raw_peer
from daemon_process import Daemon, daemon, start, write_users
from daemons import logged_in, peer_of

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.slow]

__all__ = ["daemon"]

ROOT = Path(__file__).parents[2]
MARKUP, FORMULA = "<script>alert(1)</script>", "=cmd|' /C calc'!A0"
SECRETS = 12
CONFIGURATION = """
router {{
    id: used
    saslConfigDir: {sasl}
    auditDir: {folder}/{audit}
    auditAllows: link
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {policy}
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
VHOST: dict[str, Any] = {
    "hostname": "localhost",
    "maxConnections": 100,
    "maxConnectionsPerUser": 10,
    "maxConnectionsPerHost": 20,
    "allowUnknownUser": False,
    "groups": {
        "staff": {
            "users": "alice, bob, carol",
            "remoteHosts": "127.0.0.1, 192.0.2.0-192.0.2.255",
            "sources": "orders.*, never.*",
            "targets": "orders.*",
            "allowDynamicSource": True,
            "allowAnonymousSender": False,
            "allowAdminStatusUpdate": False,
            "allowDynamicLinkRoutes": False,
            "maxMessageSize": 65536,
            "maxSessions": 10,
            "maxSenders": 10,
            "maxReceivers": 10,
        },
        "idle": {"users": "dan", "remoteHosts": "192.0.2.1", "sources": "a", "targets": "a"},
    },
}


class _Elements(HTMLParser):
    """The elements of a page, the names of their attributes, and all its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def ran(module: str, *arguments: object, status: int = 0) -> str:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return done.stdout


def asks(router: Daemon, user: str, attach: bytes) -> bool:
    """Whether the router lets a user attach: it detaches at once what it does not allow."""
    with peer_of(router) as peer:
        logged_in(peer, user, f"{user}'s").send(raw_peer.begin() + attach + raw_peer.frame(0x17))  # End
        peer.read_until(0x17)
        return raw_peer.DETACH not in {code for code, _ in peer.performatives()}


def uses(router: Daemon) -> list[bool]:
    """What is used of the policy: of two users, one address to send to and one to receive from."""
    return [
        asks(router, "alice", raw_peer.attach_receiver("orders.new")),
        asks(router, "bob", raw_peer.attach_sender("orders.done")),
    ]


def end(router: Daemon) -> None:
    router.signal(signal.SIGTERM)
    assert router.wait() == 0


def configuration(folder: Path, policy: Path, audit: str) -> str:
    """Of a router with the policy of a folder, and a trail of its own."""
    users = {user: f"{user}'s" for user in ("alice", "bob", "carol", "mallory")}
    logins = folder / f"logins-of-{audit}"
    logins.mkdir()
    sasl = write_users(logins, users, "PLAIN")
    return CONFIGURATION.format(sasl=sasl, folder=folder, audit=audit, policy=policy)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: `table` is of what a router allowed and denied, policy/all.json its policy. To be read only."""
    folder = tmp_path_factory.mktemp("used")
    (folder / "policy").mkdir()
    (folder / "policy" / "all.json").write_text(json.dumps([["vhost", VHOST]]))
    router = start(folder, configuration(folder, folder / "policy", "audit"))
    try:
        assert uses(router) == [True, True]
        for number in range(SECRETS):
            assert not asks(router, "alice", raw_peer.attach_receiver(f"secret.{number}"))
        for name in (MARKUP, FORMULA):
            with peer_of(router) as stranger:  # whoever fails to log in says who he is
                stranger.send(raw_peer.SASL + raw_peer.plain(name, "wrong"))
                stranger.read_until(0x44)  # the outcome
            assert not asks(router, "alice", raw_peer.attach_receiver(f"/{name}"))
        with peer_of(router) as mallory:  # no user of the vhost
            logged_in(mallory, "mallory", "mallory's").read_until(raw_peer.CLOSE)
        end(router)
    finally:
        router.end()
    ran("spark.cli", "ingest", folder / "audit", folder / "table")
    return folder


def test_the_recommended_policy_permits_what_was_used_and_no_more(
    used: Path, daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    said = ran("spark.cli", "recommend", used / "table", used / "policy" / "all.json", "--out", out)
    assert "WARNING" not in said
    assert "lint:" not in said
    ran("policy.cli.main", "lint", out / "recommended.json")
    unused = {(each["kind"], each["item"]) for each in json.loads((out / "unused.json").read_text())}
    assert {("group", "idle"), ("user", "carol"), ("item", "sources: never.*")} <= unused
    ((_, vhost),) = json.loads((out / "recommended.json").read_text())
    assert list(vhost["groups"]) == ["staff"]
    staff = vhost["groups"]["staff"]
    assert (staff["users"], staff["remoteHosts"]) == (["alice", "bob"], "127.0.0.1")
    assert (staff["sources"], staff["targets"]) == ("orders.new", "orders.done")
    assert "-" in (out / "recommended.diff").read_text()
    # Nothing that was recorded is decided otherwise, and a router that has it agrees.
    ran("spark.cli", "replay", used / "table", out / "recommended.json")
    (tmp_path / "narrow").mkdir()
    (tmp_path / "narrow" / "all.json").write_bytes((out / "recommended.json").read_bytes())
    router = daemon(configuration(tmp_path, tmp_path / "narrow", "audit-of-the-second"))
    assert uses(router) == [True, True]
    assert not asks(router, "alice", raw_peer.attach_receiver("orders.old"))
    assert not asks(router, "alice", raw_peer.attach_receiver("never.used"))
    with peer_of(router) as carol:
        logged_in(carol, "carol", "carol's").read_until(raw_peer.CLOSE)
    end(router)


def test_a_report_of_findings_that_detect_has_written(used: Path, tmp_path: Path) -> None:
    """By thresholds that `report` itself does not have."""
    out, thresholds = tmp_path / "out", tmp_path / "thresholds.json"
    thresholds.write_text(json.dumps({"address_probing": {"enabled": False}, "first_seen": {"enabled": False}}))
    ran("spark.cli", "detect", used / "table", "--out", out, "--thresholds", thresholds)
    kept = out / "findings.jsonl"
    ran("spark.cli", "report", used / "table", "--out", out, "--findings", kept, "--format", "html", "--format", "json")

    shown = [json.loads(line) for line in (out / "findings.json").read_text().splitlines()]
    assert shown == [json.loads(line) for line in kept.read_text().splitlines()]
    page = _Elements()
    page.feed((out / "report.html").read_text("utf-8"))
    assert "address probing" not in page.texts
    assert f"The findings are those of {kept}; they were not looked for again." in page.texts
    assert {"alice", "mallory", "secret.0"} <= set(page.texts)  # the denials are counted as ever


def test_the_report_names_who_was_denied_and_what_and_runs_nothing(used: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    formats = [word for form in ("html", "csv", "json", "ocsf") for word in ("--format", form)]
    ran("spark.cli", "report", used / "table", "--out", out, *formats)

    page = _Elements()
    page.feed((out / "report.html").read_text("utf-8"))
    assert {"alice", "mallory", "secret.0", "127.0.0.1", MARKUP, FORMULA} <= set(page.texts)
    assert "address probing" in page.texts
    assert page.tags.count("script") == 1  # its own
    assert not {"img", "iframe", "object", "embed", "link", "base", "form"} & set(page.tags)
    assert not {name for name in page.attributes if name.startswith("on")}
    assert not {"src", "style", "srcdoc"} & page.attributes

    with (out / "by_user.csv").open(newline="", encoding="utf-8") as file:
        users = {row["user"]: int(row["denials"]) for row in csv.DictReader(file)}
    assert users["alice"] == SECRETS + 2
    assert users["mallory"] == users[MARKUP] == users[f"'{FORMULA}"] == 1
    for path in out.glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.lstrip().startswith(("=", "+", "@"))], path.name
    rows = [json.loads(line) for line in (out / "by_address.json").read_text("utf-8").splitlines()]
    assert {f"secret.{number}" for number in range(SECRETS)} < {row["address"] for row in rows}
    # As they were written, for programs.
    exported = [json.loads(line) for line in (out / "ocsf.json").read_text("utf-8").splitlines()]
    assert {MARKUP, FORMULA, "alice", "mallory"} <= {each["user"]["name"] for each in exported if "user" in each}
