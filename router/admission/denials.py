"""A denial is a value: the request, the reason, and the records. One recorder writes, counts and audits it.

Every denial of policy writes a log line with the C router's wording, and one audit event with all facts of the
decision. Each function below makes the denial of one kind of request. Sources: docs/spec/policy-and-auth.md §3 to §5.
"""

import json
from dataclasses import dataclass, field
from typing import Final, Literal

from policy.addressing.address import Address, Unclear
from policy.decide import ConnectionDecision
from policy.decision import Decision, Reason, Rule
from policy.facts import LinkFacts, MessageFacts, Usage
from policy.usage import UsageLedger
from router.admission.folding import Folding
from router.admission.party import Party
from router.admission.refusals import (
    ADDRESS_REFUSED,
    CONNECTION_REFUSED,
    LINK_LIMIT,
    LINK_REFUSED,
    MALFORMED,
    OPEN_TEXTS,
    OVER_BUDGET,
    SESSION_REFUSED,
    TARGET_REFUSED,
    TOO_LARGE,
    USER_ID_REFUSED,
    Refusal,
    attach_text,
    explained,
    judged_text,
    message_text,
    reached_text,
    rule_members,
    rule_text,
    stalled,
)
from router.effects import (
    Audit,
    AuditStage,
    ConnectionMembers,
    Direction,
    Emit,
    Log,
    LogLevel,
    Occasion,
    Refused,
    RequestMembers,
    audit_event,
)

# A counter of the ledger, of all vhosts or of the event's vhost: "send" and "receive" count links.
Counter = Literal["accept", "open", "session", "send", "receive", "message_size"]

# The limit for the user-id that a message claims. The audit log keeps less.
_MAX_USER_ID_BYTES: Final = 1024
_UNCLEAR: Final = Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """One request that is refused. Nothing is written, counted or sent before it is recorded.

    stage      how far the connection had come
    decision   with its reason and rule
    refusal    the error for the peer
    counter    None: the ledger does not count it
    lines      of the log, in their order
    request    the request's own members of the audit event
    is_silent  True if the peer gets no error, because it is closed before AMQP
    is_ending  True if the router ends something that it had allowed, whatever the peer does
    address    the address that policy decided about. The records contain what it resolves to
    time_s     the time that the decision used, seconds since 1970 UTC; None: it used none
    """

    stage: AuditStage
    decision: Decision
    refusal: Refusal
    counter: Counter | None = None
    lines: tuple[Log, ...] = ()
    request: RequestMembers = field(default_factory=RequestMembers)
    is_silent: bool = False
    is_ending: bool = False
    address: Address | Unclear | None = None
    time_s: float | None = None


class Recorder:
    """Writes the log lines of a denial, counts it, audits it and makes the error for the peer.

    explains  True if the peer also gets the rule (policy verboseDenials)
    folding   sums up the records of a flood. The ledger counts each denial
    """

    def __init__(self, ledger: UsageLedger, emit: Emit, folding: Folding | None = None) -> None:
        self.explains = False
        self.folding = folding if folding is not None else Folding(emit)
        self._ledger = ledger
        self._emit = emit

    def record(self, denied: Denied, connection: ConnectionMembers) -> Refusal:
        """Records a denial on a connection. Returns the error for the peer."""
        if denied.counter is not None:
            self.count(denied.counter, connection.get("vhost"))
        decision, refusal = denied.decision, denied.refusal
        if self.explains:
            refusal = explained(refusal, decision, denied.address)
        request = denied.request
        if not denied.is_silent:
            detail = refusal.description
            if not self.explains and (reached := reached_text(denied.address)):
                detail = f"{detail}: {reached}"
            request = {"condition": refusal.condition, "detail": detail, **request}
        rule = rule_members(decision.rule)
        event = audit_event(denied.stage, "deny", decision.reason.value, connection, request, rule)
        is_ending = denied.is_ending or request.get("redecision") is not None
        if not is_ending and "attempts" not in request:
            self.folding.record(
                Refused(stage=denied.stage, facts=connection, lines=denied.lines, event=event, time_s=denied.time_s)
            )
            return refusal
        # The router ends at most what it had allowed, so each such event is recorded separately. A number is already a
        # sum.
        for each in denied.lines:
            self._emit(each)
        self._emit(Audit(event=event, time_s=denied.time_s))
        return refusal

    def count(self, counter: Counter, vhost: str | None = None) -> None:
        ledger = self._ledger
        match counter:
            case "accept":
                ledger.count_accept(False)
            case "open":
                if vhost is not None:
                    ledger.count_open_denied(vhost)
            case "session":
                ledger.count_session_denied(vhost)
            case "send" | "receive":
                ledger.count_link_denied(vhost, counter)
            case "message_size":
                ledger.count_oversize(vhost)


