"""Each kind of denial as it is recorded: the stage, the error, the counter, the lines word for word and the facts."""

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from memory_net import at

from auth.identity import Grants, Identity
from policy.addressing.address import Unclear
from policy.decide import ConnectionDecision
from policy.decision import Decision, Reason, Rule
from policy.facts import LinkFacts, MessageFacts, Usage
from policy.usage import UsageLedger
from router.admission import refusals
from router.admission.denials import (
    Denied,
    Recorder,
    accept_denied,
    budget_denied,
    connector_denied,
    in_process_link_denied,
    in_process_message_denied,
    line,
    link_denied,
    link_members,
    malformed_message_denied,
    message_members,
    message_stalled,
    open_denied,
    receiver_stalled,
    session_denied,
    size_denied,
    target_denied,
    unclear_link_denied,
    unclear_message_denied,
    user_id_denied,
)
from router.admission.party import Party
from router.effects import Audit, Effect, Log

RULE = Rule(vhost="v", group="g", item="i", file="f.json", line=3)
RULE_TEXT = ": i of group 'g' of vhost 'v', f.json:3]"
WHOM = "for user 'eve', rhost '192.0.2.1', vhost 'asked'"


def because(reason: Reason, **more: Any) -> Decision:
    return Decision(is_allowed=False, reason=reason, rule=RULE, **more)


def peer(*, user: str | None = "eve", hostname: str | None = "asked", is_governed: bool = True) -> Party:
    made = Party(connection_id=7, connection_name="192.0.2.1:9", remote_host="192.0.2.1", listener="l:1")
    made.identity = Identity(user=user)
    made.hostname = hostname
    made.requested_vhost = "requested"
    if is_governed:
        limits: Any = SimpleNamespace(max_sessions=3, max_senders=4, max_receivers=5)
        made.settings = limits
    return made


def debug(text: str, link: int = 9) -> Log:
    return Log(module="ROUTER", level="debug", text=f"[C7][L{link}] Message {text} User:eve")


def test_a_connection_beyond_the_limit() -> None:
    assert accept_denied(because(Reason.ROUTER_CONNECTION_LIMIT), "192.0.2.1", 10, 11) == Denied(
        stage="accept",
        decision=because(Reason.ROUTER_CONNECTION_LIMIT),
        refusal=refusals.CONNECTION_REFUSED,
        counter="accept",
        lines=(
            line(
                "info",
                "DENY Connection '192.0.2.1' based on global connection count. nConnections= 10"
                f" [{Reason.ROUTER_CONNECTION_LIMIT}{RULE_TEXT}",
            ),
        ),
        request={"usage": {"open_connections": 10}, "limit": 11},
        is_silent=True,
    )


@pytest.mark.parametrize("vhost", ["chosen", None])
@pytest.mark.parametrize("user", ["eve", None])
def test_an_open(vhost: str | None, user: str | None) -> None:
    decision = because(Reason.VHOST_CONNECTION_LIMIT, also=(Reason.USER_CONNECTION_LIMIT, Reason.UNCLEAR_ADDRESS))
    judged = ConnectionDecision(decision=decision, vhost=vhost)
    whom = f"for user '{user or ''}', rhost '192.0.2.1', vhost '{vhost or 'requested'}'"
    usage = Usage(total=1, of_user=2, of_host=3)
    denied = open_denied(peer(user=user), judged, usage, 5.0, "policy_change")
    assert denied == Denied(
        stage="open",
        decision=decision,
        refusal=refusals.CONNECTION_REFUSED,
        counter="open",
        lines=(
            line(
                "info",
                f"DENY AMQP Open {whom}: Connection denied by application connection limit"
                f" [{Reason.VHOST_CONNECTION_LIMIT}{RULE_TEXT}",
            ),
            line("info", f"DENY AMQP Open {whom}: Connection denied by application per user limit"),
        ),
        request={"usage": {"total": 1, "of_user": 2, "of_host": 3}, "redecision": "policy_change"},
        time_s=5.0,
    )


def test_an_open_that_could_not_be_judged() -> None:
    judged = ConnectionDecision(decision=because(Reason.INTERNAL_ERROR), vhost="v")
    denied = open_denied(peer(), judged, Usage(), 5.0)
    text = (
        "DENY AMQP Open lookup_user failed for user 'eve', rhost '192.0.2.1', vhost 'v': "
        f"Internal error: the connection's facts could not be judged [{Reason.INTERNAL_ERROR}{RULE_TEXT}"
    )
    assert (denied.lines, denied.counter, denied.request["redecision"]) == ((line("info", text),), None, None)


