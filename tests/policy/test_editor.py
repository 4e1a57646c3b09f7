"""What an editor is told about a text, without an editor: places, completion, descriptions, rights, fixes."""

import json
import os
from pathlib import Path

import pytest

from policy.cli.sources import is_ours
from policy.editor.checking import Checker
from policy.editor.completion import Names, Offer, offers_at
from policy.editor.cursor import Cursor, Role, cursor_at, item_at
from policy.editor.documents import Document, changed, opened
from policy.editor.hover import asks_for_rights, description_at, rights_at, rule_page
from policy.editor.mends import edits_in, safe_edits
from policy.editor.positions import Positions, with_plain_line_ends
from policy.editor.vocabulary import attributes_at, section_types

VHOST = '[["vhost", {"hostname": "shop", "groups": {"apps": {"users": "ann, bob", "remoteHosts": "10.0.0.1"}}}]]'


def look(marked: str, *, is_conf: bool = False) -> Cursor:
    """The cursor at the `|` of a text."""
    offset = marked.index("|")
    return cursor_at(marked.replace("|", "", 1), offset, is_conf=is_conf)


def offered(marked: str, names: Names | None = None, *, is_conf: bool = False) -> dict[str, Offer]:
    offset, text = marked.index("|"), marked.replace("|", "", 1)
    cursor = cursor_at(text, offset, is_conf=is_conf)
    found = offers_at(cursor, text, offset, Names() if names is None else names, is_conf=is_conf)
    return {offer.label: offer for offer in found}


def typed(marked: str, label: str, names: Names | None = None, *, is_conf: bool = False) -> str:
    """The text when the offer is taken."""
    offer, text = offered(marked, names, is_conf=is_conf)[label], marked.replace("|", "", 1)
    return text[: offer.start] + offer.text + text[offer.end :]


@pytest.mark.parametrize(
    ("marked", "role", "section", "path", "word"),
    [
        ("|", Role.TYPE, "", (), ""),
        ('[["vh|', Role.TYPE, "", (), "vh"),
        ('[["vhost", {"host|name": "a"}]]', Role.NAME, "vhost", (), "hostname"),
        ('[["vhost", {"hostname": "a", |', Role.NAME, "vhost", (), ""),
        ('[["vhost", {"hostname": "a" |', Role.NAME, "vhost", (), ""),
        ('[["vhost", {"allowUnknownUser": tr|', Role.VALUE, "vhost", ("allowUnknownUser",), "tr"),
        ('[["vhost", {"groups": {"ad|min": {}}}]]', Role.NAME, "vhost", ("groups",), "admin"),
        ('[["vhost", {"groups": {"g": {"users": "x, y|', Role.VALUE, "vhost", ("groups", "g", "users"), "x, y"),
        ('[["vhost", {"groups": {"g": {"users": ["x", "|"]', Role.VALUE, "vhost", ("groups", "g", "users"), ""),
        ('[["vhost", {"id": "a"}], ["vhost", {"al|', Role.NAME, "vhost", (), "al"),
        ('[["vhost", {"id": "a"}, |', Role.NOTHING, "", (), ""),
        ("# a comm|ent\n[]", Role.NOTHING, "", (), ""),
    ],
)
def test_a_place_in_half_typed_json(marked: str, role: Role, section: str, path: tuple[str, ...], word: str) -> None:
    found = look(marked)
    assert (found.role, found.section if role is not Role.NOTHING else "", found.word) == (role, section, word)
    assert role is Role.NOTHING or found.path == path