def line(level: LogLevel, text: str) -> Log:
    return Log(module="POLICY", level=level, text=text)


def accept_denied(decision: Decision, remote_host: str, open_connections: int, limit: int) -> Denied:
    text = f"DENY Connection '{remote_host}' based on global connection count. nConnections= {open_connections}"
    return Denied(
        stage="accept",
        decision=decision,
        refusal=CONNECTION_REFUSED,
        counter="accept",
        lines=(line("info", f"{text}{rule_text(decision)}"),),
        request={"usage": {"open_connections": open_connections}, "limit": limit},
        is_silent=True,
    )


def open_denied(
    who: Party, judged: ConnectionDecision, usage: Usage, now: float, occasion: Occasion | None = None
) -> Denied:
    """Makes the denial of an Open.

    usage     that the decision used
    occasion  why an open connection is decided again; None: it is opening. The same in the functions below
    """
    decision = judged.decision
    shown_vhost = judged.vhost if judged.vhost is not None else who.requested_vhost
    whom = f"for user '{who.identity.user or ''}', rhost '{who.remote_host}', vhost '{shown_vhost}'"
    lines = []
    if decision.reason is Reason.INTERNAL_ERROR:
        text = "Internal error: the connection's facts could not be judged"
        lines.append(line("info", f"DENY AMQP Open lookup_user failed {whom}: {text}{rule_text(decision)}"))
    for reason in (decision.reason, *decision.also):
        if text := OPEN_TEXTS.get(reason, ""):
            rule = rule_text(decision) if reason is decision.reason else ""
            lines.append(line("info", f"DENY AMQP Open {whom}: {text}{rule}"))
    return Denied(
        stage="open",
        decision=decision,
        refusal=CONNECTION_REFUSED,
        counter="open" if decision.reason is not Reason.INTERNAL_ERROR else None,
        lines=tuple(lines),
        request={
            "usage": {"total": usage.total, "of_user": usage.of_user, "of_host": usage.of_host},
            "redecision": occasion,
        },
        time_s=now,
    )


def connector_denied(who: Party, judged: ConnectionDecision, now: float, occasion: Occasion | None = None) -> Denied:
    decision = judged.decision
    what = f"policyVhost settings for connection '{who.connection_id}', policyVhost: '{who.requested_vhost}'"
    text = f"No valid {what}" if decision.reason is Reason.GROUP_NOT_VALID else f"Failed to find {what}"
    return Denied(
        stage="open",
        decision=decision,
        refusal=CONNECTION_REFUSED,
        lines=(line("error", f"[C{who.connection_id}] {text}{rule_text(decision)}"),),
        request={"redecision": occasion},
        time_s=now,
    )


def begin_text(who: Party) -> str:
    """Returns the peer's description for log lines about its sessions."""
    return f"user: {who.user_text}, rhost: {who.remote_host}, vhost: {who.vhost_text}"


def session_denied(who: Party, decision: Decision, open_sessions: int, occasion: Occasion | None = None) -> Denied:
    text = f"DENY AMQP Begin Session due to session limit. {begin_text(who)}{rule_text(decision)}"
    return Denied(
        stage="begin",
        decision=decision,
        refusal=SESSION_REFUSED,
        counter="session",
        lines=(line("info", f"[C{who.connection_id}] {text}"),),
        request={
            "usage": {"open_sessions": open_sessions},
            "limit": who.settings.max_sessions if who.settings is not None else None,
            "redecision": occasion,
        },
    )


def link_members(facts: LinkFacts, link_name: str) -> RequestMembers:
    """Returns the members of an Attach: the facts that policy decides on."""
    members: RequestMembers = {
        "direction": facts.direction,
        "address": judged_text(facts.address),
        "link_name": link_name,
        "usage": {"open_links": facts.open_links},
    }
    if facts.is_dynamic or facts.is_coordinator or facts.capabilities or _is_of_a_reply(facts):
        members["asked"] = {
            "is_dynamic": facts.is_dynamic,
            "is_coordinator": facts.is_coordinator,
            "capabilities": json.dumps(facts.capabilities) if facts.capabilities else None,
            "dynamic_address": facts.dynamic_address,
            "reply_age_ms": _milliseconds(facts.reply_age_s),
        }
    return members


