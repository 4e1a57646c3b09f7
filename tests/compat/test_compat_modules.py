"""The modules of the router we replace (router/compat): names, spellings and what needs no router. Management §11."""

from pathlib import Path
from typing import Any

import pytest

from auth.secrets import Secret
from policy.configuration.schema import load_schema
from qpid_dispatch.management.client import Entity, Node, QueryResponse, Sasl, SSLDomain, Url
from qpid_dispatch.management.entity import EntityBase, camelcase, clean_dict, uncamelcase
from qpid_dispatch.management.error import (
    BAD_REQUEST,
    NOT_FOUND,
    STATUS_TEXT,
    BadRequestStatus,
    ManagementError,
    NotFoundStatus,
)
from qpid_dispatch_internal.compat import BINARY, UNICODE, dictify
from qpid_dispatch_internal.management.config import Config
from qpid_dispatch_internal.management.qdrouter import QdSchema
from qpid_dispatch_internal.management.schema import BooleanType, EnumType, EnumValue, ValidationError
from qpid_dispatch_internal.tools import command
from qpid_dispatch_site import VERSION
from router.management import client as ours
from router.management.grammar import ConfigError
from router.tools.connection_options import ConnectionOptions


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ssl-profile", "sslProfile"), ("sasl_mechanisms", "saslMechanisms"), ("router.link", "routerLink"), ("", "")],
)
def test_names_are_camel_cased_as_in_the_configuration(text: str, expected: str) -> None:
    assert camelcase(text) == expected
    assert camelcase(text, capital=True) == expected[:1].upper() + expected[1:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("sslProfile", "ssl_profile"), ("SslProfile", "ssl_profile"), ("raInterval", "ra_interval"), ("id", "id")],
)
def test_and_taken_apart_again(text: str, expected: str) -> None:
    assert uncamelcase(text) == expected
    assert uncamelcase(text, "-") == expected.replace("_", "-")


def test_clean_dict_leaves_out_what_is_none() -> None:
    assert clean_dict({"a": 1, "b": None}, c=None, d=0) == {"a": 1, "d": 0}
    assert clean_dict([("a", None)]) == {}


def test_attributes_are_items_and_members() -> None:
    entity = EntityBase({"port": "amqp"}, name="l")
    assert (entity.port, entity["port"], entity.attributes["name"]) == ("amqp", "amqp", "l")
    entity.port = "5673"
    entity["host"] = "0.0.0.0"
    assert entity.attributes == {"port": "5673", "name": "l", "host": "0.0.0.0"}
    assert "host" in entity
    with pytest.raises(AttributeError, match="nothing"):
        _ = entity.nothing


def test_errors_are_those_that_our_own_client_raises() -> None:
    """An `except` of either name catches both."""
    assert NotFoundStatus is ours.NotFoundStatus
    error = ManagementError.create(NOT_FOUND, "No entity with name=x")
    assert isinstance(error, NotFoundStatus)
    assert (error.status, error.description, str(error)) == (404, "No entity with name=x", "No entity with name=x")
    assert ManagementError.create(BAD_REQUEST, "x").status == BadRequestStatus.status
    assert ManagementError.create(418, "x").status == 418
    assert STATUS_TEXT[404] == "Not Found"


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        (None, "0.0.0.0", "amqp", None),
        ("r1", "r1", "amqp", None),
        ("r1:5673", "r1", "5673", None),
        ("amqps://r1", "r1", "amqps", None),
        ("amqp://[::1]:7/_topo/0/R2/$management", "::1", "7", "_topo/0/R2/$management"),
    ],
)
def test_urls(text: str | None, host: str, port: str, path: str | None) -> None:
    url = Url(text)
    assert (url.host, url.port, url.path) == (host, port, path)
    assert Url(url) == url


def test_a_password_in_a_url_is_kept_and_not_shown() -> None:
    url = Url("amqp://me:secret@r1")
    assert (url.username, url.password) == ("me", "secret")
    assert "secret" not in repr(url)
    with pytest.raises(ValueError, match="host:port") as caught:
        Url("http://me:secret@r1")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Sasl(user="me", password="secret"))


def test_an_ssl_domain_of_another_library_is_refused_with_what_to_do() -> None:
    """Proton's does not tell what it was given: silently connecting without would be worse."""
    with pytest.raises(TypeError, match=r"import SSLDomain from qpid_dispatch\.management\.client"):
        Node.connect("amqps://localhost", ssl_domain=object())  # type: ignore[arg-type]


