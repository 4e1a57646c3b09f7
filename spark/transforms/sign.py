"""A condition on events, defined once for two uses: as a Spark column, and as a mask of Arrow rows in the workers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """Events that satisfy all of these conditions:

    among  member -> the permitted values
    but    member -> the forbidden values; null is forbidden too
    has    members that are not null
    like   member -> a pattern to find in it, in the common syntax of Java and RE2
    """

    among: Mapping[str, Sequence[str]] = field(default_factory=dict)
    but: Mapping[str, Sequence[str]] = field(default_factory=dict)
    has: Sequence[str] = ()
    like: Mapping[str, str] = field(default_factory=dict)

    def column(self) -> Column:
        """Returns a column that is true or false, never null."""
        parts = [F.col(member).isin(*values) for member, values in self.among.items()]
        parts += [~F.col(member).isin(*values) for member, values in self.but.items()]
        parts += [F.col(member).isNotNull() for member in self.has]
        parts += [F.col(member).rlike(pattern) for member, pattern in self.like.items()]
        return F.coalesce(reduce(Column.__and__, parts), F.lit(False))

    def mask(self, rows: pa.Table) -> Any:
        """Returns numpy booleans, one a row. For dictionary-encoded texts, only the dictionary is tested."""
        masks = [_are(rows[member], partial(_is_among, values)) for member, values in self.among.items()]
        masks += [_are(rows[member], partial(_is_other, values)) for member, values in self.but.items()]
        masks += [pc.is_valid(rows[member]).to_numpy() for member in self.has]
        masks += [_are(rows[member], partial(_is_like, pattern)) for member, pattern in self.like.items()]
        return reduce(np.logical_and, masks)


def any_column(signs: Sequence[Sign]) -> Column:
    return reduce(Column.__or__, [sign.column() for sign in signs])


def any_mask(signs: Sequence[Sign], rows: pa.Table) -> Any:
    return reduce(np.logical_or, [sign.mask(rows) for sign in signs])


def coded(texts: Any) -> tuple[Any, Any]:
    """Returns texts as numbers (for null: the number of texts), and the texts that the numbers index."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return pc.fill_null(whole.indices, len(whole.dictionary)).to_numpy(), whole.dictionary


def _is_among(values: Sequence[str], texts: Any) -> Any:
    return pc.is_in(texts, pa.array(values, pa.string()))


def _is_other(values: Sequence[str], texts: Any) -> Any:
    return pc.invert(_is_among(values, texts))


def _is_like(pattern: str, texts: Any) -> Any:
    return pc.match_substring_regex(texts, pattern)


def _are(texts: Any, judge: Callable[[Any], Any]) -> Any:
    numbers, known = coded(texts)
    return np.append(judge(known.cast(pa.string())).to_numpy(zero_copy_only=False), False)[numbers]
