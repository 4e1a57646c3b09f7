"""What entrance, bans and denials write, word for word. Spec: docs/spec/policy-and-auth.md §3.7, §3.8, §3.15, §8.9."""

from typing import Any

import pytest

from policy.addressing.address import Address, Unclear, resolve
from policy.ban_set import BanSet, parse_ban
from policy.decision import Decision, Reason, Rule
from policy.facts import LinkFacts
from policy.usage import UsageLedger
from router.admission.ban_gate import BanGate
from router.admission.denials import Recorder
from router.admission.entrance import MAX_HOSTS, Entrance
from router.admission.handshakes import (
    CONNECTION_BYTES,
    FEW,
    MAX_BYTES,
    MAX_HOST_BYTES,
    Excess,
    Handshakes,
)
from router.admission.refusals import (
    LINK_REFUSED,
    MAX_SHOWN_RULE,
    attach_text,
    explained,
    message_text,
    reached_text,
    rule_members,
    rule_text,
    stalled,
)
from router.effects import Audit, ConnectionMembers, Effect, Log, Refused

WHO = "for user 'u', rhost 'h', vhost 'v'"
HOST = "192.0.2.1"


class Records:
    """Everything that is recorded: what is folded where it floods, and what is written at once."""

    def __init__(self) -> None:
        self.folded: list[Refused] = []
        self.written: list[Effect] = []
        self.ledger = UsageLedger()
        self.recorder = Recorder(self.ledger, self.written.append, self)  # type: ignore[arg-type]

    def record(self, refused: Refused) -> None:
        self.folded.append(refused)

    @property
    def events(self) -> list[Any]:
        return [each.event for each in (*self.folded, *self.written) if isinstance(each, Refused | Audit)]

    @property
    def lines(self) -> list[Log]:
        return [line for each in self.folded for line in each.lines] + [
            each for each in self.written if isinstance(each, Log)
        ]


def policy_line(text: str) -> Log:
    return Log(module="POLICY", level="info", text=text)


def of_connection(host: str = HOST, user: str | None = "eve") -> ConnectionMembers:
    return {"connection": 7, "connection_name": f"{host}:9", "listener": "l:1", "remote_host": host, "user": user}


# Bans


def banned(records: Records, user: str | None = None, reason: str = "") -> tuple[BanGate, Any]:
    gate = BanGate(BanSet(), records.recorder)
    ban = parse_ban("b", HOST, user, None, 0.0, reason=reason)
    gate.bans.add(ban)
    return gate, ban


RULE = {"vhost": None, "group": None, "item": f"ban b: {HOST}/32", "file": None, "line": None}


@pytest.mark.parametrize(
    ("stage", "what", "told"),
    [
        ("sasl", "login", {}),
        (
            "open",
            "AMQP Open",
            {"condition": "amqp:resource-limit-exceeded"},
        ),
    ],
)
@pytest.mark.parametrize("user", ["eve", None])
def test_a_refusal_by_ban_says_how_far_the_peer_came(stage: Any, what: str, told: dict[str, str], user: str) -> None:
    records = Records()
    gate, ban = banned(records, reason="it scans")
    gate.record_refusal(ban, of_connection(user=user), stage=stage)
    (event,) = records.events
    assert event == {**of_connection(user=user), "stage": stage, "decision": "deny", "reason": "banned", "rule": RULE,
                     "detail": "it scans", **told}  # fmt: skip
    text = f"DENY {what} for user '{user or ''}', rhost '{HOST}' based on ban 'b': it scans"
    assert records.lines == [policy_line(text)]
    assert records.written == [], "a flood of them is folded"
    assert gate.bans.hits("b") == 1


def test_what_a_ban_closes_is_recorded_one_by_one() -> None:
    records = Records()
    gate, ban = banned(records, user="eve")
    gate.record_closing(ban, of_connection(), stage="engine")
    (event,) = records.events
    assert event["condition"] == "amqp:resource-limit-exceeded"
    assert event["rule"] == {**RULE, "item": f"ban b: {HOST}/32, eve"}
    text = f"[C7] Connection '{HOST}:9' is closed based on ban 'b': no reason given"
    assert records.lines == [policy_line(text)]
    assert records.folded == []


