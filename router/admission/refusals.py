"""The texts of a denial, for the peer and for the log. Sources: docs/spec/policy-and-auth.md §3.4, §3.7, §3.8, §5."""

from dataclasses import dataclass, replace
from typing import Final

from policy.addressing.address import Address, Unclear
from policy.decision import Decision, Reason, Rule
from policy.facts import LinkFacts
from router.effects import RuleMembers


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The error that the peer gets for a denial."""

    condition: str
    description: str


CONNECTION_REFUSED: Final = Refusal(
    condition="amqp:resource-limit-exceeded", description="connection disallowed by local policy"
)
SESSION_REFUSED: Final = Refusal(
    condition="amqp:resource-limit-exceeded", description="session disallowed by local policy"
)
LINK_LIMIT: Final = Refusal(condition="amqp:resource-limit-exceeded", description="link disallowed by local policy")
LINK_REFUSED: Final = Refusal(condition="amqp:unauthorized-access", description="link disallowed by local policy")
ADDRESS_REFUSED: Final = Refusal(condition="amqp:invalid-field", description="the address does not name one thing")
MALFORMED: Final = Refusal(condition="amqp:decode-error", description="invalid message format")
USER_ID_REFUSED: Final = Refusal(condition="amqp:unauthorized-access", description="user_id proxy violation")
TARGET_REFUSED: Final = Refusal(condition="amqp:unauthorized-access", description="policy violation on target")
# The router's answer if no policy has denied the message before.
NO_TARGET: Final = Refusal(condition="amqp:precondition-failed", description="Routing failure: no address present")
# On a multi-tenant listener the vhost is the address space: links of the old one cannot continue in the new one.
MOVED: Final = Refusal(condition="amqp:connection:forced", description="connection is in another vhost by policy")
OVER_BUDGET: Final = Refusal(
    condition="amqp:resource-limit-exceeded", description="more bytes are held than the byte budget allows"
)
TOO_LARGE: Final = Refusal(condition="amqp:link:message-size-exceeded", description="Message size exceeded")


def stalled(what: str, seconds: float) -> Refusal:
    """Returns the error for a message that makes no progress. `what` names the side that causes it."""
    return Refusal(condition="amqp:resource-limit-exceeded", description=f"{what} for {seconds:.0f} seconds")


# The characters of a rule that a peer may see: the operator's list items have any length.
MAX_SHOWN_RULE: Final = 200


def explained(refusal: Refusal, decision: Decision, address: Address | Unclear | None = None) -> Refusal:
    """Returns the refusal with the rule in its description (policy verboseDenials), without the rule's file path.

    address  as in rule_text
    """
    rule = decision.rule
    words = [decision.reason.value]
    if reached := reached_text(address):
        words.append(reached)
    if rule is not None:
        words += [f"{key} '{value}'" for key, value in (("vhost", rule.vhost), ("group", rule.group)) if value]
        words += [rule.item] if rule.item else []
    text = ", ".join(words)
    shown = text if len(text) <= MAX_SHOWN_RULE else f"{text[:MAX_SHOWN_RULE]}..."
    return replace(refusal, description=f"{refusal.description}: {shown}")


def reached_text(address: Address | Unclear | None) -> str:
    """Returns what an address resolves to, for example `the address is 'tenant/orders'`. "" if it resolves to itself.

    Without this text, a reader cannot see why `public/x:/secret` is not among `public/*`.
    """
    if not isinstance(address, Address) or address.name == address.written:
        return ""
    name = address.name
    return f"the address is '{name if len(name) <= MAX_SHOWN_RULE else f'{name[:MAX_SHOWN_RULE]}...'}'"


def rule_text(decision: Decision, address: Address | Unclear | None = None) -> str:
    """Returns the end of a log line: the reason, the rule and the place of the rule.

    address  that the decision is about
    """
    reached = f", {text}" if (text := reached_text(address)) else ""
    rule = decision.rule
    if rule is None:
        return f" [{decision.reason}{reached}]"
    group = f" of group '{rule.group}'" if rule.group is not None else ""
    vhost = f" of vhost '{rule.vhost}'" if rule.vhost is not None else ""
    place = f", {rule.file}:{rule.line}" if rule.file is not None else ""
    return f" [{decision.reason}: {rule.item or 'no rule'}{group}{vhost}{place}{reached}]"


def rule_members(rule: Rule | None) -> RuleMembers | None:
    """Returns the rule in the form for an audit event."""
    if rule is None:
        return None
    return {"vhost": rule.vhost, "group": rule.group, "item": rule.item, "file": rule.file, "line": rule.line}


OPEN_TEXTS: Final = {
    Reason.NO_VHOST: "No policy defined for vhost",
    Reason.UNKNOWN_USER: "User is not in a user group and unknown users are denied",
    Reason.RESERVED_USER_NAME: "User name is reserved for addresses of the router",
    Reason.GROUP_NOT_VALID: "User group is not valid at this time",
    Reason.HOST_NOT_ALLOWED: "User is not allowed to connect from this network host",
    Reason.VHOST_CONNECTION_LIMIT: "Connection denied by application connection limit",
    Reason.USER_CONNECTION_LIMIT: "Connection denied by application per user limit",
    Reason.HOST_CONNECTION_LIMIT: "Connection denied by application per host limit",
}


def judged_text(address: Address | Unclear | None) -> str | None:
    """Returns the address as a denial shows it first: as the client wrote it."""
    return address.written if address is not None else None


def message_text(target: Address | None, who: str) -> str:
    """Returns the part of the log line after ALLOW or DENY, for a message on an anonymous link.

    target  None: it names ""
    who     as in attach_text
    """
    return f"AMQP message to '{target.written if target is not None else ''}' {who} based on target address"


def attach_text(decision: Decision, facts: LinkFacts, who: str) -> str:
    """Returns the part of the log line after ALLOW or DENY (§3.7, §3.8). Its irregularities are the C router's.

    who  "for user '...', rhost '...', vhost '...'"
    """
    role = "sender" if facts.direction == "send" else "receiver"
    reason = decision.reason
    address = judged_text(facts.address) or ""
    if reason is Reason.SENDER_LIMIT:
        return f"AMQP Attach sender {who} based on maxSenders limit"
    if reason is Reason.RECEIVER_LIMIT:
        return f"AMQP Attach receiver {who} based on maxReceivers limit"
    if reason is Reason.WAYPOINT_CAPABILITY:
        return f"AMQP Attach {role} link '{address}' {who}.  Waypoint capability not permitted"
    if reason is Reason.FALLBACK_CAPABILITY:
        return f"AMQP Attach {role} link '{address}' {who}.  Fallback capability not permitted"
    if facts.direction == "receive" and facts.is_dynamic:
        return f"AMQP Attach receiver dynamic source {who},"
    if facts.direction == "send" and (facts.is_coordinator or not address):
        return f"AMQP Attach anonymous sender {who}"
    if not address:
        return f"AMQP Attach receiver link '' {who}"
    terminus = "target" if facts.direction == "send" else "source"
    return f"AMQP Attach {role} link '{address}' {who} based on link {terminus} name"
