"""A Spark session on this machine alone: quiet, reachable by nobody, and gone without a trace."""

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
_LITTLE_BYTES = 32 * 1024 * 1024
# Below this so does everything else that Spark does to be fast later: processor time of a report over a few hundred
# events is a fifth less without. At 4 MB it makes no difference, and above it costs.
_FEW_BYTES = 1024 * 1024
_FOR_FEW = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_JAVA_VERSION_TIMEOUT_S = 60
_NO_PERF_DATA = "-XX:-UsePerfData"  # else each JVM leaves a folder in /tmp


class SparkUnavailableError(Exception):
    """Spark cannot run here; the text names the package to install."""


def check_installed() -> None:
    """Find out in milliseconds, not after the start of a JVM.

    Errors  SparkUnavailableError.
    """
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise SparkUnavailableError(
            "pyspark is not installed; install this package's extra: pip install 'palisade-router[spark]'"
        ) from None
    if int(version.split(".")[0]) < MIN_PYSPARK:
        raise SparkUnavailableError(
            f"pyspark {version} is too old, {MIN_PYSPARK} or later is needed: pip install 'palisade-router[spark]'"
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
def local_session(work: Path, *, input_bytes: int) -> Iterator["SparkSession"]:
    """A session on all cores of this machine.

    work         an existing folder for everything Spark, Hadoop and the JVM put down; the caller removes it afterwards.
    input_bytes  about how much will be read, to tune the JVM by.
    Errors       SparkUnavailableError when the JVM does not come up.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").appName("qdaudit")
    for name, value in _settings(work, input_bytes).items():
        builder = builder.config(name, value)
    jvm_log = work / "jvm.log"
    try:
        # The JVM inherits standard error and keeps it: its chatter must not stand between an operator and the report.
        with _standard_error_to(jvm_log), _environment(work):
            session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        last = jvm_log.read_text("utf-8", "replace").splitlines()[-_START_LOG_LINES:] if jvm_log.exists() else []
        raise SparkUnavailableError("\n".join([f"Spark did not start: {error}", *last])) from error
    try:
        yield session
    finally:
        session.stop()


def _settings(work: Path, input_bytes: int) -> dict[str, str]:
    java_options = [f"-Djava.io.tmpdir={work}", f"-Dderby.system.home={work}"]
    if input_bytes < _LITTLE_BYTES:
        java_options.append("-XX:TieredStopAtLevel=1")
    if input_bytes < _FEW_BYTES:
        java_options.append("-XX:+UseSerialGC")
    settings = {
        # Audit data: the driver's ports and the block manager's are for this machine only, and there is no UI.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in java_options),
        "spark.local.dir": str(work),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        # The files name users and addresses: for their owner alone, whatever the umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.hadoop.fs.defaultFS": "file:///",
    }
    return settings | _FOR_FEW if input_bytes < _FEW_BYTES else settings


@contextlib.contextmanager
def _environment(work: Path) -> Iterator[None]:
    """The environment the JVM starts in, without a site's settings for its clusters, some of which outrank ours."""
    kept = dict(os.environ)
    for name in kept:
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")):
            del os.environ[name]
    conf = work / "conf"
    conf.mkdir()
    os.environ |= {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_DIRS": str(work),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "JDK_JAVA_OPTIONS": _NO_PERF_DATA,
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


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
