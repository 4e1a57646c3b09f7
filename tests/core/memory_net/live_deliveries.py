"""Asking the engine about a delivery that it may have released fails, in every test that uses a network in memory.

A settled delivery's handle is the engine's to use again: what it is asked by such a handle is about another message, or
about freed memory. Without this, only a sanitizer sees that, where the memory happens to be freed.
"""

from collections.abc import Callable
from typing import Any, Final

from router.amqp.engine import IncomingWire, OutgoingWire, links

# Handles that were settled, and that the engine has not made another delivery of.
_ended: Final[set[Any]] = set()


class ReleasedDeliveryError(Exception):
    """The router asked about a delivery after it had settled it."""


def _ending(ends: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function whose last argument is a delivery that it settles."""

    def wrapped(*arguments: Any) -> Any:
        _check(arguments[-1])
        ends(*arguments)
        _ended.add(arguments[-1])

    return wrapped


def _asking(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """Wrap a function which is asked about the deliveries at these places of its arguments."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        for place in places:
            _check(arguments[place])
        return function(*arguments, **named)

    return wrapped


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that returns a new delivery."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        made = function(*arguments, **named)
        _ended.discard(made)
        return made

    return wrapped


def _coming(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that the engine calls with a delivery of the peer's."""

    def wrapped(wire: Any, delivery: Any) -> Any:
        _ended.discard(delivery)
        return function(wire, delivery)

    return wrapped


def _telling(function: Callable[[Any], None]) -> Callable[[Any], None]:
    def wrapped(delivery: Any) -> None:
        _ended.discard(delivery)
        function(delivery)

    return wrapped


def _check(delivery: Any) -> None:
    if delivery in _ended:
        raise ReleasedDeliveryError(f"{delivery} was settled")


def watch() -> None:
    """From now on, for all networks of this process."""
    links._settle = settle = _ending(links._settle)
    base: Any = IncomingWire.__mro__[2]
    assert base in OutgoingWire.__mro__
    base.settle = staticmethod(settle)
    base.is_settled = staticmethod(_asking(base.is_settled, 0))
    base.remote_state = staticmethod(_asking(base.remote_state, 0))
    base.told = _asking(base.told, 1)
    base.update = _asking(base.update, 1)
    base.relay_state = _asking(base.relay_state, 1, 2)
    incoming: Any = IncomingWire
    incoming.accept_delivery = staticmethod(_ending(incoming.accept_delivery))
    for name in ("is_partial", "is_aborted"):
        setattr(incoming, name, staticmethod(_asking(getattr(incoming, name), 0)))
    for name in ("tag", "state", "give", "reject"):
        setattr(incoming, name, _asking(getattr(incoming, name), 1))
    incoming.on_message, incoming.on_delivery = _coming(incoming.on_message), _coming(incoming.on_delivery)
    outgoing: Any = OutgoingWire
    outgoing.send, outgoing.begin = _making(outgoing.send), _making(outgoing.begin)
    outgoing.send_as = _making(_asking(outgoing.send_as, 2))
    # It settles, but the engine keeps the delivery until it has written that the message is aborted.
    outgoing.abort = _asking(outgoing.abort, 1)
    admit, inserting = outgoing.admit, outgoing.inserting

    def admit_live(wire: Any, core: Any, *, on_delivery: Any, on_accepted: Any, on_credit: Any) -> None:
        """The engine tells of deliveries that it has, settled by us or not."""
        delivery, accepted = (_telling(function) for function in (on_delivery, on_accepted))
        admit(wire, core, on_delivery=delivery, on_accepted=accepted, on_credit=on_credit)

    outgoing.admit = admit_live
    outgoing.inserting = lambda wire: _making(inserting(wire))
