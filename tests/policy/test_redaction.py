"""Which names are near to those of secrets, and what a line of a file shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from policy.files.redaction import is_secret_name, lines_without_secrets, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        *("password", "saslPassword", "pasword", "passwrd", "paswrd", "psswrd", "passowrd", "oassword", "Pa55w0rd"),
        *("pwd", "p.w.d", "passphrase", "key-passprase", "secrt", "sceret", "clientSecret", "credntial", "auth_token"),
    ],
)
def test_a_name_near_to_a_secrets_is_one(name: str) -> None:
    assert is_secret_name(name)


def test_no_attribute_of_the_schemas_is_near_to_one_but_the_secrets() -> None:
    entity_types = schemas.load("management")["entityTypes"].values()
    for entity_type in entity_types:
        for name, attribute in entity_type["attributes"].items():
            assert is_secret_name(name) is attribute.get("secret", False), name


@pytest.mark.parametrize("name", ["listener", "what", "is", "this", "orders", "sources", "spoken", "identity", 5, None])
def test_other_names_are_none(name: object) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (" pasword: x # y", " pasword: …"),
        ("password:", "password:"),
        ("geheim = x", "geheim = …"),
        ("host: fe80::1", "host: fe80::1"),
        ("ciphers: ALL:!aNULL", "ciphers: ALL:!aNULL"),
        ("ssl-profile: a", "ssl-profile: a"),
        ('{"hostname": "a:b", "groups": {"g": {"x": 1}}}', '{"hostname": "a:b", "groups": {"g": {"x": …'),
        ('"sources": ["a:b", "c"],', '"sources": ["a:b", "c"],'),
        ("port: 1 # see: there", "port: 1 # see: there"),
        ("# pasword: x", "# pasword: …"),
        ("# see: there", "# see: there"),
        ("Xport: 1", "Xport: …"),
        ('"host": fe80::1', '"host": fe80::1'),
    ],
)  # fmt: skip
def test_a_line_keeps_what_is_known_to_be_no_secret(line: str, shown: str) -> None:
    assert without_secrets(line) == shown


def test_values_below_their_names_are_left_out() -> None:
    text = '"pasword":\n\n"a",\n"host": "b",\n"secret": [\n"c", {"name": "d"}\n],\n"port": 1\n'
    assert lines_without_secrets(text) == [
        '"pasword":', "", "…", '"host": "b",', '"secret": …', "…", "…", '"port": 1',
    ]  # fmt: skip


@given(st.text(alphabet='ab:="{}[]#,\\ p', max_size=40))
def test_any_line_is_shown_in_part(line: str) -> None:
    shown = without_secrets(line)
    assert shown == line or (shown.endswith("…") and line.startswith(shown[:-1]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: a{\nhost: b", ["password: …", "host: b"]),
        ('"password": ["a"],\n"port": 1', ['"password": …', '"port": 1']),
        ('"password": {\n"a": 1\n},\n"port": 1', ['"password": …', "…", "…", '"port": 1']),
        ('"secret": [\n"X", X\n"[[", c\n],\n"port": 1', ['"secret": …', "…", "…", "…", '"port": 1']),
    ],
)
def test_values_of_several_lines_are_left_out_to_their_ends(text: str, shown: list[str]) -> None:
    assert lines_without_secrets(text) == shown
