"""Attack: a client makes link routes that take long to judge: 65 ms each, during which no other client is served.

Policy was asked about each number of words, up to 16, for each of two words `#`, with all words of the pattern.
"""

import contextlib
import time

import pytest
from memory_net import Net
from memory_net.policies import Vhosts

from router.connection.own_routes import CannotServe, OwnRoutes

WORST_S = 0.005
PATTERNS = ("#." + "x." * 200 + "#", "#.x.#", "x." * 200 + "#", "x." * 30 + "#", "*." * 200 + "x")
OF_MANY_RULES = ", ".join([*(f"x{number}.#" for number in range(300)), "a.#", "*.x.#", "#"])
EVERYTHING = {"remoteHosts": "*", "sourcePattern": OF_MANY_RULES, "allowDynamicLinkRoutes": True}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_is_judged_in_little_time(pattern: str) -> None:
    net = Net(
        vhosts=Vhosts(
            {"$default": {"allowUnknownUser": True, "groups": {"$default": EVERYTHING}}},
            policy={"enableVhostPolicy": True, "defaultVhost": "$default"},
        )
    )
    client = net.client()
    net.pump()
    routes, peer = OwnRoutes(net.surroundings.link_routes), net.peer(client)
    took = []
    for _ in range(5):
        began = time.process_time()
        with contextlib.suppress(CannotServe):
            made = routes.add(peer, identity="1", name=None, pattern=pattern, direction="send")
            routes.remove(peer, made.identity)
        took.append(time.process_time() - began)
    assert min(took) < WORST_S, took
