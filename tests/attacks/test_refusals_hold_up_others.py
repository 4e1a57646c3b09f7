"""Attack: a user is refused thousands of links a second, and the messages of all others wait for these answers.

5,000 refused links a second of one connection made the round trip of other clients 2.5 times as long. Now a user is
refused 1,000 times at once and 300 times a second. If he asks for more, his asking connections are not read until then.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import raw_peer
from daemon_process import Daemon, write_users
from daemons import logged_in, peer_of
from test_flood_of_refusals import GROUPS, attaches, denied_attaches

from router.admission.refusal_pace import BURST

RATE = 300
CONFIGURATION = """
router {{
    id: hurried
    saslConfigDir: {sasl}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""


@pytest.fixture
def router(daemon: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    sasl = write_users(tmp_path, {"eve": "eve's", "bob": "bob's"}, "PLAIN")
    (tmp_path / "policy").mkdir()
    vhost = {"hostname": "localhost", "groups": {"eve": GROUPS["eve"]}}
    (tmp_path / "policy" / "all.json").write_text(json.dumps([["vhost", vhost]]))
    return daemon(CONFIGURATION.format(sasl=sasl, folder=tmp_path))


@contextmanager
def of_user(router: Daemon, name: str) -> Iterator[raw_peer.RawPeer]:
    with peer_of(router) as peer:
        logged_in(peer, name, f"{name}'s").send(raw_peer.begin())
        yield peer


def test_whoever_is_refused_too_often_waits_alone(router: Daemon) -> None:
    with of_user(router, "eve") as eve, of_user(router, "bob") as bob:
        began = time.monotonic()
        flood = threading.Thread(target=denied_attaches, args=(eve, BURST + 3 * RATE))
        flood.start()
        denied_attaches(bob, 50)
        assert flood.is_alive()
        flood.join()
        # Every request is answered: 16 of the last may go without a wait behind them.
        assert time.monotonic() - began > 3 - 20 / RATE


def test_connections_of_one_user_have_one_pace(router: Daemon) -> None:
    with of_user(router, "eve") as one, of_user(router, "eve") as two, of_user(router, "eve") as three:
        began = time.monotonic()
        share = BURST // 3 + RATE
        floods = [threading.Thread(target=denied_attaches, args=(peer, share)) for peer in (one, two, three)]
        for flood in floods:
            flood.start()
        for flood in floods:
            flood.join()
        assert time.monotonic() - began > 3 - 60 / RATE


def test_a_paused_connection_that_goes_leaves_nothing_behind(router: Daemon) -> None:
    with of_user(router, "eve") as eve:
        denied_attaches(eve, BURST)
        eve.send(attaches(range(2 * RATE)))
    with of_user(router, "eve") as eve:
        denied_attaches(eve, 10)
    assert not router.log(r" \((error|critical)\) |Traceback")
