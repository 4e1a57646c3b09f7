"""Frees what the router holds for one connection, when memory is short."""

from collections import deque

from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink, lose_queued


def shed(core: Core) -> str | None:
    """Closes the connection that holds most, and drops its messages that no receiver has taken.

    Returns its name, or None if no connection holds enough to help.
    """
    account = core.budgets.router.shed()
    if account is None:
        return None
    links = list(core.links.values())
    senders: set[object] = {link for link in links if isinstance(link, InLink) and link.attachment.account is account}
    for out in links:
        if isinstance(out, OutLink):
            _drop_waiting(out, senders)
    return account.own.name


def _drop_waiting(out: OutLink, senders: set[object]) -> None:
    """Removes the waiting messages of `senders` from a link's queue.

    Parts of larger messages end with their senders.
    """
    dropped = [item for item in out.queue if item.leg is None and item.charge.payer in senders]
    if dropped:
        out.queue = deque(item for item in out.queue if item.leg is not None or item.charge.payer not in senders)
        out.load -= len(dropped)
        out.work.begin(lose_queued(dropped))
