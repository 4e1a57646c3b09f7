"""qdmanage's arguments, requests and output (management 87-97)."""

import io
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pytest
from fake_management import PREFIX, FakeTransport
from hypothesis import given
from hypothesis import strategies as st

from router.management.client import ConnectionException
from router.tools.attributes import TYPE_PREFIX, ValidationError, expand_type, parse_attributes
from router.tools.connection_options import ConnectionOptions
from router.tools.json_output import dump
from router.tools.qdmanage import main
from router.tools.schema_types import schema_attribute_types
from router.values import Array, Described, symbol, ulong

Answer = tuple[int, str, Any]
Manage = Callable[..., tuple[int, str, list[Any]]]


def created(properties: Mapping[str, Any], body: Any) -> Answer:
    return 201, "Created", {**body, "identity": "1", "extra": None}


def updated(properties: Mapping[str, Any], body: Any) -> Answer:
    return 200, "OK", body


def deleted(properties: Mapping[str, Any], body: Any) -> Answer:
    return 204, "No Content", {}


@pytest.fixture
def manage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Manage:
    """Run qdmanage against a fake router: exit status, output, requests."""

    def run(*arguments: str, transport: FakeTransport | None = None, stdin: str = "") -> tuple[int, str, list[Any]]:
        transport = transport or FakeTransport(
            {"listener": [{"name": "l", "port": "amqp", "host": None}]},
            {
                "CREATE": created,
                "READ": {"name": "l", "host": None},
                "UPDATE": updated,
                "DELETE": deleted,
                "GET-TYPES": {"t": []},
                "GET-ATTRIBUTES": {},
                "GET-OPERATIONS": {},
                "GET-ANNOTATIONS": {},
                "GET-MGMT-NODES": ["a"],
            },
        )
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main(arguments, transport.connect)
        return status, capsys.readouterr().out, transport.requests

    return run


def test_query_prints_a_list_without_nulls(manage: Manage) -> None:
    """management 88"""
    status, output, requests = manage("query", "--type=listener")
    assert status == 0
    assert json.loads(output) == [{"name": "l", "port": "amqp"}]
    assert requests[0][1]["entityType"] == TYPE_PREFIX + "listener"


def test_query_names_attributes_and_may_have_no_type_and_no_result(manage: Manage) -> None:
    _, output, requests = manage("query", "name", "port", transport=FakeTransport())
    assert output == "[]\n"
    assert requests[0][2] == {"attributeNames": ["name", "port"]}
    assert "entityType" not in requests[0][1]


def test_create_sends_its_attributes_and_prints_the_entity_with_its_nulls(manage: Manage) -> None:
    """management 87, 88"""
    status, output, requests = manage("create", "name=d", "type=dummy", "arg1=a=b", "arg2", "num1=5", "x=true")
    assert status == 0
    body = {"name": "d", "type": TYPE_PREFIX + "dummy", "arg1": "a=b", "arg2": None, "num1": "5", "x": True}
    assert requests[0][1:] == ({"operation": "CREATE", "type": TYPE_PREFIX + "dummy", "name": "d"}, body)
    assert json.loads(output) == {**body, "identity": "1", "extra": None}


def test_integers_are_converted_where_type_is_an_option(manage: Manage) -> None:
    """management 97"""
    _, _, requests = manage("create", "--type", "dummy", "num1=5", "arg1=5")
    assert requests[0][2] == {"num1": 5, "arg1": "5"}


def test_deprecated_attribute_names_are_known(manage: Manage) -> None:
    """management 93"""
    status, _, requests = manage("create", "--type=autoLink", "addr=queue", "dir=out", "phase=1")
    assert status == 0
    assert requests[0][1]["type"] == TYPE_PREFIX + "router.config.autoLink"
    assert requests[0][2] == {"addr": "queue", "dir": "out", "phase": 1}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["create", "--type=nosuch", "a=b"], f"ValidationError: No such entity type '{PREFIX}nosuch'\n"),
        (["create", "--type=dummy", "a=b"], f"ValidationError: Unknown attribute 'a' for '{PREFIX}dummy'\n"),
        (["update", "--type=dummy", "a=b"], f"ValidationError: Unknown attribute 'a' for '{PREFIX}dummy'\n"),
        (["create", "--type=dummy", "num1=x"], "ValueError: invalid literal for int() with base 10: 'x'\n"),
        (["create"], "ValueError: create wants attributes: ATTRIBUTE=VALUE, or --stdin\n"),
        (["update"], "ValueError: update wants attributes: ATTRIBUTE=VALUE, or --stdin\n"),
    ],
)
def test_mistakes_are_found_before_the_router_is_asked(manage: Manage, arguments: list[str], text: str) -> None:
    """management 97"""
    assert manage(*arguments) == (1, text, [])


