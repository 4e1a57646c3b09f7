"""Makes CSV safe for spreadsheets: no text of a peer is a formula, such as `=cmd|' /C calc'!A0`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_SIGNS = r"[=+\-@\uff0b\uff0d\uff1d\uff20]"  # also in full width, as in Asian scripts
_BEGINS = rf"\A(?:[\s\x00-\x1f\"']*{_SIGNS}|[\t\r\n])"
# If semicolons separate cells, our quotes have no effect: a cell begins after each semicolon and line break.
_BEGINS_INSIDE = rf"([;\r\n][\s\x00-\x1f\"']*)(?={_SIGNS})"


def defused(name: str) -> Column:
    """Returns a column of texts, with an apostrophe before what a spreadsheet would take as a formula."""
    text = F.regexp_replace(F.col(name), _BEGINS_INSIDE, "$1'")
    return F.when(text.rlike(_BEGINS), F.concat(F.lit("'"), text)).otherwise(text)
