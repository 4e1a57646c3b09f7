"""The public list of reasons against those that the code can say: none that is never said, none that is not public.

Attack on the auditor: a report that waits for a reason that no code path has, and takes its absence for good news.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import schemas
from policy.decision import Reason
from router.audit.event import CHECKPOINT, END_RECOVERED, EVENTS_LOST, FILE_DELETED, LOG_CLOSED
from router.effects import RouterReason

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLIC = set(schemas.load("audit_event")["properties"]["reason"]["enum"])
OWN = set(get_args(RouterReason))
OF_THE_LOG = {CHECKPOINT, END_RECOVERED, EVENTS_LOST, FILE_DELETED, LOG_CLOSED}
OF_POLICY = {reason.value for reason in Reason}
# Where events are made. The rest of `policy` only speaks of reasons.
SAYING = (
    *sorted((ROOT / "router").rglob("*.py")),
    *(ROOT / "policy" / f"{name}.py" for name in ("decide", "rights", "router_ids")),
)
# Calls that make an event, or what becomes one; and how many arguments stand before the reason.
CALLS = {"fail": 1, "audit_event": 2, "record": 2, "_record": 0, "_tell": 1}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8"), str(path)) for path in SAYING}


def said() -> Iterator[str]:
    """Every reason that the code names, but where it only compares with one or looks one up."""
    for path, tree in trees().items():
        looked_at = set()
        for node in ast.walk(tree):
            match node:
                case ast.Compare():
                    looked_at |= {id(each) for each in (node.left, *node.comparators)}
                case ast.Dict():
                    looked_at |= {id(each) for each in node.keys}
                case ast.Set(elts=elements):
                    looked_at |= {id(each) for each in elements}
                case ast.Assign(targets=[ast.Name(id="RouterReason")], value=literal):
                    looked_at |= {id(each) for each in ast.walk(literal)}
        looked_at |= {
            id(element)
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            for container in node.comparators
            if isinstance(container, ast.Tuple | ast.Set | ast.List)
            for element in container.elts
        }
        for node in ast.walk(tree):
            if id(node) in looked_at:
                continue
            match node:
                case ast.Attribute(value=ast.Name(id="Reason"), attr=name):
                    yield Reason[name].value
                case ast.Constant(value=str(text)) if text in PUBLIC and path.parent.name != "audit":
                    yield text


def named_in_calls() -> Iterator[tuple[str, str]]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            before = CALLS.get(name)
            if before is None or len(node.args) <= before:
                continue
            argument = node.args[before]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, f"{path.relative_to(ROOT)}:{node.lineno}"


def test_the_public_reasons_are_those_of_the_policy_the_router_and_the_log() -> None:
    assert OF_POLICY | OWN | OF_THE_LOG == PUBLIC


def test_every_public_reason_is_said_somewhere() -> None:
    assert sorted(PUBLIC - OF_THE_LOG - set(said())) == []


def test_every_reason_that_is_said_is_public() -> None:
    found = {(reason, where) for reason, where in named_in_calls() if re.fullmatch(r"[a-z]+(_[a-z]+)+", reason)}
    assert {reason for reason, _ in found} >= {"handshake_timeout", "vhost_changed", "handshake_aborted"}
    assert sorted((reason, where) for reason, where in found if reason not in PUBLIC) == []


def test_the_page_for_auditors_names_every_public_reason() -> None:
    page = (ROOT / "docs" / "audit-events.md").read_text()
    section = page[page.index("### Reasons") : page.index("### Changes by management")]
    assert sorted(PUBLIC - set(re.findall(r"`([a-z_]+)`", section))) == []
    table = section[: section.index("| reason | means |")]
    assert sorted(set(re.findall(r"`([a-z_]+)`", table)) - PUBLIC) == []
