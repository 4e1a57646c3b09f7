"""CSV that a spreadsheet opens: no text of a peer is a formula in it, `=cmd|' /C calc'!A0`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_SIGNS = r"[=+\-@\uff0b\uff0d\uff1d\uff20]"  # in the width of Asian scripts as well
_BEGINS = rf"\A(?:[\s\x00-\x1f\"']*{_SIGNS}|[\t\r\n])"
# Where semicolons separate cells, our quotes count for nothing: a cell begins behind each semicolon and line break.
_BEGINS_INSIDE = rf"([;\r\n][\s\x00-\x1f\"']*)(?={_SIGNS})"


def defused(name: str) -> Column:
    """A column of texts, with an apostrophe before what a spreadsheet takes for a formula."""
    text = F.regexp_replace(F.col(name), _BEGINS_INSIDE, "$1'")
    return F.when(text.rlike(_BEGINS), F.concat(F.lit("'"), text)).otherwise(text)
