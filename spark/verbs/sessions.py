"""The session of a verb, by its options: on this machine, on a cluster, or inside spark-submit."""

import argparse
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark.session import check_installed, cluster_session, is_submitted, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_session(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--master",
        metavar="URL",
        type=_master,
        help="run on this Spark cluster, e.g. spark://host:7077; without it on this machine alone",
    )
    verb.add_argument(
        "--driver-memory", metavar="SIZE", type=_memory, help="heap of Spark here, e.g. 4g; by the machine's memory"
    )


@contextlib.contextmanager
def opened(
    arguments: argparse.Namespace, input_bytes: int, *, is_by_arrow: bool = False
) -> "Iterator[tuple[SparkSession, Path]]":
    """Yields a session and a folder for its files. Both are removed afterwards.

    input_bytes  about how much will be read
    is_by_arrow  by Python workers, not by Spark itself
    Errors       SparkUnavailableError.
    """
    check_installed()
    work = Path(tempfile.mkdtemp(prefix="qdaudit-"))
    earlier_umask = os.umask(0o077)
    logging.disable()  # the bridge to Java logs a stack for every interrupt; errors reach us as exceptions anyway
    is_shown = sys.stderr.isatty()
    memory = arguments.driver_memory
    try:
        if is_on_cluster(arguments):
            session_of = cluster_session(work, master=arguments.master, driver_memory=memory, is_shown=is_shown)
        else:
            session_of = local_session(
                work, input_bytes=input_bytes, is_by_arrow=is_by_arrow, driver_memory=memory, is_shown=is_shown
            )
        with session_of as session:
            yield session, work
    finally:
        logging.disable(logging.NOTSET)
        os.umask(earlier_umask)
        shutil.rmtree(work, ignore_errors=True)


def is_on_cluster(arguments: argparse.Namespace) -> bool:
    return arguments.master is not None or is_submitted()


def _master(text: str) -> str:
    if re.fullmatch(r"(spark|k8s)://\S+|yarn|local(\[[^\]]+\])?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no address of a Spark cluster; write it as spark://host:7077")
    return text


def _memory(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]{0,6}[mg]", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of memory; write it as 2048m or 4g")
    return text
