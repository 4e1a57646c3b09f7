"""The management protocol over the wire of a real router. Management §7; items 42-51 and 66-69 of one router."""

import uuid

import pytest
from daemon_process import ROOT, Daemon, run_python
from management_peer import ADDRESS, CONNECTION, LINK, PREFIX, encode_message, raw_peer

from router.values import int_, long, symbol, ulong

pytestmark = pytest.mark.interop


def test_a_reply_has_the_parts_the_protocol_promises(router: Daemon) -> None:
    """Management 43."""
    with raw_peer(router) as raw:
        for identity in (uuid.uuid4(), ulong(7), "seven", b"\x07"):
            reply = raw.ask(correlation_id=identity, application_properties={"operation": "GET-TYPES"})
            assert (reply.to, reply.correlation_id) == (raw.reply_to, identity)
            properties = reply.application_properties
            assert set(properties) == {"statusCode", "statusDescription"}
            assert (properties["statusCode"], type(properties["statusCode"])) == (200, int_)
            assert properties["statusDescription"] == "OK"
            assert reply.message_id is None


def test_without_reply_to_nothing_is_said(router: Daemon) -> None:
    """Management 42: such requests are accepted; the next one is answered as if they had never been."""
    with raw_peer(router) as raw:
        before = dict(raw.client().query(LINK, ["identity", "acceptedCount"]).rows)
        for _ in range(10):
            raw.send(encode_message(application_properties={"operation": "GET-TYPES"}))
        reply = raw.ask(correlation_id="second", application_properties={"operation": "GET-ANNOTATIONS"})
        assert reply.correlation_id == "second"
        after = dict(raw.client().query(LINK, ["identity", "acceptedCount"]).rows)
        grown = {key: after[key] - count for key, count in before.items() if after[key] != count}
        assert max(grown.values()) >= 10


def test_raw_clients_may_leave_things_out(router: Daemon) -> None:
    """Management 47, 48: only `type`, no body, count as text."""
    with raw_peer(router) as raw:
        reply = raw.ask(application_properties={"operation": "QUERY", "type": LINK, "count": "100"})
        assert reply.application_properties["statusCode"] == 200
        assert len(reply.body["results"]) == 2
        assert reply.body["attributeNames"][:2] == ["name", "identity"]


@pytest.mark.parametrize(
    "address", ["$management", "_local/$management", "_topo/0/wire/$management", "amqp:/_topo/0/wire/$management"]
)
def test_the_agent_answers_under_all_its_names(router: Daemon, address: str) -> None:
    """Management 66, as far as one router goes."""
    with raw_peer(router) as raw:
        reply = raw.ask(address=address, application_properties={"operation": "GET-MGMT-NODES"})
        assert reply.application_properties["statusCode"] == 200
        assert reply.body == []


def test_the_router_shows_its_counters(router: Daemon) -> None:
    """Management 69."""
    with router.client() as client:
        (row,) = client.query(f"{PREFIX}router").entities()
        assert (row["id"], row["name"], row["identity"]) == ("wire", "wire", "1")
        assert (row["workerThreads"], row["metadata"], row["mode"]) == (4, "about me", "standalone")
        assert row["memoryUsage"] > 0
        assert row["connectionCount"] == len(client.query(CONNECTION).rows)
        assert row["linkCount"] == len(client.query(LINK).rows)
        assert row["addrCount"] == len(client.query(ADDRESS).rows)


def test_policy_and_its_counters(router: Daemon) -> None:
    """Management 67, 68."""
    with router.client() as client:
        (row,) = client.query(f"{PREFIX}policy").entities()
        assert row["identity"] == "policy/None"
        assert {"connectionsDenied", "totalDenials", "connectionsCurrent", "maxConnections"} <= row.keys()
        rows = list(client.query(f"{PREFIX}logStats").entities())
        assert {"logStats/SERVER", "logStats/POLICY"} <= {row["identity"] for row in rows}
        levels = ("trace", "debug", "info", "notice", "warning", "error", "critical")
        assert all(isinstance(row[f"{level}Count"], int) for row in rows for level in levels)


def test_allocators_are_shown(router: Daemon) -> None:
    """Management §6.5, allocator."""
    with router.client() as client:
        pools = {row["typeName"]: row for row in client.query(f"{PREFIX}allocator").entities()}
    assert {"qdr_address_t", "qd_message_t", "qd_buffer_t", "qdr_delivery_t"} <= pools.keys()
    assert all(row["localFreeListMax"] > 0 for row in pools.values())
    assert pools["qdr_address_t"]["heldByThreads"] == 5
    assert all(row["identity"] == f"allocator/{name}" for name, row in pools.items())


def test_a_page_is_exactly_a_page(router: Daemon) -> None:
    """Management 46."""
    with router.client() as client, router.client() as other:
        assert other.query("router")
        everything = client.query(LINK, ["identity"]).rows
        assert len(everything) == 4
        assert client.query(LINK, ["identity"], offset=1, count=2).rows == everything[1:3]
        assert client.query(LINK, ["identity"], offset=3, count=500).rows == everything[3:]
        assert client.query(LINK, ["identity"], offset=4).rows == ()
        logs = client.query(f"{PREFIX}log", ["identity"]).rows
        assert client.query(f"{PREFIX}log", ["identity"], offset=3, count=4).rows == logs[3:7]


def test_callme_echoes_values_of_every_kind(router: Daemon) -> None:
    """Management 51, over the wire."""
    with raw_peer(router) as raw:
        raw.client().create({}, type=f"{PREFIX}dummy", name="echo")
        given = {"big": long(2**62), "binary": b"\x00\xff", "s": symbol("s"), "n": None, "deep": "x" * 1000}
        properties = {"operation": "CALLME", "type": f"{PREFIX}dummy", "name": "echo", **given}
        reply = raw.ask(application_properties=properties)
        assert {key: reply.body[key] for key in given} == given


def test_the_documented_client_works(router: Daemon) -> None:
    """docs/operations.md shows how to use it."""
    text = (ROOT / "docs" / "operations.md").read_text()
    snippet = text.partition("```python\n")[2].partition("```")[0]
    assert "ConnectionOptions" in snippet
    ran = run_python("-c", snippet.replace("port=5672", f"port={router.port()}"))
    assert (ran.status, ran.err) == (0, "")
    assert "$management" in ran.out
