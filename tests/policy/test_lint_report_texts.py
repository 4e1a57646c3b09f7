"""Every word of lint's reports, and of what the modules beside the rules say: tests/report_texts has the long ones.

`PYTHONPATH=. python tests/policy/test_lint_report_texts.py` writes those anew: read what git then shows as a change.
"""

import json
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest

from policy.files.positioned_json import Problem
from policy.lint import configuration, ignoring, mending, places, reports
from policy.lint.configuration import ConfigurationError, LintConfiguration, read_configuration
from policy.lint.findings import About, Confidence, Finding, Fix, Level
from policy.lint.pages import index, page, url_of
from policy.lint.reports import FORMATS, Report
from policy.lint.rules import RULES

TEXTS = Path(__file__).resolve().parent.parent / "report_texts"
LONG = "x" * 170 + ' "sources": "a", ' + "y" * 90
FILES = {
    "a.json": '[["vhost", {\n\t"allowUserIdProxy": "TRUE",\n"hostname": "h"\n}]]\n' + LONG,
    "b.conf": "listener {\n    saslPassword: swordfish\n    port: 1\n}\n",
}
FINDINGS = [
    Finding(
        rule="PAL045", level=Level.WARNING, file="a.json", line=2, column=22, text="a switch", item="TRUE",
        instead="true", fix=Fix(old="TRUE", new="true"),
    ),
    Finding(rule="PAL010", level=Level.ERROR, file="a.json", line=3, text="on", confidence=Confidence.LIKELY),
    Finding(rule="PAL045", level=Level.WARNING, file="a.json", line=2, text="a switch", column=2),
    Finding(rule="PAL018", level=Level.NOTE, file="a.json", line=5, column=173, text="far away", item='"sources"'),
    Finding(rule="PAL018", level=Level.NOTE, file="a.json", line=5, column=3, text="near", item="nothing"),
    Finding(rule="PAL055", level=Level.NOTE, file="a.json", line=6, column=1, text="below the end", item="x"),
    Finding(rule="PAL035", level=Level.WARNING, file="b.conf", line=2, column=19, text="secret"),
    Finding(
        rule="PAL036", level=Level.ERROR, file="dir\\ä b,%.conf", line=9, column=7, text="\x1b[2J<&\"'\r\nit",
        instead="a\n<b", confidence=Confidence.POSSIBLE, fix=Fix(old="a", new="\x1bb", is_safe=False),
    ),
]  # fmt: skip
PROBLEMS = [
    ("p,q:r.json", Problem(line=4, column=5, text="no\n<JSON> % at all")),
    ("z.json", Problem(line=1, column=1, text="empty")),
]
REPORTS = {
    "all": Report(findings=FINDINGS, problems=PROBLEMS, texts=FILES, version="1.2.3"),
    "colored": Report(findings=FINDINGS, problems=PROBLEMS, texts=FILES, is_colored=True),
    "explained": Report(findings=FINDINGS[:4], texts=FILES, explains_all=True, rules_url="https://docs.example/"),
    "one": Report(findings=FINDINGS[:1]),
    "problem": Report(findings=[], problems=PROBLEMS[:1]),
    "none": Report(findings=[], texts=FILES),
}


def told(form: str, name: str) -> object:
    """As lines. What lists all rules is compared apart, so that another rule changes nothing here."""
    text = FORMATS[form](REPORTS[name])
    if form == "junit":
        text = text.replace(f'tests="{text.count("<testcase")}"', "")
        found_nothing = {rule for rule in RULES if rule.ID not in {each.rule for each in REPORTS[name].findings}}
        for rule in found_nothing:
            line = f"    <testcase classname={quoteattr(rule.ID)} name={quoteattr(rule.TITLE)}></testcase>\n"
            assert text.count(line) == 1
            text = text.replace(line, "")
    if form != "sarif":
        return text.split("\n")
    found: dict[str, Any] = json.loads(text)
    assert text == json.dumps(found, indent=2) + "\n"
    del found["runs"][0]["tool"]["driver"]["rules"]
    return found


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("form", FORMATS)
def test_every_word_of_a_report(form: str, name: str) -> None:
    expected = json.loads((TEXTS / f"{form}.json").read_text("utf-8"))
    assert told(form, name) == expected[name]