@pytest.mark.parametrize(
    ("reason", "begins"), [(Reason.GROUP_NOT_VALID, "No valid"), (Reason.NO_VHOST, "Failed to find")]
)
def test_an_outgoing_connection(reason: Reason, begins: str) -> None:
    denied = connector_denied(peer(), ConnectionDecision(decision=because(reason)), 5.0, "policy_change")
    what = "policyVhost settings for connection '7', policyVhost: 'requested'"
    assert denied == Denied(
        stage="open",
        decision=because(reason),
        refusal=refusals.CONNECTION_REFUSED,
        lines=(line("error", f"[C7] {begins} {what} [{reason}{RULE_TEXT}"),),
        request={"redecision": "policy_change"},
        time_s=5.0,
    )


@pytest.mark.parametrize("is_governed", [True, False])
def test_a_session(is_governed: bool) -> None:
    decision = because(Reason.SESSION_LIMIT)
    who = peer(user=None, hostname=None, is_governed=is_governed)
    text = "DENY AMQP Begin Session due to session limit. user: (null), rhost: 192.0.2.1, vhost: (null)"
    assert session_denied(who, decision, 2, "policy_change") == Denied(
        stage="begin",
        decision=decision,
        refusal=refusals.SESSION_REFUSED,
        counter="session",
        lines=(line("info", f"[C7] {text} [{Reason.SESSION_LIMIT}{RULE_TEXT}"),),
        request={
            "usage": {"open_sessions": 2},
            "limit": 3 if is_governed else None,
            "redecision": "policy_change",
        },
    )


@pytest.mark.parametrize(
    ("direction", "reason", "text", "limit"),
    [
        ("send", Reason.SENDER_LIMIT, f"AMQP Attach sender {WHOM} based on maxSenders limit", 4),
        ("receive", Reason.RECEIVER_LIMIT, f"AMQP Attach receiver {WHOM} based on maxReceivers limit", 5),
        ("send", Reason.TARGET_NOT_ALLOWED, f"AMQP Attach sender link 'a' {WHOM} based on link target name", None),
    ],
)
@pytest.mark.parametrize("is_governed", [True, False])
def test_a_link(direction: Any, reason: Reason, text: str, limit: int | None, is_governed: bool) -> None:
    facts = LinkFacts(direction=direction, address=at("a"), open_links=6)
    is_limit = reason is not Reason.TARGET_NOT_ALLOWED
    assert link_denied(peer(is_governed=is_governed), because(reason), facts, "l", "policy_change") == Denied(
        stage="attach",
        decision=because(reason),
        refusal=refusals.LINK_LIMIT if is_limit else refusals.LINK_REFUSED,
        counter=direction if is_governed else None,
        lines=(line("info", f"[C7] DENY {text} [{reason}{RULE_TEXT}"),),
        request={
            "direction": direction, "address": "a", "link_name": "l", "usage": {"open_links": 6},
            "limit": limit if is_governed else None, "redecision": "policy_change",
        },
        address=at("a"),
    )  # fmt: skip


PLAIN = {"is_dynamic": False, "is_coordinator": False, "capabilities": None, "dynamic_address": None,
         "reply_age_ms": None}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, None),
        ({"is_dynamic": True}, {"is_dynamic": True}),
        ({"is_coordinator": True}, {"is_coordinator": True}),
        ({"capabilities": ("queue", "x")}, {"capabilities": '["queue", "x"]'}),
        ({"dynamic_address": "other"}, {"dynamic_address": "other"}),
        ({"reply_age_s": 1.5}, {"reply_age_ms": 1500}),
    ],
)
def test_what_is_asked_of_a_link_or_a_message_is_on_record(more: dict[str, Any], asked: dict[str, Any] | None) -> None:
    members = link_members(LinkFacts(direction="receive", address=None, **more), "l")
    said = {"asked": {**PLAIN, **asked}} if asked is not None else {}
    assert members == {
        "direction": "receive", "address": None, "link_name": "l", "usage": {"open_links": 0}, **said,
    }  # fmt: skip
    if more.keys() <= {"dynamic_address", "reply_age_s"}:
        members = message_members(MessageFacts(target=at("a"), **more))
        assert members == {"direction": "send", "address": "a", **said}
        assert message_members(MessageFacts(is_blank_target=True, **more)) == {
            "direction": "send", "address": "", **said,
        }  # fmt: skip


@pytest.mark.parametrize("is_governed", [True, False])
def test_an_address_that_names_no_one_thing(is_governed: bool) -> None:
    who, address = peer(is_governed=is_governed), Unclear(written="a", why="so")
    decision = Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS)
    reason = f": so [{Reason.UNCLEAR_ADDRESS}]"
    assert unclear_link_denied(who, address, "send", "l") == Denied(
        stage="attach",
        decision=decision,
        refusal=refusals.ADDRESS_REFUSED,
        counter="send" if is_governed else None,
        lines=(line("info", f"[C7] DENY AMQP Attach address 'a' {WHOM}{reason}"),),
        request={"direction": "send", "address": "a", "link_name": "l", "detail": "so"},
    )
    assert unclear_message_denied(who, address, 9) == Denied(
        stage="transfer",
        decision=decision,
        refusal=refusals.ADDRESS_REFUSED,
        lines=(line("info", f"[C7][L9] DENY AMQP message address 'a' {WHOM}{reason}"),),
        request={"direction": "send", "address": "a", "detail": "so"},
    )


