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
from policy.files.json_sections import Beginnings, split
from policy.files.layout import first_paths, formatted
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
