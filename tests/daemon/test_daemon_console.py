"""The web console in a real Chromium, against a running router. Issue 38.

The console is built by `make console`, which `make test` does.
"""

import gzip
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from daemon_process import ROOT, Daemon, denials, eventually, start, write_users
from joined_routers import router_network

from router.amqp.client_session import ClientSession
from router.control.web_sites import CONSOLE
from router.management.client import ManagementClient
from router.tools import transport

DRIVER = ROOT / "router" / "web" / "console" / "tests" / "browser.mjs"
# Through markup it would run; in a terminal or a spreadsheet as well.
HOSTILE = "=1+1<img src=x onerror=\"document.title='owned'\">"
MOST_BYTES = 250_000  # of all scripts, styles and pages, compressed
TIMEOUT_S = 120
POLICY = [
    [
        "vhost",
        {
            "hostname": "$default",
            "groups": {
                "operators": {
                    "users": "ops, anonymous",
                    "remoteHosts": "*",
                    "allowDynamicSource": True,
                    "sources": "*",
                    "targets": "*",
                    "management": "administrator",
                },
                "apps": {"users": "alice", "remoteHosts": "*", "sources": "q.*", "targets": "q.*"},
            },
        },
    ]
]
CONFIGURATION = """
router {{
    id: web
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    saslMechanisms: ANONYMOUS PLAIN
}}
listener {{
    name: web
    host: 127.0.0.1
    port: {port}
    http: yes
    saslMechanisms: PLAIN
}}
listener {{
    name: open
    host: 127.0.0.1
    port: 0
    http: yes
    saslMechanisms: ANONYMOUS
}}
listener {{
    name: shut
    host: 127.0.0.1
    port: 0
    http: yes
    websockets: no
}}
"""

Step = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """A router with a console, and the browser that looks at it."""

    daemon: Daemon
    chromium: Path
    node: Path
    width: int = 1280
    theme: str = "light"

    def url(self, listener: str) -> str:
        found = self.daemon.wait_for_log(rf"HTTP \(notice\) Listening for HTTP on 127\.0\.0\.1:(\d+) \({listener}\)")
        return f"http://127.0.0.1:{found[1]}/"

    def browse(self, *steps: Step) -> list[Any]:
        """What each step found. Nothing may have failed, and no error may be in the browser's console."""
        result = self.ran(steps)
        assert (result["failure"], result["errors"]) == (None, [])
        found: list[Any] = result["found"]
        return found

    def ran(self, steps: Sequence[Step]) -> dict[str, Any]:
        task = {"chromium": str(self.chromium), "width": self.width, "theme": self.theme, "steps": steps}
        command, text = [self.node, DRIVER], json.dumps(task)
        found = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        assert found.returncode == 0, found.stderr
        result: dict[str, Any] = json.loads(found.stdout)
        return result


def opened(url: str) -> Step:
    return {"do": "open", "url": url}


def waits(selector: str, text: str = "") -> Step:
    return {"do": "wait", "selector": selector, "text": text}


def clicks(selector: str, text: str = "") -> Step:
    return {"do": "click", "selector": selector, "text": text}


def filled(selector: str, text: str) -> Step:
    return {"do": "fill", "selector": selector, "text": text}


def shows(address: str) -> Step:
    return {"do": "hash", "hash": address}


def log_in(url: str, user: str, password: str) -> list[Step]:
    return [
        opened(url),
        waits("form"),
        filled("input[name=user]", user),
        filled("input[name=password]", password),
        clicks("button[type=submit]"),
    ]


