"""Every display of qdstat, as it prints (management 73-84)."""

import csv
import re
from collections.abc import Callable
from typing import Any

import pytest
from fake_management import FakeTransport

from router.management.client import ManagementClient
from router.tools.displays.connections import authentication, security
from router.tools.displays.links import split_key
from router.tools.qdstat import main

Show = Callable[..., list[str]]

ROUTER = {
    "name": "A",
    "identity": "1",
    "id": "A",
    "mode": "standalone",
    "area": "0",
    "version": "1.0",
    "workerThreads": 4,
    "uptimeSeconds": 90061,
    "memoryUsage": 3 * 1024**2,
    "addrCount": 5,
    "linkCount": 2,
    "nodeCount": 0,
    "linkRouteCount": 0,
    "autoLinkCount": 0,
    "connectionCount": 1,
    "presettledDeliveries": 1234,
    "linksBlocked": 0,
}
CONNECTION = {
    "identity": "7",
    "host": "127.0.0.1:5000",
    "container": "c",
    "role": "normal",
    "protocol": "amqp",
    "dir": "in",
    "sasl": "PLAIN",
    "isAuthenticated": True,
    "user": "anna",
    "isEncrypted": True,
    "sslProto": "TLSv1.3",
    "sslCipher": "AES",
    "tenant": "vhost/",
    "active": True,
    "uptimeSeconds": 61,
    "lastDlvSeconds": None,
}
LINK = {
    "name": "l1",
    "identity": "11",
    "linkName": "l1",
    "linkType": "endpoint",
    "linkDir": "in",
    "owningAddr": "M0queue",
    "capacity": 250,
    "peer": None,
    "undeliveredCount": 1,
    "unsettledCount": 2,
    "deliveryCount": 3,
    "connectionId": "7",
    "adminStatus": "enabled",
    "operStatus": "up",
    "presettledCount": 4,
    "droppedPresettledCount": 5,
    "acceptedCount": 6,
    "rejectedCount": 7,
    "releasedCount": 8,
    "modifiedCount": 9,
    "deliveriesDelayed1Sec": 10,
    "deliveriesDelayed10Sec": 1,
    "deliveriesStuck": 12,
    "priority": 4,
    "settleRate": 13,
    "creditAvailable": 14,
    "zeroCreditSeconds": 0,
}


def address(key: str, **others: Any) -> dict[str, Any]:
    return {
        "name": key,
        "key": key,
        "distribution": "closest",
        "inProcess": 1,
        "subscriberCount": 2,
        "remoteCount": 0,
        "containerCount": 9,
        "deliveriesIngress": 1000,
        "deliveriesEgress": 0,
        "deliveriesTransit": 0,
        "deliveriesToContainer": 0,
        "deliveriesFromContainer": 0,
        "deliveriesRedirectedToFallback": 0,
        "priority": -1,
        **others,
    }