@pytest.mark.parametrize(("option", "selector"), [("--name", "name"), ("--identity", "identity"), ("--id", "identity")])
def test_read_selects_by_name_or_identity_and_prints_nulls(manage: Manage, option: str, selector: str) -> None:
    """management 87, 88"""
    status, output, requests = manage("READ", option, "l")
    assert status == 0
    assert json.loads(output) == {"name": "l", "host": None}
    assert requests[0][1] == {"operation": "READ", selector: "l"}


def test_update_by_an_attribute_and_with_words_for_booleans(manage: Manage) -> None:
    """management 87"""
    status, output, requests = manage("update", "name=log/DEFAULT", "enable=debug+", "a=Yes", "b=off")
    assert status == 0
    assert requests[0][1] == {"operation": "UPDATE", "name": "log/DEFAULT"}
    body = {"name": "log/DEFAULT", "enable": "debug+", "a": True, "b": False}
    assert requests[0][2] == body
    assert json.loads(output) == body


def test_update_of_a_connection(manage: Manage) -> None:
    _, _, requests = manage("update", "--type=connection", "--id=7", "adminStatus=deleted")
    assert requests[0][1] == {"operation": "UPDATE", "type": PREFIX + "connection", "identity": "7"}
    assert requests[0][2] == {"adminStatus": "deleted"}


def test_update_with_several_values_of_a_log(manage: Manage) -> None:
    """management 98"""
    _, output, _ = manage("update", "--type=log", "--name", "log/DEFAULT", "enable=trace+", "outputFile=A.log")
    assert json.loads(output) == {"enable": "trace+", "outputFile": "A.log"}


@pytest.mark.parametrize("operation", ["read", "delete"])
def test_a_bare_identity_selects_the_entity(manage: Manage, operation: str) -> None:
    _, _, requests = manage(operation, "log/DEFAULT")
    assert requests[0][1] == {"operation": operation.upper(), "identity": "log/DEFAULT"}


def test_a_bare_identity_is_no_attribute_of_an_update(manage: Manage) -> None:
    _, _, requests = manage("update", "log/DEFAULT", "enable=debug+")
    assert requests[0][1] == {"operation": "UPDATE", "identity": "log/DEFAULT"}
    assert requests[0][2] == {"enable": "debug+"}


def test_delete_prints_nothing(manage: Manage) -> None:
    """management 88"""
    status, output, requests = manage("delete", "--type", "listener", "--name", "x")
    assert (status, output) == (0, "")
    assert requests[0][1] == {"operation": "DELETE", "type": PREFIX + "listener", "name": "x"}


def test_the_routers_refusal_is_printed_with_its_class(manage: Manage) -> None:
    """management 92"""
    transport = FakeTransport(answers={"DELETE": lambda *_: (404, "No entity with name=ealistener", {})})
    status, output, _ = manage("delete", "--name=ealistener", transport=transport)
    assert (status, output) == (1, "NotFoundStatus: No entity with name=ealistener\n")


def test_both_container_and_connection_is_the_routers_to_refuse(manage: Manage) -> None:
    """management 94"""
    text = "Both connection and containerId cannot be specified"
    transport = FakeTransport(answers={"CREATE": lambda *_: (400, text, None)})
    status, output, _ = manage("create", "--type=autoLink", "containerId=c", "connection=d", transport=transport)
    assert (status, output) == (1, f"BadRequestStatus: {text}\n")


def test_stdin_with_a_map_gives_an_entity_and_with_a_list_a_list(manage: Manage) -> None:
    """management 87"""
    _, output, requests = manage("create", "--stdin", "ignored=1", stdin='{"type": "dummy", "num1": 5}')
    assert requests[0][2] == {"type": PREFIX + "dummy", "num1": 5}
    assert json.loads(output)["identity"] == "1"
    _, output, requests = manage("create", "--stdin", "--type=dummy", stdin='[{"name": "a"}, {"name": "b"}]')
    assert [request[1]["name"] for request in requests] == ["a", "b"]
    assert [entity["name"] for entity in json.loads(output)] == ["a", "b"]
    _, _, requests = manage("update", "--stdin", stdin='{"identity": "i", "x": null}')
    assert requests[0][1] == {"operation": "UPDATE", "identity": "i"}