def test_the_number_of_further_refusals_at_accept_is_a_record_of_its_own() -> None:
    records = Records()
    gate, ban = banned(records)
    for number in range(3):
        gate.record_accept(
            ban, connection_id=number, remote_host=HOST, connection_name=f"{HOST}:{number}", listener="l"
        )
    assert [event["connection"] for event in records.events] == [0]
    list(gate.reports())
    event = records.events[-1]
    assert event == {
        "stage": "accept",
        "decision": "deny",
        "reason": "banned",
        "rule": RULE,
        "detail": "",
        "attempts": 2,
    }
    assert records.written[0] == policy_line("DENY 2 more connections based on ban 'b': no reason given")
    gate.remove("b")
    gate.remove("b")
    assert len(records.events) == 2, "nothing is left to tell"


# The entrance


def test_the_entrance_counts_and_sums_up() -> None:
    records = Records()
    entrance = Entrance(records.recorder, records.written.append)
    entrance.limit_by({"maxHandshakesPerHost": 3, "maxHandshakes": 9})
    assert (entrance.handshakes.max_of_host, entrance.handshakes.max_of_all) == (3, 9)
    excess = Excess(7, "host", 3)
    for _ in range(3):
        entrance.record(excess, "accept", "too_many_handshakes", of_connection())
    detail = "3 connections of this host that are not open yet, which is the limit"
    first = {**of_connection(), "stage": "accept", "decision": "deny", "reason": "too_many_handshakes", "rule": None}
    assert records.events == [{**first, "detail": detail, "limit": 3}]
    text = f"DENY Connection '{HOST}' before its Open: {detail} [too_many_handshakes]"
    assert records.lines == [policy_line(text)]
    list(entrance.reports())
    more = "2 more connections of this host since the last event"
    assert records.events[1] == {"stage": "accept", "decision": "deny", "reason": "too_many_handshakes", "rule": None,
                                 "remote_host": HOST, "attempts": 2, "detail": more}  # fmt: skip
    assert records.lines[1].text == f"DENY Connection '{HOST}' before its Open: {more} [too_many_handshakes]"
    assert records.ledger.policy_counters()["totalDenials"] == 3


def test_beyond_so_many_hosts_they_are_a_crowd() -> None:
    """Attack: refusals from many addresses, to fill the disk."""
    records = Records()
    entrance = Entrance(records.recorder, records.written.append)
    for number in range(MAX_HOSTS + 2):
        host = f"10.0.{number // 256}.{number % 256}"
        entrance.record(Excess(1, "all", 5), "tls", "preauth_buffer_exceeded", of_connection(host))
    assert len(records.events) == MAX_HOSTS
    detail = "5 bytes are held for connections of all hosts that are not open yet, which is the limit"
    assert records.events[0]["detail"] == detail
    assert records.events[0]["stage"] == "tls"
    assert records.ledger.policy_counters()["totalDenials"] == 0, "these had been accepted"
    list(entrance.reports())
    event = records.events[-1]
    assert (event["remote_host"], event["attempts"]) == (None, 2)
    assert event["detail"] == "2 more connections of hosts that were too many to be named since the last event"
    assert records.lines[-1].text.startswith("DENY Connection 'many hosts' before its Open: 2 more")


def test_sockets_without_a_descriptor_are_recorded() -> None:
    records = Records()
    entrance = Entrance(records.recorder, records.written.append)
    for host in (HOST, None):
        connection = of_connection()
        connection["remote_host"] = host
        entrance.refuse_for_descriptors(connection, 40)
    detail = "all 40 file descriptors for connections are in use"
    assert [(each["stage"], each["reason"], each["limit"], each["detail"]) for each in records.events] == [
        ("accept", "descriptor_limit", 40, detail)
    ] * 2
    assert records.lines[1].text == f"DENY Connection 'many hosts' before its Open: {detail} [descriptor_limit]"
    assert records.ledger.policy_counters()["totalDenials"] == 2


# Handshakes


@pytest.mark.parametrize(("room", "limit"), [(101, 50), (20, FEW)])
def test_the_limit_of_a_host_is_a_whole_number(room: int, limit: int) -> None:
    handshakes = Handshakes()
    found = [handshakes.enter(number, HOST, room) for number in range(limit + 1)]
    assert found == [None] * limit + [Excess(limit, "host", limit)]
    assert isinstance(found[-1], Excess)
    assert isinstance(found[-1].limit, int)


