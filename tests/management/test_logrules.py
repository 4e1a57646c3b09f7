"""Checklist items management 24, 25, 29, 32 and 67: what is logged, how a line looks, what is kept."""

import re
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.configuration.log_levels import LEVELS, LogSettingError, parse_enable
from router.management.logrules import (
    ALL_MODULES,
    LogEntry,
    LogRing,
    LogRules,
    TimeStyle,
    rules_from,
    visible_text,
)


def entry(text: str = "hello", module: str = "SERVER") -> LogEntry:
    return LogEntry(module=module, level="notice", text=text, time_s=1646331000.608655, file="a.py", line=7)


@pytest.mark.parametrize(
    ("enable", "levels"),
    [
        ("TRACE , Error info", {"trace", "info", "error"}),
        ("none", set()),
        ("", set()),
        ("trace+", set(LEVELS)),
        ("error+", {"error", "critical"}),
        ("debug;warning+:info", {"debug", "info", "warning", "error", "critical"}),
        ("critical+", {"critical"}),
    ],
)
def test_enable_names_levels(enable: str, levels: AbstractSet[str]) -> None:
    """management 29"""
    assert parse_enable(enable) == levels


def test_enable_default_follows_default() -> None:
    """management 29"""
    assert parse_enable("default") is None
    rules = rules_from([{"module": "DEFAULT", "enable": "error"}, {"module": "AGENT", "enable": "Default"}])
    assert rules.is_enabled("AGENT", "error")
    assert not rules.is_enabled("AGENT", "critical")


@pytest.mark.parametrize("enable", ["foo", "info,foo", "info++", "+", "default,info", "err"])
def test_a_word_that_is_no_level_is_refused(enable: str) -> None:
    """management 29"""
    text = f"'{enable}' is not a valid log level. Should be one of {{none, {', '.join(LEVELS)}}}."
    with pytest.raises(LogSettingError, match=f"^{re.escape(text)}$"):
        parse_enable(enable)


def test_every_setting_is_inherited_by_itself() -> None:
    logs: list[dict[str, Any]] = [
        {"module": "DEFAULT", "outputFile": "all.log"},
        {"module": "AGENT", "enable": "debug+", "includeTimestamp": False},
    ]
    rules = rules_from(logs)
    agent = rules.of("AGENT")
    assert (agent.output_file, agent.has_timestamp, agent.has_source) == ("all.log", False, False)
    assert rules.is_enabled("AGENT", "debug")
    assert not rules.is_enabled("MAIN", "debug")
    assert rules.sinks() == {"all.log"}


def test_without_settings_info_and_above_go_to_stderr() -> None:
    rules = LogRules()
    assert rules.is_enabled("SERVER", "info")
    assert not rules.is_enabled("SERVER", "debug")
    assert rules.sink("SERVER") == "stderr"


def test_a_line_has_its_tokens_in_order() -> None:
    """management 24"""
    date, time, zone, module, level, text = LogRules(time_style=TimeStyle(is_utc=True)).line(entry()).split()
    assert (date, time, zone) == ("2022-03-03", "18:10:00.608655", "+0000")
    assert (module, level, text) == ("SERVER", "(notice)", "hello")
    assert re.match(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4} SERVER \(notice\) hello\n$", LogRules().line(entry())
    )


def test_a_line_without_time_begins_with_the_module_and_may_end_with_the_source() -> None:
    """management 25"""
    rules = rules_from([{"module": "SERVER", "includeTimestamp": False, "includeSource": True}])
    assert rules.line(entry()) == "SERVER (notice) hello (a.py:7)\n"


def test_the_system_log_has_its_own_time() -> None:
    assert rules_from([{"module": "SERVER", "outputFile": "syslog"}]).line(entry()) == "SERVER (notice) hello\n"


def test_times_in_another_format() -> None:
    style = TimeStyle(is_utc=True, format="%a %H:%M:%S.%%06lu")
    assert LogRules(time_style=style).line(entry()) == "Thu 18:10:00.608655 SERVER (notice) hello\n"


def test_text_is_cut_at_2048_bytes_of_whole_characters() -> None:
    assert visible_text("é" * 3000) == "é" * 1024
    assert len(visible_text("\x00" * 3000).encode()) <= 2048


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("user=\x1b[2Jx\x7f", r"user=\x1b[2Jx\x7f"),
        ("a\r\nb", r"a\r\nb"),
        (
            "a\n2022-03-03 19:08:13.608655 +0100 POLICY (info) forged",
            r"a\n2022-03-03 19:08:13.608655 +0100 POLICY (info) forged",
        ),
        ("a\u2028b\u202ec\x85", r"a\u2028b\u202ec\x85"),
        ("Traceback:\n  File x\n>>> line", "Traceback:\n  File x\n>>> line"),
    ],
)
def test_a_peers_text_cannot_forge_a_line_or_drive_a_terminal(text: str, visible: str) -> None:
    """Attack: log injection through container ids, link names and user names."""
    assert visible_text(text) == visible


@given(st.text(st.characters()))
def test_any_text_makes_a_line_that_can_be_written(text: str) -> None:
    line = LogRules().line(entry(text))
    assert all(each[:1] in (" ", "\t", ">") for each in line.removesuffix("\n").split("\n")[1:])
    assert len(line.encode()) < 2048 + 200


def test_the_ring_keeps_a_thousand_and_counts_all() -> None:
    """management 32, 67"""
    ring = LogRing()
    for number in range(1200):
        ring.append(entry(str(number)))
    kept = list(ring.entries())
    assert (len(kept), kept[0][2], kept[-1]) == (1000, "200", ["SERVER", "notice", "1199", "a.py", 7, 1646331000])
    assert [row[2] for row in ring.entries(2)] == ["1198", "1199"]
    rows = {str(row["name"]): row for row in ring.rows()}
    assert rows.keys() == set(ALL_MODULES)
    assert (rows["SERVER"]["noticeCount"], rows["AGENT"]["noticeCount"]) == (1200, 0)
    assert sum(name.endswith("Count") for name in rows["MAIN"]) == 7


def test_an_unknown_module_does_not_grow_the_counts() -> None:
    ring = LogRing()
    ring.append(entry(module="OTHER"))
    assert len(list(ring.rows())) == len(ALL_MODULES)
    assert len(list(ring.entries())) == 1