@pytest.fixture(scope="module")
def console(require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    node, chromium = require_tool("node", "nodejs"), require_tool("chromium", "chromium")
    if not (CONSOLE / "index.html").is_file():
        pytest.fail("the console is not built: make console (`make test` does it)")
    folder = tmp_path_factory.mktemp("console")
    sasl = write_users(folder, {"ops": "right", "alice": "right"})
    (folder / "policy").mkdir()
    (folder / "policy" / "policy.json").write_text(json.dumps(POLICY))
    daemon = start(folder, CONFIGURATION.format(sasl=sasl, folder=folder, port=0))
    yield Console(daemon=daemon, chromium=chromium, node=node)
    daemon.end()


def test_a_wrong_password_and_then_the_right_one(console: Console) -> None:
    url = console.url("web")
    found = console.browse(
        *log_in(url, "ops", "wrong"),
        waits(".failure"),
        {"do": "text", "selector": ".failure"},
        filled("input[name=password]", "right"),
        clicks("button[type=submit]"),
        waits("h1", "Overview"),
        waits(".who", "ops"),
        {"do": "run", "code": "JSON.stringify(localStorage)"},
        # A deep link, and the way back to it after the page is loaded anew.
        shows("#/schema/listener"),
        waits("h2", "listener"),
        clicks("header button", "Log out"),
        waits("form"),
    )
    assert "user name or the password is wrong" in found[6]
    assert "right" not in found[11]
    assert '"palisade.user":"ops"' in found[11]
    events = eventually(lambda: [each for each in denials(console.daemon.folder / "audit") if each["user"] == "ops"])
    assert {each["reason"] for each in events} == {"sasl_failed"}


def test_where_anonymous_users_may_look_the_console_connects_by_itself(console: Console) -> None:
    found = console.browse(opened(console.url("open")), waits("h1", "Overview"), {"do": "text", "selector": ".who"})
    assert found[-1] == "anonymous"


def test_who_has_no_right_of_management_is_told(console: Console) -> None:
    """`alice` logs in, and may not receive answers: the console says so, and does not try again for ever."""
    found = console.browse(
        *log_in(console.url("web"), "alice", "right"),
        waits(".failure", "alice is logged in, but"),
        {"do": "text", "selector": ".failure"},
    )
    assert "amqp:unauthorized-access" in found[-1]


def test_why_there_is_no_connection(console: Console) -> None:
    """The port of another protocol, and a listener without WebSockets. The browser says of both only that it failed."""
    for steps in (
        [
            opened(console.url("web")),
            waits("form"),
            filled(".address label:last-child input", str(console.daemon.port())),
            clicks("button[type=submit]"),
            waits(".failure", "the port is not that of a listener with http: yes"),
        ],
        [opened(console.url("shut")), waits(".failure", "answers HTTP but opens no WebSocket")],
    ):
        result = console.ran(steps)
        assert result["failure"] is None
        assert all("WebSocket connection" in each for each in result["errors"])


@pytest.fixture
def hostile_client(console: Console, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManagementClient]:
    """A client whose container id is markup."""

    def session(**terms: Any) -> ClientSession:
        return ClientSession(**terms | {"container_id": HOSTILE})

    monkeypatch.setattr(transport, "ClientSession", session)
    with console.daemon.client() as client:
        yield client


def test_figures_are_those_of_qdstat(console: Console) -> None:
    """The console itself is a connection with two links in both."""
    names = ("Connections", "Links", "Addresses", "Denials")
    steps: list[Step] = [*log_in(console.url("web"), "ops", "right"), waits("[data-figure=Denials]")]
    steps += [{"do": "text", "selector": f"[data-figure={name}]"} for name in names]
    shown = dict(zip(names, console.browse(*steps)[-len(names) :], strict=True))
    with console.daemon.client() as client:
        (router,) = client.query("router").entities()
        (policy,) = client.query("policy").entities()
    ran = console.daemon.tool("qdstat", "-g")
    assert ran.status == 0
    assert shown == {
        "Connections": str(router["connectionCount"]),
        "Links": str(router["linkCount"]),
        "Addresses": str(router["addrCount"]),
        "Denials": str(policy["totalDenials"]),
    }


def test_what_is_refused_is_asked_once(console: Console) -> None:
    """The console asked for types that the router does not use, every three seconds: an error in its log each time."""
    mark = console.daemon.mark()
    console.browse(*log_in(console.url("web"), "ops", "right"), waits("[data-figure='Messages in']", "/s"))
    assert len(console.daemon.log("No such entity type 'shadowPolicy'", since=mark)) == 1


def test_a_hostile_container_id_stays_text(console: Console, hostile_client: ManagementClient) -> None:
    """Attack: a script stored in the router by who opens a connection, which runs in the browser of an operator."""
    found = console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/entities/connection"),
        waits("td", HOSTILE),
        {"do": "count", "selector": "main img"},
        clicks("td button", HOSTILE),
        waits("dialog dd", HOSTILE),
        {"do": "count", "selector": "dialog img"},
        {"do": "run", "code": "document.title"},
    )
    assert (found[8], found[11]) == (0, 0)
    assert "owned" not in found[12]


