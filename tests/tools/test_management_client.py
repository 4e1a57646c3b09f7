"""The management client: requests as it sends them, answers as it takes them."""

from collections.abc import Callable
from typing import Any

import pytest
from fake_management import PREFIX, FakeTransport

from router.management import client as client_module
from router.management.client import ManagementClient, ManagementError
from router.values import int_


def rows(count: int) -> list[dict[str, Any]]:
    return [{"name": f"n{index}", "type": "t"} for index in range(count)]


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1000, 10_000])
def test_a_query_fetches_all_rows_in_pages_of_500(count: int) -> None:
    """management 46"""
    transport = FakeTransport({"router.link": rows(count)})
    found = ManagementClient(transport).query(PREFIX + "router.link")
    assert [row[0] for row in found.rows] == [f"n{index}" for index in range(count)]
    assert len(transport.requests) == count // 500 + 1
    assert all(request[1]["count"] == 500 for request in transport.requests)


@pytest.mark.parametrize(("limit", "given"), [(1, 1), (500, 500), (700, 700), (2000, 1200)])
def test_a_limited_query_gives_exactly_so_many_rows(limit: int, given: int) -> None:
    """management 77"""
    transport = FakeTransport({"router.link": rows(1200)})
    assert len(ManagementClient(transport).query(PREFIX + "router.link", count=limit).rows) == given


def test_equal_pages_are_not_taken_for_the_end() -> None:
    transport = FakeTransport({"router.link": rows(1200)})
    assert len(ManagementClient(transport).query(PREFIX + "router.link", ["type"]).rows) == 1200


def test_a_query_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a router that fills every page."""
    monkeypatch.setattr(client_module, "MAX_QUERY_ROWS", 2000)
    transport = FakeTransport()
    transport.query = lambda properties, body: {"attributeNames": ["a"], "results": [[1]] * properties["count"]}  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="more than 2000 rows"):
        ManagementClient(transport).query("t")


def test_what_a_query_sends() -> None:
    transport = FakeTransport()
    ManagementClient(transport).query("t", ["a", "b"], offset=3, count=7)
    assert transport.requests == [
        (
            "$management",
            {
                "operation": "QUERY",
                "type": "org.amqp.management",
                "name": "self",
                "entityType": "t",
                "offset": 3,
                "count": 7,
            },
            {"attributeNames": ["a", "b"]},
        )
    ]
    assert type(transport.requests[0][1]["offset"]) is int_


def test_identity_wins_over_name_and_absent_selectors_are_left_out() -> None:
    transport = FakeTransport(answers={"READ": {"a": 1}})
    ManagementClient(transport).read(type="t", name="n", identity="i")
    ManagementClient(transport).read(name="n")
    assert transport.requests[0][1] == {"operation": "READ", "type": "t", "identity": "i"}
    assert transport.requests[1][1] == {"operation": "READ", "name": "n"}


def test_properties_cannot_replace_the_operation() -> None:
    transport = FakeTransport(answers={"CALLME": {}})
    ManagementClient(transport).call("CALLME", type="t", properties={"operation": "DELETE", "x": 1})
    assert transport.requests[0][1] == {"operation": "CALLME", "type": "t", "x": 1}


def test_create_takes_type_and_name_from_the_attributes() -> None:
    transport = FakeTransport(answers={"CREATE": lambda properties, body: (201, "Created", {**body, "identity": "7"})})
    created = ManagementClient(transport).create({"type": "t", "name": "n", "a": 1})
    assert created == {"type": "t", "name": "n", "a": 1, "identity": "7"}
    assert transport.requests[0][1] == {"operation": "CREATE", "type": "t", "name": "n"}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "BadRequestStatus"),
        (401, "UnauthorizedStatus"),
        (403, "ForbiddenStatus"),
        (404, "NotFoundStatus"),
        (500, "InternalServerErrorStatus"),
        (501, "NotImplementedStatus"),
        (418, "ManagementError"),
    ],
)
def test_a_failure_is_the_error_of_its_status_with_the_routers_text(status: int, name: str) -> None:
    transport = FakeTransport(answers={"DELETE": lambda properties, body: (status, "No entity with name=x", None)})
    with pytest.raises(ManagementError, match=r"^No entity with name=x$") as caught:
        ManagementClient(transport).delete(name="x")
    assert type(caught.value).__name__ == name


def test_another_success_than_the_expected_one_is_reported() -> None:
    transport = FakeTransport(answers={"DELETE": lambda properties, body: (200, "fine", None)})
    with pytest.raises(ValueError, match=r"^Response was 200\(OK\) but expected 204\(No Content\): fine$"):
        ManagementClient(transport).delete(name="x")


@pytest.mark.parametrize(
    ("operation", "body"),
    [("query", {}), ("query", {"attributeNames": [], "results": [1]}), ("query", None), ("read", []), ("nodes", {})],
)
def test_answers_that_make_no_sense_are_errors(operation: str, body: Any) -> None:
    transport = FakeTransport(answers={"READ": body, "GET-MGMT-NODES": body})
    transport.query = lambda *_: body  # type: ignore[method-assign]
    client = ManagementClient(transport)
    calls: dict[str, Callable[[], object]] = {
        "query": client.query,
        "read": lambda: client.read(name="x"),
        "nodes": client.management_nodes,
    }
    with pytest.raises(ValueError, match="the router's answer"):
        calls[operation]()


def test_an_answer_without_a_status_is_an_error() -> None:
    transport = FakeTransport(answers={"READ": lambda properties, body: (None, None, {})})
    with pytest.raises(ValueError, match="statusCode"):
        ManagementClient(transport).read(name="x")


def test_a_client_of_another_router_uses_the_same_connection_and_the_block_closes_it() -> None:
    transport = FakeTransport(answers={"READ": {}})
    with ManagementClient(transport) as client:
        client.at("_topo/0/B/$management").read(name="x")
    assert transport.requests[0][0] == "_topo/0/B/$management"
    assert transport.is_closed