def message_members(facts: MessageFacts) -> RequestMembers:
    """Returns the members of a message: the facts that policy decides on."""
    target = facts.target
    members: RequestMembers = {"direction": "send", "address": target.written if target is not None else ""}
    if _is_of_a_reply(facts):
        members["asked"] = {
            "is_dynamic": False,
            "is_coordinator": False,
            "capabilities": None,
            "dynamic_address": facts.dynamic_address,
            "reply_age_ms": _milliseconds(facts.reply_age_s),
        }
    return members


def _is_of_a_reply(facts: LinkFacts | MessageFacts) -> bool:
    return facts.dynamic_address is not None or facts.reply_age_s is not None


def _milliseconds(seconds: float | None) -> int | None:
    return int(seconds * 1000) if seconds is not None else None


def link_denied(
    who: Party, decision: Decision, facts: LinkFacts, link_name: str, occasion: Occasion | None = None
) -> Denied:
    settings, direction = who.settings, facts.direction
    limit = None
    is_limit = decision.reason in (Reason.SENDER_LIMIT, Reason.RECEIVER_LIMIT)
    if settings is not None and is_limit:
        limit = settings.max_senders if direction == "send" else settings.max_receivers
    text = f"DENY {attach_text(decision, facts, who.text)}{rule_text(decision, facts.address)}"
    return Denied(
        stage="attach",
        decision=decision,
        refusal=LINK_LIMIT if is_limit else LINK_REFUSED,
        counter=direction if settings is not None else None,
        lines=(line("info", f"[C{who.connection_id}] {text}"),),
        request={**link_members(facts, link_name), "limit": limit, "redecision": occasion},
        address=facts.address,
    )


def unclear_link_denied(who: Party, address: Unclear, direction: Direction, link_name: str) -> Denied:
    """Makes this denial with or without policy: otherwise the router would bind an address that nothing has checked."""
    text = f"DENY AMQP Attach address '{address.written}' {who.text}: {address.why}{rule_text(_UNCLEAR)}"
    return Denied(
        stage="attach",
        decision=_UNCLEAR,
        refusal=ADDRESS_REFUSED,
        counter=direction if who.settings is not None else None,
        lines=(line("info", f"[C{who.connection_id}] {text}"),),
        request={
            "direction": direction,
            "address": address.written,
            "link_name": link_name,
            "detail": address.why,
        },
    )


def unclear_message_denied(who: Party, address: Unclear, link_id: int) -> Denied:
    text = f"DENY AMQP message address '{address.written}' {who.text}: {address.why}{rule_text(_UNCLEAR)}"
    return Denied(
        stage="transfer",
        decision=_UNCLEAR,
        refusal=ADDRESS_REFUSED,
        lines=(line("info", f"[C{who.connection_id}][L{link_id}] {text}"),),
        request={"direction": "send", "address": address.written, "detail": address.why},
    )


def in_process_link_denied(who: Party, direction: Direction, address: str | None, link_name: str) -> Denied:
    text = f"AMQP Attach of a {direction} link with '{address}'"
    request: RequestMembers = {"direction": direction, "address": address, "link_name": link_name}
    return _in_process_denied(who, "attach", LINK_REFUSED, text, request, direction)


def in_process_message_denied(who: Party, address: str | None) -> Denied:
    request: RequestMembers = {"direction": "send", "address": address}
    return _in_process_denied(who, "transfer", TARGET_REFUSED, f"AMQP message to '{address}'", request, None)


def _in_process_denied(
    who: Party, stage: AuditStage, refusal: Refusal, what: str, request: RequestMembers, counter: Counter | None
) -> Denied:
    """Makes the denial for the peer of a connector without allowManagement that uses an address inside the router."""
    rule = Rule(item=f"connector {who.listener}, allowManagement")
    decision = Decision(is_allowed=False, reason=Reason.IN_PROCESS_ADDRESS, rule=rule)
    why = f"an address inside the router: connector {who.listener} lacks allowManagement"
    return Denied(
        stage=stage,
        decision=decision,
        refusal=refusal,
        counter=counter,
        lines=(line("info", f"[C{who.connection_id}] DENY {what}, {why}{rule_text(decision)}"),),
        request={**request, "detail": why},
    )


def target_denied(who: Party, decision: Decision, facts: MessageFacts, link_id: int) -> Denied:
    """Makes the denial of a message to an address that its sender may not send to; None for ""."""
    target = facts.target
    assert not isinstance(target, Unclear)
    text = f"DENY {message_text(target, who.text)}{rule_text(decision, target)}"
    return Denied(
        stage="transfer",
        decision=decision,
        refusal=TARGET_REFUSED,
        lines=(
            line("info", f"[C{who.connection_id}] {text}"),
            _rejected(who, link_id, "rejected due to policy violation on target."),
        ),
        request=message_members(facts),
        address=target,
    )


