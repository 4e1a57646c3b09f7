"""A management agent with nothing behind it: handlers that only remember, live rows that are literal."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from policy.configuration.schema import Schema, load_schema
from policy.rights import UNRESTRICTED, ManagementRights
from router.effects import Audit, Effect, Log, Refused
from router.management.agent import Agent, Request, Requester, Response
from router.management.config import Configuration, load_config
from router.management.entities import EntityStore
from router.management.node_operations import node_owner
from router.management.owners import DUMMY, Owner
from router.management.query import Rows

SCHEMA = load_schema().without(
    *("budget", "shadowPolicy", "shadowDisagreement", "authenticatorStats"),
    *(name for name in load_schema().types if name.endswith("Authenticator")),
)  # nobody serves these here
HANDLED = ("listener", "sslProfile", "connector", "vhost", "address", "linkRoute", "autoLink", "exchange", "binding")

Make = Callable[[], Iterable[Mapping[str, object]]]


@dataclass
class LiveRows:
    """An owner of live rows that counts those it makes."""

    type: str
    make: Make
    made: int = 0

    def owner(self) -> Owner:
        return Owner(type=self.type, rows=Rows(self._rows))

    def _rows(self) -> Iterator[Mapping[str, object]]:
        for row in self.make():
            self.made += 1
            yield row


# As where no policy is in force.
ANYBODY = Requester(connection_id=1, rights=UNRESTRICTED)


@dataclass
class Bench:
    """An agent, its store, what the handlers were called with and what was logged."""

    store: EntityStore
    agent: Agent
    logs: list[Log] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[Mapping[str, Any]] = field(default_factory=list)
    rights: ManagementRights = UNRESTRICTED

    def ask(
        self, operation: str | None = None, body: object = None, /, *, allowed: bool = True, **properties: object
    ) -> Response:
        if operation is not None:
            properties["operation"] = operation
        requester = Requester(
            connection_id=7, rights=self.rights, facts={"connection": 7, "user": "clerk"},
            is_admin_update_allowed=allowed,
        )  # fmt: skip
        return self.agent.handle(Request(properties=properties, body=body, requester=requester))

    def body(self, operation: str, body: object = None, /, **properties: Any) -> Any:
        """The body of a reply that must be a success."""
        response = self.ask(operation, body, **properties)
        assert 200 <= response.status < 300, response.description
        return response.body

    def refusal(self, operation: str | None, body: object = None, /, **properties: Any) -> tuple[int, str]:
        response = self.ask(operation, body, **properties)
        assert response.status >= 400
        return response.status, response.description

    def own(self, name: str, **operations: Any) -> None:
        """Give operations to the owner of a type."""
        self.store.own(replace(self.store.owner(SCHEMA.types[name]), **operations))

    def logged(self, level: str, module: str = "AGENT") -> list[str]:
        return [each.text for each in self.logs if each.level == level and each.module == module]


def configured(
    text: str, path: str = "X.conf", files: Mapping[str, str] | None = None, schema: Schema = SCHEMA
) -> Configuration:
    """The configuration in `text`; `files` are those of policyDir, by path."""
    found = {path: text, **(files or {})}

    def list_dir(folder: str) -> list[str]:
        return [name.rpartition("/")[2] for name in found if name.startswith(f"{folder}/")]

    return load_config(path, schema, read_text=found.__getitem__, list_dir=list_dir)


def bench(
    text: str = "# nothing\n",
    live: Mapping[str, Make] | None = None,
    *,
    node: Owner | None = None,
    change: Callable[..., None] | None = None,
    schema: Schema = SCHEMA,
    **options: Any,
) -> Bench:
    """node  the owner of the management node. change  carries out the UPDATE of a connection"""
    effects: list[Log] = []
    events: list[Mapping[str, Any]] = []

    def emit(effect: Effect) -> None:
        if isinstance(effect, Refused):
            effects.extend(effect.lines)
            events.extend([effect.event] if effect.event is not None else [])
            return
        if isinstance(effect, Audit):
            events.append(effect.event)
            return
        assert isinstance(effect, Log)
        effects.append(effect)

    store = EntityStore(schema, emit)
    made = Bench(store=store, agent=Agent(schema, store, emit, **options), logs=effects, events=events)
    rows = (LiveRows(name, make).owner() for name, make in (live or {}).items())
    store.own(node or node_owner(schema, store.extensions), DUMMY, *rows)

    def note(*call: Any) -> None:
        made.calls.append(call)

    for name in HANDLED:
        made.own(name, create=partial(note, "create", name), delete=partial(note, "delete", name))
    for name in ("log", "vhost"):
        made.own(name, update=partial(note, "update", name))
    made.own("connection", change=change)
    store.load(configured(text, schema=schema).entities)
    return made
