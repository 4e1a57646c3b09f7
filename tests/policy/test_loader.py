"""Reading policy files: places of everything, all problems at once. policy 4, 5"""

import json
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulesets import at, connect, resolve

import policies
from policy.decide import decide_link
from policy.decision import Reason
from policy.facts import LinkFacts
from policy.files.json_sections import Places, json_sections, split
from policy.files.loader import PolicyFileError, parse_policy
from policy.files.positioned_json import (
    MAX_DEPTH,
    MAX_MAPS,
    NotJson,
    RepeatedKeyError,
    loads,
    parse,
    without_comments,
)
from policy.files.validation import is_plainly_valid, load_sections, validate
from policy.ruleset import Ruleset, compile_ruleset

POLICY = """\
# who may what
[
  # the only one
  ["vhost", {
    "hostname": "h",
    "groups": {
      "g": {
        "users": ["a",
                  "b"], "remoteHosts": "*"
      }
    }
  }],
  ["listener", {"port": 1}]
]
"""


def test_every_attribute_knows_its_line() -> None:
    """policy 4: comment lines are blanks, other entities stay apart."""
    vhost, other = load_sections(POLICY, "p.json")
    assert (vhost.type, other.type) == ("vhost", "listener")
    assert (vhost.source.file, vhost.source.line) == ("p.json", 4)
    paths = {("hostname",): 5, ("groups",): 6, ("groups", "g"): 7, ("groups", "g", "users", 1): 9}
    assert {path: vhost.source.line_of(path) for path in paths} == paths
    assert vhost.source.line_of(("groups", "g", "sources")) == 7
    assert vhost.source.line_of(("maxConnections",)) == 4
    assert other.source.line == 13


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyFileError) as refused:
        load_sections(text, "p")
    return str(refused.value).splitlines()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "p:1:1: a value is missing before the end of the file"),
        ("[\n 1,]", "p:2:4: there is a ',' too many before this ']'"),
        ("[1 2]", "p:1:4: expected ',' or the ']' that ends the array, found '2'"),
        ("[[]", "p:1:4: expected ',' or the ']' that ends the array, found the end of the file"),
        ("[] []", "p:1:4: the text goes on after its end with '[': remove that"),
        ("{a: 1}", "p:1:2: expected a key in double quotes, found 'a'"),
        ('{"a" 1}', "p:1:6: expected ':' after the key 'a', found '1'"),
        ("[yes]", "p:1:2: 'yes' is no value: texts are written in double quotes, \"yes\""),
        ("[NaN]", "p:1:2: 'NaN' is no value: texts are written in double quotes, \"NaN\""),
        ('["a\n"]', "p:1:2: the text that begins here does not end on this line, or has a wrong \\ sequence in it"),
        ("[" + "9" * 5000 + "]", "p:1:2: this number has too many digits"),
        ('["\\ud800"]', "p:1:2: this text holds half of a surrogate pair"),
        ("[" * 100, f"p:1:{MAX_DEPTH + 2}: nested more than {MAX_DEPTH} levels deep"),
        ('{"a": 1}', "p:1:1: A list of pairs"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_place(text: str, problem: str) -> None:
    assert problems(text)[0].startswith(problem)


WRONG = """\
[["vhost", {"hostname": 5, "maxConection": 3,
  "allowUnknownUser": "yes",
  "groups": {"g": {"maxSenders": -1,
    "sources": [1],
    "users": "a", "users": "b"}}}],
 ["vhost", {}], ["vhost"]]
"""


def test_all_problems_are_reported_at_once() -> None:
    found = problems(WRONG)
    places = [":".join(line.split(":")[1:3]) for line in found]
    assert places == ["1:13", "1:28", "2:3", "3:20", "4:17", "5:19", "6:12", "6:17"]
    assert found[1] == "p:1:28: unknown attribute 'maxConection': did you mean 'maxConnections'?"
    assert "'allowUnknownUser' is \"yes\". Expected: true or false" in found[2]
    assert found[5].endswith("key 'users' stands here a second time, the first is in line 5: keep one of them")


def test_both_names_of_a_vhost_are_refused() -> None:
    assert "'id' is the old name of 'hostname'" in problems('[["vhost", {"hostname": "a", "id": "a"}]]')[0]


@pytest.mark.parametrize("text", ['{"a": []}', "[5]", '[["vhost", []]]', '[["vhost", {}, {}]]'])
def test_the_router_s_reading_refuses_other_forms(text: str) -> None:
    with pytest.raises(PolicyFileError):
        load_sections(text, "p")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_json_is_read_as_by_the_standard_library(value: object, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    assert parse(text).value == json.loads(text)


@given(st.text(st.sampled_from('[]{}",:\\ \n#a1-.eutrl'), max_size=30))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    place = None
    try:
        parse(text)
    except NotJson as error:
        place = (error.problem.line, error.problem.column)
    assert place is None or min(place) >= 1


def example(name: str, **policy: object) -> Ruleset:
    text = policies.path(f"{name}/policy.json").read_text("utf-8")
    entities = load_sections(text, name)
    assert all(entity.type == "vhost" for entity in entities)
    rules = compile_ruleset(
        {"enableVhostPolicy": True, **policy},
        [(entity.attributes, entity.source) for entity in entities],
        resolve=resolve,
    )
    assert rules.warnings == ()
    return rules


def may(rules: Ruleset, user: str, direction: str, address: str, *, vhost: str, host: str) -> bool:
    granted = connect(rules, user, vhost=vhost, host=host).settings
    assert granted is not None, f"{user} is not admitted"
    link = LinkFacts(direction="send" if direction == "send" else "receive", address=at(address))
    return decide_link(granted, link).is_allowed


@pytest.mark.parametrize(
    ("user", "address", "is_allowed"),
    [
        ("alice", "orders.new", True),
        ("alice", "alice.inbox", True),
        ("alice", "client.inbox", False),
        ("alice", "secret", False),
        ("alice", "$management", False),
        ("client", "orders.new", True),
        ("operator", "$management", True),
        ("operator", "secret", True),
    ],
)
def test_the_quick_start_s_policy(user: str, address: str, is_allowed: bool) -> None:
    rules = example("quickstart")
    for direction in ("send", "receive"):
        assert may(rules, user, direction, address, vhost="localhost", host="127.0.0.1") == is_allowed


def test_the_quick_start_s_policy_admits_nobody_else() -> None:
    rules = example("quickstart")
    assert connect(rules, "mallory", vhost="", host="127.0.0.1").decision.reason is Reason.UNKNOWN_USER
    assert connect(rules, "alice", vhost="", host="10.0.0.1").decision.reason is Reason.HOST_NOT_ALLOWED


def test_the_tenants_policy() -> None:
    rules = example("tenants", enableVhostNamePatterns=True, defaultVhost="")
    shop, clerk, till = "berlin.shop.example.com", "10.20.1.1", "10.21.0.9"
    assert may(rules, "anna", "send", "services/tax/request", vhost=shop, host=clerk)
    assert may(rules, "anna", "receive", "anna/inbox", vhost="north.berlin.shop.example.com", host=clerk)
    assert connect(rules, "anna", vhost="paris.shop.example.com", host=clerk).decision.reason is Reason.UNKNOWN_USER
    assert not may(rules, "anna", "receive", "ben/inbox", vhost=shop, host=clerk)
    assert may(rules, "till-1", "send", "sales/till-1", vhost=shop, host=till)
    assert not may(rules, "till-1", "send", "sales/till-2", vhost=shop, host=till)
    sensors = "sensors.example.com"
    assert may(rules, "s7", "send", "readings.s7", vhost=sensors, host="10.31.0.1")
    assert not may(rules, "s7", "receive", "readings.s7", vhost=sensors, host="10.31.0.1")
    assert connect(rules, "anna", vhost="shop.example.com", host=clerk).decision.reason is Reason.NO_VHOST


def test_examples_are_found_by_name_and_only_they_are() -> None:
    assert policies.path("quickstart").is_dir()
    assert policies.path("quickstart/policy.json") == resources.files("policies") / "quickstart" / "policy.json"
    for name in ("", "unknown", "../pyproject.toml", "quickstart/../__init__.py", "/etc/passwd"):
        with pytest.raises(FileNotFoundError):
            policies.path(name)


elements = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(elements, max_size=4), st.sampled_from([None, 1]), st.sampled_from(["", "# c\n", "\ufeff", " \n"]))
@settings(deadline=None)
def test_the_fast_reader_agrees_with_the_slow_one(value: list[object], indent: int | None, begin: str) -> None:
    text = begin + json.dumps(value, indent=indent)
    plain = without_comments(text)
    found = split(plain)
    document = parse(text)
    assert found is not None
    assert [element for element, _ in found] == document.value
    places = Places(plain)
    for index, (_, offset) in enumerate(found):
        inside = {path: places.place(offset, path) for path in places.paths(offset)}
        assert inside[()] is not None
        assert places.lines.place(offset) == inside[()]
        assert inside == {path[1:]: at for path, at in document.positions.items() if path[:1] == (index,)}


@given(st.text(alphabet='[]{}",:a1#\n \\', max_size=25))
@settings(max_examples=400, deadline=None)
def test_the_fast_reader_reads_nothing_the_slow_one_refuses(text: str) -> None:
    if (found := split(without_comments(text))) is not None:
        document = parse(text)
        assert document.problems == ()
        assert document.value == [element for element, _ in found]


texts = st.sampled_from(["a", "", "*", "1"])
lists = st.lists(st.one_of(texts, st.integers(0, 1)), max_size=2)
values = st.one_of(texts, lists, st.integers(-1, 70000), st.booleans())
VHOST_KEYS = ("hostname", "id", "name", "aliases", "maxConnections", "maxMessageSize", "allowUnknownUser", "x")
names = st.sampled_from(VHOST_KEYS)
keys = st.sampled_from(["users", "remoteHosts", "maxSenders", "allowDynamicSource", "sources", "y"])


@pytest.mark.slow
@given(
    st.dictionaries(names, values, max_size=4),
    st.dictionaries(st.sampled_from(["g", "h" * 256]), st.dictionaries(keys, values, max_size=3), max_size=2),
)
@settings(max_examples=300, deadline=None)
def test_what_is_valid_at_a_glance_is_valid(attributes: dict[str, object], groups: dict[str, object]) -> None:
    vhost = {**attributes, "groups": groups}
    if is_plainly_valid(vhost):
        assert validate(parse(json.dumps([["vhost", vhost]]))) == ()


# The fast reader, whole.


def test_sections_of_json_know_the_places_of_all_inside() -> None:
    text = '\n[["a", {}],\n ["b", {"x": [1],\n  "y": {"z": {}}}]]'
    sections = json_sections(text, "p.json")
    assert sections is not None
    assert [(each.type, each.attributes) for each in sections] == [("a", {}), ("b", {"x": [1], "y": {"z": {}}})]
    assert [(each.source.file, each.source.line, each.source.column) for each in sections] == [
        ("p.json", 2, 2),
        ("p.json", 3, 2),
    ]
    places = sections[1].source.places
    assert dict(places) == {("x",): (3, 9), ("x", 0): (3, 15), ("y",): (4, 3), ("y", "z"): (4, 9)}
    assert len(places) == 4
    for path in ((), ("w",)):
        with pytest.raises(KeyError) as missing:
            places[path]
        assert missing.value.args == (path,)


def test_places_found_at_once_are_those_of_members_of_so_many_maps() -> None:
    text = '[["a", ' + '{"b":' * (MAX_MAPS + 2) + "1" + "}" * (MAX_MAPS + 2) + "]]"
    (section,) = json_sections(text, "r.json", is_eager=True) or ()
    assert list(section.source.places) == [("b",) * depth for depth in range(1, MAX_MAPS + 1)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[1,2]", [(1, 1), (2, 3)]),
        ('["\\u00e9"]', [("é", 1)]),
        ('["\\ud800"]', None),
        ("[1 2]", None),
        ("{}", None),
        ("[1] 2", None),
    ],
)
def test_elements_are_split(text: str, found: object) -> None:
    assert split(text) == found


