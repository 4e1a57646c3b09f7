"""Policies in another form: nothing is lost on the way, and what would mean something else is not written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.analysis.c_router import group_extensions
from policy.analysis.conversion import Converted, changed_frames, compatible, extended, opaque_addresses, plain
from policy.analysis.difference import diff_rulesets
from policy.analysis.effort import TooComplexError
from policy.cli import convert
from policy.cli.main import main
from policy.files.conf_layout import NotWritableError, vhost_section
from policy.files.layout import Comments
from policy.files.validation import load_sections
from policy.ruleset import Ruleset, compile_ruleset

CASES = Path(__file__).resolve().parent.parent / "lint_cases"
REFUSED_BY_ROUTERS = ("PAL001.bad", "PAL002.bad", "PAL003.bad")

CONF = """\
# the router
router {
    mode: standalone   # alone
}

# the vhost
vhost {
    hostname: #.example.com
    aliases: a, b
    allowUnknownUser: no
    maxConnections: 10
    groups: {
        # everybody
        apps: {
            users: anna, ben
            # the office
            remoteHosts: 10.0.0.0/8
            allowDynamicSource: True
            sources: a.*, ${user}
        }
    }
}
listener {
    port: 5672
}
"""
AS_JSON = """\
[
  # the vhost
  ["vhost", {
    "hostname": "#.example.com",
    "aliases": "a, b",
    "allowUnknownUser": false,
    "maxConnections": 10,
    "groups": {
      # everybody
      "apps": {
        "users": "anna, ben",
        # the office
        "remoteHosts": "10.0.0.0/8",
        "allowDynamicSource": true,
        "sources": "a.*, ${user}"
      }
    }
  }]
]
"""
COMPATIBLE = """\
# the router
router {
    mode: standalone   # alone
}

# the vhost
vhost {
  hostname: #.example.com
  aliases: a, b
  allowUnknownUser: no
  maxConnections: 10
  groups: {
    # everybody
    # the office
    "apps": {"users": "anna, ben", "remoteHosts": "10.0.0.0-10.255.255.255", "allowDynamicSource": true, \
"sources": "a.*, ${user}"},
  }
}
listener {
    port: 5672
}
"""


def compiled(*vhosts: Mapping[str, object]) -> Ruleset:
    return compile_ruleset({"enableVhostPolicy": True}, [(each, None) for each in vhosts], resolve=opaque_addresses)


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def vhost_file(folder: Path, **group: object) -> str:
    group = {"users": "anna", "remoteHosts": "10.0.0.1", **group}
    return written(folder, "p.json", json.dumps([["vhost", {"hostname": "h", "groups": {"g": group}}]]))


def test_a_configuration_becomes_a_policy_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", written(tmp_path, "r.conf", CONF), "--to", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.out == AS_JSON
    assert captured.err == "only the vhosts are written, not what else is there: listener, router\n"


def test_the_rest_of_a_configuration_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each group is on one line that ends with a comma: nothing else does 1.20 read, if there are several."""
    assert main(["convert", written(tmp_path, "r.conf", CONF), "--form", "compatible"]) == 0
    assert capsys.readouterr().out == COMPATIBLE


def test_there_and_back_again_is_the_same_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["convert", written(tmp_path, "p.json", AS_JSON), "--to", "conf"])
    main(["convert", written(tmp_path, "p.conf", capsys.readouterr().out), "--to", "json"])
    assert [line for line in capsys.readouterr().out.splitlines() if "#" not in line] == [
        line for line in AS_JSON.splitlines() if "#" not in line
    ]


def test_line_ends_of_other_systems_become_those_of_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.conf"
    file.write_bytes(CONF.replace("\n", "\r\n").replace("}\r\nlistener", "}\rlistener").encode())
    assert main(["convert", str(file)]) == 0
    from_here = capsys.readouterr().out
    assert main(["convert", written(tmp_path, "s.conf", CONF)]) == 0
    assert from_here == capsys.readouterr().out
    assert "\r" not in from_here