def test_an_error_in_the_middle_of_a_list_stops_there(manage: Manage) -> None:
    def second_fails(properties: Mapping[str, Any], body: Any) -> Answer:
        return created(properties, body) if body["name"] != "b" else (400, "no", None)

    transport = FakeTransport(answers={"CREATE": second_fails})
    entities = json.dumps([{"type": "dummy", "name": name} for name in "abc"])
    status, output, requests = manage("create", "--stdin", stdin=entities, transport=transport)
    assert (status, output, len(requests)) == (1, "BadRequestStatus: no\n", 2)


@pytest.mark.parametrize("text", ["5", '"x"', "[1]", "null"])
def test_other_json_on_stdin_is_refused(manage: Manage, text: str) -> None:
    assert manage("create", "--stdin", stdin=text) == (1, "ValueError: stdin is not a JSON map or list\n", [])


def test_what_is_no_json_on_stdin_is_refused(manage: Manage) -> None:
    """Attack: a password in the input shows up in the error."""
    status, output, requests = manage("create", "--stdin", stdin='{"saslPassword": "topsecret"')
    assert status == 1
    assert output.startswith("ValueError: Invalid JSON on standard input: ")
    assert "topsecret" not in output
    assert requests == []


@pytest.mark.parametrize("operation", ["get-types", "get-attributes", "get-operations", "get-annotations"])
def test_node_operations_take_the_type_as_option_or_argument(manage: Manage, operation: str) -> None:
    for arguments, entity_type in [
        ([], None),
        (["dummy"], "dummy"),
        (["--type=dummy", "x"], PREFIX + "dummy"),
    ]:
        status, _, requests = manage(operation, *arguments)
        assert status == 0
        assert requests[0][1].get("entityType") == entity_type
        assert requests[0][1]["operation"] == operation.upper()
        assert requests[0][1]["name"] == "self"


def test_management_nodes(manage: Manage) -> None:
    assert json.loads(manage("get-mgmt-nodes")[1]) == ["a"]


def test_other_operations_are_sent_as_typed_with_properties_and_body(manage: Manage) -> None:
    transport = FakeTransport(answers={"callMe": {"answer": 1}})
    status, output, requests = manage(
        *("callMe", "--type=dummy", "--identity=dummy/0", "a=1", "b=true", "c"),
        *("--properties", '{"d": [1]}', "--body", '{"x": 1}'),
        transport=transport,
    )
    assert status == 0
    assert json.loads(output) == {"answer": 1}
    assert requests[0][1] == {
        "operation": "callMe",
        "type": PREFIX + "dummy",
        "identity": "dummy/0",
        "a": "1",
        "b": True,
        "d": [1],
    }
    assert requests[0][2] == {"x": 1}


def test_get_log_and_schema_are_such_operations(manage: Manage) -> None:
    """management 89: text is printed as it came"""
    transport = FakeTransport(answers={"get-log": [["AGENT"]], "get-json-schema": '{\n  "a": 1\n}', "nothing": {}})
    assert json.loads(manage("get-log", "limit=20", transport=transport)[1]) == [["AGENT"]]
    assert transport.requests[0][1] == {"operation": "get-log", "limit": "20"}
    assert manage("get-json-schema", "indent=2", transport=transport)[1] == '{\n  "a": 1\n}\n'
    assert manage("nothing", transport=transport)[1] == ""


@pytest.mark.parametrize(("body", "sent"), [("text", "text"), ("5", 5), ('{"a": 1}', {"a": 1}), ("null", {})])
def test_a_body_is_json_or_plain_text(manage: Manage, body: Any, sent: Any) -> None:
    transport = FakeTransport(answers={"op": None})
    manage("op", "--body", body, transport=transport)
    assert transport.requests[0][2] == sent


