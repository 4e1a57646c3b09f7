"""Ten thousand entities and a thousand vhosts. Management 46, 77; issue 4."""

import struct
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from daemon_process import LISTENER, ROOT, Daemon, eventually
from management_peer import ADDRESS, LINK, PREFIX, VHOST, Raw, encode_message

from router.amqp.codec import encode
from router.values import Described, uint, ulong

pytestmark = [pytest.mark.interop, pytest.mark.timing]


def attach(number: int) -> bytes:
    """A receiver's Attach on an address of its own."""
    source, target = Described(ulong(0x28), [f"crowd/{number}"]), Described(ulong(0x29), [])
    fields = [f"crowd-{number}", uint(number + 1000), True, None, None, source, target]
    body = encode(Described(ulong(0x12), fields))
    return struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body


@pytest.mark.slow
def test_ten_thousand_rows_come_in_pages_and_hold_up_no_message(daemon: Callable[..., Daemon]) -> None:
    """Management 46, 77; issue 4: while pages and everything at once are asked for, messages go round.

    Bounds are wide, for machines that others use too; what was measured is printed. The router's own part of a hold is
    measured by the benchmark `paging`.
    """
    crowded = daemon("log {\n module: ROUTER_CORE\n enable: warning+\n}\n" + LISTENER)
    crowd = Raw(crowded)
    crowd.transport._socket.sendall(b"".join(map(attach, range(10_000))))
    with crowded.client() as client:
        assert eventually(lambda: client.query(f"{PREFIX}router", ["linkCount"]).rows[0][0] >= 10_000)
        ping = Raw(crowded)
        quiet = round_trips(ping, lambda: False, 200)
        for kind in (LINK, ADDRESS):
            began = time.perf_counter()
            rows = client.query(kind, ["identity"]).rows
            assert len(set(rows)) == len(rows) >= 10_000
            print(f"{kind}: {len(rows)} identities in pages of 500: {time.perf_counter() - began:.2f} s")
            page_s = []
            for offset in range(0, 10_000, 2500):
                began = time.perf_counter()
                assert len(client.query(kind, offset=offset, count=500).rows) == 500
                page_s.append(time.perf_counter() - began)
            print(f"{kind}: slowest page of all columns, with the client's part: {max(page_s) * 1000:.0f} ms")
            for way in ("pages", "one reply"):
                asker = subprocess.Popen(
                    [sys.executable, "-c", ASK_FOR_EVERYTHING, str(crowded.port()), kind, way],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                busy = round_trips(ping, lambda asker=asker: asker.poll() is not None, 100_000)  # type: ignore[misc]
                assert int(asker.communicate()[0]) >= 10_000
                print(
                    f"round trips: {quiet[len(quiet) // 2] * 1000:.2f} ms alone; of {len(busy)} beside a query in {way}"
                    f" the median is {busy[len(busy) // 2] * 1000:.2f}, 99 % are under"
                    f" {busy[len(busy) * 99 // 100] * 1000:.1f}, the longest is {busy[-1] * 1000:.1f} ms"
                )
                assert busy[len(busy) // 2] < 0.05
                assert busy[-1] < 3
    crowd.transport._abandon()


ASK_FOR_EVERYTHING = """
import sys
from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import SocketTransport
options = ConnectionOptions(host="127.0.0.1", port=int(sys.argv[1]), timeout_s=60)
client = ManagementClient(SocketTransport(options))
if sys.argv[3] == "pages":
    print(len(client.query(sys.argv[2]).rows))
else:
    print(len(client.node("QUERY", entityType=sys.argv[2])["results"]))
"""


def round_trips(ping: Raw, is_over: Callable[[], bool], most: int) -> list[float]:
    """Seconds, sorted, that messages to itself took until `is_over`."""
    took: list[float] = []
    while not is_over() and len(took) < most:
        began = time.perf_counter()
        ping.send(encode_message(body="ping"), ping.reply_to)
        assert ping.receive().body == "ping"
        took.append(time.perf_counter() - began)
    return sorted(took)


def test_a_thousand_vhosts_and_addresses_load_quickly(daemon: Callable[..., Daemon]) -> None:
    """Issue 4: under 3 s on an idle machine; the bound is wide for one that others use too."""
    sections = [LISTENER, "policy {\n enableVhostPolicy: no\n}\n"]
    for number in range(1000):
        sections.append(f"address {{\n prefix: area{number}.queue\n distribution: multicast\n}}\n")
        sections.append(
            f"vhost {{\n hostname: h{number}.example.com\n maxConnections: 10\n groups: {{\n"
            f"  staff: {{\n   users: a{number}, b{number}\n   remoteHosts: 10.0.0.0-10.0.255.255, 192.168.1.7\n"
            f"   sources: orders.*, q{number}, ${{user}}.*\n   targets: orders.*\n  }},\n"
            "  $default: {\n   remoteHosts: *\n   sources: public.*\n  }\n }\n}\n"
        )
    began = time.monotonic()
    loaded = daemon("".join(sections))
    loaded.port()
    took = time.monotonic() - began
    print(f"1,000 vhosts and 1,000 addresses: listening after {took:.2f} s, the interpreter's start included")
    assert took < 9
    with loaded.client() as client:
        assert len(client.query(VHOST, ["name"]).rows) == 1000
        assert len(client.query(f"{PREFIX}router.config.address", ["name"]).rows) == 1000
