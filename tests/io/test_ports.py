"""A listener's port while it is being opened (docs/spec/routing.md §1.7), on a real event loop."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from free_ports import free_port

from policy.ruleset import compile_ruleset
from policy.usage import UsageLedger
from router.admission.connection_gate import Gate
from router.connection.terms import Listener
from router.control.frame_trace import FrameTrace
from router.control.router import Router
from router.core.addresses import Treatment
from router.effects import Emit


def made_router(emit: Emit) -> Router:
    return Router(
        router_id="R",
        version="1.20.0",
        gate=Gate(compile_ruleset({}, (), resolve=lambda name: []), UsageLedger(), emit),
        emit=emit,
        treatment_of=lambda address: Treatment(distribution="balanced"),
        trace=FrameTrace(lambda text, is_forced: None),
    )


def run(play: Callable[[Router], Awaitable[None]]) -> None:
    async def whole() -> None:
        router = made_router(lambda effect: None)
        try:
            await play(router)
        finally:
            await router.stop()

    asyncio.run(whole())


def listener(port: str) -> Listener:
    return Listener(name="l", host="localhost", port=port)


def is_listening(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_listener_deleted_while_it_opens_does_not_listen(turns: int) -> None:
    """routing 23. A port that outlives its listener would let clients in by rules that nobody sees any more."""

    async def play(router: Router) -> None:
        port = str(free_port())
        opening = asyncio.create_task(router.open_port(listener(port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        router.close_port("l")
        await opening
        assert not is_listening(port)
        assert router.ports == {}

    run(play)


def test_of_two_by_one_name_the_last_listens() -> None:
    """routing 23: deleted and created again in one breath."""

    async def play(router: Router) -> None:
        first, second = str(free_port()), str(free_port())
        opening = [asyncio.create_task(router.open_port(listener(first)))]
        await asyncio.sleep(0)
        router.close_port("l")
        opening.append(asyncio.create_task(router.open_port(listener(second))))
        await asyncio.gather(*opening)
        assert (is_listening(first), is_listening(second)) == (False, True)
        assert {number for _, number in router.ports["l"].addresses} == {int(second)}

    run(play)


def test_a_router_that_stops_while_a_port_opens_does_not_listen() -> None:
    """routing 23"""

    async def play(router: Router) -> None:
        port = str(free_port())
        opening = asyncio.create_task(router.open_port(listener(port)))
        await asyncio.sleep(0)
        await router.stop()
        await opening
        assert not is_listening(port)

    run(play)
