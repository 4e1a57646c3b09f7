"""Names an unexpected exception in a log: its class and place, never its text, which may contain a peer's data."""

from types import TracebackType


def fault_text(error: BaseException) -> str:
    """Returns for example `KeyError at /…/router/connection/peer.py:120`: the place that raised it."""
    place: TracebackType | None = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}{where}"
