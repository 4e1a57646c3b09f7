"""The event loop: uvloop where it is installed."""

import asyncio


def new_runner() -> asyncio.Runner:
    """On uvloop where the extra `fast` is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
