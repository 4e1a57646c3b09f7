"""A configuration as the tools see it: what the router reads, with the place of everything."""

import pytest

from policy.attributes import Path, Place, SourceLocation
from policy.files.conf import conf_sections, document_of, with_booleans
from policy.files.conf_json import conf_json_sections
from policy.files.conf_text import ConfError, ConfText
from policy.files.loader import PolicyFileError, parse_policy
from policy.files.positioned_json import Document, Problem
from policy.files.sections import Section
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


# What is refused, whole: the place, the text, the lines that do not parse, and whether the braces are to blame.

NO_LINE = "this line is no section 'NAME {', no attribute 'NAME: VALUE' and no closing '}'"
OPEN = "this section is never closed, or a '}' is missing or too many"
SHAPE = 'the file is an array of [ "section", { attributes } ]'


@pytest.mark.parametrize(
    ("text", "fault", "bad_lines"),
    [
        ("no\n\n  neither\nrouter {\n id: a\n}\n", f"1:1: {NO_LINE}", ((1, "no"), (3, "neither"))),
        ("router {\n id a\n port\n", f"2:2: {NO_LINE}", ((2, "id a"), (3, "port"))),
        ("router {\n id: a\n", f"1:1: {OPEN}", ((1, "router {"),)),
        ("router {\n}\n}\n", f"3:1: {OPEN}", ((3, "}"),)),
        ("\nrouter {\n no\n}\n", f"3:2: {NO_LINE}", ((3, "no"),)),
        (
            "connector {\n saslPassword:\n hunter2\n host: h\n}\n",
            f"2:2: {NO_LINE}",
            ((2, "saslPassword:"), (3, "hunter2")),
        ),
        ("router {\n id: a\\q\n}\n", "2:2: the value of 'id' holds an invalid escape; write a backslash as \\\\", ()),
        ("listener {\n openProperties: {}", f"1:1: {OPEN}", ((1, "listener {"),)),
        ("listener {\n openProperties: {} x\n}\n", "2:21: nothing may follow the '}' that closes 'openProperties'", ()),
        ('listener {\n openProperties: {"a": "\\ud800"}\n}\n', "2:33: text holds half of a surrogate pair", ()),
        ('listener {\n openProperties: {"a": NaN}\n}\n', "2:18: NaN is not JSON", ()),
        (
            'listener {\n openProperties: {"a": 1,\n  "a": 2}\n}\n',
            "3:3: key 'a' stands here a second time, the first is in line 2: keep one of them (column 3)",
            (),
        ),
        (
            'listener {\n openProperties: {"a": 1, "a": 2, b}\n}\n',
            "2:35: Expecting property name enclosed in double quotes: line 2 column 35 (char 45)",
            (),
        ),
        (
            "listener {\n openProperties: " + '{"a": ' * 100_000 + "\n}\n",
            "2:18: maps and lists are nested deeper than 32 levels",
            (),
        ),
        ("vhost {\n groups: {\n  a: b\n", "2:10: this map is never closed: a '}' is missing", ()),
        ("vhost {\n groups: {\n" + "  a: {\n" * 32, "34:6: maps are nested deeper than 32 levels", ()),
        (
            "vhost {\n groups: {\n  =\n }\n}\n",
            "3:3: Expecting property name: a map holds NAME: VALUE, NAME: { or a closing '}'",
            (),
        ),
        ("vhost {\n groups: {\n  " + "n" * 81, f"3:3: Expecting ':' after the name '{'n' * 80}'", ()),
        (
            "vhost {\n groups: {\n  g: {\n   users: a {\n  }\n }\n}\n",
            "4:11: the value of 'users' holds an unbalanced brace; a closing '}' stands on its own line",
            (),
        ),
        (
            "vhost {\n groups: {\n  users: \\q\n }\n}\n",
            "3:10: the value of 'users' holds an invalid escape; write a backslash as \\\\",
            (),
        ),
    ],
)
def test_a_fault_of_a_configuration_is_told_whole(
    text: str, fault: str, bad_lines: tuple[tuple[int, str], ...]
) -> None:
    with pytest.raises(ConfError) as refused:
        conf_sections(text, "r.conf")
    found = refused.value
    assert str(found) == fault
    assert found.bad_lines == bad_lines
    assert found.is_nesting_wrong is (OPEN in fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('["a", {}]', f"1:2: {SHAPE}"),
        ("[]]", "1:3: something follows the end of the JSON array"),
        ('[\n ["a", {}],\n ["b"], 1]', f"3:2: {SHAPE}"),
        (" {}", f"1:2: {SHAPE}"),
        (' {"a": 1}', f"1:2: {SHAPE}"),
        (
            '[["a", {"b": ' + "[" * 65 + '{"c": 1, "c": 2}' + "]" * 65 + "}]]",
            "1:76: nested more than 64 levels deep (column 76)",
        ),
        ("\ufeff[]", "1:1: Expecting value: line 1 column 1 (char 0)"),
        (
            '[["a", {"b": 1, "b": 2}]]',
            "1:17: key 'b' stands here a second time, the first is in line 1: keep one of them (column 17)",
        ),
        ('[["a", {"b": 1, "b": 2, "c": tru}]]', "1:30: Expecting value: line 1 column 30 (char 29)"),
        (
            '[\n["a", {}],\n ["b", {"x": 1, "c-d": 1, "cD": 2}]]',
            "3:2: an attribute of this section stands in it twice, in two spellings: keep one of them",
        ),
        ('[\n ["a", ' + '{"b":\n' * 33 + "1" + "}" * 33 + "]]", "33:2: maps are nested deeper than 32 levels"),
        ('[["a", {"b": "\\ud800"}]]', "1:25: text holds half of a surrogate pair"),
        ('[["a", NaN]]', "1:1: NaN is not JSON"),
    ],
)
def test_a_fault_of_a_configuration_in_json_is_told_whole(text: str, fault: str) -> None:
    with pytest.raises(ConfError) as refused:
        conf_json_sections(text, "r.json")
    found = refused.value
    assert (str(found), found.bad_lines, found.is_nesting_wrong) == (fault, (), False)


