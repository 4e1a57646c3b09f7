"""The common types of the detectors: an observation, an incident, a finding. All DataFrame -> DataFrame.

Observation  one event as one detector sees it: MEMBERS, `weight` (bigint: how many requests it counts for, 0 for one
             that only belongs to the context), `what` (string or null: the distinct thing that is counted) and `host`
             (remote_host; of IPv6 its /64).
Incident     `key` (array of string: the values of the detector's keys), `start` and `end` (timestamp): a detector's
             statement about its observations from start to before end. The intervals of one key do not overlap.
Finding      FINDING: an incident with its numbers, names and evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from spark.sums.bursts import MAX_KEYS, Focus
from spark.sums.picks import Key, Span, Wanted
from spark.sums.trail import Trail
from spark.transforms.events import requests

# Limit of event ids and names in one finding. Stops a flood from making one row of a million; `events` counts them all.
MAX_EVIDENCE: Final = 100

MEMBERS: Final = ("event_id", "time", "router", "user", "remote_host", "vhost", "address", "reason", "ruleset_digest")
OBSERVATION: Final = (*MEMBERS, "weight", "what", "host")
SINGLE: Final = ("router", "user", "remote_host", "vhost", "reason", "ruleset_digest")
_LISTS: Final = {"routers": "router", "users": "user", "hosts": "remote_host", "addresses": "address", "what": "what"}

FINDING: Final = StructType(
    [
        StructField("finding_id", StringType()),  # the same for the same incident of the same events
        StructField("detector", StringType()),
        StructField("severity", StringType()),
        StructField("first", TimestampType()),
        StructField("last", TimestampType()),
        StructField("count", LongType()),  # requests
        StructField("distinct", LongType()),  # number of distinct things
        *[StructField(name, StringType()) for name in SINGLE],  # null if the evidence has several values
        *[StructField(name, ArrayType(StringType())) for name in _LISTS],  # at most MAX_EVIDENCE, sorted
        StructField("events", LongType()),
        StructField("evidence", ArrayType(StringType())),  # event ids, the earliest first, at most MAX_EVIDENCE
    ]
)

Severity = Literal["low", "medium", "high", "critical"]
Thresholds = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The input of one detector: a trail's observations, and their bursts, as incidents."""

    trail: Trail
    observations: DataFrame
    bursts: DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One detector.

    name       a member of schemas/detect_thresholds.json, which has its thresholds and their sources
    title      for people
    keys       columns of observations that separate incidents
    observe    events, at least those that are needed -> observations
    focus      the thresholds -> which bursts of its observations are incidents
    incidents  makes the incidents, if the bursts are not the incidents themselves
    wants      without a focus: a trail's sums and the thresholds -> the events that are needed
    """

    name: str
    title: str
    severity: Severity
    keys: Sequence[str]
    observe: Callable[[DataFrame], DataFrame]
    focus: Callable[[Thresholds], Focus] | None = None
    incidents: Callable[[Seen, Thresholds], DataFrame] | None = None
    wants: Callable[[Trail, Thresholds], Sequence[Wanted]] | None = None


def host() -> Column:
    """Returns remote_host as it is counted: an IPv4 address, or the first four groups of an IPv6 address.

    Attack: a client with an IPv6 network uses another of its addresses each time.
    """
    plain = F.col("remote_host")
    text = F.regexp_replace(plain, r"(?i)\A::ffff:(?=\d+\.)|%.*", "")
    halves = F.split(text, "::", 2)
    left, right = (_groups(F.get(halves, F.lit(at))) for at in (0, 1))
    zeros = F.greatest(8 - F.size(left) - F.size(right), F.lit(0))
    whole = F.concat(left, F.array_repeat(F.lit("0"), zeros), right)
    counted = F.when(text.contains(":"), F.concat(F.array_join(F.slice(whole, 1, 4), ":"), F.lit("::/64"))).otherwise(
        text
    )
    # Nearly all are plain IPv4, which needs no pattern.
    return F.when(plain.contains(":") | plain.contains("%"), counted).otherwise(plain)


def _groups(text: Column) -> Column:
    return F.filter(F.split(F.lower(F.coalesce(text, F.lit(""))), ":"), lambda group: group != "")


def observed(events: DataFrame, *, what: Column | None = None, counts: Column | None = None) -> DataFrame:
    """Returns the observations of events.

    what    the distinct thing; None: nothing is distinguished
    counts  the weight; None: the number of requests that the event represents
    """
    return events.select(
        *MEMBERS,
        (requests() if counts is None else counts).alias("weight"),
        (F.lit(None).cast("string") if what is None else what).alias("what"),
        host().alias("host"),
    )


def observed_names(events: DataFrame, member: str) -> DataFrame:
    """Returns observations whose `what` is a member. For a flood without that member, each sample is an observation.

    The requests of a flood are counted once, with the first sample.
    """
    samples = F.coalesce(_samples(), F.array().cast("array<string>"))
    names = F.when(F.col(member).isNotNull(), F.array(member)).otherwise(samples)
    named = events.select("*", F.posexplode_outer(names).alias("nth", "name"))
    counts = F.when(F.coalesce(F.col("nth"), F.lit(0)) == 0, requests()).otherwise(F.lit(0).cast("bigint"))
    return named.select(*MEMBERS, counts.alias("weight"), F.col("name").alias("what"), host().alias("host"))


def bursts(observations: DataFrame, focuses: Mapping[str, Focus]) -> DataFrame:
    """Returns incidents with their `detector`: windows of observations that satisfy the detector's focus.

    observations  with `detector` and `key`

    Windows have a length of 5/4 window_s and begin every quarter of it, so one of them contains each span of window_s.
    Overlapping windows are one incident. Cost: the events once, then five rows per quarter window, key and thing. An
    attacker's many requests do not increase that (a sliding frame over rows would cost their square).
    """
    keys = ("detector", "key")
    quarter = _of_each({name: focus.quarter for name, focus in focuses.items()}, "bigint")
    cells = (
        observations.where(F.col("detector").isin(*focuses))
        .groupBy(*keys, (F.unix_micros("time") / quarter).cast("bigint").alias("quarter"), "router", "what")
        .agg(F.sum("weight").alias("requests"))
    )
    spread = cells.withColumn("begin", F.explode(F.array(*[F.col("quarter") - back for back in range(5)])))
    found = spread.groupBy(*keys, "begin").agg(
        F.sum("requests").alias("requests"),
        F.count_distinct("what").alias("distinct"),
        F.count_distinct("router").alias("routers"),
    )
    for number in ("requests", "distinct", "routers"):
        least = _of_each({name: getattr(focus, f"min_{number}") for name, focus in focuses.items()}, "bigint")
        found = found.where(F.col(number) >= least)
    found = found.where(
        F.col("routers") <= _of_each({name: focus.max_routers for name, focus in focuses.items()}, "bigint")
    )
    by_key = Window.partitionBy(*keys).orderBy("begin")
    is_new = F.coalesce(F.col("begin") - F.lag("begin").over(by_key) > 5, F.lit(True))
    numbered = found.withColumn("nth", F.sum(is_new.cast("int")).over(by_key))
    spans = numbered.groupBy(*keys, "nth").agg(F.min("begin").alias("from"), F.max("begin").alias("to"))
    return spans.select(
        *keys,
        F.timestamp_micros(F.col("from") * quarter).alias("start"),
        F.timestamp_micros((F.col("to") + 5) * quarter).alias("end"),
    )


def _of_each(values: Mapping[str, Any], kind: str) -> Column:
    """Returns the value for the row's detector."""
    value = F.lit(None).cast(kind)
    for name, each in values.items():
        value = F.when(F.col("detector") == name, F.lit(each).cast(kind)).otherwise(value)
    return value


