"""Fixtures for attacks, one file each. A test runs against a daemon that it starts; it failed before the fix."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "interop"))
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))
sys.path.append(str(Path(__file__).parent.parent / "core"))
sys.path.append(str(Path(__file__).parent.parent / "fuzz"))

from daemon_process import daemon
from fixtures import certificates, router

__all__ = ["certificates", "daemon", "router"]