def test_maps_may_be_nested_as_deep_as_the_bound() -> None:
    (section,) = conf_sections("vhost {\n groups: {\n" + "  a: {\n" * 31 + "}\n" * 33, "r.conf")
    assert section.last_line == 66
    assert len(conf_json_sections('[["a", ' + '{"b":' * 32 + "1" + "}" * 32 + "]]", "r.json")) == 1


# What is read, whole.

SPELLED = """
ssl-profile {
    name: n # x
    password: a\\u0020b
    hostname: a#b c d
}
vhost {\r
    allowUnknownUser: maybe
    openProperties: {"a": "\\u00e9", "b": [1]}
    name: x
    name: y
    groups: {
        g: {
            targets: {user}.x, b ,
            "users"
            : "a", sources: a, # c
            users: b
            a-b: {
            }
        }
    }
}
last {}"""


def test_a_configuration_is_read_whole() -> None:
    groups = {"g": {"targets": "{user}.x, b", "users": "b", "sources": "a", "a-b": {}}}
    profile = Section(
        type="sslProfile",
        attributes={"name": "n", "password": "a b", "hostname": "a#b"},
        source=SourceLocation(
            file="r.conf", line=2, column=1, places={("name",): (3, 5), ("password",): (4, 5), ("hostname",): (5, 5)}
        ),
        last_line=6,
    )
    vhost = Section(
        type="vhost",
        attributes={
            "allowUnknownUser": "maybe",
            "openProperties": {"a": "é", "b": [1]},
            "name": "y",
            "groups": groups,
        },
        source=SourceLocation(
            file="r.conf",
            line=7,
            column=1,
            places={
                ("allowUnknownUser",): (8, 5),
                ("openProperties",): (9, 5),
                ("name",): (11, 5),
                ("groups",): (12, 5),
                ("groups", "g"): (13, 9),
                ("groups", "g", "targets"): (14, 13),
                ("groups", "g", "sources"): (16, 20),
                ("groups", "g", "users"): (17, 13),
                ("groups", "g", "a-b"): (18, 13),
            },
        ),
        last_line=22,
        repeats=((("name",), (11, 5)), (("groups", "g", "users"), (17, 13))),
    )
    last = Section(
        type="last", attributes={}, source=SourceLocation(file="r.conf", line=23, column=1, places={}), last_line=23
    )
    sections = conf_sections(SPELLED, "r.conf")
    assert sections == [profile, vhost, last]
    assert [with_booleans(section) for section in sections] == sections
    heads = {0: (2, 1), 1: (7, 1), 2: (23, 1)}
    assert document_of(sections) == Document(
        value=[[each.type, each.attributes] for each in sections],
        positions={
            (): (1, 1),
            **{path: place for index, place in heads.items() for path in ((index,), (index, 0), (index, 1))},
            **{(0, 1, *path): place for path, place in profile.source.places.items()},
            **{(1, 1, *path): place for path, place in vhost.source.places.items()},
        },
        problems=(
            Problem(
                line=11, column=5, text="'name' stands here a second time, and only this one counts: keep one of them"
            ),
            Problem(
                line=17, column=13, text="'users' stands here a second time, and only this one counts: keep one of them"
            ),
        ),
    )


