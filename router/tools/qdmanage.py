"""`qdmanage`: one management operation on a router.

Source: docs/spec/management.md section 10.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from policy.printing import printable
from router.management.client import ManagementClient
from router.tools.attributes import AttributeTypes, expand_type, parse_attributes, parse_entities, parse_json_option
from router.tools.command import Parser, read_text, run
from router.tools.connection_options import (
    ConnectionOptions,
    add_connection_arguments,
    connection_options,
    router_address,
)
from router.tools.json_output import dump
from router.tools.schema_types import schema_attribute_types
from router.tools.transport import connect
from schemas.versions import add_version_option

Connect = Callable[[ConnectionOptions, str], ManagementClient]

_EPILOG = """operations:
  query [ATTRIBUTE...]          entities (of --type), all or the named attributes
  create [ATTRIBUTE=VALUE...]   make an entity of --type
  read                          one entity, by --name or --identity
  update [ATTRIBUTE=VALUE...]   change one entity
  delete                        remove one entity
  get-types, get-attributes, get-operations, get-annotations [TYPE]
  get-mgmt-nodes                management addresses of all known routers
  export                        the running configuration, as a .conf with which the same router starts
  get-schema, get-json-schema [indent=N], get-log [limit=N]
  anything else is sent as it is; ATTRIBUTE=VALUE become properties of the request

examples:
  qdmanage query --type connection
  qdmanage query --type listener name port
  qdmanage create --type listener name=extra port=5673 authenticatePeer=true
  qdmanage update --name log/DEFAULT enable=debug+
  qdmanage delete --type listener --name extra
  qdmanage create --stdin < entities.json

