"""Loads our compiled modules from the folder that PALISADE_FUZZ_MODULES names, not those beside the sources.

A pytest plugin, too: `-p sanitized_modules` loads them before anything of the router is imported.

With them, deliveries that are settled are released at the end of each flush and not every second: the sanitizer takes
one that proton keeps for a later message for living, and says nothing of who still looks at it.
"""

import importlib.util
import os
import sys
from pathlib import Path


def load() -> None:
    """Where the variable is not set those beside the sources serve."""
    if (folder := os.environ.get("PALISADE_FUZZ_MODULES")) is None:
        return
    for path in sorted(Path(folder).glob("**/_*.so")):
        package = ".".join(path.parent.relative_to(folder).parts)
        spec = importlib.util.spec_from_file_location(f"{package}.{path.name.split('.')[0]}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    _release_at_once()


def _release_at_once() -> None:
    from router.amqp.engine import pool
    from router.amqp.engine.connection import Engine

    flush = Engine.flush
    under_way: list[Engine] = []

    def flush_and_release(engine: Engine) -> None:
        under_way.append(engine)
        try:
            flush(engine)
        finally:
            under_way.pop()
        if not under_way and not engine.is_freed:
            for _ in pool.releasing(engine.connection):
                pass

    Engine.flush = flush_and_release  # type: ignore[method-assign, assignment]


load()
