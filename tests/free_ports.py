"""Ports of 127.0.0.1 for programs that must be told one: no other test of this run is given the same.

They lie below the ports that Linux chooses by itself (32768 and above, net.ipv4.ip_local_port_range): a port found by
binding port 0 may be another test's connection or listener before the program binds it.
"""

import contextlib
import itertools
import os
import random
import re
import socket

FIRST, OF_EACH_WORKER, WORKERS = 10_000, 1_000, 22


def _own_ports() -> range:
    """The ports of this pytest worker (pytest-xdist calls them gw0, gw1, ...)."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or WORKERS - 1) % WORKERS
    return range(FIRST + number * OF_EACH_WORKER, FIRST + (number + 1) * OF_EACH_WORKER)


# Another checkout's tests may run beside these: both begin somewhere else.
_POSITIONS = itertools.count(random.SystemRandom().randrange(OF_EACH_WORKER))


def free_ports(count: int) -> int:
    """The first of `count` ports in a row, on none of which anybody listens."""
    ports = _own_ports()
    for _ in range(OF_EACH_WORKER):
        taken = [ports[next(_POSITIONS) % OF_EACH_WORKER] for _ in range(count)]
        if taken[-1] - taken[0] != count - 1:
            continue
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in taken:
                probes.enter_context(socket.create_server(("127.0.0.1", port)))
            return taken[0]
    raise OSError(f"no {count} free ports in a row from {ports.start} to {ports.stop - 1}")


def free_port() -> int:
    """One port on which nobody listens."""
    return free_ports(1)
