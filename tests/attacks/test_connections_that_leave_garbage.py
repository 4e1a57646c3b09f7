"""Attack: connections that come and go.

Each left objects that refer to each other, nine kilobytes and more, until the next full garbage collection. That
collection had to run often enough to delay every message.
"""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import proton
import pytest
from memory_net import Client, Net

from router.connection.stack import ABORTED


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def garbage() -> set[str]:
    """The kinds of the router's objects that wait for a garbage collection."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    kinds = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
    gc.garbage.clear()
    return {kind for kind in kinds if kind.startswith(("router.", "auth.", "policy."))}


def closes(client: Client) -> None:
    client.connection.close()


def is_killed(client: Client) -> None:
    client.kill()


def is_failed_by_the_router(client: Client) -> None:
    client.router.fail(ABORTED, "malformed_frame")


@pytest.mark.parametrize("goes", [closes, is_killed, is_failed_by_the_router])
@pytest.mark.parametrize("is_sliced", [False, True])
def test_a_connection_leaves_nothing_for_the_garbage_collection(goes: Callable[[Any], None], is_sliced: bool) -> None:
    net = Net(is_sliced=is_sliced)
    client = net.client("sender")
    sender = client.sender("q")
    receiver = client.receiver("q", credit=10)
    client.receiver(None, dynamic=True)
    net.pump()
    sender.send(b"m")
    net.pump()
    receiver.accept_all()
    net.pump()
    assert sender.outcomes == [proton.Delivery.ACCEPTED]
    goes(client)
    net.pump()
    net.clients.remove(client)
    client.router = None  # type: ignore[assignment]
    assert not garbage()
