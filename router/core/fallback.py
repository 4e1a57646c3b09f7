"""Fallback destinations: where a message goes that has nobody else. Source: docs/spec/routing.md §17.

Asked only about a message that has no receiver: all others pay nothing for it.
"""

from policy.addressing.address import FALLBACK_PHASE
from router.core.addresses import LiveAddress
from router.core.in_links import InLink, Redirected
from router.values import Handle


def redirect(link: InLink, address: LiveAddress) -> LiveAddress | None:
    """The fallback destination for the message in the buffer, which has been inspected and is marked for it.

    None: there is nobody, or it is not to go there. No destination has one of its own, so that this ends.
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
    """A message that has come whole has nobody: to the fallback destination, else it is released."""
    other = redirect(link, address)
    if other is None:
        link.release_undeliverable(delivery)
        return
    inspect, link.inspect = link.inspect, None  # it has been inspected
    try:
        other.forward(link, other, delivery, size)
    finally:
        link.inspect = inspect
