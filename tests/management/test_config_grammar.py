"""Checklist items management 3, 4, 5, 8, 10, 11 and 13: how configuration text is read."""

import contextlib
from pathlib import Path

import pytest
from config_texts import OLD_BOOK_GROUPS, TEXTS
from hypothesis import example, given
from hypothesis import strategies as st

from policy.attributes import Path as Names
from policy.files.conf_text import camel_case
from policy.files.sections import Section
from router.management.config import ConfigError, parse_config, read_file


def one(text: str, path: str = "x.conf") -> Section:
    (section,) = parse_config(text, path=path)
    return section


def lines(section: Section) -> dict[Names, int]:
    return {path: line for path, (line, _) in section.source.places.items()}


def attribute(line: str) -> object:
    """The value of the attribute a section with this one line holds."""
    (value,) = one(f"listener {{\n    {line}\n}}\n").attributes.values()
    return value


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ssl-profile", "sslProfile"),
        ("sasl_mechanisms", "saslMechanisms"),
        ("a.bEE-CEE", "aBeeCee"),
        ("maxFrameSize", "maxFrameSize"),
        ("XY", "XY"),
    ],
)
def test_names_are_camel_cased_at_their_separators_only(written: str, name: str) -> None:
    assert camel_case(written) == name


def test_separated_and_camel_cased_names_are_the_same() -> None:
    """management 3"""
    assert one("ssl-profile {\n}\n").type == one("sslProfile {\n}").type == "sslProfile"
    section = one("listener {\n sasl-mechanisms: PLAIN\n}")
    assert section.attributes == {"saslMechanisms": "PLAIN"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("pattern: a.#.b", "a.#.b"),
        ("pattern: a.# # comment", "a.#"),
        ("prefix: a # x", "a"),
        ("prefix: a#x", "a"),
        ("hostname: a#b c", "a#b"),
        ("bindingKey: #", "#"),
    ],
)
def test_a_hash_begins_a_comment_except_in_three_attributes(line: str, value: str) -> None:
    """management 4"""
    assert attribute(line) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("saslMechanisms: ANONYMOUS PLAIN  ", "ANONYMOUS PLAIN"),
        ("port:5672", "5672"),
        ("port \t:\t 5672", "5672"),
        ("x: 3,", "3,"),
        ("id: abc\\bdef", "abc\bdef"),
        ("id: a\\\\b", "a\\b"),
        ("id: \\u00e9", "é"),
        ('hostname: "example.com"', "example.com"),
        ('id: "two words"', "two words"),
        ('id: say "hello" twice', 'say "hello" twice'),
        ('id: "', '"'),
        ("defaultVhost:", ""),
        ("default-vhost :  # none", ""),
        ("hostname:  ", ""),
    ],
)
def test_values_are_the_rest_of_the_line_with_json_escapes(line: str, value: str) -> None:
    """management 5: an escape makes a control character; Build: quotes around a value are taken off."""
    assert attribute(line) == value


def test_the_last_of_two_equal_attributes_counts() -> None:
    assert one("router {\n id: a\n id: b\n}").attributes == {"id": "b"}


def test_crlf_tabs_and_comments_are_harmless() -> None:
    text = "# head\r\n\r\n\tlistener {  # opens\r\n  # port: 1\r\n\tport: 2\r\n} # closes\r\n"
    section = one(text)
    assert (section.attributes, section.source.line, lines(section)) == ({"port": "2"}, 3, {("port",): 5})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("port: 5672\n", 1),
        ("\nconnection.linkRoute {\n}\n", 2),
        ("listener {\n port\n}\n", 2),
        ("listener { port: 1 }\n", 1),
        ("listener {\n} }\n", 2),
        ("listener {\n port: 1\n", 1),
        ("listener {\n}\n}\n", 3),
        ("listener {\n id: a\\q\n}\n", 2),
        ("listener {\n id: \\ud800\n}\n", 2),
        ("vhost {\n groups: {\n  a: {\n  }\n}\n", 1),
        ("vhost {\n groups: {\n  a: b}\n }\n}\n", 3),
        ("vhost {\n groups: {\n } x\n}\n", 3),
        ("vhost {\n groups: {\n  a\n }\n}\n", 3),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(text: str, line: int) -> None:
    """management 8 among them: `connection.linkRoute` is no section."""
    with pytest.raises(ConfigError, match=rf"Cannot load configuration file x\.conf: .*\(x\.conf:{line}\)$"):
        parse_config(text, path="x.conf")


def test_lines_nobody_understands_are_logged_but_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("connector {\n what is this\n saslPassword hunter2\n hunter3\n}\n", path="x.conf")
    texts = [log.text for log in caught.value.logs]
    assert "Invalid config file syntax (line 2):\n>>> what is this" in texts
    assert "Contents of failed config file" in texts
    assert "hunter" not in str(texts) + str(caught.value)


MULTI_LINE_JSON_GROUPS = """\
vhost {
    hostname: example.com
    groups: {
        # a comment
        "admin": {
            "users": "alice, bob",
            "maxSenders": 3,
            "sources": ["a", "b#c", ],
        },
    }
}
"""
ONE_LINE_JSON_GROUPS = """\
vhost {
    groups: {
        "a": { "users": "*", "allowDynamicSource": true },
        "$default": { "remoteHosts": "" },
    }
    maxConnections: 10
}
"""


