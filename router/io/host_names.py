"""Host names: looked up beside the loop, each within a bounded time. Source: docs/spec/policy-and-auth.md §2.3.

The system's resolver cannot be interrupted and waits for as long as its configuration says, often half a minute. So it
is asked in threads that nobody has to wait for, not even the process when it ends.
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

# How long a name server may take. A router whose name server is gone must say so, not stand still.
LOOK_UP_LIMIT_S: Final = 15.0
# Rules may hold thousands of names: each thread costs memory, and name servers refuse floods.
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
    """`host` itself where it is a numeric address, else its addresses. Errors: OSError."""
    try:
        ip_address(host)
    except ValueError:
        return await addresses_of(host, family)
    return [host]


async def addresses_of(name: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> Sequence[str]:
    """The numeric addresses of a host name, each once. Errors: OSError."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Answer] = loop.create_future()

    def conclude(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def work() -> None:
        answer = _ask(name, family)
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(conclude, answer)

    threading.Thread(target=work, name="resolver", daemon=True).start()
    try:
        return _given(await asyncio.wait_for(answered, LOOK_UP_LIMIT_S))
    except TimeoutError as error:
        # The resolver has a TimeoutError of its own.
        raise error if error.errno is not None else _no_answer() from None


def look_up(names: Iterable[str]) -> Resolve:
    """Look names up side by side; returns what gives their addresses. Waits for the answers, LOOK_UP_LIMIT_S at most.

    A name that is not among them is looked up when it is asked for.
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
    """The host names in the `remoteHosts` of vhost entities, as far as they are written as they should be."""
    names: dict[str, None] = {}
    for vhost in vhosts:
        groups = vhost.get("groups")
        for group in groups.values() if isinstance(groups, Mapping) else ():
            items = group.get("remoteHosts") if isinstance(group, Mapping) else None
            with contextlib.suppress(InvalidValue):  # compiling will say so
                names |= dict.fromkeys(names_in(read_items(items)) if items is not None else ())
    return list(names)


class NameWanted(BaseException):
    """A rule names a host whose addresses are not known yet: look it up off the loop, then perform the request again.

    Not an Exception: it is no failure, and nothing between the compiler and the management service may take it for one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class KnownNames:
    """Host names that have been looked up for the request that is being performed."""

    def __init__(self) -> None:
        self._found: dict[str, Answer] = {}

    def __call__(self, name: str) -> Sequence[str]:
        """Errors: OSError as the look-up had it; NameWanted."""
        found = self._found.get(name)
        if found is None:
            raise NameWanted(name)
        return _given(found)

    async def look_up(self, name: str) -> None:
        """May take as long as a name server does; meanwhile messages are routed."""
        try:
            self._found[name] = await addresses_of(name)
        except OSError as error:
            self._found[name] = error

    def forget(self) -> None:
        """The request is done: the next one shall see the addresses of its time."""
        self._found.clear()
