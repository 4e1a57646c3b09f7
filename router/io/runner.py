"""The event loop: uvloop if it is installed."""

import asyncio


def new_runner() -> asyncio.Runner:
    """Makes a runner, with uvloop if the extra `fast` is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
