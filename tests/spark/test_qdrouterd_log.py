# ruff: noqa: E501  each line of a log stands whole
"""The C router's log tells of the same denials (docs/spec/policy-and-auth.md, issue 15)."""

from typing import Any

import pytest

pytest.importorskip("jsonschema_rs")

from spark.lines import qdrouterd
from spark.lines.judge import Judged

AT = "2022-03-03 19:08:13.608655 +0100 "
WHO = "user 'eve', rhost '192.0.2.7', vhost 'acme'"
ALL: dict[str, Any] = {"user": "eve", "remote_host": "192.0.2.7", "vhost": "acme"}
FROM = "[C7] Connection from 192.0.2.7:40000 (to 0.0.0.0:5671) failed: "
SENT = {"direction": "send", "stage": "attach", **ALL}
GOT = {"direction": "receive", "stage": "attach", **ALL}

DENIALS: dict[str, dict[str, Any]] = {
    "POLICY (info) DENY Connection '192.0.2.7' based on global connection count. nConnections= 100": {
        "stage": "accept", "reason": "router_connection_limit", "remote_host": "192.0.2.7", "limit": 100,
    },
    f"POLICY (info) DENY AMQP Open for {WHO}: No policy defined for vhost": {"reason": "no_vhost", "stage": "open", **ALL},
    f"POLICY (info) DENY AMQP Open for {WHO}: User is not in a user group and unknown users are denied": {
        "reason": "unknown_user", **ALL,
    },
    f"POLICY (info) DENY AMQP Open for {WHO}: User is not allowed to connect from this network host": {
        "reason": "host_not_allowed", **ALL,
    },
    f"POLICY (info) DENY AMQP Open for {WHO}: Connection denied by application connection limit": {
        "reason": "vhost_connection_limit", **ALL,
    },
    f"POLICY (info) DENY AMQP Open for {WHO}: Connection denied by application per user limit": {
        "reason": "user_connection_limit", **ALL,
    },
    f"POLICY (info) DENY AMQP Open for {WHO}: Connection denied by application per host limit": {
        "reason": "host_connection_limit", **ALL,
    },
    f"POLICY (info) DENY AMQP Open lookup_user failed for {WHO}: Internal error: x": {"reason": "internal_error", **ALL},
    "POLICY (info) [C7] DENY AMQP Begin Session due to session limit. user: eve, rhost: 192.0.2.7, vhost: acme": {
        "reason": "session_limit", "stage": "begin", "connection": 7, **ALL,
    },
    f"POLICY (info) [C7] DENY AMQP Attach sender for {WHO} based on maxSenders limit": {"reason": "sender_limit", **SENT},
    f"POLICY (info) [C7] DENY AMQP Attach sender link 'a.b' for {WHO}.  Waypoint capability not permitted": {
        "reason": "waypoint_capability", "address": "a.b", **SENT,
    },
    f"POLICY (info) [C7] DENY AMQP Attach sender link 'a.b' for {WHO}.  Fallback capability not permitted": {
        "reason": "fallback_capability", "address": "a.b", **SENT,
    },
    f"POLICY (info) [C7] DENY AMQP Attach sender link 'it's' for {WHO} based on link target name": {
        "reason": "target_not_allowed", "address": "it's", "connection": 7, **SENT,
    },
    f"POLICY (info) [C7] DENY AMQP Attach anonymous sender for {WHO}": {"reason": "anonymous_sender", **SENT},
    f"POLICY (info) [C7] DENY AMQP Attach receiver for {WHO} based on maxReceivers limit": {"reason": "receiver_limit", **GOT},
    f"POLICY (info) [C7] DENY AMQP Attach receiver dynamic source for {WHO},": {"reason": "dynamic_source", **GOT},
    f"POLICY (info) [C7] DENY AMQP Attach receiver link 'a.b' for {WHO} based on link source name": {
        "reason": "source_not_allowed", "address": "a.b", **GOT,
    },
    f"POLICY (info) [C7] DENY AMQP Attach receiver link '' for {WHO}": {"reason": "no_source_address", **GOT},
    "POLICY (info) [C7] DENY AMQP Attach receiver link '' for user '(null)', rhost '::1', vhost '(null)'": {
        "reason": "no_source_address", "user": None, "vhost": None, "remote_host": "::1",
    },
    f"POLICY (info) [C7] DENY AMQP message to 'x' for {WHO} based on target address": {
        "reason": "message_target_not_allowed", "stage": "transfer", "address": "x",
    },
    "POLICY (warning) [C7][L9] DENY AMQP Transfer maxMessageSize exceeded": {"reason": "message_too_large", "connection": 7},
    "POLICY (warning) [C7][L9] DENY AMQP Transfer maxMessageSize exceeded (/src/router_node.c:99)": {
        "reason": "message_too_large",
    },
    f"SERVER (info) {FROM}amqp:unauthorized-access SASL(-13): authentication failure: Password verification failed "
    "(Failed to authenticate client [mech=PLAIN])": {
        "reason": "sasl_failed", "stage": "sasl", "mechanism": "PLAIN", "remote_host": "192.0.2.7",
        "listener": "0.0.0.0:5671", "connection_name": "192.0.2.7:40000", "condition": "amqp:unauthorized-access",
    },
    f"SERVER (info) {FROM}amqp:unauthorized-access Client mechanism not in mechanism inclusion list. (Failed to "
    "authenticate client [mech=CRAM-MD5])": {"reason": "sasl_mechanism", "mechanism": "CRAM-MD5"},
    f"SERVER (info) {FROM}amqp:connection:policy-error Client skipped authentication - forbidden": {
        "reason": "authentication_required", "stage": "header",
    },
    f"SERVER (info) {FROM}amqp:connection:policy-error Client connection unencrypted - forbidden": {
        "reason": "encryption_required",
    },
    f"SERVER (info) {FROM}amqp:connection:framing-error SSL Failure: error:0A000086:SSL routines::x": {
        "reason": "tls_handshake_failed", "stage": "tls",
    },
}  # fmt: skip


