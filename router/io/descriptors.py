"""The process's file descriptors: their number, and those reserved for the router itself.

Attack: 700 silent sockets used all descriptors. Then the audit log and a policy reload failed with EMFILE.
"""

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

# For the audit log, log files, the file of users, certificates, and the process that reads changed policies, which
# needs a dozen for a moment. Of a limit below four times this number, a quarter is reserved.
RESERVED: Final = 64
_SHARE: Final = 4
_OPEN: Final = "/proc/self/fd"
_MOST: Final = "/proc/sys/fs/nr_open"


def raise_limit() -> None:
    """Raises the limit to this process's maximum: the usual soft limit of 1024 is enough for a small fleet only."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        # Linux does not accept "no limit" for files, but shows how many one process may have.
        most = int(Path(_MOST).read_text()) if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Descriptors:
    """The descriptors of the process.

    limit  the number that the process may have
    """

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = soft if soft != resource.RLIM_INFINITY else 1 << 20
        self._reserved = min(RESERVED, self.limit // _SHARE)

    def for_peers(self, connectors: int) -> int:
        """Returns the number of descriptors for sockets of peers.

        INVARIANT: an accepted socket has a number below this, or is closed before anything else happens to it. The
        system assigns the lowest free number, so the reserve is free whatever peers do.

        connectors  each has its own descriptor, and so has each login with a remote service
        """
        return max(self.limit - self._reserved - connectors, 0)

    def in_use(self) -> int:
        """Returns the number of open descriptors."""
        try:
            return os.stat(_OPEN).st_size or len(os.listdir(_OPEN))  # Linux before 6.2 gives no size
        except OSError:
            return 0
