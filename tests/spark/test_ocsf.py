"""The OCSF export keeps OCSF's own schema: what a class requires, its enums and types, nothing else (issue 15)."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from literal_events import FOLDED, change_line, frame, line

pytest.importorskip("pyspark")
pytest.importorskip("jsonschema_rs")

import jsonschema_rs

from spark.transforms.ocsf import IP, ocsf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = Path(__file__).with_name("ocsf_1_3_0.json")
STAGES = {
    "accept": 4001, "header": 4001, "tls": 4001, "engine": 4001, "sasl": 3002, "open": 3002, "begin": 3003,
    "attach": 3003, "transfer": 3003, "management": 6003, "policy": 6003,
}  # fmt: skip
INT32 = 2**31 - 1
NOTHING: dict[str, Any] = dict.fromkeys(
    [
        *("connection", "connection_name", "listener", "rule", "user", "mechanism", "remote_host", "requested_vhost"),
        *("vhost", "group", "direction", "address", "link_name", "ruleset_digest", "condition"),
    ]
)
WRITTEN: dict[str, dict[str, Any]] = {
    "whole": {},
    "nothing is known": NOTHING,
    "empty texts": {"user": "", "vhost": "", "requested_vhost": "", "group": "", "detail": "", "groups": '["", null]'},
    "groups": {"groups": '["a", "staff", "a"]', "granted": '{"send": ["x"]}', "detail": "no"},
    "not JSON": {"groups": "[", "granted": "}"},
    "flood": {"attempts": 2**62, "folded": FOLDED, "address": None, "sequence": 2**62, "schema_version": 6},
    "no calendar": {"attempts": 2, "folded": {**FOLDED, "first": "9999-99-99T99:99:99.999999Z", "last": None}},
    "no address": {"remote_host": "999.1.1.1", "connection_name": "x:99999", "listener": "x:65536"},
    "IPv6": {"remote_host": "fe80::1%eth0", "connection_name": "[fe80::1]:1", "listener": "[::]:5671"},
    "Kerberos": {"mechanism": "GSSAPI"},
    "token": {"mechanism": "XOAUTH2", "is_encrypted": False},
    "markup": {"user": "<script>\u2028\x00", "detail": '"}\n{"', "vhost": "=1", "group": "\ud7ff\U0010ffff"},
}


def test_every_event_keeps_the_schema_of_its_class(session: "SparkSession") -> None:
    lines, expected = [], {}
    for stage, class_uid in STAGES.items():
        for decision in ("deny", "allow"):
            for name, members in WRITTEN.items():
                uid = f"{stage} {decision} {name}"
                lines.append(line(**{"stage": stage, "decision": decision, "event_id": uid, **members}))
                expected[uid] = class_uid
    for operation in ("CREATE", "UPDATE", "DELETE", "PURGE", ""):
        nameless = {"operation": operation, "entity_name": None, "entity_identity": "", "entity_type": None}
        for kind, management in (("named", {"operation": operation}), ("nameless", nameless)):
            uid = f"{operation} {kind}"
            lines.append(change_line(event_id=uid, management=management, user=None, remote_host=None))
            expected[uid] = 6003
    found = _exported(session, *lines)
    assert {uid: event["class_uid"] for uid, event in found.items()} == expected
    wrong = {uid: faults for uid, event in found.items() if (faults := _faults(event))}
    assert not wrong


def test_what_the_schema_was_broken_in_is_mended(session: "SparkSession") -> None:
    found = _exported(
        session,
        line(event_id="nobody", stage="sasl", user=None, group=None),
        line(event_id="claims it", stage="sasl", user="Unknown"),
        line(event_id="link"),
        line(event_id="no group", stage="begin", group=None, direction=None),
        change_line(event_id="change", user="anna"),
        change_line(event_id="odd change", management={"operation": "PURGE"}),
        line(event_id="reload", stage="policy", decision="allow", reason="allowed", user=None, remote_host=None),
        line(event_id="peer", stage="tls", reason="not_tls"),
    )
    # A user is required; who calls himself so is told from nobody.
    assert found["nobody"]["user"] == {"name": "Unknown", "type_id": 0}
    assert found["claims it"]["user"]["type_id"] == 1
    # Nothing was assigned, and one of privileges and group is required.
    assert (found["link"]["activity_id"], found["link"]["activity_name"]) == (99, "attach")
    assert found["link"]["privileges"] == ["attach:send"]
    assert found["link"]["user"]["groups"] == [{"name": "staff"}]
    assert found["no group"]["privileges"] == ["begin"]
    # Who, what and from where.
    assert found["change"]["actor"]["user"]["name"] == "anna"
    assert found["change"]["api"] == {"operation": "CREATE", "response": {"code": 201}}
    assert found["change"]["type_uid"] == 600301
    assert found["change"]["resources"] == [
        {"name": "b", "uid": "ban/b", "type": "org.apache.qpid.dispatch.ban"},
    ]
    assert (found["odd change"]["activity_id"], found["odd change"]["activity_name"]) == (99, "PURGE")
    assert found["reload"]["actor"] == {"app_name": "Palisade Router"}
    assert found["reload"]["src_endpoint"] == {"name": "R1"}
    # Network Activity knows no user.
    assert not {"user", "auth_protocol", "actor"} & set(found["peer"])
    assert found["peer"]["unmapped"]["user"] == "eve"
    assert found["peer"]["connection_info"] == {"uid": "3", "direction_id": 1}
    assert (found["nobody"]["auth_protocol"], found["nobody"]["auth_protocol_id"]) == ("PLAIN", 99)


def test_attack_a_number_or_an_address_that_ocsf_cannot_hold_is_not_written_there(session: "SparkSession") -> None:
    found = _exported(
        session,
        line(event_id="many", attempts=2**63 - 1, sequence=2**63 - 1),
        line(event_id="port", connection_name="x:99999", remote_host="1.2.3.999"),
        line(event_id="zone", remote_host="fe80::1%eth0"),
    )
    assert found["many"]["count"] == INT32
    assert found["many"]["unmapped"]["attempts"] == 2**63 - 1
    assert "sequence" not in found["many"]["metadata"]
    assert found["port"]["src_endpoint"] == {"name": "1.2.3.999"}
    assert found["zone"]["src_endpoint"]["ip"] == "fe80::1"


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0", "255.249.199.9", "::", "::1", "1::", "2001:db8::7", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1::8"],
)
def test_an_address_is_taken_for_one(text: str) -> None:
    assert re.search(IP.replace(r"\z", r"\Z"), text)
    assert re.search(_schema()["$defs"]["network_endpoint"]["properties"]["ip"]["pattern"], text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "...",
            "1.2.3",
            "1.2.3.256",
            "01.2.3.4",
            "1.2.3.4.5",
            "1.2.3.4\n",
            "::ffff:1.2.3",
            ":",
            ":1",
            "1:",
            ":::",
        ),
        *("1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:8::", "1::2::3", "12345::", ":1::2", "1::2:"),
    ],
)
def test_what_is_no_address_is_taken_for_none(text: str) -> None:
    assert not re.search(IP.replace(r"\z", r"\Z"), text)


def test_the_judge_of_these_tests_finds_what_is_wrong(session: "SparkSession") -> None:
    event = _exported(session, line(stage="sasl"))["0" * 32]
    assert not _faults(event)
    assert _faults({name: value for name, value in event.items() if name != "user"})
    assert _faults({**event, "actor": {"app": "x"}})
    assert _faults({**event, "severity_id": 7})
    assert _faults({**event, "time": "now"})
    assert _faults({**event, "policy": {"name": "x"}})
    assert _faults({**event, "count": 2**31})
    assert _faults({**event, "type_uid": 300202})
    assert _faults({**event, "user": {"type_id": 1}})


def _exported(session: "SparkSession", *lines: str) -> dict[str, dict[str, Any]]:
    rows = ocsf(frame(session, *lines)).collect()
    return {row.event_id: json.loads(row.value) for row in rows}


def _faults(event: Mapping[str, Any]) -> list[str]:
    """What OCSF's schema says of an event, and what its documents say beside it."""
    found = [fault.message for fault in _judge(event["class_uid"]).iter_errors(event)]
    if event["type_uid"] != event["class_uid"] * 100 + event["activity_id"]:
        found.append("type_uid is not that of the class and the activity")
    if event["activity_id"] == 99 and not event.get("activity_name"):
        found.append("Other has no activity_name")
    # Of unmapped, whose members are ours, they do not speak; a time is a long.
    held = {name: value for name, value in event.items() if name not in ("unmapped", "time", "start_time", "end_time")}
    found += [f"{number} has more than 32 bits" for number in _numbers(held) if abs(number) > INT32]
    return found


def _numbers(value: Any) -> Iterable[int]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)
    elif isinstance(value, int):
        yield value


@cache
def _judge(class_uid: int) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**_schema()["classes"][str(class_uid)], "$defs": _schema()["$defs"]})


@cache
def _schema() -> Any:
    return json.loads(SCHEMA.read_text("utf-8"))
