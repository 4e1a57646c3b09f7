"""Gives up what one connection has the router hold, when memory is short."""

from collections import deque

from router.core.core import Core
from router.core.in_links import InLink
from router.core.out_links import OutLink, lose_queued


def shed(core: Core) -> str | None:
    """Close the connection that holds most, and drop what it has sent and no receiver has taken.

    Returns its name; None: nobody holds what would help.
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
    """The messages of `senders` that wait on a link leave its queue. Parts of larger ones go with their senders."""
    dropped = [item for item in out.queue if item.leg is None and item.charge.payer in senders]
    if dropped:
        out.queue = deque(item for item in out.queue if item.leg is not None or item.charge.payer not in senders)
        out.load -= len(dropped)
        out.work.begin(lose_queued(dropped))