EXPORTED = """new Promise((done) => {
    const make = URL.createObjectURL;
    URL.createObjectURL = (blob) => { blob.text().then(done); return make.call(URL, blob); };
    [...document.querySelectorAll(".tools button")].find((each) => each.textContent === "Export CSV").click();
})"""


def test_a_spreadsheet_gets_no_formula(console: Console, hostile_client: ManagementClient) -> None:
    """Attack: a container id that a spreadsheet computes, in the rows that an operator exports."""
    text = console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/entities/connection"),
        waits("td", HOSTILE),
        {"do": "run", "code": EXPORTED},
    )[-1]
    quoted = HOSTILE.replace('"', '""')
    assert f'"\'{quoted}"' in text
    assert not re.search(r'(^|[,"])=', text, re.MULTILINE)


def test_an_entity_is_made_changed_and_deleted(console: Console) -> None:
    """By forms made from the schema, each confirmed."""
    console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/entities/address"),
        clicks(".tools button", "Create"),
        waits("dialog form"),
        filled("#field-name", "console-made"),
        filled("#field-prefix", "made"),
        {"do": "choose", "selector": "#field-distribution", "value": "multicast"},
        clicks("dialog button", "Create …"),
        waits("dialog .confirm dd", "multicast"),
        clicks("dialog .danger"),
        waits("td button", "console-made"),
    )
    with console.daemon.client() as client:
        assert client.read(type="router.config.address", name="console-made")["distribution"] == "multicast"
    console.browse(
        *log_in(f"{console.url('web')}#/entities/log", "ops", "right"),
        waits("h1", "Entities"),
        shows("#/entities/address"),
        waits("td button", "console-made"),
        clicks("td button", "console-made"),
        waits("dialog dd", "multicast"),
        clicks("dialog button", "Delete"),
        waits("dialog .confirm"),
        clicks("dialog .danger"),
        {"do": "wait", "selector": "td button", "text": "console-made", "gone": True},
    )
    with console.daemon.client() as client:
        assert "console-made" not in [each["name"] for each in client.query("router.config.address").entities()]


def test_a_denial_is_shown_and_a_ban_lifted(console: Console) -> None:
    """Whose ban it is, is what the form says; the denial is that of a login that may do nothing."""
    alice = ("--sasl-mechanisms", "PLAIN", "--sasl-username", "alice", "--sasl-password-file", "/dev/stdin")
    assert console.daemon.tool("qdstat", *alice, stdin="right").status != 0
    console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/policy"),
        waits(".log td", "DENY"),
        waits(".log td", "alice"),
        waits("td", "operators"),
        clicks("main button", "Ban …"),
        filled("#field-user", "mallory"),
        filled("#field-reason", "a test"),
        clicks("dialog button", "Create …"),
        clicks("dialog .danger"),
        waits("td", "a test"),
        clicks("td button", "Lift"),
        clicks("dialog .danger"),
        waits("p", "Bans: none."),
    )


def test_the_network_is_drawn(console: Console, hostile_client: ManagementClient) -> None:
    found = console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/topology"),
        waits(".node.router text", "web"),
        waits(".node.clients text", HOSTILE[:10]),
        {"do": "count", "selector": "main img"},
    )
    assert found[-1] == 0


