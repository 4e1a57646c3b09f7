"""The wheel, python-qpid-proton without TLS and SASL, and both installed where nothing knows of the checkout."""

import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

import pytest
from wheels import CONSOLE, copy_of_checkout, pip

ROOT = Path(__file__).resolve().parent.parent.parent
PROTON = "python-qpid-proton"
# Kept beside the environment it was built for: compiling it takes longer than all the tests that need it.
BARE_PROTON_CACHE = Path(sys.prefix, "bare-proton")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built from what git has or would take, so that no ignored file can slip in or be needed.

    The files of CONSOLE stand for those that `make console` builds.
    """
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    copy_of_checkout(source)
    for name in CONSOLE:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("<title>Palisade Router</title>")
    pip("wheel", "-q", "--no-deps", "--wheel-dir", built, source)
    (found,) = built.glob("palisade_router-*.whl")
    return found


@pytest.fixture(scope="session")
def bare_proton_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """python-qpid-proton of the installed version, built on a machine where pkg-config finds neither OpenSSL nor Cyrus.

    Its build asks pkg-config for `openssl` and `libsasl2` and compiles stubs for what is not found.
    """
    version = metadata.version(PROTON)
    if not (found := list(BARE_PROTON_CACHE.glob(f"python_qpid_proton-{version}-*.whl"))):
        nothing = tmp_path_factory.mktemp("pkgconfig")
        hidden = {"PKG_CONFIG_LIBDIR": str(nothing), "PKG_CONFIG_PATH": str(nothing)}
        # pip's own cache holds the wheel with OpenSSL under the same name.
        options: list[str | Path] = [
            "--no-deps",
            "--no-cache-dir",
            "--no-binary",
            PROTON,
            "--wheel-dir",
            BARE_PROTON_CACHE,
        ]
        pip("wheel", "-q", *options, f"{PROTON}=={version}", environment=hidden)
        found = list(BARE_PROTON_CACHE.glob(f"python_qpid_proton-{version}-*.whl"))
    (built,) = found
    return built


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path, bare_proton_wheel: Path) -> Path:
    """The bin folder of a new virtual environment with our wheel and the bare python-qpid-proton.

    The other dependencies come from the environment of the tests, after its own packages; the checkout, which that
    environment knows through a .pth file, does not: such files count only in an environment's own folder.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip("install", "-q", "--no-deps", "--no-index", wheel, bare_proton_wheel, python=python)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"
