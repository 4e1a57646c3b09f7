"""The text of /metrics, and what the rules and the dashboard of deploy/monitoring read of it."""

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from router.web.exposition import MAX_VHOSTS, OF_ROUTER, OTHER, Exposition

MONITORING = Path(__file__).resolve().parent.parent.parent / "deploy" / "monitoring"
RULES, DASHBOARD = MONITORING / "palisade.rules.yml", MONITORING / "palisade.dashboard.json"
SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def text_of(exposition: Exposition, row: Mapping[str, object] = MappingProxyType({}), **connections: int) -> str:
    about = {"version": "1", "router_id": "r"}
    return b"".join(exposition.text(row, iter(connections.items()), about)).decode()


def series(text: str) -> dict[tuple[str, str], float]:
    return {(name, labels): float(value) for name, labels, value in SERIES.findall(text)}


def busy() -> Exposition:
    """One in which everything has happened."""
    made = Exposition()
    made.denied("v", "open", "unknown_user")
    made.disagreed("shadow_deny")
    made.logged_in("PLAIN", "accepted", 0.1)
    made.late(0.0)
    return made


def test_the_names_of_1_20_come_first_and_in_order() -> None:
    """Checklist routing 31."""
    lines = text_of(Exposition(), {"connectionCount": 3, "nodeCount": None}).splitlines()
    assert lines[:2] == ["# TYPE qdr_connections_total gauge", "qdr_connections_total 3"]
    assert [line.split()[2] for line in lines[: 2 * len(OF_ROUTER) : 2]] == [name for name, _, _ in OF_ROUTER]
    assert "qdr_routers_total 0" in lines


def test_what_happens_is_counted() -> None:
    made = busy()
    made.denied("v", "open", "unknown_user", 41)
    made.denied(None, "tls", "not_tls")
    found = series(text_of(made, v=2))
    assert found["palisade_denials_total", 'reason="unknown_user",stage="open",vhost="v"'] == 42
    assert found["palisade_denials_total", 'reason="not_tls",stage="tls",vhost=""'] == 1
    assert found["palisade_connections", 'vhost="v"'] == 2
    assert found["palisade_authentication_seconds_count", 'mechanism="PLAIN"'] == 1


def test_vhosts_beyond_so_many_and_mechanisms_of_peers_have_no_name() -> None:
    made = Exposition()
    for number in range(2 * MAX_VHOSTS):
        made.denied(f"v{number}", "open", "unknown_user")
        made.logged_in(f"X-{number}", "refused", None)
    text = text_of(made, {}, **{f"v{number}": 1 for number in range(2 * MAX_VHOSTS)})
    found = series(text)
    assert found["palisade_denials_total", f'reason="unknown_user",stage="open",vhost="{OTHER}"'] == MAX_VHOSTS
    assert found["palisade_connections", f'vhost="{OTHER}"'] == MAX_VHOSTS
    assert found["palisade_authentications_total", 'mechanism="other",result="refused"'] == 2 * MAX_VHOSTS
    assert len(found) < 3 * MAX_VHOSTS


def test_a_name_cannot_end_its_label() -> None:
    made = Exposition()
    made.denied('v"} 1\nqdr_connections_total 9', "open", "unknown_user")
    assert series(text_of(made))["qdr_connections_total", ""] == 0


def test_rules_and_dashboard_read_metrics_that_exist() -> None:
    known = {name for name, _ in series(text_of(busy(), v=1))}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]] + [RULES.read_text()]
    named = {name for each in asked for name in re.findall(r"\bpalisade_\w+", each)}
    assert len(named) > 15
    assert named - known == set()


def test_promtool_takes_the_rules(require_tool: Callable[[str, str], Path]) -> None:
    promtool = require_tool("promtool", "prometheus")
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["datasource", "instance"])
def test_the_dashboard_asks_for_its_source(name: str) -> None:
    assert name in [each["name"] for each in json.loads(DASHBOARD.read_text())["templating"]["list"]]
