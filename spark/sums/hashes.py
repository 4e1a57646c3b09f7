"""Texts as numbers of 64 bits. Pure; runs in Spark's workers."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spark.transforms.sign import coded

# Limit of texts that are Python objects at a time. Attack: a name for each of millions of denials.
_AT_ONCE: Final = 65_536
_NULL: Final = np.uint64(0x5BD1E9955BD1E995)


def hashes_of(texts: Any) -> Any:
    """Returns the hashes of an array of texts without nulls. All workers of Spark have the same PYTHONHASHSEED."""
    parts = (texts.slice(at, _AT_ONCE).to_pylist() for at in range(0, len(texts), _AT_ONCE))
    every = (hash(text) for part in parts for text in part)
    return np.fromiter(every, np.int64, len(texts)).astype(np.uint64)


def row_hashes(rows: pa.Table, keys: Sequence[str]) -> Any:
    """Returns a hash of each row: of the values of its keys together, null or not."""
    whole = np.zeros(len(rows), np.uint64)
    for key in keys:
        numbers, known = coded(rows[key])
        whole = mixed(whole + np.append(hashes_of(known), _NULL)[numbers])
    return whole


def mixed(numbers: Any) -> Any:
    """Applies the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
