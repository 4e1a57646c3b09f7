"""Names everything that the build needs and this machine lacks, together with the command that installs it.

Runs under the system's Python, before there is a virtual environment, so it uses only the standard library.
"""

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

OLDEST_PYTHON = (3, 11)


def missing_packages() -> list[str]:
    """Returns the Debian packages that pip needs to build python-qpid-proton in a virtual environment."""
    missing = []
    if importlib.util.find_spec("ensurepip") is None:
        missing.append("python3-venv")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing.append("python3-dev")
    if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
        missing.append("gcc")
    return missing


def main() -> int:
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        found = sys.version.split()[0]
        print(f"Python {wanted} or newer is needed, {sys.executable} is {found}: make PYTHON=/path/to/python{wanted}")
        return 1
    if missing := missing_packages():
        print(f"Missing on this machine: apt-get install {' '.join(missing)}")
        return 1
    if shutil.which("java") is None:
        print("No JDK found: qdaudit and its tests need one (apt-get install openjdk-17-jre-headless)")
    # In sbin, which is not in every user's PATH.
    if not any(shutil.which(path) for path in ("slapd", "/usr/sbin/slapd")):
        print("No slapd found: the tests of LDAP need one (apt-get install slapd)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