def test_the_limit_of_all_is_a_whole_number() -> None:
    handshakes = Handshakes()
    found = [handshakes.enter(number, f"10.0.0.{number}", 50) for number in range(38)]
    assert found == [None] * 37 + [Excess(0, "all", 37)]
    assert found[-1] is not None
    assert isinstance(found[-1].limit, int)


def test_all_bytes_may_be_held_and_one_more_costs_the_newcomer_among_equals() -> None:
    handshakes = Handshakes(max_of_host=10, max_of_all=10)
    half = MAX_HOST_BYTES - CONNECTION_BYTES
    for number in (1, 2):
        handshakes.enter(number, f"10.0.0.{number}", 100)
        assert handshakes.hold(number, half) is None
    assert handshakes.bytes_held == MAX_BYTES
    assert handshakes.hold(1, half) is None
    found = handshakes.enter(3, "10.0.0.3", 100)
    assert found == Excess(1, "all", 2), "a host that holds more gives way"


def test_the_limits_that_bytes_set_are_whole_numbers() -> None:
    handshakes = Handshakes(max_of_host=10**9, max_of_all=10**9)
    most = MAX_HOST_BYTES // CONNECTION_BYTES
    assert not any(handshakes.enter(number, "10.0.0.1", 10**9) for number in range(most))
    of_host = handshakes.enter(-1, "10.0.0.1", 10**9)
    assert not any(handshakes.enter(number, "10.0.0.2", 10**9) for number in range(most, 2 * most))
    of_all = handshakes.enter(-1, "10.0.0.3", 10**9)
    assert (of_host, of_all) == (Excess(-1, "host", most), Excess(0, "all", 2 * most))
    assert [type(each.limit) for each in (of_host, of_all) if each is not None] == [int, int]


def test_among_hosts_that_hold_as_much_who_gives_way_is_drawn() -> None:
    handshakes = Handshakes(max_of_host=10, max_of_all=10, choose=lambda count: count - 1)
    for number in (1, 2, 3):
        handshakes.enter(number, f"10.0.0.{number}", 100)
    held = MAX_BYTES // 3 - CONNECTION_BYTES
    assert [handshakes.hold(number, held) for number in (1, 2, 3)] == [None] * 3
    assert handshakes.hold(2, held + 2) == Excess(3, "all", MAX_BYTES)
    assert 3 not in handshakes
    assert handshakes.hold(3, held) is None, "it is not counted any more"


# Texts


def address(text: str) -> Address | Unclear:
    return resolve(text, router_id="QDR", tenant=None)


@pytest.mark.parametrize(
    ("facts", "reason", "text"),
    [
        (
            {"direction": "send", "address": "a"},
            Reason.SENDER_LIMIT,
            f"AMQP Attach sender {WHO} based on maxSenders limit",
        ),
        (
            {"direction": "receive", "address": "a"},
            Reason.RECEIVER_LIMIT,
            f"AMQP Attach receiver {WHO} based on maxReceivers limit",
        ),
        (
            {"direction": "send", "address": "a"},
            Reason.WAYPOINT_CAPABILITY,
            f"AMQP Attach sender link 'a' {WHO}.  Waypoint capability not permitted",
        ),
        (
            {"direction": "receive", "address": "a"},
            Reason.FALLBACK_CAPABILITY,
            f"AMQP Attach receiver link 'a' {WHO}.  Fallback capability not permitted",
        ),
        (
            {"direction": "receive", "is_dynamic": True},
            Reason.DYNAMIC_SOURCE,
            f"AMQP Attach receiver dynamic source {WHO},",
        ),
        ({"direction": "send", "is_dynamic": True}, Reason.TARGET_NOT_ALLOWED, f"AMQP Attach anonymous sender {WHO}"),
        ({"direction": "send"}, Reason.ANONYMOUS_SENDER, f"AMQP Attach anonymous sender {WHO}"),
        (
            {"direction": "send", "address": "a", "is_coordinator": True},
            Reason.ANONYMOUS_SENDER,
            f"AMQP Attach anonymous sender {WHO}",
        ),
        ({"direction": "receive"}, Reason.NO_SOURCE_ADDRESS, f"AMQP Attach receiver link '' {WHO}"),
        (
            {"direction": "send", "address": "a"},
            Reason.TARGET_NOT_ALLOWED,
            f"AMQP Attach sender link 'a' {WHO} based on link target name",
        ),
        (
            {"direction": "receive", "address": "a"},
            Reason.SOURCE_NOT_ALLOWED,
            f"AMQP Attach receiver link 'a' {WHO} based on link source name",
        ),
    ],
)
def test_the_line_of_a_link(facts: dict[str, Any], reason: Reason, text: str) -> None:
    facts = dict(facts)
    written = facts.pop("address", None)
    link = LinkFacts(address=address(written) if written is not None else None, open_links=0, **facts)
    assert attach_text(Decision(is_allowed=False, reason=reason), link, WHO) == text