@pytest.mark.parametrize("name", ["all", "explained"])
def test_sarif_has_every_rule_in_order(name: str) -> None:
    found = json.loads(reports.as_sarif(REPORTS[name]))["runs"][0]["tool"]["driver"]["rules"]
    base = "https://docs.example/" if name == "explained" else ""
    assert found == [
        {
            "id": rule.ID,
            "name": rule.TITLE,
            "shortDescription": {"text": rule.TITLE},
            "fullDescription": {"text": " ".join((rule.__doc__ or "").split())},
            "help": {"text": (rule.__doc__ or "").strip()},
            **({"helpUri": f"{base}{rule.ID}.md"} if base else {}),
            "properties": {"tags": [str(rule.FAMILY)]},
        }
        for rule in RULES
    ]


def test_a_rule_is_explained_in_one_line_without_its_title() -> None:
    rule = next(rule for rule in RULES if rule.ID == "PAL045")
    assert reports.why(rule) == (
        "qdrouterd 1.20 takes everything but `true` for false: a switch that is off there is on here. "
        "Write true or false, without quotes and in small letters."
    )


class Untold:
    """A rule of somebody else's, without a docstring."""

    __doc__ = None
    ID, TITLE, FAMILY = "PAL999", "untold", RULES[0].FAMILY


def test_a_rule_without_a_docstring_has_a_page_and_no_explanation() -> None:
    assert reports.why(Untold()) == ""  # type: ignore[arg-type]
    assert "\n\nFamily: correctness\n\n\n\n[All rules]" in page(Untold())  # type: ignore[arg-type]


def test_pages_of_rules() -> None:
    rule = RULES[0]
    assert url_of("PAL001") == ""
    assert url_of("PAL001", "/x/") == "/x/PAL001.md"
    notice = "<!-- Written by `python -m policy.cli.rule_pages` from policy/lint. -->"
    assert page(rule) == (
        f"{notice}\n# PAL001: refused by the router\n\nFamily: correctness\n\n{(rule.__doc__ or '').strip()}\n\n"
        "[All rules](README.md) · [how to excuse a finding](../qdpolicy.md#lint)\n"
    )
    assert index(RULES[:2]) == (
        f"{notice}\n# The rules of `qdpolicy lint`\n\n| rule | family | finds |\n|---|---|---|\n"
        "| [PAL001](PAL001.md) | correctness | refused by the router |\n"
        "| [PAL002](PAL002.md) | correctness | list and pattern at once |\n"
    )