def test_comments_at_the_ends_of_files_stay_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        written(tmp_path, f"{name}.json", f'# {name} 1\n[["vhost", {{"hostname": "{name}"}}]\n# {name} 2\n]\n')
    assert main(["convert", str(tmp_path)]) == 0
    found = capsys.readouterr().out
    assert [line.strip() for line in found.splitlines() if "#" in line] == ["# a 1", "# a 2", "# b 1", "# b 2"]
    assert main(["convert", str(tmp_path), "--to", "conf"]) == 0
    found = capsys.readouterr().out
    assert [line for line in found.splitlines() if "#" in line] == ["# a 1", "# a 2", "# b 1", "# b 2"]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({"remoteHosts": "10.0.0.0/8"}, {"remoteHosts": "10.0.0.0-10.255.255.255"}),
        ({"remoteHosts": "::/127, a.b"}, {"remoteHosts": "::-::1, a.b"}),
        ({"remoteHosts": ["10.0.0.1/32", "::ffff:10.0.0.2"]}, {"remoteHosts": ["10.0.0.1", "10.0.0.2"]}),
        ({"remoteHosts": ""}, {}),
        ({"users": "anna, , ben"}, {"users": "anna, ben"}),
        ({"allowDynamicSource": "TRUE"}, {"allowDynamicSource": True}),
        ({"sources": "in.{user}"}, {"sources": "in.${user}"}),
        ({"targets": "a, b.*, c", "denyTargets": "a, b*, x"}, {"targets": "c"}),
        ({"targets": ["a", "b"], "denyTargets": "*"}, {"targets": ""}),
        ({"targetPattern": "a.#, b", "denyTargets": "c"}, {"targetPattern": "a.#, b"}),
        ({"sources": "in.${user}, out.${user}", "denySources": "in.*"}, {"sources": "out.${user}"}),
        ({"denySources": "a"}, {}),
        ({"maxFrameSize": 4096, "maxSessionWindow": 100}, {"maxFrameSize": 4096, "maxSessionWindow": 4096}),
    ],
)
def test_what_can_be_expressed_for_the_c_router(group: dict[str, object], expected: dict[str, object]) -> None:
    vhost = {"hostname": "h", "groups": {"g": {"users": "anna", "remoteHosts": "10.0.0.9", **group}}}
    converted = compatible(vhost)
    assert converted.obstacles == ()
    unchanged = {key: value for key, value in vhost["groups"]["g"].items() if key not in group}  # type: ignore[index]
    assert converted.attributes["groups"] == {"g": {**unchanged, **expected}}
    assert diff_rulesets(compiled(vhost), compiled(converted.attributes)) == ()
    assert changed_frames(compiled(vhost), compiled(converted.attributes)) == ()


