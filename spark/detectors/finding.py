"""What detectors have in common: an observation, an incident, a finding. All DataFrame -> DataFrame.

Observation  one event as one detector sees it: MEMBERS, `weight` (bigint: how many requests it counts for, 0 for one
             that only belongs to the story), `what` (string or null: the distinct thing that is counted) and `host`
             (remote_host; of IPv6 its /64).
Incident     key columns, `start` and `end` (timestamp): what a detector says of its observations from start to before
             end. The intervals of one key do not overlap.
Finding      FINDING: an incident with its numbers, names and evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from spark.sums.bursts import MAX_KEYS, Focus
from spark.sums.picks import Key, Span, Wanted
from spark.sums.trail import Trail
from spark.transforms.events import requests

# Event ids and names that one finding shows. Stops a flood from making one row of a million; `events` counts them all.
MAX_EVIDENCE: Final = 100

MEMBERS: Final = ("event_id", "time", "router", "user", "remote_host", "vhost", "address", "reason", "ruleset_digest")
_SINGLE: Final = ("router", "user", "remote_host", "vhost", "reason", "ruleset_digest")
_LISTS: Final = {"routers": "router", "users": "user", "hosts": "remote_host", "addresses": "address", "what": "what"}

FINDING: Final = StructType(
    [
        StructField("finding_id", StringType()),  # the same for the same incident of the same events
        StructField("detector", StringType()),
        StructField("severity", StringType()),
        StructField("first", TimestampType()),
        StructField("last", TimestampType()),
        StructField("count", LongType()),  # requests
        StructField("distinct", LongType()),  # of what the detector tells apart
        *[StructField(name, StringType()) for name in _SINGLE],  # null where the evidence has several
        *[StructField(name, ArrayType(StringType())) for name in _LISTS],  # at most MAX_EVIDENCE, sorted
        StructField("events", LongType()),
        StructField("evidence", ArrayType(StringType())),  # event ids, the earliest first, at most MAX_EVIDENCE
    ]
)

Severity = Literal["low", "medium", "high", "critical"]
Thresholds = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """name   a member of schemas/detect_thresholds.json, where its thresholds and their sources stand
    title     for people
    find      a trail, of whose events those that are needed are enough, and the thresholds -> FINDING rows
    focus     the thresholds -> what it looks at, of a detector of bursts
    wants     a trail's sums and the thresholds -> the events that another one needs
    """

    name: str
    title: str
    severity: Severity
    find: Callable[["Detector", Trail, Thresholds], DataFrame]
    focus: Callable[[Thresholds], Focus] | None = None
    wants: Callable[[Trail, Thresholds], Sequence[Wanted]] | None = None

    def findings(self, trail: Trail, thresholds: Thresholds) -> DataFrame:
        return self.find(self, trail, thresholds)


def host() -> Column:
    """remote_host as it is counted: an IPv4 address, or the first four groups of an IPv6 one.

    Attack: who has an IPv6 network comes from another address of it each time.
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
    # Nearly all are plain IPv4: they need no pattern.
    return F.when(plain.contains(":") | plain.contains("%"), counted).otherwise(plain)


def _groups(text: Column) -> Column:
    return F.filter(F.split(F.lower(F.coalesce(text, F.lit(""))), ":"), lambda group: group != "")


def observed(events: DataFrame, *, what: Column | None = None, counts: Column | None = None) -> DataFrame:
    """Observations of events.

    what    the distinct thing; None: nothing is told apart
    counts  the weight; None: as many requests as the event stands for
    """
    return events.select(
        *MEMBERS,
        (requests() if counts is None else counts).alias("weight"),
        (F.lit(None).cast("string") if what is None else what).alias("what"),
        host().alias("host"),
    )


def observed_names(events: DataFrame, member: str) -> DataFrame:
    """Observations whose `what` is a member. Of a flood, where it is null, each of the flood's samples is one.

    The requests of a flood are counted once, with the first sample.
    """
    samples = F.coalesce(_samples(), F.array().cast("array<string>"))
    names = F.when(F.col(member).isNotNull(), F.array(member)).otherwise(samples)
    named = events.select("*", F.posexplode_outer(names).alias("nth", "name"))
    counts = F.when(F.coalesce(F.col("nth"), F.lit(0)) == 0, requests()).otherwise(F.lit(0).cast("bigint"))
    return named.select(*MEMBERS, counts.alias("weight"), F.col("name").alias("what"), host().alias("host"))


