"""The layout of qdstat's output, character by character (management 73-76, 84)."""

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.tools.formats import (
    RenderTable,
    Table,
    commas,
    ctime,
    kimigi,
    plain,
    render,
    render_classic,
    render_csv,
    time_long,
    time_short,
)

TABLE = Table(title="Things", headers=("id", "a name", "x"), rows=((1, "one", True), (22, None, ""), (3, "a,b", 'q"q')))


def test_a_classic_table_is_indented_and_its_columns_are_two_apart() -> None:
    assert render_classic(TABLE) == [
        "Things",
        "  id  a name  x",
        "  ==================",
        "  1   one     True",
        "  22          ",
        '  3   a,b     q"q',
    ]


def test_a_column_is_as_wide_as_its_longest_cell_and_the_rule_covers_all_columns() -> None:
    """management 74: the first column of -g is 33 wide"""
    table = Table(
        title="T", headers=("attr", "value"), rows=(("Deliveries from Route Container", "0"), ("Links", "12"))
    )
    assert render_classic(table) == [
        "T",
        "  attr" + " " * 29 + "value",
        "  " + "=" * 40,
        "  Deliveries from Route Container  0",
        "  Links" + " " * 28 + "12",
    ]


def test_csv_quotes_what_is_not_empty_and_doubles_quotes() -> None:
    """management 84"""
    assert render_csv(TABLE) == ["Things", '"id","a name","x"', '"1","one","True"', '"22",,', '"3","a,b","q""q"']


@pytest.mark.parametrize("render_table", [render_classic, render_csv])
def test_a_table_without_rows_is_its_title(render_table: RenderTable) -> None:
    assert render_table(Table(title="Things", headers=("a", "b"), rows=())) == ["Things"]


def test_blocks_are_separated_by_one_empty_line() -> None:
    empty = Table(title="E", headers=("a",), rows=())
    assert render([empty, ["x", "y"], empty], render_classic) == ["E", "", "x", "y", "", "E"]
    assert render([], render_csv) == []


@pytest.mark.parametrize("render_table", [render_classic, render_csv])
def test_terminal_escapes_and_line_breaks_in_cells_are_shown_not_obeyed(render_table: RenderTable) -> None:
    """Attack: a client names its container so that qdstat prints a faked row or drives the terminal."""
    table = Table(title="T", headers=("a",), rows=(("x\n1 fake",), ("\x1b[2J\u202e",)))
    lines = render_table(table)
    assert len(lines) in (4, 5)
    assert all(line.isprintable() for line in lines)
    assert any("x\\n1 fake" in line for line in lines)


CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_any_csv_table_is_read_back_by_a_csv_reader(rows: list[tuple[Any, ...]]) -> None:
    lines = render_csv(Table(title="T", headers=("a", "b"), rows=tuple(rows)))
    read = list(csv.reader(io.StringIO("\n".join(lines[2:]))))
    assert [len(row) for row in read] == [2] * len(rows)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4))
def test_columns_of_any_classic_table_begin_at_the_same_place(rows: list[tuple[Any, ...]]) -> None:
    _title, header, rule, *lines = render_classic(Table(title="T", headers=("a", "b"), rows=tuple(rows)))
    start = header.index("b")
    assert len(rule) >= max(map(len, lines))
    assert all(line[start - 2 : start] == "  " for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 * 1024, "10.0 KiB"),
        (100 * 1024, "100 KiB"),
        (1023 * 1024, "1023 KiB"),
        (1024**2, "1.00 MiB"),
        (5 * 1024**3, "5.00 GiB"),
        (2 * 1024**5, "2.00 PiB"),
        (4096 * 1024**5, "4096 PiB"),
        (None, "None"),
    ],
)
def test_sizes_have_three_digits_and_a_binary_unit(value: Any, text: str) -> None:
    assert kimigi(value) == text


@pytest.mark.parametrize(
    ("seconds", "long_text", "short_text"),
    [
        (0, "000:00:00:00", "00:00:00"),
        (61, "000:00:01:01", "00:01:01"),
        (86399, "000:23:59:59", "23:59:59"),
        (86400 * 1234 + 3600, "1234:01:00:00", "01:00:00"),
        (None, "None", "None"),
    ],
)
def test_times(seconds: int | None, long_text: str, short_text: str) -> None:
    assert time_long(seconds) == long_text
    assert time_short(seconds) == short_text


def test_numbers() -> None:
    assert [plain(value) for value in (5, -1, None, "x", 2.6)] == ["5", "-1", "None", "x", "3"]
    assert [commas(value) for value in (999, 1234567, None)] == ["999", "1,234,567", "None"]


@pytest.mark.parametrize("value", [None, "x", 10**30, -(10**30)])
def test_a_time_that_is_none_is_printed_as_it_is(value: Any) -> None:
    assert ctime(value) == plain(value)


def test_ctime_has_the_c_library_form() -> None:
    assert len(ctime(1_500_000_000)) == 24


WIDE = Table(
    title="Connections",
    headers=("id", "container", "user", "bytes"),
    rows=((1, "c" * 40, "someone@EXAMPLE.COM", 12345678901), (20000, "short", "me", 0)),
)


def test_a_table_is_cut_to_the_terminal_where_it_is_text() -> None:
    """The widest first; never below what tells one from another, and never a number, which would be another number."""
    assert render_classic(WIDE, columns=60) == [
        "Connections",
        "  id     container          user               bytes",
        "  ==========================================================",
        "  1      cccccccccccccccc…  someone@EXAMPLE.…  12345678901",
        "  20000  short              me                 0",
    ]


def test_what_fits_is_not_cut() -> None:
    assert render_classic(WIDE, columns=200) == render_classic(WIDE)


@pytest.mark.parametrize("columns", range(1, 120))
def test_a_terminal_of_any_width_gets_a_table(columns: int) -> None:
    lines = render_classic(WIDE, columns=columns)
    assert len(lines) == 5
    assert all("12345678901" in line or "short" in line or "1 " not in line for line in lines[3:])
    assert max(map(len, lines)) <= max(columns, 2 + 7 + 11 + 10 + 13)


@pytest.mark.parametrize(
    ("cell", "field"),
    [
        ("=1+1", '"\'=1+1"'),
        ("@x", '"\'@x"'),
        (' "=1', '"\' ""=1"'),
        ("-1+1", '"\'-1+1"'),
        ("a;=1", '"a;\'=1"'),
        (-1, '"-1"'),
        ("-1,234.5", '"-1,234.5"'),
        ("+3", '"+3"'),
        ("-", '"-"'),
        ("a=b-c", '"a=b-c"'),
        ("", ""),
    ],
)
def test_a_formula_is_made_text_in_csv_and_a_number_stays_one(cell: Any, field: str) -> None:
    assert render_csv(Table(title="T", headers=("a",), rows=((cell,),)))[-1] == field


def test_a_cell_wider_than_any_table_is_out_of_line_alone() -> None:
    rows = tuple((name, "x") for name in ("a", "w" * 5000))
    lines = render_classic(Table(title="T", headers=("n", "m"), rows=rows))
    assert [len(line) for line in lines[2:]] == [2 + 1026 + 3, 2 + 1026 + 1, 2 + 5000 + 3]
    assert lines[-1].endswith("w  x")
