"""`qdstat --check`: reports whether the router works well, in one line and the exit status of a monitor's check.

It finds the same kinds of trouble as deploy/monitoring/palisade.rules.yml, if a single look can find them.
"""

from collections.abc import Iterator
from typing import Any

from router.management.client import BadRequestStatus, NotFoundStatus
from router.tools.displays.source import Source
from router.tools.formats import time_long

# With fewer days left on a certificate, there is too little time to renew it in working hours.
DEFAULT_DAYS = 14


def health(source: Source, days: int) -> tuple[bool, str]:
    """Returns True if all is well, and the text of what is wrong, or of what was checked.

    days  a certificate that ends within this number of days is trouble
    """
    (router, *_) = [*source.all("router"), {}]
    listeners, profiles = source.all("listener"), source.all("sslProfile")
    directories, budgets = _extension(source, "authenticatorStats"), _extension(source, "budget")
    held = [each for each in budgets if each.get("kind") == "connection" and each.get("heldBack")]
    troubles = [
        *_of_listeners(listeners),
        *_of_certificates(profiles, days),
        *(f"authenticator {each.get('authenticator')} does not answer" for each in directories if _is_silent(each)),
        *_of_audit(router),
    ]
    if held:
        names = ", ".join(str(each.get("owner")) for each in held[:3])
        troubles.append(f"{len(held)} connections held back: {names}{', ...' if len(held) > 3 else ''}")
    title = f"router {router.get('id')}"
    if troubles:
        return False, f"FAILED: {title}: {'; '.join(troubles)}"
    left = [each["daysToExpiry"] for each in profiles if each.get("daysToExpiry") is not None]
    parts = [
        f"up {time_long(router.get('uptimeSeconds') or 0)}",
        f"{len(listeners)} listening",
        f"certificates {min(left)} days" if left else "no certificate",
        f"{len(directories)} authenticators answer" if directories else "no authenticator",
        f"audit {router.get('auditState') or 'off'}",
        "nobody held back",
    ]
    return True, f"OK: {title}: {', '.join(parts)}"


def _extension(source: Source, entity_type: str) -> list[dict[str, Any]]:
    """Returns the entities of a type that qdrouterd 1.20 lacks.

    If the client may not read them, the error is raised.
    """
    try:
        return source.all(entity_type)
    except (BadRequestStatus, NotFoundStatus):
        return []


def _of_listeners(listeners: list[dict[str, Any]]) -> Iterator[str]:
    if not listeners:
        yield "it has no listener"
    for each in listeners:
        if each.get("listening") is False:  # not shown if all are open
            yield f"listener {each.get('name')} does not listen"


def _of_certificates(profiles: list[dict[str, Any]], days: int) -> Iterator[str]:
    for each in profiles:
        left = each.get("daysToExpiry")
        if left is not None and left < days:
            yield f"the certificate of {each.get('name')} " + (f"ends in {left} days" if left >= 0 else "has ended")


def _is_silent(authenticator: dict[str, Any]) -> bool:
    return authenticator.get("answering") is False


def _of_audit(router: dict[str, Any]) -> Iterator[str]:
    if (state := router.get("auditState")) in ("failing", "overrun"):
        yield f"audit is {state}"
