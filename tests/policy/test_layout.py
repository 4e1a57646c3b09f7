"""Policy files in one layout: nothing is lost, and a second time changes nothing."""

import json
import time
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from policy.cli.main import main
from policy.files.conf_layout import NotWritableError, vhost_section
from policy.files.json_sections import Beginnings, split
from policy.files.layout import Before, Comments, comments_of, first_paths, formatted
from policy.files.loader import PolicyFileError
from policy.files.positioned_json import parse

UNEVEN = """# who
[ ["vhost", {"hostname":"h",

  # the groups
  "groups": {
     # apps
     "g": { "users": ["a",
  # the second
  "b"], "remoteHosts": "*" }} }]
  # the end
]
"""
EVEN = """# who
[
  ["vhost", {
    "hostname": "h",

    # the groups
    "groups": {
      # apps
      "g": {
        "users": [
          "a",
          # the second
          "b"
        ],
        "remoteHosts": "*"
      }
    }
  }]
]
# the end
"""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip().startswith("#")]


def test_layout() -> None:
    assert formatted(UNEVEN, "f.json") == EVEN


@pytest.mark.slow
@given(values, st.sampled_from([None, 0, 3]), st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_and_twice_is_once(value: object, indent: int | None, places: list[int]) -> None:
    lines = json.dumps(value, indent=indent).split("\n")
    for number, place in enumerate(places):
        lines.insert(place % (len(lines) + 1), f"# {number}")
    text = "\n".join(lines)
    once = formatted(text, "f.json")
    assert parse(once).value == value
    assert sorted(comments(once)) == sorted(comments(text))
    assert formatted(once, "f.json") == once


@given(values, st.sampled_from([None, 0, 3]), st.lists(st.integers(0, 30), max_size=4))
@settings(max_examples=200, deadline=None)
def test_what_begins_on_a_line_is_found_without_reading_all_places(
    value: object, indent: int | None, places: list[int]
) -> None:
    lines = json.dumps([value, value], indent=indent).split("\n")
    for place in places:
        lines.insert(place % (len(lines) + 1), "")
    text = "\n".join(lines)
    elements = split(text)
    assert elements is not None
    found = Beginnings(text, elements)
    first = first_paths(parse(text))
    assert [found.first_on(line) for line in range(1, len(lines) + 1)] == [
        first.get(line) for line in range(1, len(lines) + 1)
    ]


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = "[" * 64 + '{"a": 1}' + "]" * 64
    with pytest.raises(PolicyFileError, match="nested more than 64 levels deep"):
        formatted(deep, "f.json")
    assert formatted("[" * 63 + "1" + "]" * 63, "f.json")


def test_comments_of_many_lists_cost_time_for_each_once() -> None:
    """Not for each list and comment together."""
    groups = ",\n".join(
        f'"g{number}": {{\n# why {number}\n"users": ["a"], "sources": ["b"]}}' for number in range(4000)
    )
    began = time.process_time()
    text = formatted(f'[["vhost", {{"hostname": "h", "groups": {{{groups}}}}}]]', "f.json")
    assert text.count("# why") == 4000
    # Where each list looked at each comment it was 16 s.
    assert time.process_time() - began < 4


@pytest.mark.parametrize("example", ["quickstart", "tenants", "broker/policy"])
def test_the_examples_are_laid_out(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", "--diff", str(resources.files("policies") / example)]) == 0, capsys.readouterr().out


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.json"
    file.write_text(UNEVEN)
    assert main(["fmt", "--check", str(tmp_path)]) == 1
    assert main(["fmt", "--diff", str(file)]) == 1
    assert file.read_text() == UNEVEN
    assert main(["fmt", str(file)]) == 0
    assert file.read_text() == EVEN
    assert main(["fmt", "--check", str(file)]) == 0
    file.write_text('[{"a": 1, "a": 2}]')
    assert main(["fmt", str(file), str(tmp_path / "r.conf"), str(tmp_path / "missing.json")]) == 3
    assert "stands here a second time" in capsys.readouterr().out
    assert file.read_text() == '[{"a": 1, "a": 2}]'


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


LONG = ["a" * 50, "b" * 50, "c" * 6]  # with brackets, commas and margin as long as a line may be
WHOLE = [
    ("[\n\n1]", "[\n  1\n]\n"),
    ("\n[]", "[]\n"),
    ('# c\n{\n# d\n"a": 1}', '# c\n{\n  # d\n  "a": 1\n}\n'),
    ('{\n\n"a": 1,\n\n"b": 2}', '{\n  "a": 1,\n\n  "b": 2\n}\n'),
    ('["x",\n\n# c\n\n"y"]', '[\n  "x",\n\n  # c\n  "y"\n]\n'),
    ('[["vhost", {"users": ["a",\n\n"b"]}]]', '[\n  ["vhost", {\n    "users": ["a", "b"]\n  }]\n]\n'),
    ('[["vhost",\n# c\n{"a": 1}]]', '[\n  [\n    "vhost",\n    # c\n    {\n      "a": 1\n    }\n  ]\n]\n'),
    (
        '[["vhost", {"x": ["a", {"b": 1}]}]]',
        '[\n  ["vhost", {\n    "x": [\n      "a",\n      {\n        "b": 1\n      }\n    ]\n  }]\n]\n',
    ),
    ('[["vhost", {}], ["é", 1]]', '[\n  ["vhost", {}],\n  ["é", 1]\n]\n'),
    (json.dumps([LONG]), f"[\n  {json.dumps(LONG)}\n]\n"),
    (
        json.dumps([["é" * 110, "longer"]]),
        "[\n  [\n    " + json.dumps("é" * 110, ensure_ascii=False) + ',\n    "longer"\n  ]\n]\n',
    ),
]


@pytest.mark.parametrize(("text", "even"), WHOLE)
def test_texts_are_laid_out_whole(text: str, even: str) -> None:
    assert formatted(text, "f.json") == even
    assert formatted(even, "f.json") == even


def test_a_list_is_broken_behind_the_last_column() -> None:
    assert len(f"  {json.dumps(LONG)}") == 120
    longer = [*LONG[:2], LONG[2] + "c"]
    assert formatted(json.dumps([longer]), "f.json") == "".join(
        ["[\n  [\n", ",\n".join(f"    {json.dumps(item)}" for item in longer), "\n  ]\n]\n"]
    )


@pytest.mark.parametrize("levels", [63, 64])
def test_objects_count_as_levels_too(levels: int) -> None:
    text = '[{"a": ' * (levels // 2) + ("[" if levels % 2 else "") + "1" + ("]" if levels % 2 else "")
    text += "}]" * (levels // 2)
    assert json.loads(formatted(text, "f.json")) == json.loads(text)
    with pytest.raises(PolicyFileError, match=r"^f\.json:1:\d+: nested more than 64 levels deep$"):
        formatted(f'{{"a": [{text}]}}', "f.json")
    with pytest.raises(PolicyFileError, match=r"^f\.json:1:\d+: nested more than 64 levels deep$"):
        formatted(f"[[{text}]]", "f.json")


def test_a_key_that_stands_twice_is_refused_with_its_file() -> None:
    with pytest.raises(PolicyFileError, match=r"^f\.json:1:10: key 'a' stands here a second time"):
        formatted('{"a": 1, "a": 2}', "f.json")


def test_what_stands_before_a_value_is_kept_with_its_path() -> None:
    lines = {4: (), 7: (0,)}
    found = comments_of("\n# a\n\n[\n\n\n1,\n# b\n]\n# c\n", lines.get)
    assert found == Comments(
        before={(): Before(has_blank=True, comments=["# a"]), (0,): Before(has_blank=True)}, behind=["# b", "# c"]
    )


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('[{\n"a":\n1}]', [(), (0, "a"), None]),
        ("[\n[1], [2]\n]", [(), (0,), None]),
        ("\n[\n]", [None, (), None]),
        ("\ufeff[1,\n2]", [(), (1,)]),
        ("\ufeff\n[1,\n2]", [None, (), (1,)]),
        ("\ufeff[\n1]", [(), (0,)]),
    ],
)
def test_the_outermost_value_that_begins_on_a_line(text: str, first: list[object]) -> None:
    elements = split(text)
    assert elements is not None
    assert [Beginnings(text, elements).first_on(line) for line in range(1, len(first) + 1)] == first


# Vhosts as sections of a configuration, whole.

VHOST = {
    "hostname": "a b#ü",
    "aliases": ["x", "y"],
    "allowUnknownUser": True,
    "maxConnections": 7,
    "name": "Xa",
    "none": "",
    "blanks": " b ",
    "brace": "{c",
    "hash": "#d\u2028\\",
    "off": False,
    "groups": {"gü": {"users": "ö", "sources": ["s" * 60, "t" * 60]}},
}
BEFORE = Comments(
    before={
        (): Before(comments=["# v"]),
        ("aliases",): Before(comments=["# al"]),
        ("aliases", 0): Before(comments=["# a0"]),
        ("name",): Before(has_blank=True),
        ("groups",): Before(comments=["# gs", "# g2"]),
        ("groups", "gü"): Before(comments=["# g"]),
        ("groups", "gü", "users"): Before(has_blank=True, comments=["# u"]),
    }
)
HEAD = """\
# v
vhost {
  hostname: a\\u0020b#ü
  # al
  # a0
  aliases: x, y
  allowUnknownUser: yes
  maxConnections: 7
  name: Xa
  none: ""
  blanks: \\u0020b\\u0020
  brace: \\u007bc
  hash: \\u0023d\\u2028\\\\
  off: no
  # gs
  # g2
  groups: {
    # g
    # u
"""
LINES = f"""\
    "gü": {{
      "users": "ö",
      "sources": [
        "{"s" * 60}",
        "{"t" * 60}"
      ]
    }},
"""
LINE = f"""    "gü": {{"users": "ö", "sources": ["{"s" * 60}", "{"t" * 60}"]}},\n"""


@pytest.mark.parametrize(("is_compact", "group"), [(False, LINES), (True, LINE)])
def test_a_vhost_is_a_section_of_a_configuration(is_compact: bool, group: str) -> None:
    lines = vhost_section(VHOST, BEFORE, is_compact=is_compact)
    assert "\n".join(lines) == f"{HEAD}{group}  }}\n}}"


def test_a_group_is_on_one_line_up_to_the_last_column() -> None:
    for length, count in ((81, 5), (82, 8)):
        group = {"users": "u" * length, "sources": "s"}
        lines = vhost_section({"groups": {"g": group}}, Comments(), is_compact=False)
        assert len(lines) == count
        assert len(f'    "g": {json.dumps(group)},') == 120 + (count > 5)


def test_groups_that_are_none_are_written_as_they_are() -> None:
    vhost = {"groups": "none", "other": {"a": 1}}
    written = ["vhost {", "  groups: none", '  other: {"a": 1}', "}"]
    assert vhost_section(vhost, Comments(), is_compact=False) == written


@pytest.mark.parametrize("item", ["a,b", "a ", "\ta"])
def test_an_item_that_no_list_can_hold_is_refused(item: str) -> None:
    with pytest.raises(NotWritableError) as refused:
        vhost_section({"hostname": "h", "aliases": ["b", item]}, Comments(), is_compact=True)
    text = f"'{item}' has a comma or an outer blank, and there are no lists in a configuration"
    assert (str(refused.value), refused.value.path) == (text, ("aliases",))