def test_an_address_inside_the_router() -> None:
    """The peer of a connector that may not manage this router."""
    decision = Decision(
        is_allowed=False, reason=Reason.IN_PROCESS_ADDRESS, rule=Rule(item="connector l:1, allowManagement")
    )
    why = "an address inside the router: connector l:1 lacks allowManagement"
    end = f", {why} [{Reason.IN_PROCESS_ADDRESS}: connector l:1, allowManagement]"
    assert in_process_link_denied(peer(), "receive", "$management", "l") == Denied(
        stage="attach",
        decision=decision,
        refusal=refusals.LINK_REFUSED,
        counter="receive",
        lines=(line("info", f"[C7] DENY AMQP Attach of a receive link with '$management'{end}"),),
        request={"direction": "receive", "address": "$management", "link_name": "l", "detail": why},
    )
    assert in_process_message_denied(peer(), "$management") == Denied(
        stage="transfer",
        decision=decision,
        refusal=refusals.TARGET_REFUSED,
        lines=(line("info", f"[C7] DENY AMQP message to '$management'{end}"),),
        request={"direction": "send", "address": "$management", "detail": why},
    )


@pytest.mark.parametrize("text", ["b", ""])
def test_a_message_to_where_it_may_not_go(text: str) -> None:
    facts = MessageFacts(target=at(text) if text else None, is_blank_target=not text)
    decision = because(Reason.MESSAGE_TARGET_NOT_ALLOWED)
    assert target_denied(peer(), decision, facts, 9) == Denied(
        stage="transfer",
        decision=decision,
        refusal=refusals.TARGET_REFUSED,
        lines=(
            line(
                "info",
                f"[C7] DENY AMQP message to '{text}' {WHOM} based on target address"
                f" [{Reason.MESSAGE_TARGET_NOT_ALLOWED}{RULE_TEXT}",
            ),
            debug("rejected due to policy violation on target."),
        ),
        request={"direction": "send", "address": text},
        address=facts.target,
    )


def test_a_message_in_the_name_of_another() -> None:
    """Attack: a user-id as long as a message, for the log."""
    decision = because(Reason.USER_ID_PROXY)
    assert user_id_denied(peer(), decision, 9, "a", b"\xffx" + b"y" * 5000) == Denied(
        stage="transfer",
        decision=decision,
        refusal=refusals.USER_ID_REFUSED,
        lines=(
            debug("rejected due to user_id proxy violation."),
            line(
                "info",
                f"[C7][L9] DENY AMQP message with the user-id of another {WHOM} [{Reason.USER_ID_PROXY}{RULE_TEXT}",
            ),
        ),
        request={"direction": "send", "address": "a", "user_id": "\\xffx" + "y" * 1022},
    )


def test_a_malformed_message() -> None:
    assert malformed_message_denied(peer(), 9, "a") == Denied(
        stage="transfer",
        decision=Decision(is_allowed=False, reason=Reason.MALFORMED_MESSAGE),
        refusal=refusals.MALFORMED,
        lines=(
            debug("rejected: its sections are malformed."),
            line("info", f"[C7][L9] DENY AMQP message with malformed sections {WHOM} [{Reason.MALFORMED_MESSAGE}]"),
        ),
        request={"direction": "send", "address": "a"},
    )


def test_a_message_that_is_too_large() -> None:
    decision = because(Reason.MESSAGE_TOO_LARGE)
    text = f"DENY AMQP Transfer maxMessageSize exceeded [{Reason.MESSAGE_TOO_LARGE}{RULE_TEXT}"
    assert size_denied(peer(), decision, 100, 9, "a") == Denied(
        stage="transfer",
        decision=decision,
        refusal=refusals.TOO_LARGE,
        counter="message_size",
        lines=(line("warning", f"[C7][L9] {text}"),),
        request={"direction": "send", "address": "a", "limit": 100},
    )


def test_a_budget_that_is_spent() -> None:
    decision = Decision(is_allowed=False, reason=Reason.BYTE_BUDGET, rule=Rule(item="userByteBudget of 'eve': 100"))
    said = f" [{Reason.BYTE_BUDGET}: userByteBudget of 'eve': 100]"
    assert budget_denied(peer(), "attach", "a link", "userByteBudget of 'eve'", 100, 101) == Denied(
        stage="attach",
        decision=decision,
        refusal=refusals.OVER_BUDGET,
        lines=(line("warning", f"[C7] DENY a link {WHOM}: 101 bytes are held{said}"),),
        request={"limit": 100, "detail": "a link: 101 bytes are held"},
    )


