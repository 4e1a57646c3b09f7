"""A Spark session: by default only on this machine, quiet, closed to the network, leaving no traces."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17
MIN_PYSPARK = 4
_START_LOG_LINES = 15
# Below this the JVM's optimizing compiler costs more than it gains: 14 s instead of 18 s for a small folder on 2 cores.
# The same holds if the JVM only gets sums: 46 s instead of 57 s for the denials among 10,000,000 events.
_LITTLE_BYTES = 32 * 1024 * 1024
# Below this the same holds for Spark's other optimizations: without them a report over a few hundred events takes a
# fifth less processor time. At 4 MB there is no difference, and above it they gain.
_FEW_BYTES = 1024 * 1024
_FOR_FEW = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
# The place in Python where a column was made, for Spark's errors. It is not shown, and costs two fifths of Python's
# time.
_NO_ORIGINS = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
_JAVA_VERSION_TIMEOUT_S = 60
_MEBIBYTE = 1024 * 1024
# The JVM's heap is an eighth of the machine's memory, within these limits. Spark spills the rest to disk, and the
# Python workers need the same amount again.
_HEAP_MIB = 1024, 8192
_HEAP_SHARE = 8
_ROOT = Path(__file__).resolve().parents[1]
_NO_PERF_DATA = "-XX:-UsePerfData"  # otherwise each JVM leaves a folder in /tmp


class SparkUnavailableError(Exception):
    """Spark cannot run here. The text names the package to install."""


def check_installed() -> None:
    """Checks for Spark in milliseconds, before a JVM starts. Inside spark-submit Spark is always available.

    Errors  SparkUnavailableError.
    """
    if is_submitted():
        return
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise SparkUnavailableError("pyspark is not installed; install this package with its extra spark") from None
    if int(version.split(".")[0]) < MIN_PYSPARK:
        raise SparkUnavailableError(
            f"pyspark {version} is too old, {MIN_PYSPARK} or later is needed: install this package with its extra spark"
        )
    remedy = (
        f"Spark needs Java {MIN_JAVA} or later: install a JDK (Debian, Ubuntu: apt install openjdk-17-jdk-headless; "
        "Fedora: dnf install java-21-openjdk-headless) or set JAVA_HOME to one"
    )
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        raise SparkUnavailableError(
            f"no java in JAVA_HOME={home}. {remedy}" if home else f"no java on the PATH. {remedy}"
        )
    try:
        asked = [java, _NO_PERF_DATA, "-version"]
        ran = subprocess.run(asked, capture_output=True, text=True, timeout=_JAVA_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailableError(f"{java} does not run: {error}. {remedy}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    if found is None:
        raise SparkUnavailableError(f"{java} -version does not tell a version. {remedy}")
    if int(found[1]) < MIN_JAVA:
        raise SparkUnavailableError(f"{java} is Java {found[1]}. {remedy}")


@contextlib.contextmanager
def local_session(
    work: Path,
    *,
    input_bytes: int,
    is_by_arrow: bool = False,
    driver_memory: str | None = None,
    is_shown: bool = False,
) -> Iterator["SparkSession"]:
    """Yields a session on all cores of this machine.

    work           an existing folder for all files of Spark, Hadoop and the JVM; the caller removes it.
    input_bytes    about how much will be read, to tune the JVM.
    is_by_arrow    Arrow reads the input in the workers; the JVM only gets sums
    driver_memory  the JVM's heap in Spark's form (`4g`); None: by the machine
    is_shown       progress on standard error
    Errors         SparkUnavailableError if the JVM does not start.
    """
    settings = _settings(work, input_bytes, is_by_arrow=is_by_arrow) | {
        "spark.driver.memory": driver_memory or f"{heap_mib()}m",
        "spark.ui.showConsoleProgress": str(is_shown).lower(),
    }
    with _started("local[*]", settings, work, _environment(work), is_shown=is_shown) as session:
        yield session


@contextlib.contextmanager
def cluster_session(
    work: Path, *, master: str | None, driver_memory: str | None = None, is_shown: bool = False
) -> Iterator["SparkSession"]:
    """Yields a session on a cluster, with the site's settings (SPARK_CONF_DIR) for it.

    master  its address (`spark://host:7077`); None inside spark-submit, which knows it
    The workers need the folders of audit files and tables under the same paths, and Python with this package's extra
    `spark`, at PYSPARK_PYTHON or at the path of this Python. They need the package itself too if it is not in
    --py-files.
    """
    settings = {
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.ui.showConsoleProgress": str(is_shown).lower(),
        **_NO_ORIGINS,
        # The driver's place of this package, perhaps the file of --py-files: Spark does not send it to the process that
        # looks for new files. A path that a worker does not have is harmless.
        "spark.executorEnv.PYTHONPATH": str(_ROOT),
    }
    if master is not None:
        settings |= {
            "spark.local.dir": str(work),
            "spark.driver.memory": driver_memory or f"{heap_mib()}m",
            "spark.ui.enabled": "false",
        }
    with _started(master, settings, work, _python(), is_shown=is_shown) as session:
        yield session


def is_submitted() -> bool:
    """Returns whether spark-submit has started this process, and the JVM before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def heap_mib() -> int:
    """Returns the JVM's heap, by the memory of the machine, or of the container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(limit.read_text("ascii")))
    least, most = _HEAP_MIB
    return min(max(total // _HEAP_SHARE // _MEBIBYTE, least), most)


@contextlib.contextmanager
def _started(
    master: str | None,
    settings: dict[str, str],
    work: Path,
    environment: contextlib.AbstractContextManager[None],
    *,
    is_shown: bool,
) -> Iterator["SparkSession"]:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("qdaudit")
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    jvm_log = work / "jvm.log"
    # The JVM inherits standard error and keeps it. Its messages must not mix with the report, except progress.
    quiet = contextlib.nullcontext() if is_shown else _standard_error_to(jvm_log)
    try:
        with quiet, environment:
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        last = jvm_log.read_text("utf-8", "replace").splitlines()[-_START_LOG_LINES:] if jvm_log.exists() else []
        raise SparkUnavailableError("\n".join([f"Spark did not start: {error}", *last])) from error
    try:
        yield session
    finally:
        session.stop()


def _settings(work: Path, input_bytes: int, *, is_by_arrow: bool) -> dict[str, str]:
    java_options = [f"-Djava.io.tmpdir={work}", f"-Dderby.system.home={work}"]
    if input_bytes < _LITTLE_BYTES or is_by_arrow:
        java_options.append("-XX:TieredStopAtLevel=1")
    if input_bytes < _FEW_BYTES:
        java_options.append("-XX:+UseSerialGC")
    settings = {
        # Audit data: the ports of the driver and the block manager are only for this machine, and there is no UI.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options),
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # The Python workers find this package at the driver's path.
        "spark.executorEnv.PYTHONPATH": str(_ROOT),
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        # The files name users and addresses: only their owner may read them, whatever the umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.hadoop.fs.defaultFS": "file:///",
        **_NO_ORIGINS,
    }
    return settings | _FOR_FEW if input_bytes < _FEW_BYTES else settings


@contextlib.contextmanager
def _environment(work: Path) -> Iterator[None]:
    """Sets the environment in which the JVM starts, without a site's cluster settings, some of which override ours."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")):
            del os.environ[name]
    conf = work / "conf"
    conf.mkdir()
    os.environ |= {
        "SPARK_HOME": str(_home(work)),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_DIRS": str(work),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "JDK_JAVA_OPTIONS": _NO_PERF_DATA,
        "PYSPARK_PYTHON": sys.executable,
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def _home(work: Path) -> Path:
    """Returns a folder with the installed Spark, without its archive of pyspark: workers use the installed modules.

    Each Python process compiles again what it reads from that archive, 0.6 s, and seven of them start one after
    another.
    """
    import pyspark

    home = work / "home"
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__path__[0]) / part)
    return home


@contextlib.contextmanager
def _python() -> Iterator[None]:
    """Makes the workers use this Python, unless the site sets another."""
    had = os.environ.get("PYSPARK_PYTHON")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        yield
    finally:
        if had is None:
            del os.environ["PYSPARK_PYTHON"]


@contextlib.contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)