# The reader that knows places, whole.


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":1 "b"}', "1:8: expected ',' or the '}' that ends the object, found '\"'"),
        ('{"a": 1,\n      "a": 2,}', "2:14: there is a ',' too many before this '}'"),
    ],
)
def test_a_fault_of_json_is_told_whole(text: str, problem: str) -> None:
    with pytest.raises(NotJson) as refused:
        parse(text)
    assert str(refused.value) == problem


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    (problem,) = parse('{\n"b": 1, "a":12,\n    "a": 2}').problems
    text = "key 'a' stands here a second time, the first is in line 2: keep one of them"
    assert (problem.line, problem.column, problem.text) == (3, 5, text)


def test_loads_refuses_a_key_that_stands_twice() -> None:
    assert loads('{"a": [1]}') == {"a": [1]}
    with pytest.raises(RepeatedKeyError):
        loads('{"a": 1, "a": 1}')


def test_a_place_that_is_not_known_is_that_of_the_nearest_thing_around_it() -> None:
    document = parse('\n  {"a": {\n"b": 1}}')
    assert document.position_of(("a", "b", "c", "d")) == (3, 1)
    assert document.position_of(("a", "b", "c")) == (3, 1)
    assert document.position_of(("a", "x", "y")) == (2, 4)
    assert document.position_of(("x",)) == (2, 3)
    assert parse_policy("", "r.conf").position_of((0, 1, "x")) == (1, 1)
    assert replace(document, positions={}).position_of(("a",)) == (1, 1)