def test_groups_in_the_style_of_the_older_books_load() -> None:
    """management 11"""
    section = one(OLD_BOOK_GROUPS)
    assert section.attributes == {
        "hostname": "example.com",
        "groups": {
            "admin": {"users": "alice, bob", "remoteHosts": "127.0.0.1, ::1", "sources": "*"},
            "$default": {
                "remoteHosts": "*",
                "allowDynamicSource": "true",
                "targets": "${user}.*, {user}",
                "sourcePattern": "a.#, #",
            },
        },
    }
    assert lines(section)["groups", "$default", "remoteHosts"] == 10


def test_groups_in_json_of_many_lines_load() -> None:
    """management 11"""
    groups = {"admin": {"users": "alice, bob", "maxSenders": 3, "sources": ["a", "b#c"]}}
    assert one(MULTI_LINE_JSON_GROUPS).attributes["groups"] == groups


def test_groups_with_a_json_member_a_line_load() -> None:
    """management 11"""
    section = one(ONE_LINE_JSON_GROUPS)
    assert section.attributes == {
        "groups": {"a": {"users": "*", "allowDynamicSource": True}, "$default": {"remoteHosts": ""}},
        "maxConnections": "10",
    }
    assert lines(section)["groups", "a", "users"] == 3


def test_open_properties_keep_json_types_and_hashes() -> None:
    """management 10: nested values come through unchanged."""
    section = one('listener {\n openProperties: {\n # no\n "a": {"b": [1, 2.5, null]},\n "c": "#x",\n }\n port: 1\n}\n')
    assert section.attributes == {"openProperties": {"a": {"b": [1, 2.5, None]}, "c": "#x"}, "port": "1"}


@pytest.mark.parametrize("key", ["1", "null", "bare", "'x'"])
def test_keys_of_open_properties_are_strings(key: str) -> None:
    """management 10"""
    with pytest.raises(ConfigError, match=r"Expecting property name .*\(x\.conf:3\)"):
        parse_config(f"listener {{\n openProperties: {{\n  {key}: 2\n }}\n}}\n", path="x.conf")


def test_json_files_hold_pairs_and_their_lines() -> None:
    """management 13"""
    text = '# c\n[\n  # c\n  ["ssl-profile", {"name": "n"}],\n'
    text += '  ["vhost", {\n "id": "h", "groups": {"a":\n {"users": "x"}}}],\n]\n'
    profile, vhost = parse_config(text, path="x.json")
    assert (profile.type, profile.attributes, profile.source.line) == ("sslProfile", {"name": "n"}, 4)
    assert vhost.attributes == {"id": "h", "groups": {"a": {"users": "x"}}}
    assert lines(vhost) == {("id",): 6, ("groups",): 6, ("groups", "a"): 6, ("groups", "a", "users"): 7}


@pytest.mark.parametrize("text", ["{}", "[1]", '[["a"]]', '[["a", 1]]', '[["a", {}, 1]]', "[]]", '[["a", NaN]]', "[["])
def test_json_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\(x\.json:1\)"):
        parse_config(text, path="x.json")


@pytest.mark.parametrize(("opening", "path"), [("[", "x.json"), ("vhost {\ngroups: {\n" + "a: {\n", "x.conf")])
def test_maps_nested_a_hundred_thousand_times_are_refused(opening: str, path: str) -> None:
    """Attack: exhaust the stack."""
    text = opening * 100_000 if path == "x.json" else opening + "a: {\n" * 100_000
    with pytest.raises(ConfigError, match="nested deeper"):
        parse_config(text, path=path)


@given(text=TEXTS, path=st.sampled_from(["x.conf", "x.json"]))
@example(text="listener {\n" + '"' * 50, path="x.conf")
@example(text="a {\nb: {", path="x.conf")
def test_any_text_is_sections_or_a_config_error(text: str, path: str) -> None:
    with contextlib.suppress(ConfigError):
        for section in parse_config(text, path=path):
            assert 1 <= (section.source.line or 0) <= text.count("\n") + text.count("\r") + 1


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    """Attack: quadratic parsing. 60,000 lines; a quadratic parser takes minutes."""
    members = "".join(f"  g{number}: {{\n   users: u{number}\n  }}\n" for number in range(20_000))
    section = one("vhost {\n groups: {\n" + members + " }\n}\n")
    groups = section.attributes["groups"]
    assert isinstance(groups, dict)
    assert len(groups) == 20_000


@pytest.mark.parametrize("blank", ["\x1f", "\n", "\x0b"])
def test_a_bare_name_is_followed_by_its_colon(blank: str) -> None:
    """Found by fuzzing: such a name once escaped as an AssertionError."""
    with pytest.raises(ConfigError, match="Expecting ':' after the name 'users'"):
        parse_config(f"vhost {{\n groups: {{\n g: {{\n users{blank}: a\n }}\n }}\n}}\n", path="a.conf")


@pytest.mark.parametrize("name", ["x.conf", "x.json"])
def test_a_byte_order_mark_is_passed_over(name: str, tmp_path: Path) -> None:
    text = "router {\n}\n" if name == "x.conf" else '[["router", {}]]'
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    (section,) = parse_config(read_file(str(tmp_path / name)), path=name)
    assert section.type == "router"


def test_a_second_byte_order_mark_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(2 * b"\xef\xbb\xbf" + b'[["router", {}]]')
    with pytest.raises(ConfigError, match="Expecting value: line 1 column 1"):
        parse_config(read_file(str(tmp_path / "x.json")), path="x.json")