@pytest.mark.parametrize(
    ("marked", "role", "section", "path", "word"),
    [
        ("lis|", Role.TYPE, "", (), "lis"),
        ("router {\n id: x\n}\n|", Role.TYPE, "", (), ""),
        ("listener {\n po|\n}", Role.NAME, "listener", (), "po"),
        ("listener {\n role: |\n}", Role.VALUE, "listener", ("role",), ""),
        ("listener {\n role: no|rmal # x\n}", Role.VALUE, "listener", ("role",), "normal"),
        ("listener {\n role: normal # he|re\n}", Role.NAME, "listener", (), ""),
        ("ssl-profile {\n ca-cert-file: /a|b", Role.VALUE, "sslProfile", ("caCertFile",), "/ab"),
        ("vhost {\n groups: {\n  ad|min: {\n", Role.NAME, "vhost", ("groups",), "admin"),
        ("vhost {\n groups: {\n  a: {\n users: x, y|y", Role.VALUE, "vhost", ("groups", "a", "users"), "x, yy"),
        ('vhost {\n groups: {\n "a": {\n "users": "x, y|y"', Role.VALUE, "vhost", ("groups", "a", "users"), "x, yy"),
        ("vhost {\n groups: {\n a: {\n targets: ${user}\n }\n  |", Role.NAME, "vhost", ("groups",), ""),
    ],
)
def test_a_place_in_a_half_typed_configuration(
    marked: str, role: Role, section: str, path: tuple[str, ...], word: str
) -> None:
    found = look(marked, is_conf=True)
    assert (found.role, found.section, found.path, found.word) == (role, section, path, word)


def test_the_item_of_a_list_under_the_pointer() -> None:
    marked = '[["vhost", {"groups": {"g": {"users": "ann,  bo|b , eve"}}}]]'
    cursor = look(marked)
    item, start, end = item_at(cursor, marked.index("|"))
    assert (item, marked.replace("|", "")[start:end]) == ("bob", "bob")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_positions_count_in_the_units_of_the_editor(encoding: str) -> None:
    text = "a😀é\nx\u2028y𝄞z\n"
    positions = Positions(text, encoding)
    units = {"utf-8": [0, 1, 5, 7], "utf-16": [0, 1, 3, 4], "utf-32": [0, 1, 2, 3]}[encoding]
    assert [positions.of(offset) for offset in range(4)] == [(0, unit) for unit in units]
    assert all(positions.offset(positions.of(offset)) == offset for offset in range(len(text) + 1))
    # Backwards as well: the editor asks in any order.
    assert all(positions.offset(positions.of(offset)) == offset for offset in reversed(range(len(text) + 1)))
    assert positions.offset((0, 99)) == 3
    assert positions.offset((99, 0)) == len(text)
    assert with_plain_line_ends("a\r\nb\rc\nd") == "a\nb\nc\nd"


def test_completion_of_sections_and_attributes_comes_from_the_schemas() -> None:
    assert typed('[["vh|', "vhost") == '[["vhost"'
    assert json.loads(typed("|", "vhost"))[0][0] == "vhost"
    assert typed('[["vhost", {"host|', "hostname") == '[["vhost", {"hostname": '
    assert typed('[["vhost", {"host|": "a"', "hostname") == '[["vhost", {"hostname": "a"'
    assert typed('[["vhost", {|', "groups") == '[["vhost", {"groups": '
    assert "hostname" not in offered('[["vhost", {"hostname": "a", |}]]')
    assert "id" not in offered('[["vhost", {|')
    assert {"remoteHosts", "denyTargets"} <= offered('[["vhost", {"groups": {"g": {|').keys()
    assert typed("|", "listener", is_conf=True).startswith("listener {")
    assert typed("list|en {", "listener", is_conf=True) == "listener {"
    assert typed("listener {\n  sasl|\n}", "saslMechanisms", is_conf=True) == "listener {\n  saslMechanisms: \n}"
    assert "vhostUserGroupSettings" not in offered("|", is_conf=True)


def test_completion_of_values() -> None:
    assert typed("listener {\n role: |\n}", "inter-router", is_conf=True) == "listener {\n role: inter-router\n}"
    assert set(offered("listener {\n authenticatePeer: |\n}", is_conf=True)) == {"yes", "no"}
    assert typed('[["vhost", {"allowUnknownUser": |', "true") == '[["vhost", {"allowUnknownUser": true'
    assert typed('[["vhost", {"hostname": "|', "$default") == '[["vhost", {"hostname": "$default"'
    rights = '[["vhost", {"groups": {"g": {"management": "|"}}}]]'
    assert typed(rights, "observer") == rights.replace("|", "observer")


def test_completion_of_names_the_project_has() -> None:
    names = Names(groups=("apps",), users=("ann",), sections={"sslProfile": ("inside",), "vhost": ("shop",)})
    assert {"apps", "$default", "$connector"} <= offered('[["vhost", {"groups": {|', names).keys()
    users = '[["vhost", {"groups": {"g": {"users": "bob, a|, eve"}}}]]'
    assert typed(users, "ann", names) == '[["vhost", {"groups": {"g": {"users": "bob, ann, eve"}}}]]'
    assert typed("listener {\n sslProfile: |\n}", "inside", names, is_conf=True).count("inside") == 1
    assert "shop" in offered("policy {\n defaultVhost: s|\n}", names, is_conf=True)