def judged(*lines: str) -> Judged:
    return qdrouterd.judge([line.encode() for line in lines], "QDR.A", "router.log", range(len(lines)))


@pytest.mark.parametrize("text", DENIALS)
def test_a_denial_is_an_event(text: str) -> None:
    found = judged(AT + text)
    assert found.faults == {}
    event = found.events.to_pylist()[0]
    said = DENIALS[text]
    assert {name: event[name] for name in said} == said
    assert (event["decision"], event["router"], event["sequence"]) == ("deny", "QDR.A", None)
    assert event["time"].isoformat() == "2022-03-03T18:08:13.608655+00:00"


@pytest.mark.parametrize(
    "text",
    [
        "SERVER (notice) Operational, 4 Threads Running (process ID 2190110)",
        f"POLICY (trace) ALLOW AMQP Open for {WHO}: x",
        "ROUTER (info) DENY AMQP Open",
        "SERVER (info) [C7] Accepted connection to 0.0.0.0:5672 from 192.0.2.7:1",
        # What follows a refusal at accept, which is counted already, and what anybody's port scan leaves.
        f"SERVER (info) {FROM}amqp:connection:framing-error No protocol header found (connection aborted)",
        '  File "x.py", line 3, in DENY',
        "",
    ],
)
def test_other_lines_are_passed_over(text: str) -> None:
    found = judged(AT + text, text)
    assert (found.faults, found.events.num_rows) == ({}, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"POLICY (info) DENY AMQP Open for {WHO}: No policy defined for vhost", "no time"),
        (
            AT.replace("-03-03", "-02-30") + f"POLICY (info) DENY AMQP Open for {WHO}: No policy defined for vhost",
            "no such",
        ),
        (f"{AT}POLICY (info) [C7] DENY AMQP something new", "not known"),
        # The user is `x', rhost '10.0.0.1', vhost 'y`: whose address it is, is not certain.
        (
            f"{AT}POLICY (info) DENY AMQP Open for user 'x', rhost '10.0.0.1', vhost 'y', rhost '192.0.2.7', vhost 'acme': "
            "No policy defined for vhost",
            "two ways",
        ),
    ],
)
def test_a_denial_that_is_not_certain_is_in_quarantine(text: str, why: str) -> None:
    found = judged(text)
    assert why in found.faults[0]
    assert found.events.num_rows == 0


def test_the_same_place_has_the_same_id_and_another_place_another() -> None:
    text = f"{AT}POLICY (info) DENY AMQP Open for {WHO}: No policy defined for vhost"
    ids = judged(text, text).events.column("event_id").to_pylist()
    assert ids[0] != ids[1]
    assert judged(text, text).events.column("event_id").to_pylist() == ids
