"""Connects a TCP socket to a host by name, and tries one address after the other."""

import asyncio
import os
import socket
from collections.abc import Callable

from router.io.host_names import numeric


async def reach(
    host: str,
    port: int,
    make: Callable[[], asyncio.BaseProtocol],
    family: socket.AddressFamily = socket.AF_UNSPEC,
) -> None:
    """Connects to the first address that answers.

    make    makes the protocol, once for each address that is tried
    Errors  OSError of the last address; ValueError and OverflowError for impossible names and ports. The caller must
            limit the time
    """
    last: OSError | None = None
    for address in await numeric(host, family):
        try:
            await asyncio.get_running_loop().create_connection(make, address, port, family=family)
        except OSError as error:
            last = error
        else:
            return
    raise last or OSError(f"{host} has no address")


def why_not(error: Exception) -> str:
    """Returns why there is no TCP connection, in the system's words."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "timed out"
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)  # asyncio's own text repeats the address
    return getattr(error, "strerror", None) or str(error)
