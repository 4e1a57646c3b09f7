"""Lint rules about auto links and link routes: which ways to a broker are seen, and what is said of them."""

from typing import Final

import pytest

from policy.files.validation import load_sections
from policy.lint.rules import check_all

POLICY: Final = """
policy {
    enableVhostPolicy: yes
    defaultVhost: shop
}
"""
BROKERS: Final = """
listener {
    name: brokers
    port: 5673
    role: route-container
    authenticatePeer: no
}
"""


def vhost(**lists: str) -> str:
    items = "".join(f', "{key}": "{value}"' for key, value in lists.items())
    group = f'"apps": {{"users": "alice", "remoteHosts": "10.0.0.1"{items}}}'
    return POLICY + f"vhost {{\n    hostname: shop\n    groups: {{\n        {group}\n    }}\n}}\n"


def section(kind: str, **attributes: str) -> str:
    lines = "".join(f"    {key}: {value}\n" for key, value in attributes.items())
    place = "" if {"connection", "containerId"} & attributes.keys() else "    connection: broker\n"
    return f"{kind} {{\n{lines}{place}}}\n"


def found(text: str, rule: str) -> list[str]:
    """`level text` of the findings of a rule."""
    entities = load_sections(text, "router.conf")
    findings = check_all(entities, texts={"router.conf": text})
    return [f"{each.level.name.lower()} {each.text}" for each in findings if each.rule == rule]


@pytest.mark.parametrize(
    ("route", "is_found"),
    [
        ({"containerId": "broker"}, True),
        ({"connection": "brokers"}, True),
        ({"connection": "elsewhere"}, False),
    ],
)
def test_a_listener_that_asks_no_login_is_found_where_a_way_leads_to_its_peers(
    route: dict[str, str], is_found: bool
) -> None:
    text = BROKERS + section("linkRoute", prefix="orders", direction="in", **route)
    assert bool(found(text, "PAL130")) is is_found


def test_a_denied_queue_that_is_open_by_a_second_name_is_found() -> None:
    """The witness is in the text; that one is denied in words weighs more than that it is not listed."""
    routes = section("linkRoute", prefix="orders", direction="in")
    routes += section("linkRoute", prefix="b1", direction="in", delExternalPrefix="b1.")
    denied = found(vhost(targets="orders.*, b1.*", denyTargets="orders.paid") + routes, "PAL132")
    assert denied == [
        "warning linkRoute: 'b1.orders.paid' and 'orders.paid' are one queue, 'orders.paid' of connection 'broker': "
        "vhost 'shop' group 'apps' may send to the first and not the second"
    ]
    both = vhost(targets="orders.*, b1.*", denyTargets="orders.paid, b1.*")
    assert found(both + routes, "PAL132") == []


def test_an_auto_link_is_a_second_name_as_well() -> None:
    links = section("autoLink", address="orders", direction="in")
    links += section("autoLink", address="copy", direction="in", externalAddress="orders")
    (text,) = found(vhost(sources="copy") + links, "PAL132")
    assert text.startswith("note autoLink: 'copy' and 'orders' are one queue, 'orders' of connection 'broker': ")
    assert found(vhost(sources="copy, orders") + links, "PAL132") == []
    elsewhere = section("autoLink", address="orders", direction="in", connection="other")
    elsewhere += section("autoLink", address="copy", direction="in", externalAddress="orders")
    assert found(vhost(sources="copy") + elsewhere, "PAL132") == [], "two brokers have two queues"
    ways = section("autoLink", address="orders", direction="out")
    ways += section("autoLink", address="copy", direction="in", externalAddress="orders")
    assert found(vhost(sources="copy", targets="nothing") + ways, "PAL132") == [], "one for sending, one for receiving"


@pytest.mark.parametrize(
    ("kind", "way", "lists", "is_found"),
    [
        ("autoLink", {"address": "orders", "direction": "out"}, {"targets": "orders"}, False),
        ("autoLink", {"address": "orders", "direction": "out"}, {"sources": "orders"}, True),
        ("autoLink", {"addr": "orders", "dir": "in"}, {"sources": "orders"}, False),
        ("autoLink", {"address": "orders", "direction": "in"}, {"sourcePattern": "*"}, False),
        ("autoLink", {"address": "a.b", "direction": "in"}, {"sourcePattern": "*"}, True),
        ("linkRoute", {"prefix": "orders", "direction": "in"}, {"targets": "orders.new"}, False),
        ("linkRoute", {"prefix": "orders", "direction": "out"}, {"targets": "orders.new"}, True),
        ("linkRoute", {"prefix": "orders", "direction": "in"}, {"targets": "order"}, True),
        ("linkRoute", {"pattern": "*.in", "direction": "in"}, {"targets": "orders.*"}, False),
        ("linkRoute", {"pattern": "*.in", "direction": "in"}, {"targetPattern": "orders.*.out"}, True),
        ("linkRoute", {"prefix": "alice", "direction": "in"}, {"targets": "${user}.orders"}, False),
        ("linkRoute", {"prefix": "u", "direction": "in"}, {"targetPattern": "u.${user}"}, False),
        ("linkRoute", {"prefix": "$coordinator", "direction": "in"}, {"targets": "orders"}, False),
    ],
)
def test_a_way_that_nobody_may_use_is_found(
    kind: str, way: dict[str, str], lists: dict[str, str], is_found: bool
) -> None:
    assert bool(found(vhost(**lists) + section(kind, **way), "PAL133")) is is_found


def test_a_tenants_address_is_reached_by_its_short_name() -> None:
    tenants = "listener {\n    port: 5672\n    multiTenant: yes\n}\n"
    link = section("autoLink", address="shop/orders", direction="in")
    assert found(vhost(sources="orders") + link, "PAL133")
    assert found(vhost(sources="orders") + tenants + link, "PAL133") == []


def test_clients_of_other_routers_are_judged_there() -> None:
    link = section("autoLink", address="orders", direction="in")
    assert found(vhost(sources="parts") + link, "PAL133")
    other = "connector {\n    role: inter-router\n    host: b.example\n    port: 55672\n}\n"
    assert found(vhost(sources="parts") + link + other, "PAL133") == []


def test_without_policy_nothing_is_closed() -> None:
    assert found(section("autoLink", address="orders", direction="in"), "PAL133") == []


def test_thousands_of_ways_are_looked_at_in_time() -> None:
    """A bound: what cannot be told is told as that."""
    routes = "".join(
        section("linkRoute", prefix=f"p{number}", direction="in", addExternalPrefix=f"q{number}.")
        for number in range(2_000)
    )
    text = vhost(targets=", ".join(f"p{number}.*" for number in range(500))) + routes
    assert len(found(text, "PAL133")) in (1, 1_500)
    assert len(found(text, "PAL132")) <= 1