def test_the_schemas_describe_what_is_under_the_pointer() -> None:
    assert "Without it: none." in description_at(look('[["vhost", {"groups": {"g": {"remote|Hosts": "*"}}}]]'))
    role = description_at(look("listener {\n ro|le: normal\n}", is_conf=True))
    assert "`inter-router`" in role
    assert "Default: `normal`" in role
    assert description_at(look("liste|ner {", is_conf=True)).endswith("Where the router accepts connections.")
    assert description_at(look('[["vhost", {"nonsen|se": 1}]]')) == ""
    assert rule_page("PAL007").startswith("**PAL007: far-reaching rights from anywhere** (security)\n\nA user")
    assert rule_page("PAL999") == ""


def test_every_attribute_of_the_schemas_is_described() -> None:
    sections = [(name, ()) for name in section_types()] + [("vhost", ("groups", "g"))]
    found = [attribute for section, path in sections for attribute in attributes_at(section, path).values()]
    assert len(found) > 150
    assert [attribute.name for attribute in found if not attribute.description] == []


def rights(marked: str, text: str | None = None, policy: dict[str, object] | None = None) -> str:
    offset, plain = marked.index("|"), marked.replace("|", "", 1)
    cursor = cursor_at(plain, offset, is_conf=False)
    assert asks_for_rights(cursor)
    place = (plain.count("\n", 0, offset) + 1, offset - plain.rfind("\n", 0, offset))
    return rights_at(cursor, offset, place, plain if text is None else text, "p.json", policy or {}, 0.0)


def test_effective_rights_of_a_user_and_of_a_group() -> None:
    group = {
        "users": "ann, bob",
        "remoteHosts": ["10.0.0.1", "desk.example"],
        "sources": "mail.${user}, news.${user:escaped}, news",
        "targets": "*",
        "denyTargets": "secret*",
        "maxSenders": 3,
        "allowDynamicSource": True,
    }
    text = json.dumps([["vhost", {"hostname": "shop", "groups": {"apps": group}}]])
    ann = rights(text.replace("ann, b", "an|n, b"))
    assert ann.startswith("**Rights of `ann`** at vhost `shop`, group `apps`")
    assert "may connect from: `10.0.0.1`, `desk.example`" in ann
    assert "may receive from: `mail.ann`, `news`, `news.ann`" in ann
    assert "may send to: `*`, but not `secret*`" in ann
    assert "`allowDynamicSource`" in ann
    assert "maxSenders 3" in ann
    apps = rights(text.replace('"apps"', '"ap|ps"'))
    assert "members: `ann`, `bob`" in apps
    assert "may receive from: `mail.${user}`, `news`, `news.${user:escaped}`" in apps
    off = rights(text.replace('"apps"', '"ap|ps"'), policy={"enableVhostPolicy": "no"})
    assert "nothing is restricted" in off


def test_rights_of_special_groups() -> None:
    groups = {"$default": {"remoteHosts": "*", "sources": "a"}, "$connector": {"targets": "b"}, "idle": {}}
    text = json.dumps([["vhost", {"hostname": "h", "allowUnknownUser": True, "groups": groups}]])
    default = rights(text.replace('"$default"', '"$def|ault"'))
    assert "members: users in no group" in default
    assert "may receive from: `a`" in default
    connector = rights(text.replace('"$connector"', '"$conn|ector"'))
    assert "members: the peers of connectors" in connector
    assert "may send to: `b`" in connector
    idle = rights(text.replace('"idle"', '"id|le"'))
    assert "members: nobody" in idle
    assert "may" not in idle


def test_rights_while_the_text_cannot_be_read_are_those_it_gave_before() -> None:
    half = VHOST.replace("ann", "an|n").replace("10.0.0.1", '10.0.0.1", "sour')
    assert "group `apps`" in rights(half, text=VHOST)
    assert rights(half, text="[") == ""
    refused = VHOST.replace('"remoteHosts"', '"maxSenders": "many", "remoteHosts"')
    assert rights(refused.replace("ann", "an|n")) == ""


