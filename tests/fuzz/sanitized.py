"""python-qpid-proton and our own compiled modules, built with the address and the undefined behaviour sanitizer.

Kept in `.cache/asan` of the checkout, by the versions and sources that they are of: the engine takes a minute.
proton's pool of events is left out of this build, so that an event used after its end is seen; its pool of deliveries
cannot be, because proton itself looks at deliveries that lie in it.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".cache" / "asan"
PROTON = "python-qpid-proton"
FLAGS = "-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1"
BUILDERS = tuple(f"router/amqp/{name}_build.py" for name in ("engine/steps", "guard/frames", "layout/walk"))
POOLED, UNPOOLED = "if (pool && pn_refcount(pool) > 1) {", "if (0) {"


class Missing(Exception):
    """A tool is not there; the message says how to get it."""


@dataclass(frozen=True)
class Sanitized:
    """python   of an environment with the sanitized engine
    modules  the folder with our compiled modules
    """

    python: Path
    modules: Path
    libraries: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        """The environment of a process of that Python. Python leaks by design, so leaks are not looked for."""
        return {
            "LD_PRELOAD": ":".join(map(str, self.libraries)),
            "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=64:allocator_may_return_null=1:exitcode=86",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=86",
            "PYTHONMALLOC": "malloc",
            "PALISADE_FUZZ_MODULES": str(self.modules),
        }


def sanitized() -> Sanitized:
    """Build what is not built yet. Errors: Missing; subprocess.CalledProcessError with what the compiler said."""
    libraries = tuple(map(library, ("libasan.so", "libubsan.so")))
    version = metadata.version(PROTON)
    compiler = run("gcc", "-dumpfullversion").strip()
    sources = [*sorted((ROOT / "router/amqp").glob("*/*_build.py")), *sorted((ROOT / "router/amqp").glob("*/*.c"))]
    ours = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + FLAGS.encode()).hexdigest()[:12]
    engine = CACHE / f"proton-{version}-{sysconfig.get_config_var('SOABI')}-gcc{compiler}"
    modules = CACHE / f"modules-{ours}-{sysconfig.get_config_var('SOABI')}-gcc{compiler}"
    python = engine / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test workers begin at once
        if not (engine / "complete").exists():
            build_engine(engine, version)
            (engine / "complete").touch()
        if not (modules / "complete").exists():
            build_modules(modules)
            (modules / "complete").touch()
    return Sanitized(python, modules, libraries)


def library(name: str) -> Path:
    """gcc's own copy of a sanitizer's runtime."""
    if shutil.which("gcc") is None:
        raise Missing("gcc is missing: apt-get install gcc")
    found = Path(run("gcc", f"-print-file-name={name}").strip())
    if not found.is_absolute():
        raise Missing(f"{name}, which is gcc's, is missing: apt-get install gcc")
    return found.resolve()


def build_engine(folder: Path, version: str) -> None:
    """An environment with python-qpid-proton from its sources, without TLS and SASL; the rest is the tests' own."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False, symlinks=True)
    work = folder / "build"
    pip("download", "-q", "--no-deps", "--no-binary", PROTON, "--dest", str(work), f"{PROTON}=={version}")
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    (source,) = (path for path in work.iterdir() if path.is_dir())
    events = source / "src" / "core" / "event.c"
    text = events.read_text()
    assert text.count(POOLED) == 1, f"{PROTON} {version} pools its events in another way: look at {events.name}"
    events.write_text(text.replace(POOLED, UNPOOLED))
    nothing = work / "nothing"
    nothing.mkdir()
    hidden = {"PKG_CONFIG_LIBDIR": str(nothing), "PKG_CONFIG_PATH": str(nothing), "CFLAGS": FLAGS, "LDFLAGS": FLAGS}
    pip("wheel", "-q", "--no-deps", "--no-cache-dir", "--wheel-dir", str(work), str(source), **hidden)
    (wheel,) = work.glob("*.whl")
    pip("--python", str(folder / "bin" / "python"), "install", "-q", "--no-deps", "--no-index", str(wheel))
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(packages, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.rmtree(work)


def build_modules(folder: Path) -> None:
    """Compile the modules of setup.py into another folder: the checkout keeps its own."""
    shutil.rmtree(folder, ignore_errors=True)
    code = "import sys; from tests.fuzz.sanitized import compile_module; compile_module(*sys.argv[1:])"
    for name in BUILDERS:
        run(sys.executable, "-c", code, str(ROOT / name), str(folder), CFLAGS=FLAGS, LDFLAGS=FLAGS)


def compile_module(builder: str, folder: str) -> None:
    """One module of ours; in a process of its own, because setuptools asks the environment for its flags."""
    spec = importlib.util.spec_from_file_location("builder", builder)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ffibuilder.compile(tmpdir=folder)


def pip(*arguments: str, **environment: str) -> None:
    run(sys.executable, "-m", "pip", *arguments, **environment)


def run(*command: str, **environment: str) -> str:
    """Run the command and return its output; the error of a failure has all of it."""
    result = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}"
    return result.stdout


if __name__ == "__main__":
    # A campaign under the sanitizers, by hand: python -m tests.fuzz.sanitized neighbours --seconds 3600 --seed 1
    built = sanitized()
    name, *rest = sys.argv[1:] if sys.argv[1:2] and sys.argv[1].isalpha() else ["connections", *sys.argv[1:]]
    campaign = [str(built.python), "-m", f"tests.fuzz.{name}", *rest]
    sys.exit(subprocess.run(campaign, cwd=ROOT, env=os.environ | built.environment(), check=False).returncode)
