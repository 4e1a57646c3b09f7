"""One Spark session for all tests: starting it takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from spark.session import SparkUnavailableError, check_installed, local_session

    try:
        check_installed()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    # As for more than a few events, whose code is generated; test_the_command_prints_its_report has the other way.
    with local_session(tmp_path_factory.mktemp("spark"), input_bytes=2 * 1024 * 1024) as started:
        started.conf.set("spark.sql.shuffle.partitions", "1")
        yield started
