"""What the connection options of both tools come to (management 85, 96)."""

import pytest

from auth.secrets import Secret
from router.tools.command import Parser
from router.tools.connection_options import (
    ConnectionOptions,
    add_connection_arguments,
    connection_options,
    router_address,
)


def parse(*arguments: str, files: dict[str, str] | None = None) -> ConnectionOptions:
    parser = Parser()
    add_connection_arguments(parser)
    return connection_options(parser.parse_args(arguments), lambda path: (files or {})[path])


@pytest.mark.parametrize(
    ("url", "host", "port", "address"),
    [
        ("h", "h", 5672, None),
        ("h:1234", "h", 1234, None),
        ("h:amqp", "h", 5672, None),
        ("h:amqps", "h", 5671, None),
        ("amqp://h", "h", 5672, None),
        ("AMQPS://h", "h", 5671, None),
        ("amqps://h:5", "h", 5, None),
        ("amqp://h:5/_topo/0/B/$management", "h", 5, "_topo/0/B/$management"),
        ("h/$management", "h", 5672, "$management"),
        ("[::1]:7", "::1", 7, None),
        ("amqp://[fe80::1%25eth0]", "fe80::1%25eth0", 5672, None),
        ("amqp://u:p@h:6", "h", 6, None),
    ],
)
def test_urls(url: str, host: str, port: int, address: str | None) -> None:
    options = parse("-b", url)
    assert (options.host, options.port, options.address) == (host, port, address)
    assert options.is_tls is url.lower().startswith("amqps:")


@pytest.mark.parametrize("url", ["http://h", "h:port", "h:0", "h:70000", "a b://", "amqp://u:topsecret@h:x:y", "[::1"])
def test_bad_urls_are_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(ValueError, match="--bus wants") as caught:
        parse("-b", url)
    assert "topsecret" not in str(caught.value)


def test_the_default_is_this_host_without_tls_and_sasl() -> None:
    options = parse()
    assert (options.host, options.port, options.timeout_s) == ("0.0.0.0", 5672, 5.0)
    assert not options.is_tls
    assert not options.has_sasl


@pytest.mark.parametrize("option", ["--ssl-certificate", "--ssl-trustfile"])
def test_a_certificate_or_trust_file_turns_tls_on(option: str) -> None:
    options = parse(option, "x.pem")
    assert options.is_tls
    assert options.port == 5671
    assert options.has_sasl


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sasl-mechanisms", "ANONYMOUS"],
        ["--sasl-username", "u"],
        ["--sasl-password", "p"],
        ["-b", "amqp://u@h"],
        ["-b", "amqps://h"],
    ],
)
def test_sasl_is_used_with_tls_or_when_any_part_of_it_is_given(arguments: list[str]) -> None:
    assert parse(*arguments).has_sasl


def test_user_and_password_of_the_url_are_decoded_and_options_win() -> None:
    options = parse("-b", "amqp://a%40b:p%2Fw@h")
    assert (options.username, options.password) == ("a@b", Secret("p/w"))
    options = parse("-b", "amqp://a:b@h", "--sasl-username", "u", "--sasl-password", "p")
    assert (options.username, options.password) == ("u", Secret("p"))


def test_password_files_win_over_passwords_and_are_stripped() -> None:
    files = {"s": " secret \n", "k": "key\r\n"}
    options = parse(
        *("--sasl-password", "x", "--sasl-password-file", "s", "--ssl-password", "y", "--ssl-password-file", "k"),
        files=files,
    )
    assert options.password == Secret("secret")
    assert options.key_password == Secret("key")


def test_no_password_shows_in_the_options() -> None:
    options = parse("-b", "amqp://u:topsecret@h", "--ssl-password", "topsecret")
    assert "topsecret" not in repr(options)
    assert "topsecret" not in options.where


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_timeout_is_a_positive_number(seconds: str) -> None:
    with pytest.raises(ValueError, match="--timeout"):
        parse("-t", seconds)


def test_the_router_option_wins_over_the_edge_router_option() -> None:
    assert router_address(None, None) == "$management"
    assert router_address("A", "E") == "_topo/0/A/$management"
    assert router_address(None, "E") == "_edge/E/$management"
