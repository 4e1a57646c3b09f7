"""Decides one recorded event again, by `policy.decide`, the same function as in the router.

An event is a mapping of the members of schemas/audit_event.json, with `time_s` in place of `time`. Missing facts are
never guessed: such an event is not replayed, and the reason says what is missing. There are two exceptions. The record
itself may prove the fact: the reason of a denial `dynamic_source` shows that a dynamic source was asked for. And a null
count in the sum of a flood counts as 0.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from policy.addressing.address import resolve_named
from policy.decide import (
    ALLOWED,
    FALLBACK_CAPABILITY,
    WAYPOINT_CAPABILITY_PREFIX,
    Settings,
    decide_accept,
    decide_connection,
    decide_link,
    decide_message,
    decide_session,
    decide_ungoverned_link,
)
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, GrantedAddresses, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset

Event = Mapping[str, Any]

# stage -> the reasons that policy.decide gives there. Other reasons do not come from policy.
_OPEN: Final = frozenset(
    {
        *("allowed", "no_vhost", "unknown_user", "reserved_user_name", "group_not_valid", "host_not_allowed"),
        *("vhost_connection_limit", "user_connection_limit", "host_connection_limit"),
    }
)
_ATTACH: Final = frozenset(
    {
        *("allowed", "sender_limit", "receiver_limit", "waypoint_capability", "fallback_capability"),
        *("source_not_allowed", "target_not_allowed", "anonymous_sender", "dynamic_source", "no_source_address"),
        *("unclear_address", "dynamic_address_not_own", "reply_window_over", "reply_not_expected"),
    }
)
_TRANSFER: Final = frozenset(
    {
        *("allowed", "message_target_not_allowed", "unclear_address", "user_id_proxy", "message_too_large"),
        *("reply_window_over", "reply_not_expected"),
    }
)
DECIDED: Final[Mapping[str, frozenset[str]]] = {
    "accept": frozenset({"router_connection_limit"}),
    "open": _OPEN,
    "begin": frozenset({"allowed", "session_limit"}),
    "attach": _ATTACH,
    "transfer": _TRANSFER,
}
# schema_version since which `asked` is complete, by stage.
_ASKED_SINCE: Final = {"attach": 5, "transfer": 6}
NOT_ASKED: Final = "policy was not asked"  # in `detail`, for a listener without policy
# Connections whose settings one worker remembers. Stops a trail with endless users from filling the memory.
_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    decision  the policy's decision; None: not replayed, `why` says what is missing
    at_open   the decision is about the connection, on which a link or message depends
    """

    decision: Decision | None
    why: str = ""
    at_open: bool = False

    @property
    def rule(self) -> Rule:
        return (self.decision.rule if self.decision is not None else None) or Rule()


class Replay:
    """Replays recorded events with a ruleset."""

    def __init__(self, ruleset: Ruleset) -> None:
        self._ruleset = ruleset
        self._connections: dict[tuple[Any, ...], tuple[Decision, Settings | None]] = {}

    def decide(self, event: Event) -> Replayed:
        stage, reason = event["stage"], event["reason"]
        if event["decision"] not in ("allow", "deny") or reason not in DECIDED.get(stage, frozenset()):
            return _not(f"not a decision of policy: {reason} at stage {stage}")
        if event.get("detail") == NOT_ASKED:
            return _not(NOT_ASKED)
        if event.get("source") == "qdrouterd" and stage != "open":
            return _not("the log of 1.20 does not say all that was asked")
        match stage:
            case "accept":
                count = _usage(event).get("open_connections")
                if count is None:
                    return _not("the count of connections is not recorded")
                return Replayed(decision=decide_accept(self._ruleset, count))
            case "open":
                return self._open(event)
            case _:
                pass
        opened, settings = self._connection(event)
        if not opened.is_allowed:
            return Replayed(decision=opened, at_open=True)
        if stage == "begin":
            return self._begin(event, settings)
        return self._attach(event, settings) if stage == "attach" else self._message(event, settings)

    def _open(self, event: Event) -> Replayed:
        usage = _usage(event)
        counts = [usage.get(name) for name in ("total", "of_user", "of_host")]
        is_sum = event.get("folded") is not None
        if None in counts and (event["reason"].endswith("_limit") or not is_sum) and event["reason"] != "no_vhost":
            return _not("the counts of connections are not recorded")
        if is_sum and (event["user"] is None or event["remote_host"] is None):
            return _not("a sum of requests that differ")
        total, of_user, of_host = (count or 0 for count in counts)
        judged = decide_connection(
            self._ruleset, connection_facts(event), Usage(total=total, of_user=of_user, of_host=of_host)
        )
        return Replayed(decision=judged.decision)

    def _connection(self, event: Event) -> tuple[Decision, Settings | None]:
        """Decides whether an open connection would be admitted, and with which settings.

        Ignores counts, since it had a place.
        """
        facts = connection_facts(event)
        key = (facts.user, facts.remote_host, facts.requested_vhost, facts.groups, facts.granted, self._span(facts.now))
        known = self._connections.get(key)
        if known is None:
            judged = decide_connection(self._ruleset, facts, Usage())
            if len(self._connections) >= _MAX_REMEMBERED:
                self._connections.clear()
            known = self._connections[key] = (judged.decision, judged.settings)
        return known

    def _span(self, now: float | None) -> int:
        """Returns the interval between two boundaries of the ruleset, in which time does not change decisions."""
        return sum(edge <= (now or 0) for edge in self._ruleset.boundaries)

    def _begin(self, event: Event, settings: Settings | None) -> Replayed:
        count = _usage(event).get("open_sessions")
        if count is None:
            return _not("the count of sessions is not recorded")
        return Replayed(decision=ALLOWED if settings is None else decide_session(settings, count))

    def _attach(self, event: Event, settings: Settings | None) -> Replayed:
        facts = link_facts(event)
        if isinstance(facts, str):
            return _not(facts)
        if settings is None:
            is_governed = self._ruleset.is_enabled
            return Replayed(decision=decide_ungoverned_link(facts) if is_governed else ALLOWED)
        return Replayed(decision=decide_link(settings, facts))

    def _message(self, event: Event, settings: Settings | None) -> Replayed:
        if settings is None:
            return Replayed(decision=ALLOWED)
        reason = event["reason"]
        if reason == "message_too_large":
            most, was = settings.max_message_size, event.get("limit")
            if most and was is not None and most <= was:
                rule = settings.rule("maxMessageSize", most)
                return Replayed(decision=Decision(is_allowed=False, reason=Reason.MESSAGE_TOO_LARGE, rule=rule))
            return _not("the size of the message is not recorded") if most else Replayed(decision=ALLOWED)
        if reason == "user_id_proxy":
            claimed = event.get("user_id")
            if claimed is not None and claimed != event["user"] and not event["truncated"]:
                return Replayed(decision=decide_message(settings, MessageFacts(user_id=claimed.encode())))
            if settings.allow_user_id_proxy:
                return Replayed(decision=ALLOWED)
            # Refused for a user id that is not the user's: every policy that does not allow other user ids refuses it
            # too.
            rule = settings.rule("allowUserIdProxy", "false")
            return Replayed(decision=Decision(is_allowed=False, reason=Reason.USER_ID_PROXY, rule=rule))
        if event["address"] is None and event.get("folded") is not None:
            return _not("a sum of requests that differ")
        asked = _asked(event)
        if asked is None and reason in ("reply_window_over", "reply_not_expected"):
            return _not("the age of the reply is not recorded")
        text = event["address"]
        target = resolve_named(text, router_id=event["router"])
        facts = MessageFacts(
            target=target,
            is_blank_target=not text,
            dynamic_address=_dynamic(event),
            reply_age_s=_reply_age_s(asked or {}),
        )
        return Replayed(decision=decide_message(settings, facts))


