"""`qdaudit detect --once` tells of each finding once, by JSON lines and webhook (issue 15)."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from literal_events import frame, line

pytest.importorskip("pyspark")

from spark.detectors.thresholds import defaults
from spark.event_table import PARTITIONS
from spark.jobs import alerts
from spark.jobs.alerts import Webhook, WebhookError, follow, webhook_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THRESHOLDS = {name: {**of, "enabled": name == "address_probing"} for name, of in defaults().items()}


def grow(session: "SparkSession", table: Path, user: str) -> None:
    lines = [line(event_id=f"{user}{n}", user=user, address=f"a{n}") for n in range(10)]
    frame(session, *lines).coalesce(1).write.mode("append").partitionBy(*PARTITIONS).parquet(str(table / "events"))


@pytest.mark.spark
def test_a_restart_goes_on_where_it_ended(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def look() -> list[tuple[str, ...]]:
        told.clear()
        follow(
            session, tmp_path, THRESHOLDS, checkpoint=tmp_path / "state", history_days=120, tell=told.extend,
            is_once=True,
        )  # fmt: skip
        return [(row["user"], row["detector"]) if "user" in row else (f"{row['more']} more",) for row in told]

    (tmp_path / "state").mkdir()
    grow(session, tmp_path, "eve")
    assert look() == [("eve", "address_probing")]
    assert json.loads(json.dumps(told))[0]["first"] == "2026-11-20T14:05:06.000007Z"
    assert look() == []
    grow(session, tmp_path, "bob")
    assert look() == [("bob", "address_probing")]
    # Attack: endless names. What is not told one by one is told as a number.
    monkeypatch.setattr(alerts, "MAX_ALERTS", 1)
    grow(session, tmp_path, "x")
    grow(session, tmp_path, "y")
    one, more = look()  # of two of the same moment either may be first
    assert one in (("x", "address_probing"), ("y", "address_probing"))
    assert more == ("1 more",)
    assert look() == []
    # It makes up many names, and makes them early: the largest finding is told before its small ones.
    lines = [line(event_id=f"z{n}", user="z", time="2026-11-20T15:05:06.000007Z", address=f"a{n}") for n in range(11)]
    frame(session, *lines).coalesce(1).write.mode("append").partitionBy(*PARTITIONS).parquet(str(tmp_path / "events"))
    grow(session, tmp_path, "w")
    assert look() == [("z", "address_probing"), ("1 more",)]
    assert told[-1]["more_of"] == {"address_probing": 1}


@contextlib.contextmanager
def receiver(status: int = 204, **headers: str) -> Iterator[tuple[str, list[tuple[dict[str, str], Any]]]]:
    got: list[tuple[dict[str, str], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            got.append((dict(self.headers), body))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_webhook_gets_the_alerts_with_its_token_a_hundred_at_a_time() -> None:
    with receiver() as (url, got):
        Webhook(url=url, token="t0ken").post([{"n": n} for n in range(150)])
    assert [len(body["alerts"]) for _, body in got] == [100, 50]
    assert got[0][0]["Authorization"] == "Bearer t0ken"


def test_attack_a_webhook_that_redirects_gets_no_further() -> None:
    with receiver() as (elsewhere, stolen), receiver(307, Location=elsewhere) as (url, got):
        with pytest.raises(WebhookError, match="it answered 307"):
            Webhook(url=url, token="t0ken").post([{}])
        assert len(got) == 1
    assert stolen == []


def test_a_webhook_that_does_not_answer_holds_nothing_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/s3cret"
        with pytest.raises(WebhookError) as error:
            Webhook(url=url, timeout_s=0.1).post([{}])
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"])
def test_attack_a_webhook_that_answers_byte_by_byte_holds_nothing_up(begins: bytes) -> None:
    """Each byte was in time; the whole answer would have taken hours."""
    done = threading.Event()

    def drip(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(begins)
            while not done.wait(0.05):
                peer.sendall(b"x" if begins else b"H")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        try:
            with pytest.raises(WebhookError, match=r"not done within 0\.3 seconds"):
                Webhook(url=f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.3).post([{}])
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://siem.example/hook", None),
        ("http://siem.example/hook", "is not https"),
        ("ftp://siem.example/", "is no https URL"),
        ("file:///etc/passwd", "is no https URL"),
        ("https:///hook", "is no https URL"),
        ("https://siem.example:99999/", "is no https URL"),
        ("https://[::1/", "is no https URL"),
        ("https://u:p@siem.example/", "holds a password"),
    ],
)
def test_a_webhook_is_https(url: str, said: str | None) -> None:
    fault = webhook_fault(url, allows_http=False)
    assert fault is None if said is None else fault is not None and said in fault
    assert webhook_fault("http://127.0.0.1/", allows_http=True) is None
