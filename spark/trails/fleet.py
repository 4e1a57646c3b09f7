"""The users of a synthetic trail, and their actions on a quiet day."""

from dataclasses import dataclass

import numpy as np

from spark.trails import fragments

VHOSTS = tuple(f"tenant-{number}.example" for number in range(5))
ADDRESSES = 300
# stage, decision, reason, direction, share. Each is rare for a single user: a quiet day has no incident.
_QUIET = (
    ("open", "allow", "allowed", None, 0.30),
    ("attach", "deny", "source_not_allowed", "receive", 0.22),
    ("attach", "deny", "target_not_allowed", "send", 0.18),
    ("transfer", "deny", "message_target_not_allowed", "send", 0.08),
    ("open", "deny", "host_not_allowed", None, 0.06),
    ("open", "deny", "unknown_user", None, 0.05),
    ("sasl", "deny", "sasl_failed", None, 0.06),
    ("engine", "deny", "idle_timeout", None, 0.05),
)
_FEW_ADDRESSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of action on a quiet day."""

    stage: str
    decision: str
    reason: str
    direction: str | None
    share: float


QUIET = tuple(Kind(stage=a, decision=b, reason=c, direction=d, share=e) for a, b, c, d, e in _QUIET)


def user_name(number: int) -> str:
    return f"user-{number}"


def host_of(number: int) -> str:
    """Returns the host of a user. Every user has one host."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def vhost_of(number: int) -> str:
    return VHOSTS[number % len(VHOSTS)]


def peer_of(number: int, *, has_logged_in: bool = True) -> str:
    vhost = vhost_of(number) if has_logged_in else None
    return fragments.peer(
        user=user_name(number),
        mechanism="PLAIN",
        remote_host=host_of(number),
        requested_vhost=vhost,
        vhost=vhost,
        group="staff" if has_logged_in else None,
    )


def rule_of(kind: Kind) -> dict[str, object] | None:
    if kind.stage not in ("attach", "transfer"):
        return None
    item = "sources" if kind.direction == "receive" else "targets"
    return {"vhost": None, "group": "staff", "item": item, "file": "policy.json", "line": 12}


def address_numbers(
    users: "np.ndarray[tuple[int], np.dtype[np.int64]]", draws: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Returns addresses.

    An application with a wrong policy asks for few addresses repeatedly: each user has its own few.
    """
    return (users * 7 + draws % _FEW_ADDRESSES) % ADDRESSES
