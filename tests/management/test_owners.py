"""Kinds and owners of entity types: nothing branches on the name of a type, and no owner is reached past the agent."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import SCHEMA, Bench, LiveRows, bench

from policy.configuration.kinds import KINDS
from policy.configuration.schema import load_schema
from policy.rights import NOTHING, read_rights
from router.management.owners import Owner

ROOT = Path(__file__).resolve().parents[2]
# A missing id is random, which a kind is not.
BRANCHES = ["validation.py: router"]
CHANGING = ("create", "update", "delete", "change")
OPERATIONS = ("CREATE", "READ", "UPDATE", "QUERY", "CALLME", "PROFILE", "GET-LOG", "ANYTHING", "DELETE")
# Those that have no types below them: requests of the others are for those.
TYPES = [name for name, each in SCHEMA.types.items() if sum(1 for _ in SCHEMA.subtypes(each)) == 1]


def branches(path: Path) -> Iterator[str]:
    """The names of types that the short name of a type is compared with."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Compare):
            subject: ast.expr = node.left
            others: list[ast.AST] = [*node.comparators]
        elif isinstance(node, ast.Match):
            subject, others = node.subject, [*node.cases]
        else:
            continue
        sides = [each for side in (subject, *others) for each in ast.walk(side)]
        if any(isinstance(each, ast.Attribute) and each.attr in ("short_name", "type") for each in sides):
            texts = [each.value for each in sides if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield from (f"{path.name}: {text}" for text in texts if text in load_schema().types and text != "entity")


def test_no_branch_on_the_name_of_a_type() -> None:
    rooms = ("router/management", "router/control", "policy/configuration")
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    assert [found for path in files for found in branches(path)] == BRANCHES


def test_kinds_are_types_of_the_schema_and_each_is_there_once() -> None:
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names))
    assert set(names) <= load_schema().types.keys()


def test_an_owner_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(KeyError):
        bench().store.own(Owner(type="listenr"))


def owned(calls: list[str], name: str) -> Bench:
    """An agent whose owner of the type notes each call but those for rows."""
    made = bench(
        "router {\n id: R\n}\nsslProfile {\n name: s\n}\naddress {\n name: a\n prefix: a\n}\ndummy {\n name: d\n}\n"
        "exchange {\n name: e\n address: e\n}\n"
    )
    row = {"name": "x", "identity": "1", "role": "normal"}
    if not any(True for _ in made.store.entities(name)):
        made.store.own(LiveRows(name, lambda: iter([dict(row)])).owner())

    def noted(*_: Any) -> None:
        calls.append(name)

    further = {each: lambda _: calls.append(name) for each in OPERATIONS if each not in ("READ", "QUERY")}
    made.own(name, **dict.fromkeys(CHANGING, noted), operations=further)
    made.events.clear()
    return made


def requests() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    bodies: list[dict[str, Any]] = [
        {},
        {"prefix": "b", "port": "1", "hostname": "v", "remoteHost": "10.0.0.1", "adminStatus": "deleted"},
        {"adminStatus": "deleted"},
        {"prefix": "b"},
        {"port": "1"},
        {"hostname": "v"},
        {"enable": "debug+"},
        {"arg1": "b"},
        {"remoteHost": "10.0.0.1"},
        {"address": "f", "direction": "in"},
        {"prefix": "f", "direction": "in"},
        {"exchangeName": "e", "nextHopAddress": "n"},
    ]
    selectors = [{"name": each} for each in ("new", "s", "d", "a", "e", "log/AGENT", "self", "x")]
    for operation in OPERATIONS:
        for selector in (*selectors, {"identity": "1"}, {}):
            for body in bodies if operation in ("CREATE", "UPDATE") else bodies[:1]:
                yield operation, selector, body


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_no_owner_is_called_without_the_right(name: str) -> None:
    """Attack: an entity type that was added later, whose owner checks nothing."""
    calls: list[str] = []
    made = owned(calls, name)
    for rights in (NOTHING, read_rights(f"read {name}"), read_rights("read *")):
        made.rights = rights
        for operation, selector, body in requests():
            if operation == "GET-LOG" and rights is not NOTHING:
                continue  # it takes no other right
            made.ask(operation, body, type=name, **selector)
            assert calls == [], (operation, selector, body)


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPES)
def test_every_change_by_an_owner_is_recorded(name: str) -> None:
    calls: list[str] = []
    made = owned(calls, name)
    for operation, selector, body in requests():
        calls.clear()
        made.events.clear()
        made.ask(operation, body, type=name, **selector)
        if calls and operation != "GET-LOG":
            assert [each["management"]["operation"] for each in made.events] == [operation]
