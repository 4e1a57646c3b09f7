"""Fragments of lines. A line is a few joined fragments, most of which are made once and reused."""

import json
from collections.abc import Mapping
from typing import Any

STATES = ("stage", "decision", "reason", "detail", "rule")
PEERS = ("user", "mechanism", "is_encrypted", "remote_host", "requested_vhost", "vhost", "group")
PLACES = ("direction", "address", "link_name")
ENDS = ("redecision", "condition", "truncated")
DIGEST_CHARS = 64
LISTENER = "0.0.0.0:5671"

_EMPTY: Mapping[str, Any] = {"detail": "", "is_encrypted": True, "truncated": False}
_CONDITIONS = {"accept": None, "audit": None, "sasl": None, "header": None}


def state(**event: Any) -> str:
    return _rendered(STATES, event)


def peer(**event: Any) -> str:
    return _rendered(PEERS, event)


def place(**event: Any) -> str:
    return _rendered(PLACES, event)


def end(*, stage: str, decision: str, management: Mapping[str, Any] | None = None) -> str:
    refused = "amqp:unauthorized-access" if decision == "deny" else None
    text = _rendered(ENDS, {"condition": _CONDITIONS.get(stage, refused)})
    return text if management is None else f"{text},{_rendered(('management',), {'management': management})}"


def _rendered(names: tuple[str, ...], event: Mapping[str, Any]) -> str:
    whole = {name: event.get(name, _EMPTY.get(name)) for name in names}
    return json.dumps(whole, ensure_ascii=True, separators=(",", ":"))[1:-1]