@pytest.mark.parametrize(
    ("vhost", "group", "text"),
    [
        ({}, {"targets": "a.*", "denyTargets": "a.b"}, "of 'a.*' in 'targets' only a part is denied, 'a.x' is not"),
        ({}, {"targets": "in.${user}", "denyTargets": "in.bob"}, "only a part is denied"),
        ({}, {"targets": "a, ${user:escaped}.*"}, "is plain text in 1.20"),
        ({}, {"targetPattern": "b", "denyTargets": "b"}, "of 'b' in 'targetPattern' only a part is denied, '.b' is"),
        ({}, {"targets": "amqp:/x", "denyTargets": "x"}, "reaches an address by another name"),
        ({}, {"targets": "x/", "denyTargets": "x"}, "reaches an address by another name"),
        ({}, {"authenticatorGroups": "ops"}, "'authenticatorGroups' cannot be expressed"),
        ({}, {"validUntil": "2026-12-31T17:00:00Z"}, "'validUntil' cannot be expressed"),
        ({}, {"sourcePattern": "*"}, "nothing in 1.20"),
        ({}, {"targets": "a", "maxSenders": 0}, "no limit in 1.20"),
        ({"hostname": ""}, {}, "blank name"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_its_place(
    vhost: dict[str, object], group: dict[str, object], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = {"g": {"users": "anna", "remoteHosts": "10.0.0.1", **group}}
    file = written(tmp_path, "p.json", json.dumps([["vhost", {"hostname": "h", **vhost, "groups": groups}]]))
    assert main(["convert", file, "--form", "compatible", "--output", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"{file}:1:")
    assert text in captured.err
    assert captured.err.endswith("nothing was written\n")
    assert not (tmp_path / "out").exists()


def test_two_groups_that_list_no_users_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = {"$default": {"remoteHosts": "*"}, "$connector": {"sources": "a"}}
    file = written(tmp_path, "p.json", json.dumps([["vhost", {"hostname": "h", "groups": groups}]]))
    assert main(["convert", file, "--form", "compatible"]) == 1
    assert "give one of them a user that does not exist" in capsys.readouterr().err


def test_a_group_nobody_is_in_stays_closed_where_peers_without_a_name_would_be_in_it() -> None:
    vhost = {"hostname": "h", "groups": {"$connector": {"remoteHosts": "*", "sources": "a"}}}
    assert compatible(vhost).attributes["groups"] == {"$connector": {"sources": "a"}}


def test_narrow_leaves_out_what_cannot_be_expressed_and_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = vhost_file(tmp_path, targets="a.*, b", denyTargets="a.secret", authenticatorGroups="ops")
    assert main(["convert", file, "--form", "compatible", "--narrow"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)[0][1]["groups"]["g"] == {"users": "anna", "remoteHosts": "10.0.0.1", "targets": "b"}
    assert captured.err.count("narrowing: ") == 2
    assert "widening" not in captured.err


def test_narrow_never_widens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the group of the authenticator its members are in that of everybody, which may more."""
    groups = {
        "g": {"authenticatorGroups": "ops", "remoteHosts": "10.0.0.1", "targets": "a"},
        "all": {"users": "*", "remoteHosts": "10.0.0.1", "targets": "*"},
    }
    file = written(tmp_path, "p.json", json.dumps([["vhost", {"hostname": "h", "groups": groups}]]))
    assert main(["convert", file, "--form", "compatible", "--narrow"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "widening: send to '*' except 'a' in vhost 'h'" in captured.err
    assert captured.err.endswith("\nthe outcome would not mean the same\nnothing was written\n")


def test_an_outcome_that_means_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake of ours, too, must not open anything."""
    vhost = {"hostname": "h", "groups": {"g": {"users": "anna", "remoteHosts": "*", "targets": "a"}}}
    monkeypatch.setattr(convert, "compatible", lambda _, **__: Converted(attributes=vhost))
    out = tmp_path / "out.json"
    assert main(["convert", vhost_file(tmp_path, targets="a"), "--form", "compatible", "--output", str(out)]) == 1
    error = capsys.readouterr().err
    assert "widening: connect in vhost 'h'\n" in error
    assert "example: 'anna' from " in error
    assert error.endswith("\nthe outcome would not mean the same\nnothing was written\n")
    assert not out.exists()


def test_extended_is_networks_and_names_of_today(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = {"users": "a", "remoteHosts": "10.0.0.0-10.255.255.255, 10.0.0.1-10.0.0.3, db.example", "sources": "{user}"}
    text = json.dumps([["vhost", {"id": "h", "maxConnectionsPerRemoteHost": "3", "groups": {"g": group}}]])
    assert main(["convert", written(tmp_path, "p.json", text), "--form", "extended"]) == 0
    hosts = "10.0.0.0/8, 10.0.0.1-10.0.0.3, db.example"
    expected = {"users": "a", "remoteHosts": hosts, "sources": "${user}"}
    assert json.loads(capsys.readouterr().out) == [
        ["vhost", {"hostname": "h", "maxConnectionsPerHost": 3, "groups": {"g": expected}}]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda path: path.name)
def test_what_is_written_for_the_c_router_has_no_finding_of_compatibility(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of vhosts; what else is in a configuration stays. What cannot be written so is refused."""
    status = main(["convert", str(case), "--form", "compatible"])
    if status:
        assert status == (3 if case.stem in REFUSED_BY_ROUTERS else 1)
        return
    file = written(tmp_path, f"p{case.suffix}", capsys.readouterr().out)
    main(["lint", file, "--format", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    # PAL063: a scheme means to 1.20 what it means to it, whatever is written.
    wrong = [each for each in findings if each["family"] == "compatibility" and each["rule"] != "PAL063"]
    assert [each["text"] for each in wrong if "vhost '" in each["text"]] == []


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["missing.json"], 3), (["bad.json"], 3), (["good.json", "--narrow"], 2), (["good.json", "--output", "no/x"], 3)],
)
def test_exit_status(arguments: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "bad.json", "[[")
    written(tmp_path, "good.json", "[]")
    assert main(["convert", *arguments]) == status


# Properties

names = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["a#b", "#", "{", '"x"', "a\\b", " ", "a "])
items = st.lists(st.sampled_from(["a", "a.*", "b", "${user}", "in.${user}", "x:/a", "a/"]), max_size=3)
HOSTS = ["*", "10.0.0.0/8", "10.0.0.1", "::1", "::ffff:1.2.3.4", "a.b", "1.0.0.0-1.0.0.9"]
hosts = st.lists(st.sampled_from(HOSTS), max_size=3)
CONVERTIBLE = st.fixed_dictionaries(
    {},
    optional={
        "users": st.sampled_from(["anna", ["ben", "*"], ""]),
        "remoteHosts": hosts | hosts.map(", ".join),
        "sources": items,
        "targetPattern": st.lists(st.sampled_from(["a.#", "*.b", "a", "${user}/#", "a/${user}"]), max_size=3),
        "denySources": st.lists(st.sampled_from(["a", "a*", "b", "in.anna", "*"]), max_size=2),
        "denyTargets": st.lists(st.sampled_from(["a", "a.b*", "b", "x.b"]), max_size=2),
        "authenticatorGroups": st.sampled_from(["ops", "dev"]),
        "maxSenders": st.sampled_from([0, 3, "4"]),
        "maxFrameSize": st.sampled_from([0, 100, 4096]),
        "maxSessionWindow": st.sampled_from([0, 200, 9000]),
        "allowDynamicSource": st.sampled_from([True, "True", "false"]),
    },
)


@given(
    names,
    st.lists(names, max_size=2),
    st.dictionaries(names, CONVERTIBLE, max_size=2),
    st.booleans(),
    st.sampled_from([None, 7, "8"]),
)
@settings(max_examples=150, deadline=None)
def test_a_section_of_a_configuration_says_what_the_policy_file_said(
    hostname: str, aliases: list[str], groups: dict[str, Any], is_compact: bool, limit: object
) -> None:
    vhost = plain({"hostname": hostname, "aliases": aliases, "maxConnections": limit, "groups": groups})
    try:
        lines = vhost_section(vhost, Comments(), is_compact=is_compact)
    except NotWritableError:
        assert any("," in alias or alias != alias.strip(" ") for alias in aliases)
        return
    (entity,) = load_sections("\n".join(lines) + "\n", "x.conf")
    expected = {"maxConnections": str(limit)} if limit is not None else {}
    assert entity.attributes == {**vhost, "aliases": ", ".join(aliases), **expected}


@pytest.mark.slow
@given(CONVERTIBLE, CONVERTIBLE, st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_converted_means_the_same(one: dict[str, Any], two: dict[str, Any], narrows: bool) -> None:
    vhost: dict[str, Any] = {"hostname": "h", "groups": {"g": one, "k": {**two, "users": "carl"}}}
    if two.get("authenticatorGroups") == one.get("authenticatorGroups"):
        one.pop("authenticatorGroups", None)
    before = compiled(vhost)
    assert compiled(extended(vhost).attributes).digest == before.digest
    converted = compatible(vhost, narrows=narrows)
    if converted.obstacles:
        return
    after = compiled(converted.attributes)
    is_uncertain = narrows and "authenticatorGroups" in {**one, **two}
    if not is_uncertain:
        assert not any(change.is_widening or not narrows for change in diff_rulesets(before, after))
    assert changed_frames(before, after) == ()
    for group in converted.attributes["groups"].values():  # type: ignore[attr-defined]
        assert not group_extensions() & group.keys()
        assert "/" not in str(group.get("remoteHosts", ""))
    assert compatible(converted.attributes).attributes == converted.attributes


# Vhosts in another form, whole.


@pytest.mark.parametrize(
    ("vhost", "form", "attributes", "obstacles"),
    [
        ({"name": "n"}, "extended", {"hostname": "n"}, []),
        ({"hostname": "h", "name": "n"}, "extended", {"hostname": "h", "name": "n"}, []),
        ({"id": "i", "name": "n"}, "extended", {"hostname": "i", "name": "n"}, []),
        (
            {"hostname": "h", "groups": {"g": {"remoteHosts": "10.0.0.0/8,\t10.0.0.1"}}},
            "extended",
            {"hostname": "h", "groups": {"g": {"remoteHosts": "10.0.0.0/8,\t10.0.0.1"}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"remoteHosts": "10.0.0.0/8,\t10.0.0.1"}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {}}},
            [],
        ),
        (
            {
                "hostname": "h",
                "groups": {
                    "g": {
                        "users": "u",
                        "remoteHosts": "::ffff:1.2.3.4-::ffff:1.2.3.9, 10.0.0.1-10.0.0.3, "
                        "::1, h-1.b, 10.0.0.7/32, ::/0",
                    }
                },
            },
            "compatible",
            {
                "hostname": "h",
                "groups": {
                    "g": {
                        "users": "u",
                        "remoteHosts": "1.2.3.4-1.2.3.9, 10.0.0.1-10.0.0.3, "
                        "::1, h-1.b, 10.0.0.7, ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                    }
                },
            },
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "remoteHosts": "", "sources": "a,, b"}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "sources": "a, b"}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "targetPattern": "*"}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "targetPattern": "*"}}},
            [
                (
                    ("groups", "g", "targetPattern"),
                    "the pattern '*' allows every address of one word, and nothing in 1.20",
                )
            ],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "denyTargets": "x"}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u"}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "targets": "amqp:/x, y", "denyTargets": "z"}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "targets": "amqp:/x, y"}}},
            [
                (
                    ("groups", "g", "denyTargets"),
                    "'amqp:/x' in 'targets' reaches an address by another name, which 'denyTargets' covers as well",
                )
            ],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "targets": "amqp:/x, y", "denyTargets": "z"}}},
            "narrow",
            {"hostname": "h", "groups": {"g": {"users": "u", "targets": "y"}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "management": ""}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u"}}},
            [
                (
                    ("groups", "g", "management"),
                    "'management' would be lost: in 1.20 who reaches $management may do everything",
                )
            ],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 0}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 0}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 1}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 1000}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 1000}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000, "maxSessionWindow": 1000}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 0, "maxSessionWindow": 10}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 0, "maxSessionWindow": 10}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": 1000}}},
            [],
        ),
        (
            {"hostname": "h", "groups": {"g": {"users": "u", "maxSessionWindow": 10}}},
            "compatible",
            {"hostname": "h", "groups": {"g": {"users": "u", "maxSessionWindow": 10}}},
            [],
        ),
        (
            {
                "hostname": "h",
                "allowUnknownUser": True,
                "groups": {"$default": {"remoteHosts": "*"}, "g": {"users": "u"}},
            },
            "compatible",
            {
                "hostname": "h",
                "allowUnknownUser": True,
                "groups": {"$default": {"remoteHosts": "*"}, "g": {"users": "u"}},
            },
            [],
        ),
        (
            {
                "hostname": "h",
                "allowUnknownUser": True,
                "groups": {"$default": {"remoteHosts": "*"}, "g": {"users": "*"}},
            },
            "compatible",
            {"hostname": "h", "allowUnknownUser": True, "groups": {"$default": {}, "g": {"users": "*"}}},
            [],
        ),
        (
            {
                "hostname": "h",
                "allowUnknownUser": False,
                "groups": {"$default": {"remoteHosts": "*"}, "g": {"users": "u"}},
            },
            "compatible",
            {"hostname": "h", "allowUnknownUser": False, "groups": {"$default": {}, "g": {"users": "u"}}},
            [],
        ),
        (
            {"hostname": "h", "allowUnknownUser": True, "groups": {"k": {"remoteHosts": "*"}, "g": {"users": "u"}}},
            "compatible",
            {"hostname": "h", "allowUnknownUser": True, "groups": {"k": {}, "g": {"users": "u"}}},
            [],
        ),
        (
            {
                "hostname": "h",
                "groups": {
                    "g": {
                        "users": "u",
                        "sources": ["a", "", "b"],
                        "maxSenders": "3",
                        "maxReceivers": None,
                        "allowReplies": "TRUE",
                    }
                },
                "maxConnections": "5",
            },
            "compatible",
            {
                "hostname": "h",
                "groups": {"g": {"users": "u", "sources": ["a", "b"], "maxSenders": 3, "allowReplies": True}},
                "maxConnections": 5,
            },
            [(("groups", "g", "allowReplies"), "'allowReplies' cannot be expressed: 1.20 passes over it")],
        ),
        (
            {
                "hostname": "h",
                "groups": {
                    "g": {
                        "users": "u",
                        "sources": ["a", "", "b"],
                        "maxSenders": "3",
                        "maxReceivers": None,
                        "allowReplies": "TRUE",
                    }
                },
                "maxConnections": "5",
            },
            "narrow",
            {
                "hostname": "h",
                "groups": {"g": {"users": "u", "sources": ["a", "b"], "maxSenders": 3}},
                "maxConnections": 5,
            },
            [],
        ),
    ],
)
def test_a_vhost_in_another_form(
    vhost: dict[str, object], form: str, attributes: dict[str, object], obstacles: list[tuple[object, str]]
) -> None:
    made = extended(vhost) if form == "extended" else compatible(vhost, narrows=form == "narrow")
    assert made.attributes == attributes
    assert [(each.path, each.text) for each in made.obstacles] == obstacles


def test_lists_too_large_to_compare_are_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TooComplexError("'#/x'")

    monkeypatch.setattr("policy.analysis.conversion.resolve_denials", refuse)
    (obstacle,) = compatible({"hostname": "h", "groups": {"g": {"users": "u", "denyTargets": "x"}}}).obstacles[:1]
    assert obstacle.path == ("groups", "g", "denyTargets")
    assert obstacle.text == "cannot tell: too large to compare: '#/x'"


def test_a_host_name_stands_for_an_address_of_its_own() -> None:
    assert opaque_addresses("a.example") == ("fdb8:e745:3371:a024:daae:6f3:1644:92c0",)
    assert opaque_addresses("b") == ("fd3e:23e8:1600:3959:4a33:894f:6564:e1b1",)


@pytest.mark.parametrize(
    ("old", "new", "is_changed"),
    [
        ((0, 10), (0, 10), False),
        ((0, 10), (0, 11), True),
        ((1000, 0), (1000, 10), True),
        ((1000, 1), (1000, 1999), False),
        ((1000, 1), (1000, 2000), True),
        ((1000, 2000), (1000, 2999), False),
        ((100, 512), (100, 1023), False),
        ((100, 512), (100, 1024), True),
        ((100, 512), (200, 512), True),
    ],
)
def test_windows_are_compared_in_frames(old: tuple[int, int], new: tuple[int, int], is_changed: bool) -> None:
    before, after = (
        compiled({"hostname": "h", "groups": {"g": {"users": "u", "maxFrameSize": size, "maxSessionWindow": window}}})
        for size, window in (old, new)
    )
    assert changed_frames(before, after) == (("vhost 'h' group 'g'",) if is_changed else ())
    assert changed_frames(before, compiled({"hostname": "h"})) == ("vhost 'h' group 'g'",)
