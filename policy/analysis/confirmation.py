"""Confirms every difference by the decisions that the router makes. Pure."""

from datetime import datetime

from policy.addressing.address import resolve_named
from policy.analysis.changes import Change, Direction
from policy.analysis.grants import SWITCHES
from policy.decide import decide_connection, decide_connector, decide_link, decide_session
from policy.decision import Reason
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.rights import UNRESTRICTED, holds
from policy.ruleset import Ruleset


def confirms(old: Ruleset, new: Ruleset, change: Change, *, router_id: str = "") -> bool:
    """Returns whether the router's decisions at the witness differ in the direction that the change states.

    router_id  as for addressing.address.resolve
    """
    if change.subject == "policy maxConnections":
        return change.is_widening == (new.max_connections > old.max_connections)
    was, is_ = (_value(ruleset, change, router_id) for ruleset in (old, new))
    return is_ > was if change.is_widening else is_ < was


def _value(ruleset: Ruleset, change: Change, router_id: str) -> float:
    """Returns how much a ruleset permits at the witness.

    That is 0 or 1, or a number for an attribute that no decision covers.
    """
    witness = change.witness
    is_connector = change.subject.startswith("connector ")
    subject = change.subject.removeprefix("connector ")
    counts = [int(text) for text in (change.before, change.after) if text is not None and text.isdigit()]
    least = min((count for count in counts if count or subject != "maxSessions"), default=0)
    usage = Usage(
        total=least if subject == "maxConnections" else 0,
        of_user=least if subject == "maxConnectionsPerUser" else 0,
        of_host=least if subject == "maxConnectionsPerHost" else 0,
    )
    now = datetime.fromisoformat(witness.at).timestamp() if witness.at is not None else None
    if is_connector:
        judged = decide_connector(ruleset, witness.vhost, witness.user, now)
    else:
        facts = ConnectionFacts(
            user=witness.user,
            remote_host=witness.host,
            requested_vhost=witness.vhost,
            connection_name="witness",
            groups=witness.groups,
            now=now,
        )
        judged = decide_connection(ruleset, facts, usage)
    is_allowed, settings = judged.decision.is_allowed, judged.settings
    if not is_allowed or subject in ("connect", "maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"):
        return float(is_allowed)
    if subject == "management":
        rights = settings.management if settings is not None else UNRESTRICTED
        return float(holds(rights, witness.right or ""))
    if settings is None:
        return float("inf") if change.before is not None and change.after not in ("true", "false") else 1.0
    match subject:
        case "send" | "receive":
            address = resolve_named(witness.address, router_id=router_id)
            link = LinkFacts(direction=witness.direction or "send", address=address)
            return float(decide_link(settings, link).is_allowed)
        case "allowDynamicSource":
            return float(
                decide_link(settings, LinkFacts(direction="receive", address=None, is_dynamic=True)).is_allowed
            )
        case "allowAnonymousSender":
            return float(decide_link(settings, LinkFacts(direction="send", address=None)).is_allowed)
        case "maxSessions":
            return float(decide_session(settings, least).is_allowed)
        case "maxSenders" | "maxReceivers":
            direction: Direction = "send" if subject == "maxSenders" else "receive"
            decision = decide_link(settings, LinkFacts(direction=direction, address=None, open_links=least))
            return float(decision.reason not in (Reason.SENDER_LIMIT, Reason.RECEIVER_LIMIT))
        case "maxMessageSize":
            return settings.max_message_size or float("inf")
        case "allowReplies":
            return float(settings.allow_replies and settings.max_senders > 0 and settings.max_receivers > 0)
        case "replyWindow":
            return settings.reply_window_s
        case "maxMessageRate" | "maxByteRate":
            rate = settings.max_message_rate if subject == "maxMessageRate" else settings.max_byte_rate
            return float("inf") if rate is None else rate
        case _:
            return float({key: getattr(settings, name) for key, name in SWITCHES.items()}[subject])
