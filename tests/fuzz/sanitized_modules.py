"""Loads our compiled modules from the folder that PALISADE_FUZZ_MODULES names, not those beside the sources.

A pytest plugin, too: `-p sanitized_modules` loads them before anything of the router is imported.
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


load()
