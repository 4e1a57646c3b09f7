"""A running router and a policy that is wrong, or that stretches what may be written; messages to a blank address."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, audit_events, start
from proton import Delivery
from proton.utils import BlockingConnection

from router.management.client import ManagementError

GROUP = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True}
LARGEST = {
    "maxFrameSize": 2**32 - 1,
    **dict.fromkeys(("maxMessageSize", "maxSessionWindow", "maxSessions", "maxSenders", "maxReceivers"), 2**63 - 1),
    **dict.fromkeys(("maxMessageRate", "maxByteRate"), 2**63 - 1),
}
# A message whose properties have `to` "", and one whose properties have none.
BLANK_TO = b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa1\x00" + b"\x00\x53\x75\xa0\x01x"
NO_TO = b"\x00\x53\x73\xc0\x04\x03\x40\x40\x40" + b"\x00\x53\x75\xa0\x01x"


def configuration(folder: Path, **group: object) -> str:
    """A router whose vhost, in a policyDir, has this group for everybody."""
    vhost = {"hostname": "$default", "allowUnknownUser": True, "groups": {"$default": {**GROUP, **group}}}
    (folder / "rules").mkdir()
    (folder / "rules" / "p.json").write_text(json.dumps([["vhost", vhost]], indent=1))
    audit = f"router {{\n auditDir: {folder}/audit\n}}\n"
    return f"{audit}policy {{\n enableVhostPolicy: yes\n policyDir: {folder}/rules\n}}\n{LISTENER}"


def connected(router: Daemon) -> BlockingConnection:
    return BlockingConnection(f"127.0.0.1:{router.port()}", timeout=10, allowed_mechs="ANONYMOUS")


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (
            {"maxFrameSize": 2**32},
            "option 'maxFrameSize' has error 'Value '4294967296' is above maximum '4294967295'.'",
        ),
        ({"maxSenders": 2**63}, f"option 'maxSenders' has error 'Value '{2**63}' is above maximum '{2**63 - 1}'.'"),
        ({"allowUserIdProxy": None}, "option 'allowUserIdProxy' is null: give it a value, or leave it out."),
    ],
)
def test_a_policy_out_of_range_stops_the_start_with_its_place(
    group: dict[str, object], text: str, tmp_path: Path
) -> None:
    router = start(tmp_path, configuration(tmp_path, **group))
    assert router.wait() == 1
    lines = (tmp_path / "rules" / "p.json").read_text().splitlines()
    line = next(number for number, each in enumerate(lines, 1) if next(iter(group)) in each)
    router.wait_for_log(r"Router start-up failed: .*")
    (failed,) = router.log(r"MAIN \(critical\) Router start-up failed")
    assert text in failed
    assert f"p.json:{line}" in "\n".join(router.log())


@pytest.mark.parametrize("key", sorted(LARGEST))
def test_the_largest_numbers_open_a_connection_that_works(
    key: str, daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """`maxFrameSize` of 2^32 broke every Open of its group."""
    router = daemon(configuration(tmp_path, **{key: LARGEST[key]}))
    connection = connected(router)
    receiver = connection.create_receiver("q", credit=10)
    sender = connection.create_sender("q")
    delivery = sender.link.delivery("1")
    sender.link.stream(NO_TO + b"")
    sender.link.advance()
    receiver.receive(timeout=10)
    receiver.accept()
    connection.wait(lambda: delivery.remote_state == Delivery.ACCEPTED, timeout=10)
    shown = router.tool("qdmanage", "query", "--type=vhost")
    assert str(LARGEST[key]) in shown.out
    connection.close()


def is_rejected(delivery: Delivery) -> bool:
    return bool(delivery.remote_state == Delivery.REJECTED)


def test_a_message_to_a_blank_address_is_denied_by_policy(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(configuration(tmp_path))
    connection = connected(router)
    sender = connection.create_sender(None)
    told = {}
    for name, payload in (("blank", BLANK_TO), ("none", NO_TO)):
        delivery = sender.link.delivery(name)
        sender.link.stream(payload)
        sender.link.advance()
        connection.wait(partial(is_rejected, delivery), timeout=10)
        condition = delivery.remote.condition
        assert condition is not None
        told[name] = (condition.name, condition.description)
    assert told == {
        "blank": ("amqp:unauthorized-access", "policy violation on target"),
        "none": ("amqp:precondition-failed", "Routing failure: no address present"),
    }
    rule = r"\[message_target_not_allowed: targets of group '\$default' of vhost '\$default', .*p\.json:\d+\]"
    router.wait_for_log(rf"DENY AMQP message to '' for user 'anonymous', .* based on target address {rule}")
    connection.close()
    router.end()
    denied: list[dict[str, Any]] = [each for each in audit_events(tmp_path / "audit") if each["stage"] == "transfer"]
    assert [(each["reason"], each["address"]) for each in denied] == [("message_target_not_allowed", "")]


def test_a_null_in_groups_is_refused_over_management(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    router = daemon(configuration(tmp_path))
    groups = {"g": {"users": "bob", "remoteHosts": "*", "maxSenders": None}}
    with router.client() as client, pytest.raises(ManagementError, match="option 'maxSenders' is null"):
        client.create({"type": "vhost", "hostname": "h", "groups": groups})