def test_names_from_a_file_are_no_markup() -> None:
    name = "x`](command:evil) <b>\u202e"
    text = json.dumps([["vhost", {"hostname": "h", "groups": {name: {"users": "ann"}}}]], ensure_ascii=False)
    shown = rights(text.replace("x`", "|x`", 1))
    assert "`x'](command:evil) <b>\\u202e`" in shown


def answer(file: Path | str, *roots: str, **buffers: str) -> dict[str, list[dict[str, object]]]:
    request = {"file": str(file), "buffers": buffers, "encoding": "utf-16", "roots": roots, "now": 0.0}
    found: dict[str, list[dict[str, object]]] = Checker().answer(request)["files"]
    return found


def codes(found: list[dict[str, object]]) -> list[object]:
    return [each["rule"] for each in found]


def test_the_open_text_counts_and_the_disk_for_the_others(tmp_path: Path) -> None:
    mine, other = tmp_path / "a.json", tmp_path / "b.json"
    mine.write_text("nonsense on the disk")
    other.write_text(VHOST)
    found = answer(mine, **{str(mine): VHOST})
    # Two vhosts of one name, one in each file: the router refuses the second.
    assert "PAL001" in codes(found[str(other)])
    assert "PAL001" not in codes(answer(mine, **{str(mine): VHOST.replace("shop", "$default")})[str(other)])


def test_a_file_that_is_not_on_the_disk_yet_belongs_to_its_folder(tmp_path: Path) -> None:
    other = tmp_path / "b.json"
    other.write_text(VHOST)
    new = str(tmp_path / "a.json")
    assert "PAL001" in codes(answer(new, **{new: VHOST})[str(other)])


def test_a_configuration_is_checked_with_the_folder_it_names_from_both_sides(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    conf, policy = tmp_path / "qdrouterd.conf", tmp_path / "policy" / "p.json"
    policy.write_text(VHOST)
    text = "router {\n  id: A\n}\npolicy {\n  policyDir: policy\n}\n"
    conf.write_text(text)
    from_conf = answer(conf, **{str(conf): text})
    from_policy = answer(policy, **{str(policy): VHOST})
    assert set(from_conf) == set(from_policy) == {str(conf), str(policy)}
    assert "PAL028" in codes(from_conf[str(conf)])
    missing = answer(conf, **{str(conf): text.replace("policy\n}", "absent\n}")})[str(conf)]
    assert [each["span"] for each in missing if not each["rule"]] == [[(4, 2), (4, 11)]]


def test_other_json_files_in_the_folder_are_none_of_ours(tmp_path: Path) -> None:
    policy = tmp_path / "p.json"
    (tmp_path / "package.json").write_text('{"name": "x"}')
    assert set(answer(policy, **{str(policy): VHOST})) == {str(policy)}
    assert not is_ours('{"name": "x"}', "package.json")
    assert not is_ours("[1, 2]", "numbers.json")
    assert not is_ours("server {\n  listen 80;\n}", "nginx.conf")
    assert is_ours('# ours\n[ [ "vh', "p.json")
    assert is_ours("# x\nssl-profile {", "a.conf")
    assert is_ours("", "qdrouterd.conf")


def test_while_a_file_is_half_typed_the_others_are_judged_by_what_it_said(tmp_path: Path) -> None:
    conf = str(tmp_path / "qdrouterd.conf")
    profile = "sslProfile {\n  name: inside\n}\n"
    listener = "listener {\n  port: 1\n  sslProfile: inside\n}\n"
    request = {"file": conf, "buffers": {conf: profile + listener}, "encoding": "utf-8", "roots": [], "now": 0.0}
    checker = Checker()
    checker.answer(request)
    half = checker.answer({**request, "buffers": {conf: profile + listener + "liste"}})
    assert codes(half["files"][conf]) == [""]
    assert half["names"]["sections"]["sslProfile"] == ["inside"]


def test_the_decisions_of_the_project_count(tmp_path: Path) -> None:
    policy = tmp_path / "policy" / "p.json"
    policy.parent.mkdir()
    buffers = {str(policy): VHOST.replace("10.0.0.1", "desk.example")}
    assert "PAL016" in codes(answer(policy, str(tmp_path), **buffers)[str(policy)])
    (tmp_path / "qdpolicy.toml").write_text('ignore = ["PAL016"]\n')
    assert "PAL016" not in codes(answer(policy, str(tmp_path), **buffers)[str(policy)])
    # Not from above the folder that is open in the editor.
    assert "PAL016" in codes(answer(policy, str(policy.parent), **buffers)[str(policy)])
    (tmp_path / "qdpolicy.toml").write_text("ignore = 1\n")
    request = {"file": str(policy), "buffers": buffers, "encoding": "utf-8", "roots": [str(tmp_path)], "now": 0.0}
    assert "ignore is a list of ids" in Checker().answer(request)["problem"]


def test_a_link_to_a_device_beside_a_policy_is_not_read(tmp_path: Path) -> None:
    """/dev/zero never ends, and a FIFO waits for a writer."""
    mine = tmp_path / "a.json"
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "qdrouterd.conf").symlink_to("/dev/zero")
    (tmp_path / "qdpolicy.toml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.conf")
    assert set(answer(mine, **{str(mine): VHOST})) == {str(mine)}
    (tmp_path / "qdrouterd.conf").unlink()
    (tmp_path / "qdrouterd.conf").write_text("router {\n id: A\n}\npolicy {\n policyDir: .\n}\n")
    problems = answer(mine, **{str(mine): VHOST})
    assert [each["text"] for each in problems[str(tmp_path / "zero.json")]] == ["cannot be read: not a regular file"]
    assert [each["text"] for each in problems[str(tmp_path / "pipe.json")]] == ["cannot be read: not a regular file"]


