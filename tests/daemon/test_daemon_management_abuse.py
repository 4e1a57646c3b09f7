"""Requests that are wrong, mutated or too many: nothing else may be disturbed. Management 41; issue 4."""

import random
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon
from management_peer import (
    CONNECTION,
    LINK,
    LISTENER_TYPE,
    VHOST,
    Raw,
    encode_message,
    raw_peer,
)

from router.management.client import (
    ConnectionException,
    LinkDetached,
)
from router.values import int_, symbol, uint, ulong

pytestmark = pytest.mark.interop

RESTRICTED = (
    LISTENER
    + """
policy {
    enableVhostPolicy: true
    defaultVhost: v
}
vhost {
    hostname: v
    allowUnknownUser: true
    groups: {
        $default: {
            remoteHosts: *
            sources: *
            targets: $management
            allowDynamicSource: true
            allowAdminStatusUpdate: false
        }
    }
}
"""
)


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


MALFORMED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no properties", {}),
    ("no operation", {"application_properties": {"type": LISTENER_TYPE}}),
    ("operation is a number", {"application_properties": {"operation": 7}}),
    ("operation is empty", {"application_properties": {"operation": ""}}),
    ("operation of a megabyte", {"application_properties": {"operation": "X" * 1_000_000}}),
    ("name of a megabyte", {"application_properties": {"operation": "READ", "name": "x" * 1_000_000}}),
    ("type of a megabyte", {"application_properties": {"operation": "QUERY", "entityType": "x" * 1_000_000}}),
    ("type is a map", {"application_properties": {"operation": "CREATE", "type": {"a": 1}}}),
    ("body is a text", {"application_properties": {"operation": "CREATE", "type": LISTENER_TYPE}, "body": "x"}),
    ("body is a list", {"application_properties": {"operation": "UPDATE", "name": "log/AGENT"}, "body": [1]}),
    (
        "names are numbers",
        {"application_properties": {"operation": "QUERY", "entityType": LINK}, "body": {"attributeNames": [1, 2]}},
    ),
    (
        "100,000 names",
        {
            "application_properties": {"operation": "QUERY", "entityType": LINK},
            "body": {"attributeNames": [str(number) for number in range(100_000)]},
        },
    ),
    (
        "a map of 100,000 attributes",
        {
            "application_properties": {"operation": "CREATE", "type": LISTENER_TYPE},
            "body": {f"a{number}": number for number in range(100_000)},
        },
    ),
    (
        "deep nesting",
        {"application_properties": {"operation": "CREATE", "type": VHOST, "name": "v"}, "body": {"groups": nested(28)}},
    ),
    ("count is a text", {"application_properties": {"operation": "QUERY", "entityType": LINK, "count": "many"}}),
    ("count is beyond 64 bits", {"application_properties": {"operation": "QUERY", "count": "9" * 400}}),
    ("offset is a list", {"application_properties": {"operation": "QUERY", "offset": [1]}}),
    ("unknown operation", {"application_properties": {"operation": "nosuch", "type": "org.amqp.management"}}),
    ("identity given", {"application_properties": {"operation": "CREATE", "type": LISTENER_TYPE, "identity": "1"}}),
    ("name with control characters", {"application_properties": {"operation": "READ", "name": "a\x00\x1b\n"}}),
)


@pytest.mark.parametrize("fields", [fields for _, fields in MALFORMED], ids=[name for name, _ in MALFORMED])
def test_a_malformed_request_is_refused_and_nothing_else_disturbed(router: Daemon, fields: dict[str, Any]) -> None:
    """Issue 4; management 41."""
    with router.client() as bystander, raw_peer(router) as raw:
        try:
            reply = raw.ask(**fields)
        except LinkDetached as refused:  # more than the router takes in one piece
            if "amqp:link:message-size-exceeded" not in str(refused) or len(str(fields)) < 128 * 1024:
                raise
            assert bystander.query("router").rows
            return
        assert reply.application_properties["statusCode"] in (400, 404, 501)
        assert len(reply.application_properties["statusDescription"]) < 2000
        assert reply.body in ({}, None)
        # The same link goes on.
        assert raw.ask(application_properties={"operation": "GET-TYPES"}).application_properties["statusCode"] == 200
        assert bystander.query("router").rows


def test_bodies_that_are_no_message_get_no_answer(router: Daemon) -> None:
    """A message that cannot be parsed: no reply, an error in the log or a closed link; others are not disturbed."""
    good = encode_message(reply_to="x", application_properties={"operation": "GET-TYPES"}, body={"a": nested(5)})
    deep = b"\x00\x53\x77" + b"\xc0\x02\x01" * 1000 + b"\x40"
    bombs = (
        b"",
        b"\xff" * 100,
        good[:-3],
        deep,
        b"\x00\x53\x77\xf0\x00\x00\x00\x09\x7f\xff\xff\xff\x40",  # two thousand million nulls in nine bytes
        b"\x00\x53\x77\xd1\xff\xff\xff\xff\xff\xff\xff\xff",
    )
    with router.client() as bystander:
        for bomb in bombs:
            raw = Raw(router)
            raw.send(bomb)
            assert bystander.query("router").rows
            raw.transport._abandon()