def user_id_denied(who: Party, decision: Decision, link_id: int, address: str | None, user_id: bytes) -> Denied:
    claimed = user_id[:_MAX_USER_ID_BYTES].decode("utf-8", "backslashreplace")
    text = f"DENY AMQP message with the user-id of another {who.text}{rule_text(decision)}"
    return Denied(
        stage="transfer",
        decision=decision,
        refusal=USER_ID_REFUSED,
        lines=(
            _rejected(who, link_id, "rejected due to user_id proxy violation."),
            line("info", f"[C{who.connection_id}][L{link_id}] {text}"),
        ),
        request={"direction": "send", "address": address, "user_id": claimed},
    )


def malformed_message_denied(who: Party, link_id: int, address: str | None) -> Denied:
    decision = Decision(is_allowed=False, reason=Reason.MALFORMED_MESSAGE)
    text = f"DENY AMQP message with malformed sections {who.text}{rule_text(decision)}"
    return Denied(
        stage="transfer",
        decision=decision,
        refusal=MALFORMED,
        lines=(
            _rejected(who, link_id, "rejected: its sections are malformed."),
            line("info", f"[C{who.connection_id}][L{link_id}] {text}"),
        ),
        request={"direction": "send", "address": address},
    )


def size_denied(who: Party, decision: Decision, limit: int, link_id: int, address: str | None) -> Denied:
    text = f"DENY AMQP Transfer maxMessageSize exceeded{rule_text(decision)}"
    return Denied(
        stage="transfer",
        decision=decision,
        refusal=TOO_LARGE,
        counter="message_size",
        lines=(line("warning", f"[C{who.connection_id}][L{link_id}] {text}"),),
        request={"direction": "send", "address": address, "limit": limit},
    )


def budget_denied(who: Party, stage: AuditStage, what: str, budget: str, limit: int, held: int) -> Denied:
    """Makes the denial of something that would exceed a byte budget.

    what    the action that is refused
    budget  the setting and its owner: "userByteBudget of 'alice'"
    limit   bytes
    held    bytes
    """
    decision = Decision(is_allowed=False, reason=Reason.BYTE_BUDGET, rule=Rule(item=f"{budget}: {limit}"))
    text = f"DENY {what} {who.text}: {held} bytes are held{rule_text(decision)}"
    return Denied(
        stage=stage,
        decision=decision,
        refusal=OVER_BUDGET,
        lines=(line("warning", f"[C{who.connection_id}] {text}"),),
        request={"limit": limit, "detail": f"{what}: {held} bytes are held"},
    )


_PROGRESS_RULE: Final = Rule(item="router, messageProgressTimeout")


def message_stalled(
    who: Party, seconds: float, link_id: int, address: str | None, *, holds_up_others: bool = False
) -> Denied:
    """Makes the denial of a message that made no progress for this time, or made progress but delayed others."""
    if holds_up_others:
        reason, what = Reason.MESSAGE_HOLDS_UP_OTHERS, "a message under way held up others"
    else:
        reason, what = Reason.MESSAGE_STALLED, "a message under way made no progress"
    return _stalled(who, reason, what, seconds, link_id, address)


def receiver_stalled(who: Party, seconds: float, link_id: int, address: str | None) -> Denied:
    """Makes the denial of a receiver that has taken nothing of a message for this time."""
    return _stalled(who, Reason.RECEIVER_STALLED, "a message under way was not taken", seconds, link_id, address)


def _stalled(who: Party, reason: Reason, what: str, seconds: float, link_id: int, address: str | None) -> Denied:
    """Makes the denial with or without policy, because other messages wait for this one."""
    decision = Decision(is_allowed=False, reason=reason, rule=_PROGRESS_RULE)
    text = f"DENY AMQP Transfer {who.text}: {what} for {seconds:.0f} seconds{rule_text(decision)}"
    return Denied(
        stage="transfer",
        decision=decision,
        refusal=stalled(what, seconds),
        lines=(line("warning", f"[C{who.connection_id}][L{link_id}] {text}"),),
        request={
            "direction": "receive" if reason is Reason.RECEIVER_STALLED else "send",
            "address": address,
            "limit": int(seconds),
        },
    )


def _rejected(who: Party, link_id: int, why: str) -> Log:
    text = f"[C{who.connection_id}][L{link_id}] Message {why} User:{who.user_text}"
    return Log(module="ROUTER", level="debug", text=text)