def spans_of(incidents: DataFrame, keys: Sequence[str]) -> Sequence[tuple[Key, Span]] | None:
    """Returns the keys and times whose events the incidents need. None means all events. Runs a job."""
    rows = incidents.select(*keys, F.unix_micros("start").alias("from"), F.unix_micros("end").alias("to"))
    found = rows.take(MAX_KEYS + 1)
    if len(found) > MAX_KEYS:
        return None
    return [(tuple(row[key] for key in keys), (row["from"], row["to"])) for row in found]


def findings(observations: DataFrame, incidents: DataFrame, severities: Mapping[str, Severity]) -> DataFrame:
    """Returns FINDING rows: each incident with the totals of its observations. A null key is a key like any other.

    Both have `detector` and `key`. severities: of the detectors
    """
    name = F.to_json(F.struct("detector", "key", "start"), {"ignoreNullFields": "false"})
    said = incidents.select(
        F.col("detector").alias("of"), F.col("key").alias("of_key"), "start", "end",
        F.sha2(name, 256).alias("finding_id"),
    )  # fmt: skip
    is_of = (F.col("detector") == F.col("of")) & (F.col("key") == F.col("of_key"))
    is_in_time = (F.col("time") >= F.col("start")) & (F.col("time") < F.col("end"))
    joined = observations.join(said, is_of & is_in_time)
    totals = joined.groupBy("finding_id", "detector").agg(
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.sum("weight").alias("count"),
        F.count_distinct("what").alias("distinct"),
        F.count_distinct("event_id").alias("events"),
        *(_single(name) for name in SINGLE),
    )
    # row_number() <= n: Spark drops the rest before it sorts and sends, so an incident of a million events makes no
    # list.
    earliest = Window.partitionBy("finding_id").orderBy("time", "event_id", "what")
    shown = joined.withColumn("nth", F.row_number().over(earliest)).where(F.col("nth") <= MAX_EVIDENCE)
    named = shown.groupBy("finding_id").agg(
        *(F.sort_array(F.collect_set(member)).alias(name) for name, member in _LISTS.items()),
        F.sort_array(F.collect_list(F.struct("time", "event_id"))).alias("rows"),
    )
    whole = totals.join(named, "finding_id").select(
        "*",
        _of_each(severities, "string").alias("severity"),
        F.array_distinct(F.transform("rows", lambda row: row.event_id)).alias("evidence"),
    )
    return whole.select(*[F.col(field.name).cast(field.dataType) for field in FINDING])


def _single(name: str) -> Column:
    least, greatest = F.min(name), F.max(name)
    is_one = (least == greatest) & (F.count(F.lit(1)) == F.count(name))
    return F.when(is_one, least).alias(name)


def _samples() -> Column:
    return F.from_json("folded.samples", ArrayType(StringType()))
