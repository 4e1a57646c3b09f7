"""A connector's attempts on a real event loop, with delays of our own (docs/spec/routing.md §1.9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from policy.ruleset import compile_ruleset
from policy.usage import UsageLedger
from router.admission.connection_gate import Gate
from router.connection.outgoing import Connector, RetryDelays
from router.control.connecting import Connecting
from router.control.frame_trace import FrameTrace
from router.control.router import Router
from router.core.addresses import Treatment
from router.effects import Effect, Log

DELAYS = RetryDelays(after_failure_s=0.02, after_loss_s=0.02, with_alternatives_s=0.02)
NEVER = RetryDelays(after_failure_s=3600, after_loss_s=3600, with_alternatives_s=3600)
LIMIT_S = 10.0


class Scene:
    """A router that listens nowhere, and a server that counts who comes."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        ruleset = compile_ruleset({}, (), resolve=lambda name: [])
        self.router = Router(
            router_id="R",
            version="1.20.0",
            gate=Gate(ruleset, UsageLedger(), self.effects.append),
            emit=self.effects.append,
            treatment_of=lambda address: Treatment(distribution="balanced"),
            trace=FrameTrace(lambda text, is_forced: None),
        )
        self.calls = 0
        self.ended = 0
        self.keeps = False
        self.changed = asyncio.Event()

    async def serve(self) -> int:
        async def on_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.calls += 1
            self.changed.set()
            if self.keeps:
                await reader.read()
            writer.close()
            self.ended += 1
            self.changed.set()

        self.server = await asyncio.start_server(on_call, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    def connecting(self, port: int | str, delays: RetryDelays = DELAYS, **more: Any) -> Connecting:
        connector = Connector(name="out", host=more.pop("host", "127.0.0.1"), port=str(port), **more)
        made = Connecting(self.router, connector, self.effects.append, delays)
        made.start()
        return made

    async def until(self, claim: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not claim():
                self.changed.clear()
                try:
                    await asyncio.wait_for(self.changed.wait(), 0.05)
                except TimeoutError:
                    continue

    def errors(self) -> list[str]:
        return [effect.text for effect in self.effects if isinstance(effect, Log) and effect.level == "error"]


def run(play: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        try:
            await play(scene)
        finally:
            await scene.router.stop()

    asyncio.run(whole())


def test_it_goes_on_trying_as_often_as_its_delays_say() -> None:
    """routing 18"""

    async def play(scene: Scene) -> None:
        connecting = scene.connecting(await scene.serve())
        await scene.until(lambda: scene.calls >= 4)
        connecting.delete()

    run(play)


def test_a_deleted_connector_tries_no_more() -> None:
    """routing 24: neither after its delay, nor when it is in the middle of an attempt."""

    async def play(scene: Scene) -> None:
        port = await scene.serve()
        waiting = scene.connecting(port)
        await scene.until(lambda: scene.calls >= 1 and waiting.status == "CONNECTING" and "failed" in waiting.message)
        waiting.delete()
        await asyncio.sleep(0.1)  # a call that was under way is still counted
        calls = scene.calls
        in_the_middle = scene.connecting(port)
        in_the_middle.delete()
        await asyncio.sleep(0.1)
        assert scene.calls == calls
        assert (waiting.status, in_the_middle.status) == ("CLOSING", "CLOSING")

    run(play)


def test_deleting_in_the_middle_of_the_handshake_closes_the_socket() -> None:
    """routing 24"""

    async def play(scene: Scene) -> None:
        scene.keeps = True
        connecting = scene.connecting(await scene.serve(), NEVER)
        await scene.until(lambda: scene.calls == 1 and bool(scene.router.connections))
        connecting.delete()
        await scene.until(lambda: scene.ended == 1 and not scene.router.connections)
        assert scene.calls == 1

    run(play)


@pytest.mark.parametrize(
    ("host", "port"), [("x" * 64 + ".example", "1"), ("127.0.0.1", "65536"), ("127.0.0.1", "nosuch"), ("a\0b", "1")]
)
def test_a_place_that_cannot_be_is_a_failed_attempt_and_no_end(host: str, port: str) -> None:
    """routing 19. Attack: such an entry of a server's failover list must not stop the connector for good."""

    async def play(scene: Scene) -> None:
        connecting = scene.connecting(port, host=host)
        numbers: set[str] = set()

        def tried_thrice() -> bool:
            if connecting.message:
                numbers.add(connecting.message.partition("]")[0])
            return len(numbers) >= 3

        await scene.until(tried_thrice)
        assert f"Connection to {host}:{port} failed: proton:io " in connecting.message
        connecting.delete()

    run(play)


def test_what_a_tunnel_raises_ends_the_attempt_only() -> None:
    """policy 50. Attack: a failover host that TLS cannot take for a name."""

    async def play(scene: Scene) -> None:
        def tunnel(host: str) -> Any:
            raise ValueError(f"{host} starts with a dot")

        connecting = scene.connecting(await scene.serve(), tunnel=tunnel)
        await scene.until(lambda: scene.calls >= 2 and "failed" in connecting.message)
        assert connecting.message.endswith("failed: amqp:internal-error Internal error")
        assert all("ValueError" in text and "dot" not in text for text in scene.errors()), scene.errors()
        connecting.delete()

    run(play)


@pytest.mark.parametrize(("family", "is_reached"), [("IPv4", True), (None, True), ("IPv6", False)])
def test_a_connector_keeps_to_its_protocol_family(family: str | None, is_reached: bool) -> None:
    """management §6.5: an IPv4 place is not connected to where IPv6 is asked for."""

    async def play(scene: Scene) -> None:
        connecting = scene.connecting(await scene.serve(), NEVER, protocol_family=family)
        await scene.until(lambda: scene.calls == 1 or "failed" in connecting.message)
        assert (scene.calls == 1) is is_reached
        connecting.delete()

    run(play)