def bursts(observations: DataFrame, keys: Sequence[str], window_s: int, condition: Column) -> DataFrame:
    """Incidents: where the condition holds for some window.

    condition  over `requests` (bigint, weights added up) and `distinct` (bigint) and `routers` (bigint, distinct ones)

    Windows are of 5/4 window_s and begin every quarter of it, so each span of window_s is whole in one of them. Those
    that overlap are one incident. Cost: the events once, then five rows a quarter of a window, key and thing; an
    attacker who makes many requests makes no more of them (a sliding frame over rows costs their square).
    """
    quarter = max(window_s // 4, 1)
    quarters = (F.unix_micros("time") / F.lit(quarter * 1_000_000)).cast("bigint")
    cells = observations.groupBy(*keys, quarters.alias("quarter"), "router", "what").agg(
        F.sum("weight").alias("requests")
    )
    spread = cells.withColumn("begin", F.explode(F.array(*[F.col("quarter") - back for back in range(5)])))
    found = (
        spread.groupBy(*keys, "begin")
        .agg(
            F.sum("requests").alias("requests"),
            F.count_distinct("what").alias("distinct"),
            F.count_distinct("router").alias("routers"),
        )
        .where(condition)
    )
    by_key = Window.partitionBy(*keys).orderBy("begin")
    is_new = F.coalesce(F.col("begin") - F.lag("begin").over(by_key) > 5, F.lit(True))
    numbered = found.withColumn("nth", F.sum(is_new.cast("int")).over(by_key))
    spans = numbered.groupBy(*keys, "nth").agg(F.min("begin").alias("from"), F.max("begin").alias("to"))
    return spans.select(
        *keys,
        F.timestamp_micros(F.col("from") * (quarter * 1_000_000)).alias("start"),
        F.timestamp_micros((F.col("to") + 5) * (quarter * 1_000_000)).alias("end"),
    )


def spans_of(incidents: DataFrame, keys: Sequence[str]) -> Sequence[tuple[Key, Span]] | None:
    """Of which keys and times events are needed to tell of incidents; None: of all. Runs a job."""
    rows = incidents.select(*keys, F.unix_micros("start").alias("from"), F.unix_micros("end").alias("to"))
    found = rows.take(MAX_KEYS + 1)
    if len(found) > MAX_KEYS:
        return None
    return [(tuple(row[key] for key in keys), (row["from"], row["to"])) for row in found]


def findings(detector: Detector, observations: DataFrame, incidents: DataFrame, keys: Sequence[str]) -> DataFrame:
    """FINDING rows: each incident with what its observations say. Null keys are keys as any other."""
    said = incidents.select(
        *(F.col(key).alias(f"of_{key}") for key in keys),
        "start",
        "end",
        F.sha2(
            F.to_json(F.struct(F.lit(detector.name).alias("detector"), *keys, "start"), {"ignoreNullFields": "false"}),
            256,
        ).alias("finding_id"),
    )
    is_of = (F.col("time") >= F.col("start")) & (F.col("time") < F.col("end"))
    for key in keys:
        is_of &= F.col(key).eqNullSafe(F.col(f"of_{key}"))
    joined = observations.join(said, is_of)
    totals = joined.groupBy("finding_id").agg(
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.sum("weight").alias("count"),
        F.count_distinct("what").alias("distinct"),
        F.count_distinct("event_id").alias("events"),
        *(_single(name) for name in _SINGLE),
    )
    # row_number() <= n: Spark drops the rest before it sorts and sends, so an incident of a million events is no list.
    earliest = Window.partitionBy("finding_id").orderBy("time", "event_id", "what")
    shown = joined.withColumn("nth", F.row_number().over(earliest)).where(F.col("nth") <= MAX_EVIDENCE)
    named = shown.groupBy("finding_id").agg(
        *(F.sort_array(F.collect_set(member)).alias(name) for name, member in _LISTS.items()),
        F.sort_array(F.collect_list(F.struct("time", "event_id"))).alias("rows"),
    )
    whole = totals.join(named, "finding_id").select(
        "*",
        F.lit(detector.name).alias("detector"),
        F.lit(detector.severity).alias("severity"),
        F.array_distinct(F.transform("rows", lambda row: row.event_id)).alias("evidence"),
    )
    return whole.select(*[F.col(field.name).cast(field.dataType) for field in FINDING])


def _single(name: str) -> Column:
    least, greatest = F.min(name), F.max(name)
    is_one = (least == greatest) & (F.count(F.lit(1)) == F.count(name))
    return F.when(is_one, least).alias(name)


def _samples() -> Column:
    return F.from_json("folded.samples", ArrayType(StringType()))