@pytest.mark.parametrize(("text", "file"), [("no", "r.conf"), ("no", "p.json")])
def test_a_file_that_cannot_be_read_is_named(text: str, file: str) -> None:
    with pytest.raises(PolicyFileError) as refused:
        parse_policy(text, file)
    assert refused.value.file == file
    assert str(refused.value).startswith(f"{file}:1:1: ")
    with pytest.raises(PolicyFileError) as refused:
        load_sections(text, file)
    assert refused.value.file == file


# What the schema says, whole, and what is seen at a glance.

PAIR = (
    'Expected: A pair: the text "vhost" and the vhost\'s attributes. '
    "Pairs that begin with the name of another entity are ignored."
)
FILE = 'A list of pairs ["vhost", {attributes}]. In a file, lines whose first non-blank character is # are comments.'
KNOWN = (
    "known are aliases, allowUnknownUser, groups, hostname, id, maxByteRate, maxConnections, maxConnectionsPerHost, "
    "maxConnectionsPerRemoteHost, maxConnectionsPerUser, maxMessageRate, maxMessageSize, name"
)
ITEMS = 'Expected: A list of texts, ["a", "b"], or one text with commas between the items, "a, b".'
COUNT = "Expected: A number from 0 to 9223372036854775807."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5", [f"p:1:1: {FILE}"]),
        (" {}", [f"p:1:2: {FILE}"]),
        ("[5]", [f"p:1:2: item 1 is 5. {PAIR}"]),
        ('[["vhost"]]', [f"p:1:2: item 1 is a list. {PAIR}"]),
        ('["vhost", {}]', [f'p:1:2: item 1 is "vhost". {PAIR}', f"p:1:11: item 2 is a map in braces. {PAIR}"]),
        (
            '[["x", 5]]',
            ['p:1:8: item 2 of item 1 is 5. Expected: The entity\'s attributes in braces: {"name": value, ...}.'],
        ),
        ('[["vhost", {}]]', ['p:1:12: a vhost needs a name: "hostname": "..."']),
        (
            '[["vhost", {"hostname": "h", "id": "i"}]]',
            ["p:1:30: 'id' is the old name of 'hostname': keep only 'hostname'"],
        ),
        ('[["vhost", {"hostname": "h", "zzz": 1}]]', [f"p:1:30: unknown attribute 'zzz': {KNOWN}"]),
        (
            '[["vhost", {"hostname": "h", "groups": {"' + "g" * 256 + '": {}}}]]',
            [f"p:1:41: \"{'g' * 58}…: A group's name has at most 255 characters."],
        ),
        (
            '[["vhost", {"hostname": "h", "groups": []}]]',
            ['p:1:30: the groups is a list. Expected: User groups in braces: {"group name": {settings}, ...}.'],
        ),
        (
            '[["vhost", {"hostname": "a"}], ["listener", {}],\n ["vhost", {"hostname": "b", "maxConection": 3}]]',
            ["p:2:30: unknown attribute 'maxConection': did you mean 'maxConnections'?"],
        ),
        (
            '{"a": 1, "a": 2}',
            [f"p:1:1: {FILE}", "p:1:10: key 'a' stands here a second time, the first is in line 1: keep one of them"],
        ),
    ],
)
def test_a_departure_from_the_schema_is_told_whole(text: str, found: list[str]) -> None:
    assert problems(text) == found


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("users", [1], f"item 1 of 'users' of 'g' of the groups is 1. {ITEMS}"),
        ("users", [["a"]], f"item 1 of 'users' of 'g' of the groups is a list. {ITEMS}"),
        ("sources", {}, f"'sources' of 'g' of the groups is a map in braces. {ITEMS}"),
        ("targets", None, f"'targets' of 'g' of the groups is null. {ITEMS}"),
        ("maxSenders", True, f"'maxSenders' of 'g' of the groups is true. {COUNT}"),
        ("maxSenders", -1, f"'maxSenders' of 'g' of the groups is -1. {COUNT}"),
        ("maxSessions", "x" * 58, f"'maxSessions' of 'g' of the groups is \"{'x' * 58}\". {COUNT}"),
        ("maxSessions", "x" * 59, f"'maxSessions' of 'g' of the groups is \"{'x' * 58}…. {COUNT}"),
    ],
)
def test_a_wrong_value_is_shown_with_its_name_and_what_is_right(key: str, value: object, text: str) -> None:
    found = problems(json.dumps([["vhost", {"hostname": "h", "groups": {"g": {key: value}}}]], indent=1))
    place = "9:7" if isinstance(value, list) else "8:6"
    expected = text.replace(ITEMS, "Expected: A text in double quotes.") if isinstance(value, list) else text
    assert found == [f"p:{place}: {expected}"]


