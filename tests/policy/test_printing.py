"""What may be printed of a text from somebody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.printing import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain and größer 漢字", "plain and größer 漢字"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\tb\r\nc", "a\\tb\\r\\nc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u200bb\u2060c\ufeffd", "a\\u200bb\\u2060c\\ufeffd"),
        ("a\u034fb\u3164c\ufe0fd\U000e0100e", "a\\u034fb\\u3164c\\ufe0fd\\U000e0100e"),
        ("\u2028\u2029\x85", "\\u2028\\u2029\\x85"),
    ],
)
def test_what_steers_a_terminal_or_cannot_be_seen_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_characters_that_are_kept() -> None:
    assert printable("a\nb\x1b", kept="\n") == "a\nb\\x1b"


@given(st.text())
def test_the_outcome_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
