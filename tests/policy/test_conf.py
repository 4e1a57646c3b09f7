"""A configuration as the tools see it: what the router reads, with the place of everything."""

import pytest

from policy.files.conf import conf_sections
from policy.files.conf_text import ConfError
from policy.files.loader import PolicyFileError, parse_policy
from policy.files.validation import load_sections
from router.management.grammar import parse_config

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


def test_the_tools_read_what_the_router_reads() -> None:
    """But for the words the router converts to booleans in a later step."""
    sections = parse_policy(CONF, "r.conf").value
    assert isinstance(sections, list)
    read = [
        (type_, {key: "yes" if value is True else value for key, value in members.items()})
        for type_, members in sections
    ]
    assert read == [(section.type, section.attributes) for section in parse_config(CONF, path="x.conf")]


def test_a_name_that_stands_twice_is_a_problem_with_its_place() -> None:
    """A second `remoteHosts` would quietly replace the first."""
    text = "vhost {\n hostname: h\n groups: {\n  g: {\n   users: a\n   users: b\n  }\n }\n}\nvhost {\n hostname: k\n}\n"
    (problem,) = parse_policy(text, "r.conf").problems
    assert (problem.line, problem.column) == (6, 4)
    assert "'users' stands here a second time" in problem.text
    with pytest.raises(PolicyFileError, match=r"r\.conf:6:4: 'users' stands here a second time"):
        load_sections(text, "r.conf")


def test_places_are_lines_and_columns() -> None:
    document = parse_policy(CONF, "r.conf")
    assert document.position_of((2, 1, "groups", "apps", "targets")) == (22, 13)
    assert document.position_of((1, 1, "saslMechanisms")) == (9, 5)
    vhost = load_sections(CONF, "r.conf")[2]
    assert (vhost.type, vhost.attributes["allowUnknownUser"]) == ("vhost", True)
    assert vhost.source.line_of(("groups", "$default", "remoteHosts")) == 17
    assert vhost.source.column_of(("groups", "$default", "remoteHosts")) == 13


def test_a_configuration_passes_the_schema_of_policies() -> None:
    assert len(load_sections(CONF, "r.conf")) == 4


@pytest.mark.parametrize(
    ("text", "place"),
    [("vhost {\n hostname: a", (1, 1)), ("router {\n}\n}", (3, 1)), ("vhost {\n  groups: {\n  g 1", (3, 3))],
)
def test_a_mistake_is_named_with_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(ConfError) as refused:
        conf_sections(text, "r.conf")
    assert (refused.value.problem.line, refused.value.problem.column) == place
