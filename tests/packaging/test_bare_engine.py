"""The router needs neither TLS nor SASL of its AMQP engine: both are layers of our own.

pip builds python-qpid-proton from source. On a machine without the headers of OpenSSL and Cyrus it does so without TLS
and SASL and says nothing. Proved here: the build at hand is such a build, and the router secures its clients all the
same.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_engine_has_neither_openssl_nor_cyrus(installed: Path, tmp_path: Path) -> None:
    """Guards the test below: on an engine with TLS it would prove nothing."""
    code = (
        "import cproton_ffi; from cproton_ffi import lib;"
        "print(cproton_ffi.__file__); print(bool(lib.pn_ssl_present()), bool(lib.pn_sasl_extended()))"
    )
    result = subprocess.run(
        [installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    where, what = result.stdout.splitlines()
    assert where.startswith(str(installed.parent))
    assert what == "False False"


def test_router_secures_its_clients_without_them(installed: Path) -> None:
    """The smoke tests of tests/interop, with the router and the example client in this installation."""
    environment = os.environ | {"PALISADE_PYTHON": str(installed / "python")}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "smoke", "tests/interop"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