@pytest.mark.parametrize(
    ("make", "reason", "what", "direction"),
    [
        (message_stalled, Reason.MESSAGE_STALLED, "a message under way made no progress", "send"),
        (
            partial(message_stalled, holds_up_others=True),
            Reason.MESSAGE_HOLDS_UP_OTHERS,
            "a message under way held up others",
            "send",
        ),
        (receiver_stalled, Reason.RECEIVER_STALLED, "a message under way was not taken", "receive"),
    ],
)
def test_a_message_that_goes_on_no_more(make: Any, reason: Reason, what: str, direction: Any) -> None:
    text = f"DENY AMQP Transfer {WHOM}: {what} for 60 seconds [{reason}: router, messageProgressTimeout]"
    assert make(peer(), 60.2, 9, "a") == Denied(
        stage="transfer",
        decision=Decision(is_allowed=False, reason=reason, rule=Rule(item="router, messageProgressTimeout")),
        refusal=refusals.stalled(what, 60.2),
        lines=(line("warning", f"[C7][L9] {text}"),),
        request={"direction": direction, "address": "a", "limit": 60},
    )


@pytest.mark.parametrize("explains", [False, True])
def test_where_an_address_leads_is_told_with_its_denial(explains: bool) -> None:
    """Without it nobody sees why `/orders` is not among `orders`."""
    address, effects = at("orders", tenant="acme"), list[Effect]()
    recorder = Recorder(UsageLedger(), effects.append)
    recorder.explains = explains
    denied = link_denied(peer(), because(Reason.TARGET_NOT_ALLOWED), LinkFacts(direction="send", address=address), "l")
    reached = f"the address is '{address.name}'"
    assert address.name != address.written
    assert reached in denied.lines[0].text
    told = recorder.record(denied, {"vhost": "v"}).description
    assert (reached in told) is explains
    (event,) = [each.event for each in effects if isinstance(each, Audit)]
    assert event["detail"] == (told if explains else f"{told}: {reached}")
    message = target_denied(peer(), because(Reason.MESSAGE_TARGET_NOT_ALLOWED), MessageFacts(target=address), 9)
    assert reached in message.lines[0].text


# The peer


def test_the_facts_of_a_peer_are_all_on_record() -> None:
    who = peer(is_governed=False)
    facts = {
        "connection": 7, "connection_name": "192.0.2.1:9", "listener": "l:1", "remote_host": "192.0.2.1",
        "user": "eve", "mechanism": None, "is_encrypted": False, "requested_vhost": "requested", "vhost": None,
        "group": None,
    }  # fmt: skip
    assert who.facts() == facts
    grants = Grants(sources=("s",), targets=("t",))
    who.identity = Identity(user="eve", mechanism="PLAIN", groups=("g", "h"), grants=grants)
    who.is_encrypted = True
    found: Any = who.facts()
    assert (json.loads(found["granted"]), json.loads(found["groups"])) == ({"send": ["t"], "recv": ["s"]}, ["g", "h"])
    assert (found["mechanism"], found["is_encrypted"]) == ("PLAIN", True)
    for is_of_vhost, vhost, group in ((True, "v", "g"), (False, None, None)):
        settings: Any = SimpleNamespace(is_of_vhost=is_of_vhost, vhost="v", group="g")
        who.settings = settings
        found = who.facts()
        assert (found["vhost"], found["group"]) == (vhost, group)
    judged = who.connection_facts(5.0)
    assert (judged.user, judged.remote_host, judged.requested_vhost, judged.connection_name, judged.mechanism) == (
        "eve", "192.0.2.1", "requested", "192.0.2.1:9", "PLAIN",
    )  # fmt: skip
    assert (judged.is_encrypted, judged.groups, judged.now) == (True, ("g", "h"), 5.0)
    assert judged.granted is not None
    assert (judged.granted.sources, judged.granted.targets) == (("s",), ("t",))
    assert peer().connection_facts(5.0).granted is None


def test_of_a_peer_that_has_just_come_nothing_is_known() -> None:
    who = Party(connection_id=7, connection_name="n:9", remote_host="192.0.2.1", listener="l:1")
    assert (who.hostname, who.requested_vhost, who.settings, who.router_id) == (None, "", None, None)
    assert who.text == "for user '(null)', rhost '192.0.2.1', vhost '(null)'"


@pytest.mark.parametrize(
    ("host", "counted"),
    [("192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::"), ("", "name:9"), ("no address", "name:9")],
)
def test_a_host_is_counted_by_its_network(host: str, counted: str) -> None:
    """Attack: a budget for each of the addresses of one's own network."""
    who = Party(connection_id=7, connection_name="name:9", remote_host=host, listener="l:1")
    assert who.counted_host == counted
