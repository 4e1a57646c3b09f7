"""A trail -> what of it detectors of bursts can need. Most of a long one is quiet: it is read twice, not 20 times.

A burst of `least` within its window is at least half of that within one of two neighbouring spans of time that are as
long as the window. So who has less in every span has no burst. Keys are compared by their hashes: two that are equal
let an event too many through, never one too few.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.detectors.finding import Detector, Focus, host
from spark.transforms.events import requests

# Keys of one detector that are told apart. Stops an attacker who makes up a name for each burst from filling the
# memory: with more than so many, all of the detector's events are kept.
MAX_KEYS: Final = 20_000
# More than any threshold: of a flood, which may stand for more than it says. So many times the events of a trail are
# no overflow.
_MANY: Final = 1 << 30


def focused(events: DataFrame, detectors: Sequence[Detector], thresholds: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """The events that these detectors can need, of all their members. Runs a job; the caller unpersists what comes.

    detectors  each with a focus
    """
    wanted = [detector.focus(thresholds[detector.name]) for detector in detectors if detector.focus is not None]
    if not wanted:
        return events.where(F.lit(False))
    found = _keys(events, wanted)
    needed = []
    for at, one in enumerate(wanted):
        mine = one.signs if one.story is None else one.signs | one.story
        if len(found[at]) <= MAX_KEYS:
            mine &= _hash(one).isin(found[at]) if found[at] else F.lit(False)
        needed.append(mine)
    return events.where(reduce(Column.__or__, needed)).persist()


def _keys(events: DataFrame, wanted: Sequence[Focus]) -> Mapping[int, list[int]]:
    """The hashes of the keys that may have a burst, of each focus at most MAX_KEYS + 1."""
    counted = F.when(F.col("folded").isNotNull(), F.lit(_MANY)).otherwise(F.least(requests(), F.lit(_MANY)))
    marks = [
        F.when(
            one.signs,
            F.struct(F.lit(at).alias("at"), _hash(one).alias("key"), _span(one).alias("span"), counted.alias("count")),
        )
        for at, one in enumerate(wanted)
    ]
    counts = (
        events.select(F.explode(F.array_compact(F.array(*marks))).alias("mark"))
        .groupBy("mark.at", "mark.key", "mark.span")
        .agg(F.sum("mark.count").alias("count"))
    )
    least = F.element_at(F.array(*[F.lit((one.least + 1) // 2) for one in wanted]), F.col("at") + 1)
    found: dict[int, list[int]] = defaultdict(list)
    for row in counts.where(F.col("count") >= least).select("at", "key").distinct().toLocalIterator():
        if len(found[row.at]) <= MAX_KEYS:
            found[row.at].append(row.key)
    return found


def _hash(one: Focus) -> Column:
    return F.xxhash64(*[host() if key == "host" else F.col(key) for key in one.keys])


def _span(one: Focus) -> Column:
    whole = 5 * max(one.window_s // 4, 1)
    return (F.unix_micros("time") / F.lit(whole * 1_000_000)).cast("bigint")
