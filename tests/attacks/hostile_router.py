"""A router under an attacker's control, for qdstat and qdmanage: it answers each request with what the test chose."""

import io
import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from loopback_router import LoopbackRouter, reply_to

from router.amqp.codec import Message
from router.tools import qdmanage, qdstat

PREFIX = "org.apache.qpid.dispatch."
# What no terminal and no reader of a log may get: control characters, directional marks, what cannot be seen.
UNSEEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)


def hostile_router(
    entities: Mapping[str, Any] | None = None, others: Mapping[str, Any] | None = None
) -> LoopbackRouter:
    """entities  short type name -> rows for a QUERY
    others    operation -> body of the answer, or a function of the request that gives the whole message
    """

    def answer(request: Message) -> list[bytes]:
        operation = request.application_properties["operation"]
        if operation == "QUERY" and operation not in (others or {}):
            short = str(request.application_properties.get("entityType")).removeprefix(PREFIX)
            rows = (entities or {}).get(short, [])
            names = list(dict.fromkeys(name for row in rows for name in row))
            results = [[row.get(name) for name in names] for row in rows]
            return [reply_to(request, {"attributeNames": names, "results": results})]
        body = (others or {}).get(operation)
        return [body(request) if callable(body) else reply_to(request, body)]

    return LoopbackRouter(answer=answer)


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    out: str


def run(tool: str, router: LoopbackRouter, *arguments: str) -> Ran:
    """qdstat or qdmanage, on no terminal."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = {"qdstat": qdstat, "qdmanage": qdmanage}[tool].main(["-b", f"127.0.0.1:{router.port}", *arguments])
    return Ran(status, out.getvalue())
