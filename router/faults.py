"""How an unexpected exception is named in a log: class and place, never its text, which may hold what a peer sent."""

from types import TracebackType


def fault_text(error: BaseException) -> str:
    """For example `KeyError at /…/router/connection/peer.py:120`: where it was raised, not where it was caught."""
    place: TracebackType | None = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}{where}"
