"""Fallback destinations: get messages that have no other receiver. Source: docs/spec/routing.md §17.

This code runs only for a message without a receiver. Other messages have no extra cost.
"""

from policy.addressing.address import FALLBACK_PHASE
from router.core.addresses import LiveAddress
from router.core.in_links import InLink, Redirected
from router.values import Handle


def redirect(link: InLink, address: LiveAddress) -> LiveAddress | None:
    """Returns the fallback destination for the message in the buffer, which has been inspected, and marks the message.

    Returns None if the destination has no receiver, or if the message must not go there. No fallback destination has
    one of its own, so this ends.
    """
    other = address.fallback
    if other is None or link.is_fallback or address.has_own_path or not other.has_own_path:
        return None
    address.redirected += 1
    link.redirected += 1
    taken = link.annotations
    link.annotations = Redirected(
        to=other.key[2:],
        phase=FALLBACK_PHASE,
        ingress=taken.ingress if taken is not None else None,
        trace=taken.trace if taken is not None else (),
        reply_to=taken.reply_to if taken is not None else None,
    )
    return other


def fall_back(link: InLink, address: LiveAddress, delivery: Handle, size: int) -> None:
    """Sends a complete message without a receiver to the fallback destination, or releases it."""
    other = redirect(link, address)
    if other is None:
        link.release_undeliverable(delivery)
        return
    inspect, link.inspect = link.inspect, None  # the message is already inspected
    try:
        other.forward(link, other, delivery, size)
    finally:
        link.inspect = inspect