def test_random_requests_are_answered_or_ignored(router: Daemon) -> None:
    """Issue 4: fuzzed. Mutations of good requests, and random values in the places of good ones."""
    rng = random.Random(20260401)
    words: list[Any] = ["", "QUERY", "CREATE", "READ", "UPDATE", "DELETE", "GET-LOG", "self", "log/AGENT", VHOST, LINK]
    words += [LISTENER_TYPE, "listener", None, True, 0, -1, 2**31, ulong(2**64 - 1), 1.5, b"\x00", symbol("a"), [], {}]
    words += [{"attributeNames": []}, {"attributeNames": ["name", "x"]}, ["a"], uint(3), "\ud7ff", "x" * 5000]
    keys = ["operation", "type", "entityType", "name", "identity", "offset", "count", "limit", "indent", "x"]
    statuses: dict[int, int] = {}
    began = time.monotonic()
    with router.client() as bystander, raw_peer(router) as raw:
        for number in range(2000):
            properties = {rng.choice(keys): rng.choice(words) for _ in range(rng.randrange(6))}
            if rng.random() < 0.8:
                properties["operation"] = rng.choice(words[1:7])
            if properties.get("operation") == "DELETE" and "listener" in str(properties):
                properties["operation"] = "READ"  # the branch we sit on
            body = rng.choice([*words, {str(rng.choice(words)): rng.choice(words) for _ in range(3)}])
            reply = raw.ask(correlation_id=ulong(number), application_properties=properties, body=body)
            assert reply.correlation_id == number
            status = int(reply.application_properties["statusCode"])
            statuses[status] = statuses.get(status, 0) + 1
            assert status in (200, 201, 204, 400, 403, 404, 500, 501)
            if number % 100 == 99:  # often enough for the idle timeout, also on a busy machine
                assert bystander.query("router").rows
    assert 400 in statuses
    assert time.monotonic() - began < 60


def test_mutated_bytes_disturb_nobody(router: Daemon) -> None:
    """Issue 4: every byte may be anything. A link that says nonsense may be closed; the router may not."""
    rng = random.Random(7)
    properties = {"operation": "QUERY", "entityType": LISTENER_TYPE, "count": int_(5)}
    good = encode_message(reply_to="nowhere", application_properties=properties, body={"attributeNames": ["name"]})
    with router.client() as bystander:
        raw = Raw(router)
        for _ in range(1500):
            mutated = bytearray(good)
            for _ in range(rng.randrange(1, 5)):
                match rng.randrange(3):
                    case 0:
                        mutated[rng.randrange(len(mutated))] = rng.randrange(256)
                    case 1:
                        del mutated[rng.randrange(len(mutated)) :]
                    case _:
                        at = rng.randrange(len(mutated) + 1)
                        mutated[at:at] = rng.randbytes(rng.randrange(1, 9))
                if not mutated:
                    break
            try:
                raw.send(bytes(mutated))
            except (ConnectionException, LinkDetached):
                raw.transport._abandon()
                raw = Raw(router)
        assert bystander.query("router").rows
        raw.transport._abandon()


def test_a_flood_of_questions_is_answered_within_bounds(daemon: Callable[..., Daemon]) -> None:
    """A client that asks faster than it is answered is told so; nobody else waits for it."""
    flooded = daemon(LISTENER)
    with flooded.client() as bystander:
        flood = Raw(flooded)
        properties = {"operation": "QUERY"}
        payload = encode_message(reply_to=flood.reply_to, application_properties=properties, body={})
        for _ in range(200):
            flood.send(payload)
        assert bystander.query("router").rows
        statuses = {int(flood.receive().application_properties["statusCode"]) for _ in range(64)}
        assert statuses <= {200, 500}
        flood.transport._abandon()


def test_who_has_left_may_no_more_than_before(daemon: Callable[..., Daemon]) -> None:
    """Attack: questions that take long, then the closing of another connection, then gone before it is its turn."""
    restricted = daemon(RESTRICTED)
    with restricted.client() as bystander:
        attacker = Raw(restricted)
        names = {"attributeNames": ["identity", "container"]}
        rows = attacker.ask(application_properties={"operation": "QUERY", "entityType": CONNECTION}, body=names).body
        identities = [row[0] for row in rows["results"]]
        for _ in range(50):
            attacker.send(
                encode_message(reply_to=attacker.reply_to, application_properties={"operation": "QUERY"}, body={})
            )
        for identity in identities:
            properties = {"operation": "UPDATE", "type": CONNECTION, "identity": identity}
            attacker.send(
                encode_message(
                    reply_to=attacker.reply_to, application_properties=properties, body={"adminStatus": "deleted"}
                )
            )
        attacker.transport._socket.shutdown(socket.SHUT_WR)  # what was sent arrives
        restricted.wait_for_log(r"AGENT \(error\) Error performing UPDATE of .*connection")
        assert bystander.query("router").rows
    assert not restricted.log("force-closed by request")
