"""qdaudit on a real standalone cluster: a master and two workers on loopback (issue 15)."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from literal_events import line

pytest.importorskip("pyspark")

import pyspark

from spark.session import SparkUnavailableError, check_installed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
_UP_S = 120


def until(path: Path, pattern: str, is_alive: Callable[[], bool]) -> None:
    """Until a log says so."""
    stop = time.monotonic() + _UP_S
    while re.search(pattern, path.read_text("utf-8", "replace")) is None:
        assert is_alive(), path.read_text("utf-8", "replace")[-2000:]
        assert time.monotonic() < stop, path.read_text("utf-8", "replace")[-2000:]
        time.sleep(0.1)


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(folder),
        # For a job of seconds: seven JVMs that optimize their code and collect garbage in parallel take twice as long.
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a cluster whose workers have no package of ours but what is sent to them."""
    try:
        check_installed()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("cluster")
    # What a site sets for its cluster. Of 200 partitions of a shuffle all but a few would be empty here.
    (folder / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 4\nspark.sql.codegen.wholeStage false\nspark.sql.codegen.factoryMode NO_CODEGEN\n"
    )
    port, run = free_port(), Path(pyspark.__file__).parent / "bin" / "spark-class"
    url = f"spark://127.0.0.1:{port}"
    master_class, worker_class = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    work = ["--cores", "1", "--memory", "1g"]
    commands = [
        [str(run), master_class, *here, "--port", str(port)],
        *([str(run), worker_class, *here, *work, "--work-dir", str(folder / f"w{n}"), url] for n in (1, 2)),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            log = folder / f"{number}.log"
            with log.open("wb") as sink:
                processes.append(
                    subprocess.Popen(command, env=environment(folder), stdout=sink, stderr=sink, cwd=folder)
                )
            pattern = "I have been elected leader" if number == 0 else "Successfully registered with master"
            until(log, pattern, lambda: processes[-1].poll() is None)
        yield url, folder
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def test_ingest_and_denials_run_on_two_workers(master: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = master
    audit, table, archive = tmp_path / "audit", tmp_path / "table", tmp_path / "palisade.zip"
    audit.mkdir()
    for name in "ab":
        texts = [line(event_id=f"{number:031x}{name}", user=name, sequence=number) for number in range(20)]
        (audit / f"{name}.jsonl").write_text("".join(f"{text}\n" for text in texts))
    subprocess.run([sys.executable, ROOT / "deploy/spark/py_files.py", archive], check=True)
    submit = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", url, "--executor-memory", "512m", "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "--py-files", str(archive), str(ROOT / "deploy/spark/submit.py")),
    ]
    done = subprocess.run(
        [*submit, "ingest", str(audit), str(table)],
        env=environment(folder),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "40 events of 40 lines of 2 files; 0 duplicates; 0 quarantined" in done.stdout
    # The other way: the command itself, with --master.
    done = subprocess.run(
        [sys.executable, "-m", "spark.cli", "denials", str(table), "--master", url],
        env={**environment(folder), "PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("40 denials in 40 lines of 2 files; 0 duplicates; 0 quarantined\n")


def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    asked = ["denials", str(tmp_path / "audit"), "--master", "spark://127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-m", "spark.cli", *asked], cwd=ROOT, capture_output=True, text=True, env=environment(tmp_path)
    )
    assert done.returncode == 3
    assert done.stderr == (f"qdaudit: {tmp_path}/audit: on a cluster give an event table, made by `qdaudit ingest`\n")