# Configuration


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            {"x": 1},
            "'x' is unknown: known are fail-level, ignore, only-this-router, levels, baseline, "
            "docs-url, per-path-ignores",
        ),
        ({"ignore": "PAL016"}, 'ignore is a list of ids: ["PAL016"]'),
        ({"ignore": ["PAL016", "PAL999"]}, "ignore: 'PAL999' is no id of a rule, such as PAL016"),
        ({"ignore": [16]}, "ignore: 16 is no id of a rule, such as PAL016"),
        ({"levels": []}, 'levels is a table of ids and levels: PAL016 = "error"'),
        ({"levels": {"PAL999": "note"}}, "levels: 'PAL999' is no id of a rule, such as PAL016"),
        ({"levels": {"PAL016": "bad"}}, "PAL016: 'bad' is no level: note, warning, error"),
        ({"levels": {"PAL016": 1}}, "PAL016: 1 is no level: note, warning, error"),
        ({"fail-level": "NOTE"}, "fail-level: 'NOTE' is no level: note, warning, error"),
        ({"baseline": 1}, "baseline is the path of a file in quotes"),
        (
            {"only-this-router": "yes"},
            "only-this-router is true or false: true where qdrouterd 1.20 does not read the files",
        ),
        ({"docs-url": 1}, 'docs-url is the address of a folder: "https://docs.example.com/rules/"'),
        ({"docs-url": "ftp://x"}, 'docs-url is the address of a folder: "https://docs.example.com/rules/"'),
    ],
)
def test_a_wrong_configuration_is_refused_in_these_words(table: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_configuration(table)
    assert str(raised.value) == text


def test_a_configuration_without_anything_has_defaults() -> None:
    assert read_configuration({}) == LintConfiguration(
        fail_level=Level.WARNING, ignored=(), levels={}, baseline=None,
        rules_url="",
    )  # fmt: skip


def test_a_configuration_is_read() -> None:
    table = {
        "fail-level": "error",
        "ignore": ["PAL016", "PAL001"],
        "levels": {"PAL010": "note", "PAL011": "error"},
        "baseline": "known.json",
        "docs-url": "http://docs.example/x",
        "only-this-router": False,
    }
    read = read_configuration(table)
    assert read == LintConfiguration(
        fail_level=Level.ERROR, ignored=("PAL016", "PAL001"), levels={"PAL010": Level.NOTE, "PAL011": Level.ERROR},
        baseline="known.json", rules_url="http://docs.example/x/",
    )  # fmt: skip
    assert read_configuration({"docs-url": "https://d/"}).rules_url == "https://d/"
    alone = read_configuration({"ignore": ["PAL016"], "only-this-router": True}).ignored
    assert alone[0] == "PAL016"
    families = {rule.ID: str(rule.FAMILY) for rule in RULES}
    assert set(alone[1:]) == {id_ for id_ in configuration._IDS if families[id_] == "compatibility"} - {"PAL011"}


# Ignoring


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1 # another comment", []),
        ("# qdpolicy: ignore[PAL001] why\na: 1", [(1, 2, ("PAL001",), "")]),
        ("a: 1 # qdpolicy: ignore[PAL001] why", [(1, 1, ("PAL001",), "")]),
        ("  #qdpolicy:ignore[PAL001, PAL002]why\n\n  # more\n \n a: 1\n", [(1, 5, ("PAL001", "PAL002"), "")]),
        ("\n# qdpolicy: ignore[PAL001]  ", [(2, 3, ("PAL001",), "the reason is missing")]),
        ("# qdpolicy: ignore PAL001 ", [(1, 2, (), "'ignore PAL001' is not understood")]),
        ("# qdpolicy: ignore[PAL01, x] why", [(1, 2, ("PAL01", "x"), "'PAL01' is no id of a rule")]),
        ("# qdpolicy: ignore[PAL001, x] why", [(1, 2, ("PAL001", "x"), "'x' is no id of a rule")]),
        ("# qdpolicy: ignore[] why", [(1, 2, ("",), "'' is no id of a rule")]),
        ("qdpolicy: ignore[PAL001] why", []),
        ("# qdpolicy: ignore[PAL001] why\n", [(1, 3, ("PAL001",), "")]),
        (
            "x\n# qdpolicy: ignore[PAL001] a\n# qdpolicy: ignore[PAL002] b\ny # qdpolicy: no\nz",
            [
                (2, 4, ("PAL001",), ""),
                (3, 4, ("PAL002",), ""),
                (4, 4, (), "'no' is not understood"),
            ],
        ),
    ],
)
def test_ignore_comments(text: str, found: list[tuple[int, int, tuple[str, ...], str]]) -> None:
    assert [(each.line, each.target, each.ids, each.problem) for each in ignoring.comments_in(text)] == found


def finding(rule: str, line: int, file: str = "a", **more: Any) -> Finding:
    return Finding(rule=rule, level=Level.WARNING, file=file, line=line, text=f"{rule} {line}", **more)


def unused(file: str, line: int, id_: str) -> Finding:
    text = f"there is no finding of {id_} to ignore here: remove the comment"
    return Finding(rule="PAL054", level=Level.NOTE, file=file, line=line, text=text)


def test_comments_answer_findings_of_their_rule_and_line() -> None:
    texts = {
        "a": "# qdpolicy: ignore[PAL001, PAL002] why\nx\ny # qdpolicy: ignore[PAL003] why\n"
        "# qdpolicy: ignore[PAL001]\nz\n",
        "b": "# qdpolicy: ignore[PAL004, PAL054] why\nx\n# qdpolicy: ignore[PAL004] why\ny\n",
    }
    everything = ["PAL001", "PAL002", "PAL003", "PAL004", "PAL054"]
    kept = [finding("PAL001", 5), finding("PAL003", 2), finding("PAL001", 2, "b"), finding("PAL001", 2, "c")]
    answered = [finding("PAL001", 2), finding("PAL002", 9, within=(1, 2)), finding("PAL003", 3)]
    mixed = [answered[0], kept[0], answered[1], kept[1], answered[2], *kept[2:]]
    blamed = [unused("b", 1, "PAL004"), unused("b", 1, "PAL054"), unused("b", 3, "PAL004")]
    assert ignoring.without_ignored(mixed, texts, everything) == (*kept, *blamed)
    assert ignoring.without_ignored(mixed, texts, everything[:-1]) == tuple(kept)
    assert ignoring.without_ignored(mixed, texts, ["PAL001", "PAL054"]) == (*kept, unused("b", 1, "PAL054"))
    assert ignoring.without_ignored([], {"c": "# qdpolicy: ignore[PAL001] why"}, ["PAL001", "PAL054"]) == (
        unused("c", 1, "PAL001"),
    )
    assert ignoring.without_ignored([finding("PAL001", 2)], texts, ["PAL002", "PAL054"])[:1] == (
        unused("a", 1, "PAL002"),
    )