def document(text: str, uri: str = "file:///p/a.json") -> Document:
    found = opened(uri, text, 1, "utf-16", "json")
    assert found is not None
    return found


def test_fixes_of_lint_are_edits_of_the_text_as_it_is() -> None:
    text = '[["vhost", {"id": "😀", "groups": {"g": {"users": "ann", "sources": "{user}.a, b"}}}]]'
    (found,) = answer("/p/a.json", **{"/p/a.json": text}).values()
    shown = document(text)
    edits = edits_in(found, shown.positions)
    assert [(edit.rule, edit.old) for edit in edits] == [("PAL005", "id"), ("PAL005", "{user}.a")]
    chosen = safe_edits(edits, shown.positions, shown.file)
    assert [edit.new for edit in chosen] == ["hostname", "${user}.a"]
    # The text has changed since: nothing is replaced that is not there.
    assert edits_in(found, document(text.replace('"id"', '"hostname"')).positions) == ()


def test_no_fix_is_made_that_would_change_what_the_policy_permits() -> None:
    text = VHOST
    at = text.index("10.0.0.1")
    wrong = {
        "rule": "PAL005",
        "fix": {"span": [(0, at), (0, at + 8)], "old": "10.0.0.1", "new": "*", "isSafe": True},
    }
    shown = document(text)
    edits = edits_in([wrong], shown.positions)
    assert len(edits) == 1
    assert safe_edits(edits, shown.positions, shown.file) == ()


@pytest.mark.parametrize(
    ("uri", "language", "file"),
    [
        ("file:///a%20b/p.json", "json", "/a b/p.json"),
        ("file:///etc/qdrouterd.conf", "plaintext", "/etc/qdrouterd.conf"),
        ("untitled:Untitled-1", "json", "untitled:Untitled-1.json"),
        ("untitled:x", "qdrouterd-conf", "untitled:x.conf"),
        ("untitled:x", "qdrouterd-policy", "untitled:x.json"),
        ("file://host/share/p.json", "json", "file:_share_p.json"),
        ("file:///a/b.txt", "plaintext", None),
        ("http://[", "json", "unnamed.json"),
        ("git:/a/b.json?x", "json", "git:_a_b.json"),
    ],
)
def test_what_is_opened(uri: str, language: str, file: str | None) -> None:
    found = opened(uri, "", 1, "utf-16", language)
    assert (found.file if found is not None else None) == file


def test_half_a_surrogate_pair_does_not_get_far() -> None:
    shown = document("a\ud800b\r\n")
    assert shown.text == "a?b\n"
    assert changed(shown, "\udfff", 2).text == "?"
