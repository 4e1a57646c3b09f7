"""Attack: a hostile router answers qdstat and qdmanage with texts that a terminal obeys or a reader misreads.

qdstat printed the router's id unchanged. It may contain escape sequences, which rewrite the screen and send answers to
the shell; directional marks, which reverse a line; and line ends, which fake lines. Now one function
(`policy/printing.py`) treats all foreign text that the tools print, including errors. JSON stays JSON.
"""

import json

import pytest
from hostile_router import UNSEEN, hostile_router, run

EVIL = "a\x1b]0;owned\x07\x1b[2J\n2026-01-01 00:00:00 UTC\u202egnp.exe\u2066\u200b\u034f\ufe0f\x85\u2028\x00z"
ENTITIES = {
    "router": [{"id": EVIL, "version": EVIL, "mode": EVIL, "area": EVIL}],
    "connection": [
        {"identity": EVIL, "host": EVIL, "container": EVIL, "role": "edge", "isAuthenticated": True, "user": EVIL}
        | {"sasl": EVIL, "tenant": EVIL, "isEncrypted": True, "sslProto": EVIL, "sslCipher": EVIL}
    ],
    "router.link": [{"linkType": EVIL, "owningAddr": "M0" + EVIL, "linkName": EVIL, "peer": EVIL}],
    "router.address": [{"key": "M0" + EVIL, "distribution": EVIL, "subscriberCount": EVIL}],
    "router.node": [{"id": EVIL, "nextHop": EVIL, "linkState": [EVIL], "validOrigins": [EVIL], "lastTopoChange": 9}],
    "router.config.autoLink": [{"address": EVIL, "lastError": EVIL}],
    "router.config.linkRoute": [{"prefix": EVIL, "direction": EVIL}],
    "allocator": [{"identity": EVIL, "totalAllocFromHeap": 1}],
    "policy": [{"policyDir": EVIL}],
    "vhost": [{"hostname": EVIL, "groups": {EVIL: {"users": EVIL, "remoteHosts": EVIL}}}],
    "vhostStats": [{"hostname": EVIL, "perUserState": {EVIL: [EVIL]}}],
    "ban": [{"name": EVIL, "host": EVIL, "reason": EVIL}],
}
NODES = [f"amqp:/_topo/0/{EVIL}/$management", "amqp:/_topo/0/B/$management"]
OTHERS = {"GET-LOG": [[EVIL, EVIL, EVIL, EVIL, 1, 1]], "GET-MGMT-NODES": NODES, "GET-SCHEMA": {}}
DISPLAYS = ["-g", "-c", "-l -v", "-n -v", "-e", "-a", "-m", "-p", "--autolinks", "--linkroutes", "--vhosts"]
DISPLAYS += ["--vhostgroups", "--vhoststats", "--bans", "--log", "--all-entities", "-c --all-routers"]


@pytest.mark.parametrize("form", ["", "--csv"])
@pytest.mark.parametrize("display", DISPLAYS)
def test_qdstat_prints_nothing_that_a_terminal_obeys(display: str, form: str) -> None:
    with hostile_router(ENTITIES, OTHERS) as router:
        ran = run("qdstat", router, *display.split(), *form.split())
    assert ran.status == 0, ran.out
    assert UNSEEN.search(ran.out) is None
    lines = ran.out.split("\n")
    assert not [line for line in lines if line.startswith("2026-01-01 00:00:00 UTC")]
    if display not in ("-m", "--vhosts"):
        assert "\\x1b]0;owned" in ran.out


@pytest.mark.parametrize("tool", ["qdstat", "qdmanage"])
def test_an_error_is_one_line_of_what_can_be_seen(tool: str) -> None:
    others = {"QUERY": None, "CREATE": {"x": EVIL}}
    with hostile_router(others=others) as router:
        router.on_open, router.reason = "close", EVIL
        ran = run(tool, router, *(["query"] if tool == "qdmanage" else []))
    assert ran.status == 1
    assert UNSEEN.search(ran.out) is None
    assert ran.out.count("\n") == 1
    assert "\\x1b]0;owned" in ran.out


def test_text_that_qdmanage_prints_as_it_comes_is_shown_and_not_obeyed() -> None:
    with hostile_router(others={"get-json-schema": EVIL}) as router:
        ran = run("qdmanage", router, "get-json-schema")
    assert ran.status == 0
    assert UNSEEN.search(ran.out) is None


@pytest.mark.parametrize("value", [EVIL, float("nan"), float("-inf"), EVIL.encode(), [EVIL], {EVIL: EVIL}])
def test_json_of_qdmanage_is_json(value: object) -> None:
    with hostile_router({"connection": [{"container": value}]}) as router:
        ran = run("qdmanage", router, "query", "--type", "connection")
    assert ran.status == 0
    assert ran.out.isascii()
    assert UNSEEN.search(ran.out) is None

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    shown = json.loads(ran.out, parse_constant=refuse)[0]["container"]
    if isinstance(value, str):
        assert shown == value