def test_what_a_node_is_connected_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[ConnectionOptions] = []

    class Transport:
        reply_to = "here"

        def __init__(self, options: ConnectionOptions) -> None:
            found.append(options)

    monkeypatch.setattr("qpid_dispatch.management.client.SocketTransport", Transport)
    (tmp_path / "password").write_text("secret\n")
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_credentials("me.crt", "me.key", "key-secret")
    domain.set_trusted_ca_db("ca.pem")
    sasl = Sasl(mechs="PLAIN EXTERNAL", user="me", sasl_password_file=str(tmp_path / "password"))
    node = Node.connect("amqps://r1", router="R2", timeout=3, ssl_domain=domain, sasl=sasl)
    (options,) = found
    assert (options.host, options.port, options.is_tls, options.timeout_s) == ("r1", 5671, True, 3)
    assert (options.certificate_file, options.key_file, options.trust_file) == ("me.crt", "me.key", "ca.pem")
    assert options.checks_peer_name
    assert (options.mechanisms, options.username) == (("PLAIN", "EXTERNAL"), "me")
    assert (options.password, options.key_password) == (Secret("secret"), Secret("key-secret"))
    assert (node.client.address, node.reply_to) == ("_topo/0/R2/$management", "here")
    assert Node.connect("r1/other", router="R2").client.address == "other"
    assert Node.connect("r1", edge_router="E").client.address == "_edge/E/$management"


def test_the_routers_certificate_cannot_be_left_unverified() -> None:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    with pytest.raises(ValueError, match="always verified"):
        domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER, "ca.pem")
    assert (domain.trust_file, domain.checks_peer_name) == ("ca.pem", False)


def test_rows_of_a_query_as_dicts_and_entities() -> None:
    node: Any = object()
    found = QueryResponse(node, ["name", "port"], [["a", "1"], ["b", None]])
    assert found.get_dicts() == [{"name": "a", "port": "1"}, {"name": "b", "port": None}]
    assert found.get_dicts(clean=True)[1] == {"name": "b"}
    first, second = found.get_entities(clean=True)
    assert isinstance(first, Entity)
    assert (first.name, second.attributes) == ("a", {"name": "b"})


def test_the_schema_is_the_routers() -> None:
    schema = QdSchema()
    assert schema.dump() == load_schema().dump()
    assert schema.entity_type("listener").long_name == "org.apache.qpid.dispatch.listener"
    with pytest.raises(ValidationError, match="No such entity type 'nothing'"):
        schema.entity_type("nothing")


def test_values_are_validated_as_the_router_does() -> None:
    assert BooleanType().validate("Yes") is True
    assert BooleanType().validate(0) is False
    with pytest.raises(ValidationError, match="Invalid Boolean value"):
        BooleanType().validate("perhaps")
    kind = EnumType(["in", "out"])
    found = kind.validate(1)
    assert isinstance(found, EnumValue)
    assert (found, int(found), found == 1, found == 0) == ("out", 1, True, False)
    assert kind.validate(found) == "out"
    with pytest.raises(ValidationError, match="Invalid value for enum"):
        kind.validate("up")


def test_a_configuration_is_parsed_into_sections_of_text() -> None:
    lines = ["router {", "  mode: standalone", "}", "ssl-profile {", "  name: p  # why", "}"]
    assert Config._parse(lines) == [["router", {"mode": "standalone"}], ["sslProfile", {"name": "p"}]]


def test_a_configuration_is_loaded_and_asked_for_by_type() -> None:
    config = Config()
    assert config.by_type("listener") == []
    config.load(["listener {\n", "  port: 5673\n", "}\n"])
    (listener,) = config.by_type("listener")
    assert (listener["port"], listener["role"], listener["identity"]) == ("5673", "normal", "listener/:5673")
    with pytest.raises(ConfigError, match="Unknown attribute 'prot'"):
        config.load(["listener {", "  prot: 5673", "}"])


def test_small_things() -> None:
    assert (UNICODE(b"x"), BINARY("x")) == ("x", b"x")
    assert dictify({"a": [{"b": 1}]}) == {"a": [{"b": 1}]}
    assert VERSION


def test_command_lines_of_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.parse_args_qdstat(argv=["-l", "--limit", "5"]).limit == 5
    given, rest = command._qdmanage_parser().parse_known_args(["--type", "listener", "query"])
    assert (given.type, rest) == ("listener", ["query"])

    def fail(_arguments: object) -> None:
        raise command.UsageError("what is that")

    assert command.main(lambda arguments: print(len(arguments)), ["a", "b"]) == 0
    assert command.main(fail, []) == 1
    assert capsys.readouterr().out == "2\nUsageError: what is that\n"