def test_fingerprints_are_of_rule_and_words_and_count_repetitions() -> None:
    """They stand in baselines: another digest would make all that is known new."""
    found = [finding("PAL001", 1), finding("PAL001", 1, "b"), finding("PAL002", 1), finding("PAL001", 1)]
    marks = ignoring.fingerprints(found)
    assert marks == (
        "f7d3036c7678cefb3cdc880adb52a0b1",
        "7866a46d795949b0f83dcb8530db9591",
        "fc7545b885f2e7c5a52d6534b287b022",
        "3c03ca5317d9af8f56376776303a377b",
    )
    assert ignoring.without_known(found, [marks[0], marks[2], "x"]) == (found[1], found[3])


def test_levels_are_those_the_project_has_chosen() -> None:
    found = [finding("PAL001", 1), finding("PAL002", 1)]
    leveled = ignoring.with_levels(found, {"PAL002": Level.ERROR, "PAL003": Level.NOTE})
    assert [each.level for each in leveled] == [Level.WARNING, Level.ERROR]


# Places


@pytest.mark.parametrize(
    ("text", "at", "item", "place"),
    [
        ('"users": "a, b"', (1, 1), "b", (1, 14)),
        ('"users": "a, b"', (1, 1), "a", (1, 11)),
        ('"users": ["ab",\n"b"]', (1, 1), "b", (2, 2)),
        ('"users": ["ab",\n"b"]', (2, 1), "ab", (2, 1)),
        ("b\nb: b c\nb", (2, 4), "b", (2, 4)),
        ("b\nb: xb bx b,c\nb", (2, 4), "b", (2, 10)),
        ("[b]", (1, 1), "b", (1, 2)),
        ("{b}", (1, 1), "b", (1, 1)),
        (":b}", (1, 1), "b", (1, 2)),
        ("a.b", (1, 1), ".", (1, 1)),
        ("a . b", (1, 1), ".", (1, 3)),
        ("a b", (9, 1), "b", (9, 1)),
        ("a b", (1, 3), "", (1, 3)),
        ("k: " + "y" * 99_990 + " b", (1, 1), "b", (1, 99_995)),
        ("k: " + "y" * 99_996 + " b", (1, 1), "b", (1, 1)),
    ],
)
def test_a_finding_is_placed_at_its_item(text: str, at: tuple[int, int], item: str, place: tuple[int, int]) -> None:
    one = finding("PAL001", at[0], column=at[1], item=item)
    (placed,) = places.placed([one], {"a": text})
    assert (placed.line, placed.column) == place
    assert places.placed([one], {"b": text}) == (one,)


@pytest.mark.parametrize(
    ("text", "line", "column", "item", "shown"),
    [
        ("port: bcd e", 1, 7, "", ("port: bcd e", 6, 3)),
        ("port: bcd e", 1, 7, "bc", ("port: bcd e", 6, 2)),
        ("port: bcd e", 1, 7, "cd", ("port: bcd e", 6, 3)),
        ('port: "b c" e', 1, 7, "", ('port: "b c" e', 6, 5)),
        ("port:\tb", 1, 6, "", ("port: b", 5, 1)),
        ("port: b", 1, 99, "", ("port: b", 7, 1)),
        ("a\r\nport: x\r\n", 2, 7, "", ("port: x", 6, 1)),
        ("a\nb", 1, 1, "", ("a", 0, 1)),
        ("a\nb", 2, 1, "", ("b", 0, 1)),
        ("a\nb", 3, 1, "", None),
        ("a\nb", 0, 1, "", None),
        ("x" * 160, 1, 100, "", ("x" * 160, 99, 61)),
        ("x" * 161, 1, 100, "", ("x" * 142, 80, 62)),
        ("x" * 161, 1, 50, "", ("x" * 160, 49, 111)),
        ("x" * 500, 1, 201, "", ("x" * 160, 80, 80)),
        ("saslPassword: swordfish", 1, 15, "", ("saslPassword: …", 14, 1)),
    ],
)
def test_an_excerpt_shows_the_line_of_a_finding(
    text: str, line: int, column: int, item: str, shown: tuple[str, int, int] | None
) -> None:
    found = places.excerpt(finding("PAL001", line, column=column, item=item), text)
    assert (found and (found.text, found.start, found.length)) == shown
    assert places.excerpt(finding("PAL001", line), None) is None


