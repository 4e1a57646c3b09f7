"""Converts the C router's log (POLICY and SERVER, docs/spec/policy-and-auth.md) to events of the same table.

So fleets that have not migrated yet are audited too. Other lines of the log are skipped. A line that reports a denial
and cannot be read with certainty is a fault, never a guess.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from spark.lines.judge import Judged, columns

# That router cuts a text at 2048 bytes. Limits the cost of a line made to be matched in many ways.
MAX_LINE_BYTES = 4096

_LINE = re.compile(
    r"(?:(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4}) )?(?P<module>POLICY|SERVER) \((?P<level>\w+)\) "
    r"(?:\[C(?P<connection>\d{1,18})\])?(?:\[L\d+\])? ?(?P<text>.*)",
    re.DOTALL,
)
_TOLD = re.compile(rb"(?:POLICY \((?:info|warning)\) .*\bDENY |SERVER \(info\) \[C\d+\] Connection from .* failed: )")
_NUMERIC_HOST = re.compile(r"[0-9A-Fa-f:.]{1,45}(%[0-9A-Za-z._-]{1,15})?")
_MAX_CHARS = {"detail": 1024, "address": 1024, "user": 256, "vhost": 256, "listener": 300, "connection_name": 128}

_WHO = r"user '(?P<user>.*)', rhost '(?P<remote_host>.*)', vhost '(?P<vhost>.*)'"
# Tried in turn. Named groups are members of the event.
_POLICY: Sequence[tuple[re.Pattern[str], Mapping[str, Any]]] = [
    (re.compile(text, re.DOTALL), says)
    for text, says in [
        (
            r"DENY Connection '(?P<remote_host>.*)' based on global connection count\. "
            r"nConnections= (?P<limit>\d{1,18})",
            {"stage": "accept", "reason": "router_connection_limit"},
        ),
        (
            rf"DENY AMQP Open lookup_user failed for {_WHO}: Internal error: .*",
            {"stage": "open", "reason": "internal_error"},
        ),
        *(
            (rf"DENY AMQP Open for {_WHO}: {text}", {"stage": "open", "reason": reason})
            for text, reason in [
                (r"No policy defined for vhost", "no_vhost"),
                (r"User name is reserved for addresses of the router", "reserved_user_name"),
                (r"User is not in a user group and unknown users are denied", "unknown_user"),
                (r"User is not allowed to connect from this network host", "host_not_allowed"),
                (r"Connection denied by application connection limit", "vhost_connection_limit"),
                (r"Connection denied by application per user limit", "user_connection_limit"),
                (r"Connection denied by application per host limit", "host_connection_limit"),
            ]
        ),
        (
            r"DENY AMQP Begin Session due to session limit\. "
            r"user: (?P<user>.*), rhost: (?P<remote_host>.*), vhost: (?P<vhost>.*)",
            {"stage": "begin", "reason": "session_limit"},
        ),
        *(
            (
                rf"DENY AMQP Attach {link} for {_WHO}{rest}",
                {
                    "stage": "attach",
                    "reason": reason,
                    "direction": "receive" if link.startswith("receiver") else "send",
                },
            )
            for link, rest, reason in [
                ("sender", r" based on maxSenders limit", "sender_limit"),
                ("receiver", r" based on maxReceivers limit", "receiver_limit"),
                ("sender link '(?P<address>.*)'", r"\.  Waypoint capability not permitted", "waypoint_capability"),
                ("sender link '(?P<address>.*)'", r"\.  Fallback capability not permitted", "fallback_capability"),
                ("sender link '(?P<address>.*)'", r" based on link target name", "target_not_allowed"),
                ("anonymous sender", "", "anonymous_sender"),
                ("receiver dynamic source", ",?", "dynamic_source"),
                ("receiver link '(?P<address>.*)'", r"\.  Waypoint capability not permitted", "waypoint_capability"),
                ("receiver link '(?P<address>.*)'", r"\.  Fallback capability not permitted", "fallback_capability"),
                ("receiver link '(?P<address>.*)'", r" based on link source name", "source_not_allowed"),
                ("receiver link ''", "", "no_source_address"),
            ]
        ),
        (
            rf"DENY AMQP message to '(?P<address>.*)' for {_WHO} based on target address",
            {"stage": "transfer", "reason": "message_target_not_allowed", "direction": "send"},
        ),
        (
            r"DENY AMQP Transfer maxMessageSize exceeded",
            {"stage": "transfer", "reason": "message_too_large", "direction": "send"},
        ),
    ]
]  # fmt: skip
_FAILED = re.compile(
    r"Connection from (?P<connection_name>\S+) \(to (?P<listener>\S+)\) failed: (?P<detail>.*)", re.DOTALL
)
_FAILURES: Sequence[tuple[re.Pattern[str], str, str]] = [
    (re.compile(text, re.DOTALL), stage, reason)
    for text, stage, reason in [
        (r"amqp:unauthorized-access .*Client mechanism not in mechanism inclusion list\..*", "sasl", "sasl_mechanism"),
        (r"amqp:unauthorized-access .*Failed to authenticate client \[mech=.*", "sasl", "sasl_failed"),
        (
            r"amqp:connection:policy-error Client skipped authentication - forbidden.*",
            "header",
            "authentication_required",
        ),
        (r"amqp:connection:policy-error Client connection unencrypted - forbidden.*", "header", "encryption_required"),
        (r"amqp:connection:framing-error SSL Failure: .*", "tls", "tls_handshake_failed"),
        (r"amqp:resource-limit-exceeded local-idle-timeout expired.*", "engine", "idle_timeout"),
    ]
]
_MECHANISM = re.compile(r"\[mech=([\w-]{1,64})\]")
_SOURCE = re.compile(r" \(/?\S+:\d+\)\Z")


class _UnreadableError(Exception):
    """A denial that cannot be read with certainty. The text says why."""


def judge(lines: Sequence[bytes], router: str, file: str, offsets: Iterable[int]) -> Judged:
    """Validates lines of the C router's log like spark.lines.judge.judge. A line without a denial yields nothing.

    router   the router's id, which its log does not contain
    file     and offsets: where each line begins; together with the line they give the event's id, always the same
    """
    events: list[dict[str, Any]] = []
    places: list[int] = []
    faults: dict[int, str] = {}
    for place, (line, offset) in enumerate(zip(lines, offsets, strict=True)):
        if _TOLD.search(line[:MAX_LINE_BYTES]) is None:
            continue
        try:
            event = _event(line)
        except _UnreadableError as error:
            faults[place] = str(error)
            continue
        if event is not None:
            known = f"{router}\0{file}\0{offset}\0".encode("utf-8", "surrogatepass") + line
            events.append({**event, "event_id": hashlib.sha256(known).hexdigest()[:32], "router": router})
            places.append(place)
    return Judged(events=columns(events), places=places, faults=faults)


def _event(line: bytes) -> dict[str, Any] | None:
    """Returns one line's denial. None if the line reports something else.

    Errors  _UnreadableError.
    """
    if len(line) > MAX_LINE_BYTES:
        raise _UnreadableError(f"longer than {MAX_LINE_BYTES} bytes")
    found = _LINE.fullmatch(line.removesuffix(b"\r").decode("utf-8", "replace"))
    if found is None:
        return None
    said = _policy(found["text"]) if found["module"] == "POLICY" else _server(found["text"])
    if said is None:
        return None
    if found["time"] is None:
        raise _UnreadableError("no time: the log is without timestamps, or of another form")
    try:
        moment = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S.%f %z").astimezone(UTC)
    except (ValueError, OverflowError):
        raise _UnreadableError("time: no such moment") from None
    event = {
        "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "decision": "deny",
        "connection": int(found["connection"]) if found["connection"] else None,
        "detail": found["text"],
        **said,
    }
    return event | {name: _cut(event.get(name), most) for name, most in _MAX_CHARS.items()}


def _policy(text: str) -> dict[str, Any] | None:
    if not text.startswith("DENY "):
        return None
    if text.count("', rhost '") > 1 or text.count("', vhost '") > 1 or text.count(", rhost: ") > 1:
        # A peer chose the names, and one may look like the rest of the line.
        raise _UnreadableError("a name in it looks like a part of the line: it can be read in two ways")
    for pattern, says in _POLICY:
        found = pattern.fullmatch(_SOURCE.sub("", text))
        if found is not None:
            event = {**found.groupdict(), **says}
            host = event.get("remote_host") or ""
            requested = _known(event.pop("vhost", None))
            event |= {"requested_vhost": requested, "vhost": requested, "user": _known(event.get("user"))}
            event["remote_host"] = host if _NUMERIC_HOST.fullmatch(host) else None
            event["limit"] = int(event["limit"]) if "limit" in event else None
            return event
    raise _UnreadableError("a denial of a kind that is not known")


def _server(text: str) -> dict[str, Any] | None:
    found = _FAILED.fullmatch(_SOURCE.sub("", text))
    if found is None:
        return None
    for pattern, stage, reason in _FAILURES:
        if pattern.fullmatch(found["detail"]):
            mechanism = _MECHANISM.search(found["detail"])
            host = found["connection_name"].rpartition(":")[0].strip("[]")
            return {
                **found.groupdict(),
                "stage": stage,
                "reason": reason,
                "condition": found["detail"].partition(" ")[0],
                "remote_host": host if _NUMERIC_HOST.fullmatch(host) else None,
                "mechanism": None if mechanism is None or mechanism[1] == "none" else mechanism[1],
            }
    return None


def _known(name: str | None) -> str | None:
    return None if name in (None, "", "(null)") else name


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else text[:most]