@pytest.mark.parametrize("arguments", [["--body", "{x"], ["--properties", "x"], ["--properties", "[1]"]])
def test_a_bad_body_or_properties_is_refused(manage: Manage, arguments: list[str]) -> None:
    status, output, requests = manage("op", *arguments)
    assert status == 1
    assert output.startswith("ValueError: ")
    assert requests == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "No operation specified"),
        (["--type=x"], "No operation specified"),
        (["read", "extra"], "Unexpected arguments: extra"),
        (["delete", "a", "b"], "Unexpected arguments: a b"),
        (["get-mgmt-nodes", "a"], "Unexpected arguments: a"),
        (["get-types", "a", "b"], "Unexpected arguments: a b"),
        (["read", "password=topsecret"], "Unexpected arguments: password"),
    ],
)
def test_wrong_command_lines_exit_with_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """management 95"""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"qdmanage <operation>: error: {text}"


def test_options_may_be_anywhere_and_unknown_ones_are_arguments(manage: Manage) -> None:
    _, _, requests = manage("query", "--nonsense", "--type", "listener", "name")
    assert requests[0][2] == {"attributeNames": ["--nonsense", "name"]}


def test_indent(manage: Manage) -> None:
    """management 90"""
    assert manage("query", "--type=listener", "--indent=-1")[1] == '[{"name": "l", "port": "amqp"}]\n'
    assert manage("query", "--type=listener")[1].startswith('[\n  {\n    "name": "l", \n    "port"')
    assert manage("query", "--type=listener", "--indent", "4")[1].startswith("[\n    {")


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (["-r", "B"], "_topo/0/B/$management"),
        (["-d", "E"], "_edge/E/$management"),
        (["-r", "B", "-d", "E"], "_topo/0/B/$management"),
        (["-r", "B", "-b", "h/other"], "other"),
    ],
)
def test_whom_it_asks(manage: Manage, arguments: list[str], address: str) -> None:
    """management 96"""
    assert manage("get-mgmt-nodes", *arguments)[2][0][0] == address


def test_no_password_is_printed_when_the_connection_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(options: ConnectionOptions, address: str) -> NoReturn:
        raise ConnectionException(f"Connection to {options.where} failed: Connection refused")

    assert main(["query", "-b", "amqp://u:topsecret@h", "--sasl-password", "topsecret"], refuse) == 1
    assert capsys.readouterr().out == "ConnectionException: Connection to h:5672 failed: Connection refused\n"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("listener", "listener"),
        ("link", "router.link"),
        ("node", "router.node"),
        ("address", "router.config.address"),
        ("linkRoute", "router.config.linkRoute"),
        ("autoLink", "router.config.autoLink"),
        ("exchange", "router.config.exchange"),
        ("binding", "router.config.binding"),
        ("router.link", "router.link"),
        ("router.config.address", "router.config.address"),
        ("router.config.autoLink", "router.config.autoLink"),
        ("router.connection.linkRoute", "router.connection.linkRoute"),
    ],
)
def test_short_types_expand(short: str, long: str) -> None:
    """management 97"""
    assert expand_type(short) == TYPE_PREFIX + long
    assert schema_attribute_types(expand_type(short)) is not None


@pytest.mark.parametrize("name", ["my.own.link", "org.amqp.management", TYPE_PREFIX + "listener"])
def test_a_type_with_a_dot_stays(name: str) -> None:
    assert expand_type(name) == name


@given(st.lists(st.text(max_size=12), max_size=4), st.booleans())
def test_any_arguments_are_attributes_or_a_validation_error(arguments: list[str], is_update: bool) -> None:
    attributes = parse_attributes(arguments, None, schema_attribute_types, is_update=is_update)
    assert set(attributes) == {argument.partition("=")[0] for argument in arguments}
    if arguments:
        with pytest.raises(ValidationError):
            parse_attributes(arguments, "nosuch", schema_attribute_types, is_update=is_update)


def test_what_json_does_not_know_is_written_as_text() -> None:
    value = {
        b"k": b"\xff",
        "u": uuid.UUID(int=1),
        5: Array(symbol, (symbol("a"),)),
        "d": Described(ulong(1), (1, None)),
    }
    assert json.loads(dump(value, None)) == {
        "k": "\\xff",
        "u": "00000000-0000-0000-0000-000000000001",
        "5": ["a"],
        "d": [1, None],
    }


def test_terminal_escapes_in_text_replies_are_shown_not_obeyed(manage: Manage) -> None:
    """Attack: a router's reply drives the terminal of the operator."""
    transport = FakeTransport(answers={"get-json-schema": "a\x1b[2J\nb"})
    assert manage("get-json-schema", transport=transport)[1] == "a\\x1b[2J\nb\n"
