"""The process's file descriptors: how many there are, and those that peers do not get.

Attack: 700 silent sockets took all descriptors; then the audit log and a policy reload failed with EMFILE.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

# For the audit log, log files, the file of users, certificates and the process that reads changed policies, which has
# a dozen for a moment. A limit below four times that is shared a quarter to three.
RESERVED: Final = 64
_SHARE: Final = 4
_OPEN: Final = "/proc/self/fd"
_MOST: Final = "/proc/sys/fs/nr_open"


def raise_limit() -> None:
    """As many as the system allows this process: the usual soft limit of 1024 is a router's small fleet."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        # Linux refuses "no limit" for files, and tells how many one process may have.
        most = int(Path(_MOST).read_text()) if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Descriptors:
    """limit  how many the process may have"""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = soft if soft != resource.RLIM_INFINITY else 1 << 20
        self._reserved = min(RESERVED, self.limit // _SHARE)

    def for_peers(self, connectors: int) -> int:
        """How many the sockets of peers may take.

        INVARIANT: an accepted socket has a number below this, or is closed before anything else is done. The system
        gives the lowest number that is free, so the reserve is there whatever peers do, and whoever has the others.

        connectors  each has a descriptor of its own, and so has each login with a remote service
        """
        return max(self.limit - self._reserved - connectors, 0)

    def in_use(self) -> int:
        """How many are open now."""
        try:
            return os.stat(_OPEN).st_size or len(os.listdir(_OPEN))  # Linux before 6.2 tells no size
        except OSError:
            return 0
