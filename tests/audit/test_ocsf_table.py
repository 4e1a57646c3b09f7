"""The table of docs/ocsf.md that aligns events with OCSF leaves out no member."""

import re
from pathlib import Path

import schemas

ROOT = Path(__file__).resolve().parents[2]


def test_every_member_has_its_place() -> None:
    page = (ROOT / "docs" / "ocsf.md").read_text("utf-8")
    section = page[page.index("## OCSF") : page.index("## The files")]
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert set(schemas.load("audit_event")["properties"]) - named == set()
