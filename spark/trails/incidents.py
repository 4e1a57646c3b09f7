"""Incidents with their ground truth, one kind for each detector of `qdaudit detect`."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark.trails import fleet, fragments

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
# First a baseline, in which every user is seen once; a user is dormant after 90 days.
_BASELINE = 9 * DAY
_DORMANT = 92 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of an incident.

    at, router  microseconds since the epoch; a number. All else are fragments of the line
    """

    event_id: str
    at: int
    router: int
    state: str
    peer: str
    place: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The trail in which incidents are planted: begin and end in microseconds since the epoch.

    hourly  quiet events of a router in an hour
    """

    begin: int
    end: int
    routers: Sequence[str]
    users: int
    hourly: float
    draw: random.Random


@dataclass(slots=True)
class Planted:
    """The planted events.

    truth    lines of truth.jsonl
    changes  router number -> when its ruleset changes, and the new digest
    """

    events: list[Event] = field(default_factory=list)
    truth: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[int, tuple[int, str]] = field(default_factory=dict)


def plant(scene: Scene, count: int) -> Planted:
    """Plants `count` incidents of each kind, or fewer if the trail is too short or has too few routers."""
    planted = Planted()
    for number in range(count):
        for detector, make in _KINDS.items():
            made = make(scene, number, planted)
            if made is None:
                continue
            subjects, events, evidence = made
            planted.events += events
            times = [event.at for event in evidence]
            planted.truth.append(
                {
                    "detector": detector,
                    "subjects": dict(subjects),
                    "first": min(times),
                    "last": max(times),
                    "events": [event.event_id for event in sorted(evidence, key=lambda event: event.at)],
                }
            )
    return planted


Made = tuple[Mapping[str, str], list[Event], list[Event]]


def _event(scene: Scene, at: int, router: int, **said: Any) -> Event:
    stage, decision = said["stage"], said["decision"]
    return Event(
        event_id=f"{scene.draw.getrandbits(128):032x}",
        at=at,
        router=router,
        state=fragments.state(**said),
        peer=fragments.peer(**said),
        place=fragments.place(**said),
        end=fragments.end(stage=stage, decision=decision, management=said.get("management")),
    )


def _times(scene: Scene, count: int, span: int, begin: int | None = None) -> list[int]:
    """Returns the times of one incident, in order, at a random place after the baseline."""
    last = max(scene.begin + _BASELINE + 1, scene.end - span - 1)
    start = scene.draw.randrange(scene.begin + _BASELINE, last) if begin is None else begin
    return sorted(start + scene.draw.randrange(span) for _ in range(count))


def _somebody(scene: Scene, **more: Any) -> tuple[int, dict[str, Any]]:
    number = scene.draw.randrange(scene.users)
    return number, _as_user(number, **more)


def _as_user(number: int, **more: Any) -> dict[str, Any]:
    vhost = fleet.vhost_of(number)
    known = {"user": fleet.user_name(number), "mechanism": "PLAIN", "remote_host": fleet.host_of(number)}
    return {**known, "requested_vhost": vhost, "vhost": vhost, "group": "staff", **more}


def _login(user: str, host: str, reason: str = "sasl_failed") -> dict[str, Any]:
    return {
        "stage": "sasl", "decision": "deny", "reason": reason, "user": user, "mechanism": "PLAIN", "remote_host": host,
    }  # fmt: skip


_OPENED = {"stage": "open", "decision": "allow", "reason": "allowed"}


def _stranger(scene: Scene, number: int, kind: int) -> str:
    return f"198.{18 + kind % 2}.{number % 250}.{10 + kind}"


def _router(scene: Scene) -> int:
    return scene.draw.randrange(len(scene.routers))


def _brute_force(scene: Scene, number: int, planted: Planted) -> Made:
    who, router = scene.draw.randrange(scene.users), _router(scene)
    user, host = fleet.user_name(who), _stranger(scene, number, 1)
    times = _times(scene, scene.draw.randrange(15, 60), 20 * MINUTE)
    events = [_event(scene, at, router, **_login(user, host)) for at in times]
    return {"user": user, "remote_host": host}, events, events


def _of_many_users(scene: Scene, host: str, routers: Sequence[int]) -> list[Event]:
    names = scene.draw.sample(range(scene.users), min(scene.users, scene.draw.randrange(14, 20)))
    times = _times(scene, len(names), 20 * MINUTE)
    return [
        _event(scene, at, routers[place % len(routers)], **_login(fleet.user_name(who), host))
        for place, (who, at) in enumerate(zip(names, times, strict=True))
    ]


def _password_spraying(scene: Scene, number: int, planted: Planted) -> Made:
    host = _stranger(scene, number, 2)
    events = _of_many_users(scene, host, [_router(scene)])
    return {"remote_host": host}, events, events


def _credential_stuffing(scene: Scene, number: int, planted: Planted) -> Made | None:
    if len(scene.routers) < 2:
        return None
    host = _stranger(scene, number, 3)
    events = _of_many_users(scene, host, range(len(scene.routers)))
    return {"remote_host": host}, events, events


def _address_probing(scene: Scene, number: int, planted: Planted) -> Made:
    _, said = _somebody(scene, stage="attach", decision="deny", reason="source_not_allowed", direction="receive")
    router, times = _router(scene), _times(scene, scene.draw.randrange(15, 50), 8 * MINUTE)
    events = [_event(scene, at, router, **said, address=f"secret.{place}") for place, at in enumerate(times)]
    return {"user": said["user"], "remote_host": said["remote_host"]}, events, events


def _privilege_probing(scene: Scene, number: int, planted: Planted) -> Made:
    who, router = scene.draw.randrange(scene.users), _router(scene)
    types = [
        f"org.apache.qpid.dispatch.{name}" for name in ("vhost", "listener", "sslProfile", "connector", "ban", "log")
    ]
    times = _times(scene, 1 + len(types), 8 * MINUTE)
    events = [_event(scene, times[0], router, **_as_user(who, **_OPENED))]
    for at, entity in zip(times[1:], types, strict=True):
        asked = {
            "operation": "CREATE", "entity_type": entity, "entity_name": None, "entity_identity": None, "before": None,
            "after": "{}", "status": 403,
        }  # fmt: skip
        refused = {"stage": "management", "decision": "deny", "reason": "management_not_allowed", "management": asked}
        events.append(_event(scene, at, router, **_as_user(who, **refused)))
    return {"user": fleet.user_name(who), "remote_host": fleet.host_of(who)}, events, events


def _denied_then_allowed(scene: Scene, number: int, planted: Planted) -> Made:
    who, router = scene.draw.randrange(scene.users), _router(scene)
    user, host = fleet.user_name(who), fleet.host_of(who)
    # Too few for brute force.
    times = _times(scene, 8, 10 * MINUTE)
    events = [_event(scene, at, router, **_login(user, host)) for at in times[:-1]]
    events.append(_event(scene, times[-1] + SECOND, router, **_as_user(who, **_OPENED)))
    return {"user": user, "remote_host": host}, events, events


def _first_seen(scene: Scene, number: int, planted: Planted) -> Made:
    _, said = _somebody(scene, **_OPENED)
    subject = "user" if number % 2 == 0 else "remote_host"
    said[subject] = f"newcomer-{number}" if subject == "user" else f"172.16.{number % 250}.9"
    events = [_event(scene, at, _router(scene), **said) for at in _times(scene, 1, MINUTE)]
    return {subject: said[subject]}, events, events


def _dormant_user(scene: Scene, number: int, planted: Planted) -> Made | None:
    back = scene.begin + DAY + _DORMANT
    if back + MINUTE >= scene.end:
        return None
    who = scene.users + number  # a user that the quiet days do not have
    said, router = _as_user(who, **_OPENED), _router(scene)
    before = [_event(scene, at, router, **said) for at in _times(scene, 5, DAY, scene.begin)]
    woken = [
        _event(scene, at, router, **said)
        for at in _times(scene, 1, MINUTE, scene.draw.randrange(back, scene.end - MINUTE))
    ]
    return {"user": said["user"]}, [*before, *woken], woken


def _limit_saturation(scene: Scene, number: int, planted: Planted) -> Made:
    router, vhost = _router(scene), scene.draw.randrange(len(fleet.VHOSTS))
    refused = {"stage": "begin", "decision": "deny", "reason": "session_limit"}
    numbers = [who for who in range(scene.users) if who % len(fleet.VHOSTS) == vhost]
    times = _times(scene, scene.draw.randrange(15, 40), 4 * MINUTE)
    events = [_event(scene, at, router, **_as_user(scene.draw.choice(numbers), **refused)) for at in times]
    subjects = {"router": scene.routers[router], "vhost": fleet.VHOSTS[vhost], "reason": "session_limit"}
    return subjects, events, events


def _flapping(scene: Scene, number: int, planted: Planted) -> Made:
    _, said = _somebody(scene, **_OPENED)
    router, times = _router(scene), _times(scene, scene.draw.randrange(15, 40), 8 * MINUTE)
    events = [_event(scene, at, router, **said) for at in times]
    subjects = {"router": scene.routers[router], "user": said["user"], "remote_host": said["remote_host"]}
    return subjects, events, events


def _authenticator_outage(scene: Scene, number: int, planted: Planted) -> Made:
    router, times = _router(scene), _times(scene, scene.draw.randrange(10, 30), 4 * MINUTE)
    events = []
    for at in times:
        who = scene.draw.randrange(scene.users)
        said = _login(fleet.user_name(who), fleet.host_of(who), "verifier_unavailable")
        events.append(_event(scene, at, router, **said))
    return {"router": scene.routers[router]}, events, events


def _denial_surge(scene: Scene, number: int, planted: Planted) -> Made | None:
    if number >= len(scene.routers):
        return None
    count = 40 + round(4 * scene.hourly)
    times = _times(scene, count, 40 * MINUTE)
    planted.changes[number] = (times[0] - SECOND, f"{scene.draw.getrandbits(256):064x}")
    refused = {
        "stage": "attach", "decision": "deny", "reason": "target_not_allowed", "direction": "send", "address": "orders",
    }  # fmt: skip
    events = [_event(scene, at, number, **_somebody(scene, **refused)[1]) for at in times]
    return {"router": scene.routers[number], "ruleset_digest": planted.changes[number][1]}, events, events


_KINDS: Mapping[str, Callable[[Scene, int, Planted], Made | None]] = {
    "brute_force": _brute_force,
    "password_spraying": _password_spraying,
    "credential_stuffing": _credential_stuffing,
    "address_probing": _address_probing,
    "privilege_probing": _privilege_probing,
    "denied_then_allowed": _denied_then_allowed,
    "first_seen": _first_seen,
    "dormant_user": _dormant_user,
    "limit_saturation": _limit_saturation,
    "flapping": _flapping,
    "authenticator_outage": _authenticator_outage,
    "denial_surge": _denial_surge,
}


def lines_of(truth: Sequence[Mapping[str, Any]], moment: Callable[[int], str]) -> Iterator[str]:
    for one in truth:
        yield json.dumps({**one, "first": moment(one["first"]), "last": moment(one["last"])}) + "\n"