ADDRESSES = [
    address("M0$management"),
    address("L$management"),
    address("L$_management_internal"),
    address("M0_$qd.edge_heartbeat"),
    address("Ltemp.x"),
]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Run qdstat against a fake router and give the lines it printed."""

    def run(
        *arguments: str,
        tables: dict[str, Any] | None = None,
        answers: dict[str, Any] | None = None,
        transport: FakeTransport | None = None,
    ) -> list[str]:
        transport = transport or FakeTransport({"router": [ROUTER], **(tables or {})}, answers)
        assert main(arguments, transport.connect) == 0
        return capsys.readouterr().out.splitlines()

    return run


def words(line: str) -> str:
    return " ".join(line.split())


HEADER = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC")


def test_without_an_option_the_general_display_is_shown(show: Show) -> None:
    """management 73"""
    lines = show()
    assert HEADER.fullmatch(lines[0])
    assert lines[1:4] == ["A", "", "Router Statistics"]
    assert "\n".join(lines).count("A\n") >= 2


def test_general(show: Show) -> None:
    """management 74"""
    lines = show("-g", tables={"router": [{**ROUTER, "deliveriesIngressRouteContainer": 0}]})
    assert lines[3:] == [
        "Router Statistics",
        "  attr" + " " * 29 + "value",
        "  " + "=" * (33 + 14),
        "  Version                          1.0",
        "  Mode                             standalone",
        "  Router Id" + " " * 24 + "A",
        "  Worker Threads                   4",
        "  Uptime                           001:01:01:01",
        "  VmSize                           3.00 MiB",
        "  Area                             0",
        "  Link Routes                      0",
        "  Auto Links                       0",
        "  Links                            2",
        "  Nodes                            0",
        "  Addresses                        5",
        "  Connections" + " " * 22 + "1",
        "  Presettled Count                 1234",
        "  Links Blocked                    0",
        "  Deliveries from Route Container  0",
    ]


@pytest.mark.parametrize("size", [0, None])
def test_general_leaves_out_an_unknown_memory_size(show: Show, size: Any) -> None:
    assert "VmSize" not in "\n".join(show("-g", tables={"router": [{**ROUTER, "memoryUsage": size}]}))


def test_connections(show: Show) -> None:
    lines = show("-c", tables={"connection": [CONNECTION, {**CONNECTION, "lastDlvSeconds": 3, "tenant": None}]})
    assert lines[3:] == [
        "Connections",
        "  id  host            container  role    proto  dir  security      authentication  tenant  "
        "last dlv      uptime",
        "  " + "=" * 117,
        "  7   127.0.0.1:5000  c          normal  amqp   in   TLSv1.3(AES)  anna(PLAIN)     vhost   "
        "-             000:00:01:01",
        "  7   127.0.0.1:5000  c          normal  amqp   in   TLSv1.3(AES)  anna(PLAIN)             "
        "000:00:00:03  000:00:01:01",
    ]


def test_connections_of_a_router_that_reports_no_times(show: Show) -> None:
    old = {name: value for name, value in CONNECTION.items() if not name.endswith("Seconds")}
    assert show("-c", tables={"connection": [old]})[4].endswith("tenant")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"isAuthenticated": False}, "no-auth"),
        ({"sasl": "ANONYMOUS", "user": "anonymous"}, "anonymous-user"),
        ({"sasl": "GSSAPI"}, "anna(Kerberos)"),
        ({"sasl": "EXTERNAL"}, "anna(x.509)"),
        ({"sasl": "SCRAM-SHA-1"}, "anna(SCRAM-SHA-1)"),
        ({"sasl": "PLAIN", "user": None}, "PLAIN"),
        ({"sasl": "EXTERNAL", "user": None}, "x.509"),
    ],
)
def test_the_words_for_authentication(changes: dict[str, Any], text: str) -> None:
    assert authentication({**CONNECTION, **changes}) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"isEncrypted": False}, "no-security"), ({"sasl": "GSSAPI"}, "Kerberos"), ({}, "TLSv1.3(AES)")],
)
def test_the_words_for_security(changes: dict[str, Any], text: str) -> None:
    assert security({**CONNECTION, **changes}) == text


def test_edge_connections(show: Show) -> None:
    """management 80"""
    edges = [{**CONNECTION, "role": "edge"}, {**CONNECTION, "role": "edge", "identity": "8", "active": False}]
    lines = show("-e", tables={"connection": [CONNECTION, *edges]})
    assert lines[3] == "Connections"
    assert [line.split()[-1] for line in lines[4:] if "=" not in line] == ["active", "yes", "no"]
    assert len(lines) == 8


def test_edge_display_without_edges(show: Show) -> None:
    assert show("-e", tables={"connection": [CONNECTION]})[3:] == []
    assert show("-e")[3:] == ["No Edge Router Connections"]


def test_links(show: Show) -> None:
    """management 76: 8 lines for 2 links, 7 with --limit=1, 6 as CSV"""
    links = [LINK, {**LINK, "linkDir": "out", "owningAddr": None, "zeroCreditSeconds": 61}]
    lines = show("-l", tables={"router.link": links})
    assert len(lines) == 8
    assert lines[3] == "Router Links"
    assert words(lines[4]) == (
        "type dir conn id id peer class addr phs cap pri undel unsett deliv presett psdrop acc rej rel mod delay rate "
        "stuck cred blkd"
    )
    assert words(lines[6]) == "endpoint in 7 11 mobile queue 0 250 4 1 2 3 4 5 6 7 8 9 11 13 12 14 -"
    assert words(lines[7]) == "endpoint out 7 11 250 4 1 2 3 4 5 6 7 8 9 11 13 12 14 00:01:01"
    assert "endpoint  in" in lines[6]
    assert "endpoint  out" in lines[7]
    assert len(show("-l", "--limit=1", tables={"router.link": links})) == 7
    assert len(show("-l", "--limit=1", "--csv", tables={"router.link": links})) == 6


def test_links_with_more_columns_and_as_csv(show: Show) -> None:
    """management 79: priority is field 9"""
    lines = show("-l", "-v", "--csv", tables={"router.link": [LINK]})
    header, row = csv.reader(lines[4:])
    assert header[9] == "pri"
    assert row[9] == "4"
    assert header[-3:] == ["admin", "oper", "name"]
    assert row[-3:] == ["enabled", "up", "l1"]
    assert ',"11",,"mobile",' in lines[5]


@pytest.mark.parametrize("limit", [500, 700, 2000, 15000, 0])
def test_the_limit_gives_exactly_so_many_links(show: Show, limit: int) -> None:
    """management 77"""
    lines = show("-l", f"--limit={limit}", tables={"router.link": [LINK] * 1700})
    assert len(lines) - 6 == min(limit or 1700, 1700)


def test_addresses(show: Show) -> None:
    """management 75: 11 lines, 7 with --limit=1, 6 as CSV"""
    lines = show("-a", tables={"router.address": ADDRESSES})
    assert len(lines) == 11
    assert lines[3:] == [
        "Router Addresses",
        "  class   addr                   phs  distrib  pri  local  remote  in     out  thru  fallback",
        "  " + "=" * 93,
        "  local   $_management_internal       closest  -    2      0       1,000  0    0     0",
        "  mobile  $management            0    closest  -    2      0       1,000  0    0     0",
        "  local   $management                 closest  -    2      0       1,000  0    0     0",
        "  mobile  _$qd.edge_heartbeat    0    closest  -    2      0       1,000  0    0     0",
        "  local   temp.x                      closest  -    2      0       1,000  0    0     0",
    ]
    assert len(show("-a", "--limit=1", tables={"router.address": ADDRESSES})) == 7
    assert len(show("-a", "--csv", "--limit=1", tables={"router.address": ADDRESSES})) == 6


def test_addresses_with_more_columns(show: Show) -> None:
    found = [address("Cprefix", priority=3, inProcess=0)]
    lines = show("-a", "-v", "--csv", tables={"router.address": found})
    header, row = csv.reader(lines[4:])
    assert " ".join(header) == "class addr phs distrib pri in-proc local remote in out thru fallback to-proc from-proc"
    assert row[4:7] == ["3", "0", "9"]


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("M0a.b", ("mobile", "a.b", "0")),
        ("MFa", ("mobile", "a", "F")),
        ("RB", ("router", "B", "")),
        ("Aarea", ("area", "area", "")),
        ("Ltemp", ("local", "temp", "")),
        ("Tqdrouter", ("topo", "qdrouter", "")),
        ("Cx", ("link-in", "x", "")),
        ("Ex", ("link-in", "x", "")),
        ("Dx", ("link-out", "x", "")),
        ("Fx", ("link-out", "x", "")),
        ("He", ("edge", "e", "")),
        ("?x", ("unknown: ?", "x", "")),
        ("", ("", "", "")),
        (None, ("", "", "")),
    ],
)
def test_address_keys_are_split(key: str, parts: Any) -> None:
    assert split_key(key) == parts


def test_nodes(show: Show) -> None:
    """management 78"""
    nodes = [
        {
            "id": "B",
            "nextHop": None,
            "routerLink": 0,
            "protocolVersion": 1,
            "cost": 1,
            "linkState": ["A"],
            "validOrigins": [],
        },
        {
            "id": "C",
            "nextHop": "B",
            "routerLink": None,
            "protocolVersion": 1,
            "cost": 2,
            "linkState": ["B"],
            "validOrigins": ["A"],
        },
        {
            "id": "A",
            "nextHop": "(self)",
            "protocolVersion": 1,
            "linkState": ["B"],
            "validOrigins": [],
            "lastTopoChange": 1465303831,
        },
    ]
    lines = show("-n", tables={"router.node": nodes})
    assert lines[3:] == [
        "Routers in the Network",
        "Last Topology Change: Tuesday Jun 07 12:50:31 2016 GMT",
        "  router-id  next-hop  link",
        "  ===========================",
        "  A          (self)    -",
        "  B          -         0",
        "  C          B         -",
    ]
    verbose = show("-nv", tables={"router.node": nodes})
    assert words(verbose[5]) == "router-id next-hop link ver cost neighbors valid-origins"
    assert verbose[9].split() == ["C", "B", "-", "1", "2", "['B']", "['A']"]


def test_nodes_of_a_router_that_stands_alone(show: Show) -> None:
    """management 78"""
    assert show("-n")[3:] == ["Router is Standalone - No Router List"]


def test_auto_links(show: Show) -> None:
    auto = {
        "address": "b",
        "direction": "in",
        "phase": 1,
        "externalAddress": "x",
        "linkRef": "1",
        "operStatus": "active",
    }
    lines = show("--autolinks", tables={"router.config.autoLink": [auto, {**auto, "address": "a", "lastError": "e"}]})
    assert lines[3:] == [
        "AutoLinks",
        "  addr  dir  phs  extAddr  link  status  lastErr",
        "  ================================================",
        "  a     in   1    x        1     active  e",
        "  b     in   1    x        1     active  ",
    ]
    assert show("--autolinks")[3:] == ["AutoLinks", "No AutoLinks found"]


def test_link_routes(show: Show) -> None:
    route = {"prefix": "b", "direction": "in", "distribution": "linkBalanced", "operStatus": "active"}
    pattern = {**route, "prefix": None, "pattern": "a.*"}
    assert show("--linkroutes", tables={"router.config.linkRoute": [route, pattern]})[3:] == [
        "Link Routes",
        "  address  dir  distrib       status",
        "  ====================================",
        "  a.*      in   linkBalanced  active",
        "  b        in   linkBalanced  active",
    ]
    external = {**route, "addExternalPrefix": "e."}
    lines = show("--linkroutes", tables={"router.config.linkRoute": [external]})
    assert lines[4].split()[-2:] == ["add-ext-prefix", "del-ext-prefix"]
    assert show("--linkroutes")[3:] == ["Link Routes", "No Link Routes found"]


def test_memory(show: Show) -> None:
    pool = {
        "identity": "allocator/qd_message_t",
        "typeSize": 1024,
        "transferBatchSize": 64,
        "localFreeListMax": 128,
        "totalAllocFromHeap": 2048,
        "heldByThreads": 7,
        "batchesRebalancedToThreads": 0,
        "batchesRebalancedToGlobal": 0,
    }
    assert show("-m", tables={"allocator": [pool]})[3:] == [
        "Memory Pools",
        "  type          size   batch  thread-max  total  in-threads  rebal-in  rebal-out",
        "  ================================================================================",
        "  qd_message_t  1,024  64     128         2,048  7           0         0",
        "",
        "Memory Summary",
        "  VmSize    Pooled",
        "  ====================",
        "  3.00 MiB  2.00 MiB",
    ]
    assert show("-m", tables={"allocator": [{**pool, "totalAllocFromHeap": None}]})[3:] == [
        "No memory statistics available"
    ]
    assert show("-m")[3:] == ["No memory statistics available"]


POLICY = {
    "identity": "policy/None",
    "maxConnections": 65535,
    "maxMessageSize": 0,
    "enableVhostPolicy": True,
    "enableVhostNamePatterns": False,
    "policyDir": "",
    "defaultVhost": "$default",
    "connectionsProcessed": 3,
    "connectionsDenied": 1,
    "connectionsCurrent": 2,
    "linksDenied": 0,
    "maxMessageSizeDenied": 0,
    "totalDenials": 1,
}


def test_policy(show: Show) -> None:
    """management 82"""
    assert show("-p", tables={"policy": [POLICY]})[3:] == [
        "Policy Configuration",
        "  attr                            value",
        "  " + "=" * 42,
        "  Maximum Concurrent Connections  65535",
        "  Maximum Message Size            0",
        "  Enable Vhost Policy             True",
        "  Enable Vhost Name Patterns      False",
        "  Policy Directory                (nil)",
        "  Default Vhost                   $default",
        "",
        "Policy Status",
        "  attr                         value",
        "  ====================================",
        "  Connections Processed        3",
        "  Connections Denied           1",
        "  Connections Current          2",
        "  Links Denied                 0",
        "  Maximum Message Size Denied  0",
        "  Total Denials                1",
    ]


VHOST = {
    "hostname": "h",
    "maxConnections": 5,
    "maxConnectionsPerUser": 4,
    "maxConnectionsPerHost": 3,
    "allowUnknownUser": False,
    "groups": {
        "$default": {"users": "*", "remoteHosts": "*", "maxFrameSize": 2048, "allowDynamicSource": True},
        "admin": {"users": "anna", "remoteHosts": "127.0.0.1", "sources": "a, b"},
    },
}


def test_vhosts(show: Show) -> None:
    """management 82"""
    assert show("--vhosts", tables={"vhost": [VHOST]}) == [
        "Vhosts",
        "  hostname  maxConnections  maxMessageSize  maxConnectionsPerUser  maxConnectionsPerHost  "
        "allowUnknownUser  groups",
        "  " + "=" * 114,
        "  h         5               None            4                      3                      False             2",
    ]
    assert show("--vhosts") == ["No Vhosts"]


def test_bans(show: Show) -> None:
    """Ours."""
    ban = {"name": "b", "remoteHost": "192.0.2.0/24", "origin": "manual", "created": "2026-11-21T18:00:00Z", "hits": 3}
    given = {**ban, "name": "c", "user": "eve", "expires": "2026-11-21T19:00:00Z", "reason": "left", "remoteHost": None}
    lines = show("--bans", "--csv", tables={"ban": [ban, given]})
    assert lines == [
        "Bans",
        '"name","host","user","origin","created","expires","hits","reason"',
        '"b","192.0.2.0/24","-","manual","2026-11-21T18:00:00Z","never","3","-"',
        '"c","-","eve","manual","2026-11-21T18:00:00Z","2026-11-21T19:00:00Z","3","left"',
    ]
    assert show("--bans") == ["No Bans"]


def test_vhost_groups(show: Show) -> None:
    """management 82"""
    attributes = {"maxSenders": {"default": 2147483647}, "allowFallbackLinks": {"default": True}, "users": {}}
    schema = {"entityTypes": {"vhostUserGroupSettings": {"attributes": attributes}}}
    lines = show("--vhostgroups", "--csv", tables={"vhost": [VHOST]}, answers={"GET-SCHEMA": schema})
    assert lines[0] == "Vhost Groups"
    header, default, admin = csv.reader(lines[1:4])
    assert " ".join(header) == (
        "vhost group maxConnectionsPerUser maxConnectionsPerHost maxMessageSize maxFrameSize maxSessionWindow "
        "maxSessions maxSenders maxReceivers allowDynamicSource allowAnonymousSender allowUserIdProxy "
        "allowWaypointLinks allowDynamicLinkRoutes allowAdminStatusUpdate allowFallbackLinks"
    )
    assert default[:6] == ["h", "$default", "(nil)", "(nil)", "(nil)", "2048"]
    assert default[8:] == ["2147483647", "(nil)", "True", *["False"] * 5, "True"]
    assert admin[10] == "False"
    assert lines[4:7] == ["", "Vhost 'h' UserGroup '$default'", '"attr","value"']
    assert lines[-8:] == [
        '"vhost","h"',
        '"group","admin"',
        '"users","anna"',
        '"remoteHosts","127.0.0.1"',
        '"sources","a, b"',
        '"targets","(nil)"',
        '"sourcePattern","(nil)"',
        '"targetPattern","(nil)"',
    ]
    assert show("--vhostgroups") == ["No Vhosts"]


def test_vhost_stats(show: Show) -> None:
    """management 82"""
    stats = {
        "hostname": "h",
        "connectionsApproved": 3,
        "connectionsDenied": 2,
        "connectionsCurrent": 1,
        "sessionDenied": 0,
        "senderDenied": 0,
        "receiverDenied": 0,
        "maxMessageSizeDenied": 0,
        "perUserState": {"anna": ["127.0.0.1:5000", "127.0.0.1:5001"]},
    }
    lines = show("--vhoststats", tables={"vhostStats": [stats]})
    assert lines[0] == "Vhost Stats"
    assert words(lines[3]) == "h 3 2 1 0 0 0 0"
    assert lines[4:] == [
        "",
        "Vhost User Stats",
        "  vhost  user  remote hosts",
        "  " + "=" * 51,
        "  h      anna  ['127.0.0.1:5000', '127.0.0.1:5001']",
    ]
    assert show("--vhoststats") == ["No Vhost Stats"]


def test_budgets(show: Show) -> None:
    router = {"kind": "router", "owner": "", "held": 5_000_000, "peak": 7_000_000, "limit": 0, "connections": 2,
              "heldBack": 0}  # fmt: skip
    user = {"kind": "user", "owner": "alice", "held": 4_000_000, "peak": 4_000_000, "limit": 4_000_000,
            "connections": 1, "heldBack": 1}  # fmt: skip
    lines = show("--budgets", tables={"budget": [router, user]})
    assert lines[0] == "Byte Budgets"
    assert words(lines[1]) == "kind owner held peak limit connections heldBack"
    assert words(lines[3]) == "router - 5000000 7000000 none 2 0"
    assert words(lines[4]) == "user alice 4000000 4000000 4000000 1 1"
    assert show("--budgets") == ["No Budgets"]


def test_log(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """management 82"""
    monkeypatch.setenv("TZ", "UTC")
    transport = FakeTransport(answers={"GET-LOG": [["AGENT", "debug", "GET-LOG\x1b[0m", None, None, 0], ["broken"], 5]})
    lines = show("--log", "--limit=5", transport=transport)
    assert lines[0].endswith("1970 AGENT (debug) GET-LOG\\x1b[0m")
    assert lines[1:] == ["None broken (None) None", "None None (None) None"]
    assert transport.requests[-1][1]["limit"] == 5


def test_all_entities(show: Show) -> None:
    """management 81"""
    lines = show("--all-entities", tables={"policy": [POLICY], "router.link": [LINK], "router.address": ADDRESSES})
    text = "\n".join(lines)
    counts = {
        "UTC": 1,
        "Router Links": 1,
        "Router Addresses": 1,
        "Connections": 6,
        "AutoLinks": 2,
        "Link Routes": 3,
        "Router Statistics": 1,
        "Memory Pools": 0,
    }
    assert {word: text.count(word) for word in counts} == counts
    assert lines[-2:] == ["No Vhost Stats", ""]


def nodes_of(*ids: str) -> dict[str, list[str]]:
    return {"GET-MGMT-NODES": [f"amqp:/_topo/0/{router_id}/$management" for router_id in ids]}


def test_all_routers_are_asked_one_after_the_other(show: Show) -> None:
    """management 81"""
    transport = FakeTransport({"router": [ROUTER]}, nodes_of("A", "B"))
    lines = show("--all-routers", "-g", transport=transport)
    assert HEADER.fullmatch(lines[0])
    assert [line for line in lines if line.startswith("Router  ")] == ["Router  A", "Router  B"]
    assert lines[1:4] == ["Router  A", "", "Router Statistics"]
    assert lines[-1] == ""
    asked = [address for address, _, _ in transport.requests]
    assert asked == ["$management", "_topo/0/A/$management", "_topo/0/B/$management"]


def test_all_routers_means_the_one_where_there_is_no_other(show: Show) -> None:
    assert show("--all-routers", "-n")[3:] == ["Router is Standalone - No Router List"]
    assert show("--all-routers", "-n", transport=FakeTransport({"router": [ROUTER]}, nodes_of("A")))[1] == "A"


def test_the_log_of_all_routers(show: Show) -> None:
    transport = FakeTransport(answers={**nodes_of("A", "B"), "GET-LOG": []})
    assert show("--all-routers", "--log", transport=transport)[1:] == ["Router  A", "", "", "Router  B", "", ""]


def test_a_router_that_knows_nothing_prints_titles_only(show: Show) -> None:
    """Rows a router does not send are absent, not an error."""
    for option in ("-g", "-c", "-l", "-a", "-p"):
        assert show(option, transport=FakeTransport())


def test_the_query_of_a_limited_display_asks_for_no_more(show: Show) -> None:
    transport = FakeTransport({"router": [ROUTER], "connection": [CONNECTION] * 9})
    show("-c", "--limit", "3", transport=transport)
    assert [p["count"] for _, p, _ in transport.requests if p["entityType"].endswith("connection")] == [3]
    assert isinstance(transport.connect(None or transport.options, "x"), ManagementClient)