def test_the_line_of_a_message() -> None:
    target = address("/a")
    assert isinstance(target, Address)
    assert message_text(target, WHO) == f"AMQP message to '/a' {WHO} based on target address"
    assert message_text(None, WHO) == f"AMQP message to '' {WHO} based on target address"


def test_an_address_that_is_written_otherwise_is_shown_up_to_a_length() -> None:
    assert reached_text(address("a")) == ""
    assert reached_text(None) == ""
    other = address("amqp:/a")
    assert isinstance(other, Address)
    assert reached_text(other) == f"the address is '{other.name}'"
    for length, shown in ((MAX_SHOWN_RULE, "a" * MAX_SHOWN_RULE), (MAX_SHOWN_RULE + 1, "a" * MAX_SHOWN_RULE + "...")):
        assert reached_text(address(f"/{'a' * length}")) == f"the address is '{shown}'"


def test_a_rule_is_shown_with_its_place() -> None:
    rule = Rule(vhost="v", group="g", item="sources: a", file="p.json", line=3)
    decision = Decision(is_allowed=False, reason=Reason.SOURCE_NOT_ALLOWED, rule=rule)
    place = "sources: a of group 'g' of vhost 'v', p.json:3"
    assert rule_text(decision) == f" [source_not_allowed: {place}]"
    assert rule_text(decision, address("/a")) == f" [source_not_allowed: {place}, the address is 'a']"
    assert rule_text(Decision(is_allowed=False, reason=Reason.NO_VHOST)) == " [no_vhost]"
    assert rule_text(Decision(is_allowed=False, reason=Reason.NO_VHOST, rule=Rule())) == " [no_vhost: no rule]"
    assert rule_members(rule) == {"vhost": "v", "group": "g", "item": "sources: a", "file": "p.json", "line": 3}
    assert rule_members(None) is None


def test_a_peer_is_told_of_the_rule_up_to_a_length() -> None:
    base = LINK_REFUSED.description
    decision = Decision(is_allowed=False, reason=Reason.SOURCE_NOT_ALLOWED, rule=Rule(vhost="v", item="sources: a"))
    assert explained(LINK_REFUSED, decision, address("/a")).description == (
        f"{base}: source_not_allowed, the address is 'a', vhost 'v', sources: a"
    )
    nothing = Decision(is_allowed=False, reason=Reason.NO_VHOST, rule=Rule(group="g"))
    assert explained(LINK_REFUSED, nothing).description == f"{base}: no_vhost, group 'g'"
    for length in (MAX_SHOWN_RULE, MAX_SHOWN_RULE + 1):
        item = "x" * (length - len("no_vhost, "))
        shown = explained(LINK_REFUSED, Decision(is_allowed=False, reason=Reason.NO_VHOST, rule=Rule(item=item)))
        whole = f"no_vhost, {item}"
        expected = whole if length == MAX_SHOWN_RULE else f"{whole[:MAX_SHOWN_RULE]}..."
        assert shown.description == f"{base}: {expected}"


def test_what_stalls_is_said_with_its_time() -> None:
    refusal = stalled("nothing was read", 3.4)
    assert refusal.condition == "amqp:resource-limit-exceeded"
    assert refusal.description == "nothing was read for 3 seconds"