def connection_facts(event: Event) -> ConnectionFacts:
    granted = event.get("granted")
    lists = json.loads(granted) if granted else None
    return ConnectionFacts(
        user=event["user"],
        remote_host=event["remote_host"] or "",
        requested_vhost=event["requested_vhost"] or "",
        connection_name=event["connection_name"] or "",
        mechanism=event["mechanism"],
        is_encrypted=event["is_encrypted"],
        groups=tuple(json.loads(event.get("groups") or "[]")),
        granted=GrantedAddresses(sources=tuple(lists["recv"]), targets=tuple(lists["send"])) if lists else None,
        now=event["time_s"],
    )


def link_facts(event: Event) -> LinkFacts | str:
    """Returns what an Attach asked for. A text says which part is not recorded."""
    reason, address, asked = event["reason"], event["address"], _asked(event)
    direction: Literal["send", "receive"] | None = event["direction"]
    if direction is None:
        return "the direction of the link is not recorded"
    is_sum = event.get("folded") is not None
    if address is None and is_sum and reason not in ("dynamic_source", "anonymous_sender", "no_source_address"):
        return "a sum of requests that differ"
    count = _usage(event).get("open_links")
    if count is None and (reason.endswith("_limit") or not is_sum):
        return "the count of links is not recorded"
    capabilities: tuple[str, ...] = {
        "waypoint_capability": (WAYPOINT_CAPABILITY_PREFIX,),
        "fallback_capability": (FALLBACK_CAPABILITY,),
    }.get(reason, ())
    facts = LinkFacts(
        direction=direction,
        address=resolve_named(address, router_id=event["router"]),
        is_dynamic=reason == "dynamic_source",
        capabilities=capabilities,
        open_links=count or 0,
        dynamic_address=_dynamic(event),
    )
    if asked is not None:
        return replace(
            facts,
            is_dynamic=bool(asked.get("is_dynamic")),
            is_coordinator=bool(asked.get("is_coordinator")),
            capabilities=tuple(json.loads(asked.get("capabilities") or "[]")),
            reply_age_s=_reply_age_s(asked),
        )
    if address is None and direction == "receive" and reason not in ("dynamic_source", "no_source_address"):
        return "whether the source was to be dynamic is not recorded"
    if reason in ("reply_window_over", "reply_not_expected"):
        return "the age of the reply is not recorded"
    return facts


def _asked(event: Event) -> Mapping[str, Any] | None:
    """Returns further facts of a link. None: not recorded. In later versions it is absent if there are none."""
    asked: Mapping[str, Any] | None = event.get("asked")
    if asked is None and event.get("folded") is None and event["schema_version"] >= _ASKED_SINCE[event["stage"]]:
        return {}
    return asked


def _reply_age_s(asked: Mapping[str, Any]) -> float | None:
    age_ms = asked.get("reply_age_ms")
    return None if age_ms is None else age_ms / 1000


def _dynamic(event: Event) -> Literal["own", "other"] | None:
    asked = event.get("asked") or {}
    if asked.get("dynamic_address") is not None:
        said: Literal["own", "other"] = asked["dynamic_address"]
        return said
    return "other" if event["reason"] == "dynamic_address_not_own" else None


def _usage(event: Event) -> Mapping[str, int | None]:
    return event.get("usage") or {}


def _not(why: str) -> Replayed:
    return Replayed(decision=None, why=why)
