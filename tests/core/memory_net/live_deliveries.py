"""Fails every test in which the router asks the engine about a delivery that the engine may have released.

The engine may use the handle of a settled delivery again. Then a question with that handle is about another message, or
about freed memory. Without this check only a sanitizer sees the fault, and only if the memory is already free.
"""

from collections.abc import Callable
from typing import Any, Final

from router.amqp.engine import IncomingWire, OutgoingWire, links

# Handles that were settled and that the engine has not used again.
_ended: Final[set[Any]] = set()


class ReleasedDeliveryError(Exception):
    """The router asked about a delivery after it had settled it."""


def _ending(ends: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function whose last argument is a delivery that it settles."""

    def wrapped(*arguments: Any) -> Any:
        _check(arguments[-1])
        ends(*arguments)
        _ended.add(arguments[-1])

    return wrapped


def _asking(function: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """Wraps a function that is asked about the deliveries at these positions of its arguments."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        for place in places:
            _check(arguments[place])
        return function(*arguments, **named)

    return wrapped


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that returns a new delivery."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        made = function(*arguments, **named)
        _ended.discard(made)
        return made

    return wrapped


def _coming(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method that the engine calls with a delivery of the peer."""

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
    """Starts the check for all networks of this process."""
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
    # `abort` settles, but the engine keeps the delivery until it has written that the message is aborted.
    outgoing.abort = _asking(outgoing.abort, 1)
    admit, inserting = outgoing.admit, outgoing.inserting

    def admit_live(wire: Any, core: Any, *, on_delivery: Any, on_accepted: Any, on_credit: Any) -> None:
        """The engine reports deliveries that it still has, whether we have settled them or not."""
        delivery, accepted = (_telling(function) for function in (on_delivery, on_accepted))
        admit(wire, core, on_delivery=delivery, on_accepted=accepted, on_credit=on_credit)

    outgoing.admit = admit_live
    outgoing.inserting = lambda wire: _making(inserting(wire))