def fixed(line: int, column: int, old: str, new: str, *, is_safe: bool = True, file: str = "a") -> Finding:
    return finding("PAL001", line, file, column=column, fix=Fix(old=old, new=new, is_safe=is_safe))


def test_fixes_are_made_from_the_last_to_the_first() -> None:
    text = '"a": "b",\nc: d e\n'
    first, second, third = fixed(1, 1, "a", "A"), fixed(1, 6, "b", "BB"), fixed(2, 4, "d e", "D")
    found = places.mended([third, first, second, first], {"a": text}, is_unsafe_allowed=False)
    assert found == {"a": places.Mended(text='"A": "BB",\nc: D\n', findings=(first, second, third))}


def test_fixes_that_meet_are_made_once() -> None:
    """The later one wins."""
    whole, part, next_ = fixed(1, 1, "abc", "x"), fixed(1, 2, "bc", "y"), fixed(1, 4, "d", "z")
    found = places.mended([whole, part, next_], {"a": "abcd"}, is_unsafe_allowed=False)
    assert found == {"a": places.Mended(text="ayz", findings=(part, next_))}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_unsafe_fixes_are_made_where_they_are_allowed(is_allowed: bool) -> None:
    wild, no_fix = fixed(1, 1, "a", "x", is_safe=False), finding("PAL001", 1)
    elsewhere, gone, safe = fixed(1, 1, "a", "x", file="z"), fixed(1, 2, "a", "x"), fixed(1, 3, "c", "C", file="b")
    texts = {"a": "abc", "b": "abc"}
    found = places.mended([no_fix, wild, elsewhere, gone, safe], texts, is_unsafe_allowed=is_allowed)
    expected = {"b": places.Mended(text="abC", findings=(safe,))}
    if is_allowed:
        expected["a"] = places.Mended(text="xbc", findings=(wild,))
    assert found == expected


@pytest.mark.parametrize(
    ("one", "text", "at"),
    [
        (fixed(1, 1, "a", "x"), "abc", 0),
        (fixed(1, 1, "a", "x"), '"abc', 1),
        (fixed(1, 1, '"a', "x"), '"abc', 0),
        (fixed(2, 2, "b", "x"), "abc\nab", 5),
        (fixed(2, 2, "a", "x"), "abc\nab", None),
        (fixed(3, 1, "a", "x"), "abc\nab", None),
        (fixed(9, 1, "a", "x"), "abc\nab", None),
        (finding("PAL001", 1), "abc", None),
    ],
)
def test_where_a_fix_is_made(one: Finding, text: str, at: int | None) -> None:
    assert places.fix_offset(one, text) == at


# Mending

GOOD = '[["vhost", {"hostname": "h", "groups": {"g": {"users": "a", "remoteHosts": "10.0.0.1", "sources": "s"}}}]]'
REFUSED = GOOD.replace('"s"', '"${user}${user}"')


@pytest.mark.parametrize(
    ("before", "after", "is_unsafe", "text"),
    [
        (GOOD, GOOD.replace('"users": "a"', '"users": ["a"]'), False, None),
        (GOOD, GOOD.replace('"s"', '"t"'), False, "the fixes would change what it permits"),
        (GOOD, GOOD.replace('"s"', '"t"'), True, None),
        (GOOD, "[[", True, "the fixes would break it: p.json:1:3: a value is missing before the end of the file"),
        (REFUSED, GOOD, False, None),
        (GOOD, REFUSED, False, "the fixes would change what it permits"),
        (REFUSED, REFUSED, False, None),
    ],
)
def test_fixes_that_would_do_harm_are_not_made(before: str, after: str, is_unsafe: bool, text: str | None) -> None:
    assert mending.harm("p.json", before, after, is_unsafe=is_unsafe) == text


def test_only_the_vhosts_of_a_configuration_are_compared() -> None:
    before = "router {\n    id: A\n}\nvhost {\n    hostname: h\n}\n"
    assert mending.harm("r.conf", before, before.replace("A", "B"), is_unsafe=False) is None
    changed = before.replace("hostname: h", "hostname: i")
    assert mending.harm("r.conf", before, changed, is_unsafe=False) == "the fixes would change what it permits"


def test_what_is_said_about_a_finding_has_defaults() -> None:
    assert About() == About(item="", instead="", confidence=Confidence.CERTAIN, fix=None)


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    for form in FORMATS:
        written = json.dumps({name: told(form, name) for name in REPORTS}, indent=1, ensure_ascii=False) + "\n"
        (TEXTS / f"{form}.json").write_text(written, "utf-8")
