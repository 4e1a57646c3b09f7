"""Looks host names up outside the event loop, each in limited time. Source: docs/spec/policy-and-auth.md §2.3.

The system's resolver cannot be interrupted, and waits as long as its configuration says, often half a minute. So it is
called in threads that nothing waits for, not even the end of the process.
"""

import asyncio
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

from policy.attributes import InvalidValue, read_items
from policy.hosts import Resolve, names_in

# The maximum time for a name server. A router whose name server does not answer must report that, and not hang.
LOOK_UP_LIMIT_S: Final = 15.0
# Rules may contain thousands of names. Each thread costs memory, and name servers refuse floods.
MAX_AT_ONCE: Final = 32

Answer = Sequence[str] | OSError


def _ask(name: str, family: socket.AddressFamily) -> Answer:
    try:
        found = socket.getaddrinfo(name, None, family=family, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except ValueError as error:
        return OSError(f"this can be no host name: {error}")
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _given(answer: Answer) -> Sequence[str]:
    if isinstance(answer, OSError):
        raise answer
    return answer


def _no_answer() -> OSError:
    return OSError(f"no answer from the name server in {LOOK_UP_LIMIT_S:g} s")


async def numeric(host: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> Sequence[str]:
    """Returns `host` itself if it is a numeric address, else its addresses. Errors: OSError."""
    try:
        ip_address(host)
    except ValueError:
        return await addresses_of(host, family)
    return [host]


async def addresses_of(name: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> Sequence[str]:
    """Returns the numeric addresses of a host name, each once. Errors: OSError."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()

    def conclude(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def work() -> None:
        answer = _ask(name, family)
        with contextlib.suppress(RuntimeError):  # the loop is closed meanwhile
            loop.call_soon_threadsafe(conclude, answer)

    threading.Thread(target=work, name="resolver", daemon=True).start()
    try:
        return _given(await asyncio.wait_for(answered, LOOK_UP_LIMIT_S))
    except TimeoutError as error:
        # The resolver can also raise a TimeoutError, with an errno.
        raise error if error.errno is not None else _no_answer() from None


def look_up(names: Iterable[str]) -> Resolve:
    """Looks names up in parallel. Returns a function that gives their addresses. Waits at most LOOK_UP_LIMIT_S.

    That function looks up any other name when it is asked for it.
    """
    wanted: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()
    missing = dict.fromkeys(names)
    for name in missing:
        wanted.put(name)
    is_over = threading.Event()

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while not is_over.is_set():
                name = wanted.get_nowait()
                answers.put((name, _ask(name, socket.AF_UNSPEC)))

    for _ in range(min(len(missing), MAX_AT_ONCE)):
        threading.Thread(target=work, name="resolver", daemon=True).start()
    found: dict[str, Answer] = {}
    deadline = time.monotonic() + LOOK_UP_LIMIT_S
    with contextlib.suppress(queue.Empty):
        while missing:
            name, answer = answers.get(timeout=max(deadline - time.monotonic(), 0))
            found[name] = answer
            del missing[name]
    is_over.set()
    found |= {name: _no_answer() for name in missing}

    def resolve(name: str) -> Sequence[str]:
        if name not in found:
            return look_up([name])(name)
        return _given(found[name])

    return resolve


def names_of(vhosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the host names in the `remoteHosts` of vhost entities. Leaves out invalid entries."""
    names: dict[str, None] = {}
    for vhost in vhosts:
        groups = vhost.get("groups")
        for group in groups.values() if isinstance(groups, Mapping) else ():
            items = group.get("remoteHosts") if isinstance(group, Mapping) else None
            with contextlib.suppress(InvalidValue):  # compiling will report it
                names |= dict.fromkeys(names_in(read_items(items)) if items is not None else ())
    return list(names)


class NameWanted(BaseException):
    """A rule contains a host name with unknown addresses: look it up outside the loop, then perform the request again.

    Not an Exception, because it is no failure: no code between the compiler and the management service may handle it as
    one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class KnownNames:
    """Host names that were looked up for the current request."""

    def __init__(self) -> None:
        self._found: dict[str, Answer] = {}

    def __call__(self, name: str) -> Sequence[str]:
        """Returns the addresses of a name. Errors: OSError from the look-up; NameWanted."""
        found = self._found.get(name)
        if found is None:
            raise NameWanted(name)
        return _given(found)

    async def look_up(self, name: str) -> None:
        """Looks up a name. This may take as long as a name server does, while messages are routed."""
        try:
            self._found[name] = await addresses_of(name)
        except OSError as error:
            self._found[name] = error

    def forget(self) -> None:
        """Forgets all names after the request, so that the next one gets current addresses."""
        self._found.clear()
