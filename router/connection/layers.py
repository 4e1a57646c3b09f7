"""The list of layers between a connection's socket and AMQP: TLS, HTTP with WebSocket (router.web.layer).

Above the layers is one end at a time: the protocol header, then the SASL negotiation, then the engine. Sans-IO. Source:
docs/journeys.md, three journeys.
"""

from collections.abc import Callable
from typing import Protocol

from auth.tls import TlsFailure

Write = Callable[[bytes], None]


class Layer(Protocol):
    """A layer that bytes pass in both directions, such as auth.tls.TlsTunnel.

    is_established  its handshake is complete
    has_more     some received bytes wait for the connection's next turn: then it receives b""
    receive      takes bytes from below; returns the bytes for above, perhaps none. begin_turn  see Work
    send         takes bytes from above
    take_output  returns the bytes for below; called after each of the other functions
    close        tells the peer that no more bytes follow
    discard      called when the socket is closed
    Errors       TlsFailure from receive and send: the layer cannot be used any more
    """

    has_more: bool

    @property
    def is_established(self) -> bool: ...
    def receive(self, data: bytes, begin_turn: Callable[[], Callable[[], bool]], /) -> bytes: ...
    def send(self, data: bytes, /) -> None: ...
    def take_output(self) -> bytes: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


class Layers:
    """The layers of one connection, the lowest first.

    write  takes the bytes of the end above the layers. Without a layer it is the socket's own function
    """

    __slots__ = ("_awaited", "_begin_turn", "_layers", "_on_behind", "_on_failure", "write")

    def __init__(
        self,
        write: Write,
        begin_turn: Callable[[], Callable[[], bool]],
        on_behind: Callable[[], None],
        on_failure: Callable[[TlsFailure], None],
    ) -> None:
        """write    hands bytes to the socket
        on_behind   called when a layer has more than its turn had time for
        on_failure  called when a layer is broken, after its last bytes for the peer were written
        """
        self.write = write
        self._begin_turn = begin_turn
        self._on_behind = on_behind
        self._on_failure = on_failure
        self._layers: list[tuple[Layer, Write]] = []  # each with the function that takes its output
        # The layer whose handshake is not complete, the function to call after it, and the function to call at each
        # read before.
        self._awaited: tuple[Layer, Callable[[], None], Callable[[], None]] | None = None

    def __len__(self) -> int:
        return len(self._layers)

    def add(self, layer: Layer, on_established: Callable[[], None], on_waiting: Callable[[], None]) -> None:
        """Adds a layer above the others.

        on_established  called when its handshake is complete
        on_waiting      called when only a part of the handshake has come
        """
        below = self.write
        self._awaited = layer, on_established, on_waiting
        self._layers.append((layer, below))

        def write(data: bytes) -> None:
            try:
                layer.send(data)
            except TlsFailure as failure:
                self._on_failure(failure)
                return
            below(layer.take_output())

        self.write = write

    def receive(self, data: bytes) -> bytes:
        """Takes bytes from the socket, or none if a layer has more. Returns the bytes for the end above. Hot."""
        return self._receive(self._layers, data)

    def receive_last(self, data: bytes) -> bytes:
        """Takes bytes that have passed all layers except the one that was added last. See `receive`."""
        return self._receive(self._layers[-1:], data)

    def write_last(self) -> None:
        """Writes what the layer that was added last has ready, between two reads."""
        layer, write = self._layers[-1]
        if output := layer.take_output():
            write(output)

    def _receive(self, layers: list[tuple[Layer, Write]], data: bytes) -> bytes:
        for layer, write in layers:
            try:
                data = layer.receive(data, self._begin_turn)
            except TlsFailure as failure:
                write(layer.take_output())
                self._on_failure(failure)
                return b""
            if output := layer.take_output():
                write(output)
            if layer.has_more:
                self._on_behind()
        if self._awaited is not None:
            layer, on_established, on_waiting = self._awaited
            if layer.is_established:
                self._awaited = None
                on_established()
            else:
                on_waiting()
        return data

    @property
    def has_more(self) -> bool:
        return any(layer.has_more for layer, _ in self._layers)

    def close(self) -> None:
        """Tells the peer that no more bytes follow."""
        for layer, write in reversed(self._layers):
            if layer.is_established:
                layer.close()
                write(layer.take_output())

    def discard(self) -> None:
        """Discards the layers after the socket is closed."""
        layers, self._layers = self._layers, []
        # Each function refers to these layers or to their connection, and would keep them until the next garbage
        # collection.
        self.write, self._on_behind, self._on_failure, self._awaited = _drop, _nothing, _drop, None
        for layer, _ in layers:
            layer.discard()


def _drop(_: object) -> None:
    """Drops what is written to a closed socket."""


def _nothing() -> None:
    """Does nothing: the default of a callback."""
