"""What detectors need of a long trail is found in its pieces: never too little (issue 15)."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from spark.detectors import DETECTORS
from spark.detectors.finding import host
from spark.detectors.focus import watch
from spark.detectors.signs import OPENED, PRIVILEGE_REFUSED
from spark.detectors.thresholds import defaults
from spark.sums import bursts
from spark.sums.bursts import DIGESTS, HOSTS, MAY_BURST, SEEN, STAYS, USERS, Focus, Gathered, Watch
from spark.sums.files import Share
from spark.sums.picks import PICKED, Pick, Wanted, always, picked_of
from spark.sums.rows import even, host_of, hosts
from spark.transforms.events import DENIAL
from spark.transforms.sign import Sign, any_column, any_mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
FAILED = Sign(among={"decision": ("deny",), "reason": ("sasl_failed",)}, has=("user",))
FOLDED = pa.struct([("owner", pa.string()), ("first", pa.string()), ("last", pa.string())])
DAY_S = 86_400


def event(seconds: float, **changes: Any) -> dict[str, Any]:
    members = {"decision": "deny", "reason": "sasl_failed", "stage": "sasl", "router": "R1", "user": "eve"}
    return {**members, "remote_host": "192.0.2.7", "time": NOON + timedelta(seconds=seconds), **changes}


def rows_of(events: Sequence[dict[str, Any]], *, is_coded: bool = True) -> pa.Table:
    named = dict.fromkeys(name for each in events for name in each)
    types = {"time": pa.timestamp("us", "UTC"), "attempts": pa.int64(), "folded": FOLDED}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in named])
    plain = pa.Table.from_pylist(events, schema=schema)
    if is_coded:  # as they come from a file
        for at, field in enumerate(plain.schema):
            if pa.types.is_string(field.type):
                plain = plain.set_column(at, field.name, plain[field.name].dictionary_encode())
    return even(plain)


def gathered(
    events: Sequence[dict[str, Any]], share: Share | None, watched: Watch, pieces: int = 1
) -> Iterator[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    gathering = Gathered(watched, share)
    for at in range(pieces):
        if some := events[at::pieces]:
            gathering.add(rows_of(some))
    for kind, keys, numbers in gathering.cells():
        columns = [column.to_pylist() for column in keys]
        ends = [column.to_pylist() for column in numbers.values()]
        for row in zip(*columns, *ends, strict=True):
            yield kind, row[: len(columns)], row[len(columns) :]


def focus_on(least: int, window_s: int = 3600, keys: Sequence[str] = ("user",)) -> Watch:
    focus = Focus(signs=(FAILED,), keys=keys, min_requests=least, window_s=window_s)
    return Watch(focuses={"d": focus}, absence_days=30)


def bursting(events: Sequence[dict[str, Any]], share: Share | None, watched: Watch, pieces: int = 1) -> set[Any]:
    return {keys[1:] for kind, keys, _ in gathered(events, share, watched, pieces) if kind == MAY_BURST}


def alone(*days: str, parts: int = 1) -> Share:
    return Share((), dict.fromkeys(days, parts), parts)


@pytest.mark.parametrize("pieces", [1, 3])
def test_whoever_has_half_of_a_burst_within_a_span_may_have_one(pieces: int) -> None:
    eve = [event(n) for n in range(5)]
    bob = [event(n, user="bob") for n in range(4)]
    others = [event(n, user=None) for n in range(9)] + [event(n, user="al", reason="no_vhost") for n in range(9)]
    assert bursting([*eve, *bob, *others], alone("2026-11-20"), focus_on(10), pieces) == {("eve",)}
    assert bursting([*eve, *bob, *others], None, focus_on(10), pieces) == {("eve",), ("bob",)}


def test_a_flood_counts_for_more_than_any_threshold_and_attempts_as_many() -> None:
    flood = event(0, folded={"owner": "user", "first": None, "last": None})
    some = event(0, user="bob", attempts=5)
    few = event(0, user="al", attempts=4)
    assert bursting([flood, some, few], alone("2026-11-20"), focus_on(10)) == {("eve",), ("bob",)}


def test_a_key_may_be_a_network_or_unknown() -> None:
    hosts_ = ["2001:db8::1", "2001:db8::2", "::ffff:192.0.2.9", "192.0.2.9", None, None]
    events = [event(n, remote_host=each) for n, each in enumerate(hosts_)]
    found = bursting(events, alone("2026-11-20"), focus_on(4, keys=("host", "user")))
    assert found == {("2001:db8:0:0::/64", "eve"), ("192.0.2.9", "eve"), (None, "eve")}


@pytest.mark.parametrize("seed", range(20))
def test_no_burst_is_lost_however_the_trail_is_cut(seed: int) -> None:
    """Days in several shares, spans over midnight, windows of many days."""
    dice = random.Random(seed)
    window_s, least = dice.choice([4, 600, 3600, 40_000, 300_000]), dice.choice([1, 2, 3, 10])
    events = [event(dice.uniform(0, 4 * DAY_S), user=dice.choice("abcdefgh")) for _ in range(dice.choice([20, 200]))]
    events.sort(key=lambda each: each["time"])
    watched = focus_on(least, window_s)
    cuts = sorted(dice.sample(range(len(events)), dice.choice([0, 1, 5])))
    parts = [events[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    days = [{str(each["time"].date()) for each in part} for part in parts]
    counts = {day: sum(day in of for of in days) for day in set().union(*days)}
    found: set[Any] = set()
    for part, of in zip(parts, days, strict=True):
        share = Share((), {day: counts[day] for day in of}, max(counts.values()))
        found |= bursting(part, share, watched, dice.choice([1, 2]))
    for user in "abcdefgh":
        times = [each["time"] for each in events if each["user"] == user]
        is_burst = any(
            sum(begin <= time < begin + timedelta(seconds=window_s) for time in times) >= least for begin in times
        )
        assert not is_burst or (user,) in found


def test_attack_names_without_end_are_no_more_than_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MAX_KEYS", 10)
    events = [event(0, user=f"u{n}") for n in range(50)]
    assert len(bursting(events, alone("2026-11-20"), focus_on(1))) == 11


def test_of_a_user_the_stays_and_of_a_ruleset_the_changes_are_told() -> None:
    came = [event(DAY_S * day, stage="open", decision="allow", ruleset_digest="a" if day < 50 else "b")
            for day in (0, 1, 20, 60, 61)]  # fmt: skip
    same_day = [event(DAY_S * 60 + n, ruleset_digest="b", stage="accept") for n in range(300, 1200, 100)]
    days = [str((NOON + timedelta(days=day)).date()) for day in (0, 1, 20, 60, 61)]
    found = list(gathered([*came, *same_day], alone(*days), focus_on(100), 2))
    stays = [ends for kind, _, ends in found if kind == STAYS]
    assert [tuple((at - NOON).days for at in ends) for ends in stays] == [(0, 20), (60, 61)]
    first = [(kind, keys, ends) for kind, keys, ends in found if kind in (USERS, HOSTS)]
    assert first == [(USERS, ("eve",), (NOON,)), (HOSTS, ("192.0.2.7",), (NOON,))]
    rules = sorted((ends[0] - NOON, keys[2]) for kind, keys, ends in found if kind == DIGESTS)
    # Of the 60th day the first and the last; what is between them has no change.
    assert [(since.total_seconds() / DAY_S, digest) for since, digest in rules if digest == "b"] == [
        (60, "b"), (60 + 1100 / DAY_S, "b"), (61, "b"),
    ]  # fmt: skip


def test_a_ruleset_that_is_in_two_minds_is_told_minute_by_minute() -> None:
    """Of a day that other shares have a part of, nothing is left out."""
    events = [event(60 * n, ruleset_digest="a") for n in range(9)]
    for share, count in ((alone("2026-11-20"), 2), (alone("2026-11-20", parts=2), 9), (None, 9)):
        assert len([kind for kind, _, _ in gathered(events, share, focus_on(100)) if kind == DIGESTS]) == count


STRANGE = ["192.0.2.7", "::1", "2001:DB8::8:1", "2001:db8:1:2:3:4:5:6", "::ffff:192.0.2.7", "::FFFF:10.0.0.1%eth0",
           "fe80::1%eth0", "fe80::1%eth0\nx", "::ffff:c000:207", "1::2::3", ":::", "a:b", "%", "%x", "::ffff:1",
           "1:2:3:4:5:6:7:8:9::", "", "host.example", "x%y:z", "::%", "É::1", "::ffff:\u0661.2"]  # fmt: skip


def test_workers_and_spark_have_one_notion_of_a_host(session: "SparkSession") -> None:
    dice = random.Random(5)
    made = ["".join(dice.choice(["::", ":", "ffff", "1", "AB", ".", "%", "\n"]) for _ in range(8)) for _ in range(300)]
    texts = [*STRANGE, *made]
    rows = session.createDataFrame([(text,) for text in texts], "remote_host string").select(host()).collect()
    assert [host_of(text) for text in texts] == [row[0] for row in rows]
    column = hosts(pa.table({"remote_host": pa.array([*texts, None, *texts]).dictionary_encode()}))
    assert column.to_pylist() == [*map(host_of, texts), None, *map(host_of, texts)]


def signs_of_all() -> list[Sign]:
    focuses = watch(DETECTORS, defaults()).focuses.values()
    found = [sign for focus in focuses for sign in (*focus.signs, *focus.story)]
    return [*found, SEEN, DENIAL, OPENED, FAILED]


def test_workers_and_spark_have_one_notion_of_each_sign(session: "SparkSession") -> None:
    signs = signs_of_all()
    values = {
        "decision": ["deny", "allow", "shadow_deny", None],
        "stage": ["open", "sasl", "attach", None],
        "reason": [*{reason for sign in signs for reason in sign.among.get("reason", ())}, "events_lost", None],
        "address": ["$management", "amqp://h/$x", "/_topo/0/all", "q.$x", "amqps:/_local", "\n$", None],
        "user": ["eve", None],
    }
    dice = random.Random(1)
    members = {name: [dice.choice(of) for _ in range(2000)] for name, of in values.items()}
    for number, (decision, stage, reason) in enumerate(product(*(values[n] for n in ("decision", "stage", "reason")))):
        if number < 2000:
            members["decision"][number], members["stage"][number], members["reason"][number] = decision, stage, reason
    members |= dict.fromkeys(("remote_host", "ruleset_digest", "router", "vhost"), members["user"])
    rows = pa.table({name: pa.array(of, pa.string()) for name, of in members.items()})
    coded = pa.table({name: rows[name].combine_chunks().dictionary_encode() for name in rows.column_names})
    columns = [sign.column().alias(str(at)) for at, sign in enumerate(signs)]
    by_spark = list(zip(*session.createDataFrame(rows).select(*columns).collect(), strict=True))
    for sign, expected in zip(signs, by_spark, strict=True):
        assert sign.mask(rows).tolist() == sign.mask(coded).tolist() == list(expected), sign
        assert True in expected
        assert False in expected
    both = session.createDataFrame(rows).select(any_column(PRIVILEGE_REFUSED)).collect()
    assert any_mask(PRIVILEGE_REFUSED, rows).tolist() == [row[0] for row in both]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_wanted_is_what_has_a_key_and_a_time_of_it(seed: int) -> None:
    dice = random.Random(seed)
    users, routers = ["a", "b", "c", None], ["R1", "R2", None]
    events = [event(dice.randrange(50), user=dice.choice(users), router=dice.choice(routers),
                    reason=dice.choice(["sasl_failed", "no_vhost"])) for _ in range(200)]  # fmt: skip

    def micros(seconds: int) -> int:
        return round((NOON + timedelta(seconds=seconds)).timestamp()) * 1_000_000

    spans = []
    for _ in range(dice.choice([0, 1, 30])):
        begin = dice.randrange(50)
        spans.append(((dice.choice(users), dice.choice(routers)), (micros(begin), micros(begin + dice.randrange(9)))))
    sign = replace(FAILED, has=())
    rows = rows_of(events)
    mask = Pick(Wanted(signs=(sign,), keys=("user", "router"), spans=spans)).mask(rows)
    for each, is_wanted in zip(events, mask.tolist(), strict=True):
        at = round(each["time"].timestamp()) * 1_000_000
        expected = each["reason"] == "sasl_failed" and any(
            key == (each["user"], each["router"]) and begin <= at < end for key, (begin, end) in spans
        )
        assert is_wanted == expected
    assert Pick(Wanted(signs=(sign,))).mask(rows).sum() == sum(each["reason"] == "sasl_failed" for each in events)
    every = [key for key, _ in spans]
    mask = Pick(Wanted(signs=(sign,), keys=("user", "router"), spans=always(every))).mask(rows)
    assert mask.tolist() == [
        each["reason"] == "sasl_failed" and (each["user"], each["router"]) in every for each in events
    ]


def test_events_of_any_version_are_picked_with_all_members() -> None:
    old = pa.RecordBatch.from_pylist([event(0), event(1, user="bob")])
    new = pa.RecordBatch.from_pylist(
        [event(2, event_id="0", folded={"samples": "[]", "owner": "x"}, management={"operation": "READ"}), event(3)]
    )
    wanted = [Wanted(signs=(FAILED,), keys=("user",), spans=always([("eve",)]))]
    found = [batch for each in (old, new) for batch in picked_of(iter([each]), wanted)]
    assert all(batch.schema == PICKED for batch in found)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [(row["user"], row["folded"], row["management"]) for row in rows] == [
        ("eve", None, None),
        ("eve", {"samples": "[]"}, {"operation": "READ", "entity_type": None}),
        ("eve", None, None),
    ]


def test_patterns_of_signs_are_such_that_java_and_re2_read_alike() -> None:
    """No look-around, no class that the two define differently."""
    patterns = [pattern for sign in signs_of_all() for pattern in sign.like.values()]
    assert patterns
    assert not [pattern for pattern in patterns if re.search(r"\(\?[=!<]|\\[dwsbDWSB]", pattern)]