GLANCE: dict[str, tuple[list[object], list[object]]] = {
    "users": ([["a", "b"], "a, b", ""], [[1], 1, None]),
    "maxConnectionsPerUser": ([0, 65535, "65535"], [65536, "65536", -1, True, 1.5, "x", ""]),
    "maxConnectionsPerHost": ([1], [65536]),
    "maxSenders": ([0, 1, 2**63 - 1, "9" * 18], [2**63, -1, False, "²", "9" * 20, "0" * 19 + "1", None]),
    "maxFrameSize": ([0, 2**32 - 1], [2**32, -1, True]),
    "replyWindow": ([1, 86_400, "20"], [0, 86_401, "0"]),
    "validFrom": (["2026-12-31T17:00:00Z"], ["tomorrow", 5, None]),
    "management": (["read connection"], ["nothing there is", 5]),
    "allowReplies": ([True, False, "true", "false"], ["TRUE", "yes", 1, None]),
}


@pytest.mark.parametrize("key", GLANCE)
def test_what_is_right_in_a_group_is_seen_at_a_glance(key: str) -> None:
    right, wrong = GLANCE[key]
    for value in right:
        assert is_plainly_valid({"hostname": "h", "groups": {"g": {key: value}}}), value
    for value in wrong:
        assert not is_plainly_valid({"hostname": "h", "groups": {"g": {key: value}}}), value


