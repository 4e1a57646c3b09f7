"""Alerts about new findings while a table grows: JSON lines, and a webhook."""

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.event_table import EVENTS, hadoop_path
from spark.jobs.detection import detect, looked_at, ranked
from spark.jobs.reports import with_text_times
from spark.schemas import event_table
from spark.sums.trail import trail_of_table

Finding = Mapping[str, Any]

# Limit of alerts for the findings of one batch; one more alert has the number of the others. Stops an attacker who
# fails under endless names from hiding important alerts.
MAX_ALERTS: Final = 1000
_POSTED_TOGETHER: Final = 100
WEBHOOK_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 4096
_DAY_MICROS: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ALERTED: Final = "alerted.txt"


class WebhookError(Exception):
    """The webhook did not accept the alerts. str() says why, without the address, which may contain a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook for alerts.

    url     https; http only if the caller has asked for it
    token   sent as a bearer token; None: none
    """

    url: str
    token: str | None = None
    timeout_s: float = WEBHOOK_TIMEOUT_S

    def post(self, alerts: Sequence[Finding]) -> None:
        """Posts the alerts as JSON, `{"alerts": [...]}`, at most 100 at a time. Raises WebhookError."""
        headers = {"Content-Type": "application/json", "User-Agent": "qdaudit"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        for begin in range(0, len(alerts), _POSTED_TOGETHER):
            body = json.dumps({"alerts": alerts[begin : begin + _POSTED_TOGETHER]}).encode("ascii")
            try:
                status = self._answer(body, headers)
            except TimeoutError:
                raise WebhookError(f"it was not done within {self.timeout_s:g} seconds") from None
            except (OSError, HTTPException) as error:
                raise WebhookError(f"it was not reached: {getattr(error, 'strerror', None) or error}") from None
            # Attack: a redirect that sends alerts and token to another host, or unencrypted. No redirect is followed.
            if not 200 <= status < 300:
                raise WebhookError(f"it answered {status}")

    def _answer(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Returns the answer's status. Errors: TimeoutError, OSError, HTTPException."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self.timeout_s)
        held: list[socket.socket] = []  # the connection forgets its socket if the answer is its last
        is_late = threading.Event()

        def cut() -> None:
            """Ends a slow answer. Attack: an answer of one byte every few seconds delays the next alerts for hours."""
            is_late.set()
            for sock in held or [connection.sock]:
                if sock is not None:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(sock, socket.SHUT_RDWR)

        timer = threading.Timer(self.timeout_s, cut)
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            held.append(connection.sock)
            query = f"?{parts.query}" if parts.query else ""
            connection.request("POST", f"{parts.path or '/'}{query}", body, headers)
            with connection.getresponse() as answer:
                answer.read(_MAX_ANSWER_BYTES)
        except (OSError, HTTPException):
            if is_late.is_set():
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()
            connection.close()
        if is_late.is_set():
            raise TimeoutError
        return answer.status


def webhook_fault(url: str, *, allows_http: bool) -> str | None:
    """Returns why a URL cannot be a webhook, None if it can."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # because of the port, or of an address in brackets
        return "is no https URL"
    if parts.scheme not in ("https", "http") or not is_whole:
        return "is no https URL"
    if parts.scheme == "http" and not allows_http:
        return "is not https: alerts would go in the clear; --webhook-in-the-clear allows it"
    return "holds a password: give it with --webhook-token-file" if parts.password else None


def follow(
    session: SparkSession,
    table: Path,
    thresholds: Mapping[str, Mapping[str, Any]],
    *,
    checkpoint: Path,
    history_days: int,
    tell: Callable[[Sequence[Finding]], None],
    is_once: bool,
    interval_s: int = 60,
) -> None:
    """Reports findings while the table grows. Returns at once if `is_once`, else when the query is stopped.

    checkpoint    an existing folder for what was read, and which findings were reported. With it a restart continues at
                  the same place: every finding is reported, and only a kill between reporting and noting it repeats
                  one.
    history_days  how far before a new event the detectors look
    tell          gets at most MAX_ALERTS + 1 alerts per call
    """
    known = _known(checkpoint / _ALERTED)
    watch = looked_at(thresholds)

    def look(batch: DataFrame, _number: int) -> None:
        first = batch.agg(F.min(F.unix_micros("time"))).first()
        if first is None or first[0] is None:
            return
        since = first[0] - history_days * _DAY_MICROS
        trail = trail_of_table(session, table, since=_EPOCH + timedelta(microseconds=since), watch=watch)
        found = detect(trail, thresholds).where(F.unix_micros("last") >= first[0])
        told: list[dict[str, Any]] = []
        others: list[str] = []
        more: Counter[str] = Counter()
        for row in _rows(ranked(found)):
            if row["finding_id"] in known:
                continue
            if len(told) < MAX_ALERTS:
                told.append(row)
            else:
                others.append(row["finding_id"])
                more[row["detector"]] += 1
        session.catalog.clearCache()  # frees what the detectors have cached
        if not told:
            return
        news = [*(row["finding_id"] for row in told), *others]
        told.sort(key=itemgetter("first", "detector", "finding_id"))
        if more:
            told.append({"detector": None, "severity": "high", "more": more.total(), "more_of": dict(more)})
        tell(told)
        with (checkpoint / _ALERTED).open("a", encoding="ascii") as file:
            file.writelines(f"{finding_id}\n" for finding_id in news)
        known.update(news)

    grown = session.readStream.schema(event_table()).parquet(hadoop_path(table / EVENTS))
    query = grown.writeStream.foreachBatch(look).option("checkpointLocation", hadoop_path(checkpoint / "spark"))
    query = query.trigger(availableNow=True) if is_once else query.trigger(processingTime=f"{interval_s} seconds")
    query.start().awaitTermination()


def _known(path: Path) -> set[str]:
    return set(path.read_text("ascii").split()) if path.exists() else set()


def _rows(found: DataFrame) -> Iterator[dict[str, Any]]:
    return (row.asDict(recursive=True) for row in with_text_times(found).toLocalIterator())
