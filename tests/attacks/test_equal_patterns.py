"""Attack: two patterns with the same meaning, `a/*/#` and `a/#/*`: the end of the second was the end of the first.

Then messages for every subscriber went to only one of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import LISTENER, Daemon, start
from process_log import PATIENCE_S
from proton import Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection

from router.management.client import ManagementError

CONFIGURED = "router.config.address"


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Daemon]:
    made = start(tmp_path, f"address {{\n name: first\n pattern: a/*/#\n distribution: multicast\n}}\n{LISTENER}")
    yield made
    made.end()


def copies(router: Daemon) -> int:
    """How many of two subscribers a message reaches."""
    client = BlockingConnection(f"127.0.0.1:{router.port()}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")
    receivers = [client.create_receiver("a/b", credit=1, name=f"r{number}") for number in range(2)]
    last = client.create_receiver("end", credit=1)
    client.create_sender("a/b", options=AtMostOnce()).send(Message(body="x"))
    client.create_sender("end", options=AtMostOnce()).send(Message(body="end"))
    assert last.receive(PATIENCE_S).body == "end"
    fetchers = [each.fetcher for each in receivers]
    count = sum(bool(fetcher.has_message) for fetcher in fetchers if fetcher is not None)
    client.close()
    return count


@pytest.mark.parametrize("pattern", ["a/#/*", "a.#.*", "/a/*/#/#/", "a/*/#"])
def test_a_second_name_of_a_pattern_is_refused(router: Daemon, pattern: str) -> None:
    client = router.client()
    with pytest.raises(ManagementError, match="Already exists"):
        client.create({"pattern": pattern, "distribution": "balanced"}, type=CONFIGURED, name="second")
    client.close()
    assert copies(router) == 2


def test_what_is_deleted_is_only_what_was_named(router: Daemon) -> None:
    client = router.client()
    try:
        client.create({"pattern": "a/#/*", "distribution": "balanced"}, type=CONFIGURED, name="second")
        client.delete(type=CONFIGURED, name="second")
    except ManagementError:
        pass
    client.close()
    assert copies(router) == 2