@pytest.mark.parametrize(
    ("vhost", "is_plain"),
    [
        ({"hostname": "h"}, True),
        ({}, False),
        ({"hostname": 5}, False),
        ({"hostname": "h", "id": "h"}, False),
        ({"hostname": "h", "aliases": "a, b", "allowUnknownUser": True, "maxConnections": 65535}, True),
        ({"hostname": "h", "allowUnknownUser": "true"}, False),
        ({"hostname": "h", "aliases": ["a"]}, False),
        ({"hostname": "h", "unknown": 1}, False),
        ({"hostname": "h", "groups": {}}, True),
        ({"hostname": "h", "groups": []}, False),
        ({"hostname": "h", "groups": {"g": []}}, False),
        ({"hostname": "h", "groups": {"g": {"unknown": 1}}}, False),
        ({"hostname": "h", "groups": {"é" * 127 + "g": {}}}, True),
        ({"hostname": "h", "groups": {"é" * 128: {}}}, False),
    ],
)
def test_what_is_right_in_a_vhost_is_seen_at_a_glance(vhost: dict[str, object], is_plain: bool) -> None:
    assert is_plainly_valid(vhost) is is_plain


def test_what_is_plain_is_not_held_against_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of vhosts only those that may be wrong are."""
    held: list[object] = []

    class Validator:
        def iter_errors(self, value: object) -> list[object]:
            held.append(value)
            return []

    monkeypatch.setattr("policy.files.validation._validator", Validator)
    plain, doubtful = ["vhost", {"hostname": "h"}], ["vhost", {"hostname": "h", "maxConnections": "x"}]
    assert validate(parse(json.dumps([plain, doubtful, plain, 5]))) == ()
    assert held == [[doubtful, 5]]
    assert load_sections(json.dumps([plain, ["listener", {}]]), "p")
    assert len(held) == 1
