"""Attack: a hostile router's reply occupies qdstat as long as its author wants: millions of tiny, deeply nested values.

A reply of 12 MB took 12 s to decode, after the deadline of 5 s had been met; a router might send 64 MB, and one page
after the other. Now the values of a reply, the values of a query, and the time of a command line are limited.
"""

import struct
import time

import pytest
from hostile_router import hostile_router, run
from loopback_router import reply_to

from router.amqp.codec import Message
from router.management import client
from router.management.client import ManagementClient, Timeout
from router.tools import transport
from router.tools.connection_options import ConnectionOptions


def of_list(elements: bytes, count: int) -> bytes:
    return b"\xd0" + struct.pack(">II", 4 + len(elements), count) + elements


def nested(depth: int) -> bytes:
    value = b"\x40"
    for _ in range(depth):
        value = of_list(value, 1)
    return value


def described(depth: int) -> bytes:
    """Descriptors of descriptors."""
    return b"\x00" * depth + b"\x40" * (depth + 1)


def with_body(request: Message, body: bytes) -> bytes:
    whole = reply_to(request, None)
    assert whole.endswith(b"\x40")
    return whole[:-1] + body


COUNT = 2_500_000
BODIES = {
    "nulls": of_list(b"\x40" * COUNT, COUNT),
    "integers": of_list(b"\x54\x01" * COUNT, COUNT),
    "empty lists": of_list(b"\x45" * COUNT, COUNT),
    "deep lists": of_list(nested(25) * (COUNT // 25), COUNT // 25),
    "deep descriptors": of_list(described(28) * (COUNT // 28), COUNT // 28),
    "an array": b"\xf0" + struct.pack(">II", 5 + COUNT, COUNT) + b"\x54" + b"\x01" * COUNT,
}


@pytest.mark.parametrize("tool", ["qdstat", "qdmanage"])
@pytest.mark.parametrize("name", BODIES)
def test_millions_of_values_are_not_decoded(name: str, tool: str) -> None:
    others = {"QUERY": lambda request: with_body(request, BODIES[name])}
    with hostile_router(others=others) as router:
        ran = run(tool, router, *(["query"] if tool == "qdmanage" else []))
    assert ran.status == 1
    assert "cannot be decoded: it holds more values than are accepted here" in ran.out


@pytest.mark.parametrize("body", [nested(3000), described(3000)])
def test_a_reply_that_is_thousands_deep_is_refused(body: bytes) -> None:
    with hostile_router(others={"QUERY": lambda request: with_body(request, body)}) as router:
        ran = run("qdstat", router)
    assert ran.status == 1
    assert "cannot be decoded: values are nested more than 32 deep" in ran.out


def test_as_many_values_as_a_full_page_has_are_read() -> None:
    rows = [[*range(60)] for _ in range(499)]
    body = {"attributeNames": [f"a{number}" for number in range(60)], "results": rows}
    with hostile_router(others={"QUERY": body}) as router:
        ran = run("qdmanage", router, "query", "--indent", "-1")
    assert ran.status == 0
    assert len(rows) * 60 < transport.MAX_REPLY_VALUES


def test_one_wide_cell_does_not_widen_every_row() -> None:
    """A container id of a megabyte, a thousand connections: a gigabyte of blanks; on a terminal hours of measuring."""
    rows = [{"identity": str(number), "container": "c", "role": "normal"} for number in range(400)]
    rows.append({"identity": "x", "container": "w" * 200_000, "role": "normal"})
    with hostile_router({"router": [{"id": "R"}], "connection": rows}) as router:
        ran = run("qdstat", router, "-c")
    assert ran.status == 0
    assert "w" * 200_000 in ran.out
    assert len(ran.out) < 2_000_000


def test_full_pages_end_by_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_QUERY_VALUES", 30_000)
    page = {"attributeNames": ["a"] * 40, "results": [[0] * 40] * client.PAGE_ROWS}
    with hostile_router(others={"QUERY": page}) as router:
        wire = transport.SocketTransport(ConnectionOptions(host="127.0.0.1", port=router.port))
        with ManagementClient(wire) as asked, pytest.raises(ValueError, match="more than 30000 values"):
            asked.query("x")
        assert len(router.requests) == 2


def test_pages_that_come_just_in_time_end_with_the_time_of_a_run() -> None:
    page = {"attributeNames": ["a"], "results": [[0]] * client.PAGE_ROWS}
    started = time.monotonic()
    with hostile_router(others={"QUERY": page}) as router:
        wire = transport.SocketTransport(ConnectionOptions(host="127.0.0.1", port=router.port, timeout_s=1.0), 1.5)
        with ManagementClient(wire) as asked, pytest.raises(Timeout, match="the answers took more than"):
            asked.query("x")
    assert time.monotonic() - started < 60