def test_a_section_from_nowhere_is_on_the_first_line() -> None:
    section = Section(type="a", attributes={}, source=SourceLocation())
    assert document_of([section]).positions == dict.fromkeys([(), (0,), (0, 0), (0, 1)], (1, 1))


def test_words_that_are_switches_and_words_that_are_none() -> None:
    words = {"Yes": True, "true": True, "ON": True, "no": False, "False": False, "off": False, "maybe": "maybe"}
    for word, value in words.items():
        (section,) = conf_sections(f"vhost {{\n name: on\n allowUnknownUser: {word}\n}}\n", "r.conf")
        assert with_booleans(section).attributes == {"name": "on", "allowUnknownUser": value}
    (section,) = conf_sections("vhost {\n allowUnknownUser: {\n }\n}\n", "r.conf")
    assert with_booleans(section).attributes == {"allowUnknownUser": {}}


def test_line_ends_of_all_kinds_count_alike() -> None:
    for end in ("\n", "\r\n", "\r"):
        (section,) = conf_sections(f"router {{{end} id: a{end}}}{end}", "r.conf")
        assert (section.attributes, section.source.line_of(("id",)), section.last_line) == ({"id": "a"}, 2, 3)


def test_a_configuration_in_json_is_read_whole() -> None:
    """Places are those of members of maps, found at once: the text is not kept."""
    text = '# c\n[\n ["ssl-profile", {"na-me": {"a-b": [1], "c": {}}}]]'
    places: dict[Path, Place] = {("naMe",): (3, 19), ("naMe", "a-b"): (3, 29), ("naMe", "c"): (3, 41)}
    (section,) = conf_json_sections(text, "r.json")
    assert section == Section(
        type="sslProfile",
        attributes={"naMe": {"a-b": [1], "c": {}}},
        source=SourceLocation(file="r.json", line=3, column=2, places=places),
    )


def test_members_are_read_without_a_section() -> None:
    reading = ConfText('{ "a": 1, b: 2\n b: 3 \n}')
    reading.at = 1
    assert reading.map_members(()) == {"a": 1, "b": "3"}
    assert reading.places == {("a",): (1, 3), ("b",): (2, 2)}
    assert reading.repeats == [(("b",), (2, 2))]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": ",}",}', '{"a": ",}" }'),
        ('\n{"a": ",]"\n,"b": ",}"}', '\n{"a": ",]"\n,"b": ",}"}'),
        ('["x", "y,]", 1,]', '["x", "y,]", 1 ]'),
        ('{\n",}": 1,\n}', '{\n",}": 1 \n}'),
        ('[1,]\na: [",]", 2,]\n[",}"]', '[1 ]\na: [",]", 2 ]\n[",}"]'),
        ('a: ",]"', 'a: ",]"'),
        ('it\'s "\n[",]", 1,]\n"', 'it\'s "\n[",]", 1 ]\n"'),
        ("# c,]\n[1,\n # d\n]", "     \n[1 \n    \n]"),
    ],
)
def test_commas_before_brackets_and_comments_are_blanks(text: str, read: str) -> None:
    assert ConfText(text).json == read


def test_values_may_be_blank_or_hold_tabs_and_sections_be_indented() -> None:
    (section,) = conf_sections("  vhost {\n id: a\tb\n groups: {\n  users:\n   b: c\n }\n}\n", "r.conf")
    assert section.attributes == {"id": "a\tb", "groups": {"users": "", "b": "c"}}
    assert (section.source.line, section.source.column) == (1, 3)
