"""The ends above a connection's layers, one at a time: the protocol header, the SASL exchange. The last is the engine.

Sans-IO. Sources: docs/spec/routing.md §1.7; docs/spec/policy-and-auth.md §8.
"""

from collections.abc import Callable
from typing import Protocol

from auth.credentials import Answer
from auth.negotiation import ClientNegotiation, Order, Reply, SaslEffect, ServerNegotiation
from router.amqp import headers


class End(Protocol):
    """Takes the bytes that come out above the layers; returns the bytes that it leaves for the next end."""

    def receive(self, data: bytes, /) -> bytes | None: ...


class NoEnd:
    """The end of a closed connection: takes nothing."""

    __slots__ = ()

    def receive(self, _data: bytes) -> None: ...


class HeaderEnd:
    """Waits for a whole protocol header.

    begin  (protocol, bytes from the header on) begins what the header announces; returns the bytes that remain for it
    """

    __slots__ = ("_begin", "_early")

    def __init__(self, begin: Callable[[headers.Protocol, bytes], bytes]) -> None:
        self._begin = begin
        self._early = b""  # the first bytes of a header

    def receive(self, data: bytes) -> bytes:
        data = self._early + data
        protocol = headers.sniff(data)
        self._early = data if protocol is None else b""
        return self._begin(protocol, data) if protocol is not None else b""


class SaslEnd:
    """One SASL exchange.

    write      takes its replies
    carry_out  does everything else that the exchange asks for
    on_held    receives the number of bytes that wait for the verifier
    """

    __slots__ = ("_carry_out", "_negotiation", "_on_held", "_write")

    def __init__(
        self,
        negotiation: ServerNegotiation | ClientNegotiation,
        write: Callable[[bytes], None],
        carry_out: Callable[[Order], None],
        on_held: Callable[[int], None],
    ) -> None:
        self._negotiation = negotiation
        self._write = write
        self._carry_out = carry_out
        self._on_held = on_held

    def start(self, header: bytes = b"") -> None:
        """Starts the exchange.

        header  to be written first
        """
        self._follow(self._negotiation.start(), header)

    def receive(self, data: bytes) -> bytes:
        return self._follow(self._negotiation.receive(data))

    def resume(self, result: Answer) -> bytes:
        """Continues a server's negotiation with the verifier's answer. Returns what `receive` returns."""
        assert isinstance(self._negotiation, ServerNegotiation)
        return self._follow(self._negotiation.resume(result))

    def derived(self, salted: bytes) -> bytes:
        """Continues a client's negotiation with the derived key. Returns what `receive` returns."""
        assert isinstance(self._negotiation, ClientNegotiation)
        return self._follow(self._negotiation.resume(salted))

    def _follow(self, effects: list[SaslEffect], first: bytes = b"") -> bytes:
        """Carries out the effects, and returns the bytes that are left.

        first  to be written before the replies, in one piece with them
        """
        for effect in effects:
            if isinstance(effect, Reply):
                first += effect.data
                continue
            if first:
                self._write(first)
                first = b""
            self._carry_out(effect)
        if first:
            self._write(first)
        self._on_held(self._negotiation.pending_bytes)
        return self._negotiation.take_rest()
