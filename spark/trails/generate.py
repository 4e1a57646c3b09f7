"""Writes a synthetic trail: columns of fragments, joined to lines together. The same seed writes the same bytes."""

import binascii
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.trails import fleet, fragments
from spark.trails.incidents import DAY, Event, Planted, Scene, lines_of, plant

SCHEMA_VERSION = 4
TRUTH = "truth.jsonl"
AUDIT = "audit"
_BLOCK = 200_000
_FILE_BYTES = 64 * 1024 * 1024
_EVENTS_PER_USER = 250
_LEAST_USERS = 40
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The size of a trail.

    events  in all, without those of incidents; days they cover; incidents of each kind
    """

    events: int
    seed: int = 0
    days: int = 120
    routers: int = 4
    incidents: int = 2


@dataclass(slots=True)
class _Router:
    name: str
    start: str
    digest: str
    folder: Path
    sequence: int = 0
    size: int = 0
    stream: IO[bytes] | None = None

    def write(self, lines: pa.Array, first_us: int) -> None:
        data = lines.buffers()[2]
        if self.stream is None or self.size + data.size > _FILE_BYTES:
            self.close()
            stamp = _moment(first_us).replace("-", "").replace(":", "")
            self.stream, self.size = (self.folder / f"denials-{stamp}-{self.name}-1.jsonl").open("wb"), 0
        self.stream.write(data)
        self.size += data.size
        self.sequence += len(lines)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()


class _Pieces:
    """The fragments of lines, each made once."""

    def __init__(self, users: int) -> None:
        kinds = fleet.QUIET
        self.shares = np.array([kind.share for kind in kinds])
        self.states = pa.array(
            [
                fragments.state(stage=one.stage, decision=one.decision, reason=one.reason, rule=fleet.rule_of(one))
                for one in kinds
            ]
        )
        self.ends = pa.array([fragments.end(stage=one.stage, decision=one.decision) for one in kinds])
        self.peers = pa.array(
            [fleet.peer_of(number, has_logged_in=logged_in) for logged_in in (False, True) for number in range(users)]
        )
        self.names = pa.array([fleet.host_of(number) for number in range(users)])
        self.is_known = np.array([one.stage != "sasl" for one in kinds])
        directions = [None, "send", "receive"]
        self.places = pa.array(
            [
                fragments.place(
                    direction=way, address=f"orders.{number}" if way else None, link_name="l" if way else None
                )
                for way in directions
                for number in range(fleet.ADDRESSES)
            ]
        )
        self.way = np.array([directions.index(one.direction) for one in kinds])


def generate(folder: Path, wanted: Wanted) -> Planted:
    """Makes `folder`/audit/*.jsonl and `folder`/truth.jsonl (docs/audit.md). Returns the planted incidents.

    folder   a new one, or empty
    Errors   OSError.
    """
    draw = random.Random(wanted.seed)  # noqa: S311  not used for secrets
    rng = np.random.default_rng(wanted.seed)
    begin = round(_BEGIN.timestamp()) * 1_000_000
    end = begin + wanted.days * DAY
    users = max(_LEAST_USERS, wanted.events // _EVENTS_PER_USER)
    names = [f"router-{number}" for number in range(wanted.routers)]
    hourly = wanted.events / (wanted.days * 24 * wanted.routers)
    planted = plant(Scene(begin=begin, end=end, routers=names, users=users, hourly=hourly, draw=draw), wanted.incidents)
    audit = folder / AUDIT
    audit.mkdir(mode=0o700, parents=True)
    routers = [
        _Router(name=name, start=f"{draw.getrandbits(128):032x}", digest=f"{draw.getrandbits(256):064x}", folder=audit)
        for name in names
    ]
    pieces = _Pieces(users)
    events = sorted(planted.events, key=lambda event: event.at)
    done = 0
    for number in range(0, wanted.events, _BLOCK):
        count = min(_BLOCK, wanted.events - number)
        low = begin + (end - begin) * number // wanted.events
        high = begin + (end - begin) * (number + count) // wanted.events
        quiet = _quiet(pieces, rng, number, count, users, low, high, len(routers))
        stop = next((place for place in range(done, len(events)) if events[place].at >= high), len(events))
        _write(routers, planted, quiet, events[done:stop])
        done = stop
    if done < len(events) or not wanted.events:
        _write(routers, planted, _quiet(pieces, rng, 0, 0, users, begin, end, len(routers)), events[done:])
    for router in routers:
        router.close()
    (folder / TRUTH).write_text("".join(lines_of(planted.truth, _moment)), "ascii")
    return planted


def _quiet(
    pieces: _Pieces, rng: np.random.Generator, number: int, count: int, users: int, low: int, high: int, routers: int
) -> dict[str, Any]:
    """Returns columns of `count` events between two times. At the beginning every user connects once."""
    kinds = rng.choice(len(pieces.shares), size=count, p=pieces.shares / pieces.shares.sum())
    who = rng.integers(0, users, count)
    entering = max(0, min(count, users - number))
    kinds[:entering] = 0
    who[:entering] = np.arange(number, number + entering)
    addresses = fleet.address_numbers(who, rng.integers(0, 1 << 30, count))
    ids = binascii.hexlify(rng.bytes(16 * count))
    return {
        "at": np.sort(rng.integers(low, max(high, low + 1), count)),
        "router": rng.integers(0, routers, count),
        "event_id": pa.StringArray.from_buffers(
            count, pa.py_buffer(np.arange(0, 32 * (count + 1), 32, dtype=np.int32)), pa.py_buffer(ids)
        ),
        "state": pieces.states.take(pa.array(kinds)),
        "peer": pieces.peers.take(pa.array(who + users * pieces.is_known[kinds])),
        "host": pieces.names.take(pa.array(who)),
        "place": pieces.places.take(pa.array(pieces.way[kinds] * fleet.ADDRESSES + addresses)),
        "end": pieces.ends.take(pa.array(kinds)),
    }


def _write(routers: Sequence[_Router], planted: Planted, quiet: dict[str, Any], events: Sequence[Event]) -> None:
    """Writes one block, ordered by time, to the files of its routers."""
    columns = {
        "at": np.concatenate([quiet["at"], np.array([event.at for event in events], np.int64)]),
        "router": np.concatenate([quiet["router"], np.array([event.router for event in events], np.int64)]),
        "host": pa.concat_arrays([quiet["host"], pa.array(["192.0.2.1"] * len(events), pa.string())]),
    }
    for name in ("event_id", "state", "peer", "place", "end"):
        more = pa.array([getattr(event, name) for event in events], pa.string())
        columns[name] = pa.concat_arrays([quiet[name], more])
    order = np.argsort(columns["at"], kind="stable")
    for number, router in enumerate(routers):
        mine = order[columns["router"][order] == number]
        if len(mine):
            at = columns["at"][mine]
            taken = {
                name: columns[name].take(pa.array(mine))
                for name in ("event_id", "host", "state", "peer", "place", "end")
            }
            router.write(_lines(router, planted.changes.get(number), at, taken), int(at[0]))


def _lines(router: _Router, change: tuple[int, str] | None, at: Any, columns: dict[str, pa.Array]) -> pa.Array:
    sequence = pa.array(np.arange(router.sequence, router.sequence + len(at)))
    number = pc.cast(sequence, pa.string())
    times = pc.strftime(pa.array(at).cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%SZ")
    digests = router.digest if change is None else pc.if_else(pa.array(at >= change[0]), change[1], router.digest)
    port = pc.cast(pa.array(40_000 + np.arange(len(at)) % 20_000), pa.string())
    return pc.binary_join_element_wise(
        f'{{"schema_version":{SCHEMA_VERSION},"event_id":"',
        columns["event_id"],
        f'","start":"{router.start}","sequence":',
        number,
        ',"time":"',
        times,
        f'","router":"{router.name}","connection":',
        number,
        ',"connection_name":"',
        columns["host"],
        ":",
        port,
        f'","listener":"{fragments.LISTENER}",',
        columns["state"],
        ",",
        columns["peer"],
        ",",
        columns["place"],
        ',"usage":null,"limit":null,"ruleset_digest":"',
        digests,
        '",',
        columns["end"],
        "}\n",
        "",
    )


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