exit status: 0; 1 for any failure, with one line that says which; 2 for a wrong command line
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The parts of one command line that concern the operation."""

    operation: str  # as the user wrote it
    arguments: tuple[str, ...]
    type: str | None
    name: str | None
    identity: str | None
    body: str | None
    properties: str | None
    from_stdin: bool


def parser() -> Parser:
    made = Parser(
        prog="qdmanage <operation>",
        usage="%(prog)s [options...] [arguments...]",
        description="Read and change the configuration of a running router.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version_option(made)
    made.add_argument("-v", "--verbose", action="count", default=0, help="accepted, and changes nothing")
    targets = made.add_argument_group("target")
    targets.add_argument("-r", "--router", metavar="ID", help="this router of the network")
    targets.add_argument("-d", "--edge-router", metavar="ID", help="this edge router of the asked router")
    entities = made.add_argument_group("entity")
    entities.add_argument("--type", metavar="TYPE", help="type, such as listener or router.link")
    entities.add_argument("--name", metavar="NAME", help="name")
    entities.add_argument("--identity", metavar="ID", help="identity; wins over --name")
    request = made.add_argument_group("request and output")
    request.add_argument(
        "--stdin", action="store_true", help="create, update: attributes as JSON, a map or a list of maps"
    )
    request.add_argument("--body", metavar="JSON", help="body of another operation's request")
    request.add_argument("--properties", metavar="JSON", help="map of further properties of such a request")
    request.add_argument("--indent", metavar="N", type=int, default=2, help="JSON indent; -1 for one line; default 2")
    add_connection_arguments(made)
    return made


def main(
    arguments: Sequence[str] | None = None,
    connect: Connect = connect,
    attribute_types: AttributeTypes = schema_attribute_types,
) -> int:
    """Runs the tool. Returns the exit status; raises SystemExit(2) for a wrong command line."""
    made = parser()
    given, rest = made.parse_all(arguments)
    if not rest:
        made.error("No operation specified")
    request = _Request(
        operation=rest[0],
        arguments=tuple(rest[1:]),
        type=expand_type(given.type) if given.type else None,
        name=given.name,
        identity=given.identity,
        body=given.body,
        properties=given.properties,
        from_stdin=given.stdin,
    )
    request = _with_bare_identity(request)
    allowed = _ARGUMENT_LIMITS.get(request.operation.lower())
    if allowed is not None and len(request.arguments) > allowed:
        # Only the names: a value may be a password.
        made.error(f"Unexpected arguments: {' '.join(argument.split('=')[0] for argument in request.arguments)}")

    def act() -> None:
        action = _BUILT_IN.get(request.operation.lower(), _other)
        options = connection_options(given, read_text)
        prepared = action(request, attribute_types)
        with connect(options, router_address(given.router, given.edge_router)) as client:
            result = prepared(client)
        if isinstance(result, str):
            # Unchanged, except for control characters that would affect a terminal.
            print("\n".join(map(printable, result.split("\n"))))
        elif result is not None:
            print(dump(result, None if given.indent < 0 else given.indent))

    return run(act)


# An operation checks the whole command line first, so that a mistake is found before anything is sent. If the result is
# None, nothing is printed.
_Prepared = Callable[[ManagementClient], Any]


def _query(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    def send(client: ManagementClient) -> Any:
        found = client.query(request.type, request.arguments)
        return [{name: value for name, value in entity.items() if value is not None} for entity in found.entities()]

    return send


def _create(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    def send(client: ManagementClient, attributes: Mapping[str, Any]) -> Any:
        return client.create(attributes, type=request.type, name=request.name)

    return _with_attributes(request, attribute_types, send, is_update=False)


def _read(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    return lambda client: client.read(type=request.type, name=request.name, identity=request.identity)


def _update(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    def send(client: ManagementClient, attributes: Mapping[str, Any]) -> Any:
        return client.update(
            attributes,
            type=request.type or attributes.get("type"),
            name=request.name or attributes.get("name"),
            identity=request.identity or attributes.get("identity"),
        )

    return _with_attributes(request, attribute_types, send, is_update=True)


def _with_attributes(
    request: _Request,
    attribute_types: AttributeTypes,
    send: Callable[[ManagementClient, Mapping[str, Any]], Any],
    *,
    is_update: bool,
) -> _Prepared:
    if request.from_stdin:
        entities = parse_entities(sys.stdin.read())
        if isinstance(entities, dict):
            return lambda client: send(client, entities)
        return lambda client: [send(client, entity) for entity in entities]
    if not request.arguments:
        raise ValueError(f"{request.operation} wants attributes: ATTRIBUTE=VALUE, or --stdin")
    attributes = parse_attributes(request.arguments, request.type, attribute_types, is_update=is_update)
    return lambda client: send(client, attributes)


def _delete(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    return lambda client: client.delete(type=request.type, name=request.name, identity=request.identity)


def _node(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    positional = request.arguments[0] if request.arguments else None
    return lambda client: client.node(request.operation.upper(), entityType=request.type or positional)


def _management_nodes(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    return lambda client: client.management_nodes()


def _export(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    from router.tools.export import exported  # only this operation needs the layout of files

    return lambda client: exported(client).rstrip("\n")


def _other(request: _Request, attribute_types: AttributeTypes) -> _Prepared:
    properties = parse_attributes(request.arguments, None, attribute_types, is_update=False)
    if request.properties is not None:
        given = parse_json_option(request.properties)
        if not isinstance(given, dict):
            raise ValueError("--properties wants a JSON map")
        properties |= given
    body = None if request.body is None else parse_json_option(request.body, is_text_allowed=True)

    def send(client: ManagementClient) -> Any:
        result = client.call(
            request.operation,
            type=request.type,
            name=request.name,
            identity=request.identity,
            properties=properties,
            body=body,
        )
        return result or None

    return send


def _with_bare_identity(request: _Request) -> _Request:
    """Accepts `update log/DEFAULT enable=debug+`: older books name the entity by its bare identity."""
    first = request.arguments[0] if request.arguments else ""
    if request.operation.lower() in ("read", "update", "delete") and "/" in first and "=" not in first:
        return replace(request, identity=request.identity or first, arguments=request.arguments[1:])
    return request


_BUILT_IN: Mapping[str, Callable[[_Request, AttributeTypes], _Prepared]] = {
    "query": _query,
    "create": _create,
    "read": _read,
    "update": _update,
    "delete": _delete,
    "get-types": _node,
    "get-attributes": _node,
    "get-operations": _node,
    "get-annotations": _node,
    "get-mgmt-nodes": _management_nodes,
    "export": _export,
}
_ARGUMENT_LIMITS = {
    "read": 0,
    "delete": 0,
    "get-mgmt-nodes": 0,
    "export": 0,
    "get-types": 1,
    "get-attributes": 1,
    "get-operations": 1,
    "get-annotations": 1,
}


if __name__ == "__main__":
    sys.exit(main())
