"""The tools' reading of a configuration agrees with the router's own, and knows every place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.conf import parse_conf
from policy.loader import load_entities
from policy.positioned_json import NotJson
from policy.validation import load_valid_entities
from router.management.grammar import ConfigError, parse_config

CONF = """\
# a router
router {
    mode: standalone
    id: A.B   # here
}
listener {
    host: 0.0.0.0
    port: 5671
    sasl_mechanisms: PLAIN EXTERNAL
}
vhost {
    hostname: *.example.#
    aliases: a, b # a comment
    allowUnknownUser: yes
    groups: {
        $default: {
            remoteHosts: *
            sourcePattern: a/#, ${user}/#
        }
        "apps": {
            "users": "u", # kept
            "targets": ["x", "y",],
        },
    }
}
empty {}
"""


def ours(text: str) -> list[tuple[str, object]]:
    sections = parse_conf(text).value
    assert isinstance(sections, list)
    return [(type_, attributes) for type_, attributes in sections]


def routers(text: str) -> list[tuple[str, object]]:
    return [(section.type, dict(section.attributes)) for section in parse_config(text, path="x.conf")]


def comparable(sections: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """The router converts words to booleans in a later step."""
    return [
        (type_, {key: "yes" if value is True else value for key, value in attributes.items()})  # type: ignore[attr-defined]
        for type_, attributes in sections
    ]


def test_a_configuration_reads_as_the_router_reads_it() -> None:
    assert comparable(ours(CONF)) == routers(CONF)


LINES = """vhost {
router{
}
groups: {
g: {
$default: {
hostname: a#b c
x: 1 # c
users: *
a:b
"g": {
"users": ["a", "b",],
},
# c

x:
sourcePattern: a.#
e: \\u0041
e: \\q
x: {a
"n": 1,
id: a\\bc
"q": "#",
targets: a, b,
openProperties: {
"k": {}
e {}
f: {user}""".splitlines()
words = st.sampled_from(LINES)


@given(st.lists(words, max_size=14))
@settings(max_examples=400, deadline=None)
def test_whatever_one_reads_the_other_reads_alike(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        expected = routers(text)
    except ConfigError:
        with pytest.raises(NotJson):
            parse_conf(text)
        return
    assert ours(text) == expected


def test_places_are_lines_and_columns() -> None:
    document = parse_conf(CONF)
    assert document.position_of((2, 1, "groups", "apps", "targets")) == (22, 13)
    assert document.position_of((1, 1, "saslMechanisms")) == (9, 5)
    vhost = load_entities(CONF, "r.conf")[2]
    assert (vhost.type, vhost.attributes["allowUnknownUser"]) == ("vhost", True)
    assert vhost.source.line_of(("groups", "$default", "remoteHosts")) == 17
    assert vhost.source.column_of(("groups", "$default", "remoteHosts")) == 13


def test_a_configuration_passes_the_schema_of_policies() -> None:
    assert len(load_valid_entities(CONF, "r.conf")) == 4


@pytest.mark.parametrize(
    ("text", "place"),
    [("vhost {\n hostname: a", (1, 1)), ("router {\n}\n}", (3, 1)), ("vhost {\n  groups: {\n  g 1", (3, 3))],
)
def test_a_mistake_is_named_with_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(NotJson) as refused:
        parse_conf(text)
    assert (refused.value.problem.line, refused.value.problem.column) == place