def test_routers_of_the_network_and_the_cost_between_them(
    console: Console, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The other router is asked through this one; a broker is connected, and one cannot be reached."""
    web = "listener {\n name: web\n host: 127.0.0.1\n port: 0\n http: yes\n saslMechanisms: ANONYMOUS\n}\n"
    target = "connector {{\n name: {}\n host: 127.0.0.1\n port: {}\n role: route-container\n}}\n"
    with router_network(tmp_path_factory.mktemp("network"), "A", "B") as network:
        brokers = target.format("here", console.daemon.port()) + target.format("gone", 1)
        network.start("A", extra=web + brokers)
        network.start("B", "A", terms="cost: 7")
        network.settle("A", "B")
        shown = Console(daemon=network.routers["A"], chromium=console.chromium, node=console.node)
        found = shown.browse(
            opened(shown.url("web")),
            waits(".problems .bad", "Connector gone"),
            {"do": "text", "selector": "[data-figure=Routers]"},
            shows("#/topology"),
            waits(".node.router text", "B"),
            waits(".cost", "cost 7"),
            waits(".node.broker text", "web"),
            clicks("td button", "B"),
            waits("aside dd", "interior"),
            {"do": "run", "code": "document.querySelectorAll('.node.troubled').length"},
        )
        assert (found[2], found[-1]) == ("2", 0)


def test_a_chart_of_a_rate(console: Console) -> None:
    """Two looks are a rate; the chart stays while other pages are shown."""
    console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/charts"),
        waits("form option", "web"),
        clicks("form button", "Add"),
        waits(".series li", "deliveriesIngress /s"),
        waits(".plot canvas"),
        shows("#/logs"),
        waits("h1", "Logs"),
        shows("#/charts"),
        waits(".series li", "deliveriesIngress /s"),
    )


def test_a_level_is_changed_live(console: Console) -> None:
    console.browse(
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/logs"),
        waits("td button", "AGENT"),
        clicks("td button", "AGENT"),
        filled("dialog input", "debug+"),
        clicks("dialog button", "Set"),
        waits("td", "debug+"),
        waits(".log td", "Agent request"),
    )
    with console.daemon.client() as client:
        assert client.read(type="log", name="log/AGENT")["enable"] == "debug+"
        client.update({"enable": "default"}, type="log", name="log/AGENT")


def test_a_lost_connection_comes_back(console: Console) -> None:
    """The console says that it is lost, and connects again by itself; whoever looks stays on the page."""
    steps = [
        *log_in(console.url("web"), "ops", "right"),
        waits("h1", "Overview"),
        shows("#/logs"),
        waits("h1", "Logs"),
        waits(".lost", "Trying again"),
        {"do": "wait", "selector": ".lost", "gone": True},
        waits("h1", "Logs"),
    ]
    with ThreadPoolExecutor() as pool, console.daemon.client() as client:
        client.update({"enable": "debug+"}, type="log", name="log/AGENT")
        mark = console.daemon.mark()
        looking = pool.submit(console.ran, steps)

        def own() -> list[str]:
            found = client.query("connection").entities()
            return [each["identity"] for each in found if each["container"].startswith("console-")]

        eventually(lambda: console.daemon.log("GET-LOG", since=mark))
        client.update({"enable": "default"}, type="log", name="log/AGENT")
        for identity in own():
            client.update({"adminStatus": "deleted"}, type="connection", identity=identity)
        assert looking.result()["failure"] is None


PAGES = ("overview", "topology", "entities/connection", "charts", "policy", "logs", "schema/vhost")


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
def test_nothing_keeps_anybody_out(console: Console, hostile_client: ManagementClient, width: int, theme: str) -> None:
    """axe-core finds nothing serious on any page, and none is wider than the window."""
    wide = "document.documentElement.scrollWidth - innerWidth"
    steps: list[Step] = [opened(console.url("web")), waits("form"), {"do": "axe"}]
    steps += [*log_in(console.url("web"), "ops", "right"), waits("h1", "Overview")]
    for page in PAGES:
        steps += [
            shows(f"#/{page}"),
            waits("h1", page.partition("/")[0].capitalize()),
            waits("main table, main dl, main form"),
        ]
        steps += [{"do": "axe"}, {"do": "run", "code": wide}]
    looked_at = Console(daemon=console.daemon, chromium=console.chromium, node=console.node, width=width, theme=theme)
    for step, found in zip(steps, looked_at.browse(*steps), strict=True):
        if step["do"] == "axe":
            assert found == []
        elif step["do"] == "run":
            assert found <= 0


def test_the_bundle_is_small() -> None:
    if not (CONSOLE / "index.html").is_file():
        pytest.fail("the console is not built: make console (`make test` does it)")
    files = [path for path in CONSOLE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    assert {path.suffix for path in files} == {".js", ".css", ".html"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST_BYTES
