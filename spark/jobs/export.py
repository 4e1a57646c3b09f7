"""Tables for other programs: CSV, JSON lines and Parquet of one frame, and events as OCSF."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from spark.event_table import hadoop_path
from spark.jobs.reports import with_text_times
from spark.jobs.spreadsheet import defused
from spark.transforms.ocsf import ocsf

FORMATS: Final = ("csv", "json", "parquet", "ocsf")


def write_table(frame: DataFrame, out: Path, name: str, form: str) -> Path:
    """Writes one file `out`/name.<form>, and replaces an earlier one.

    form  csv, json (lines) or parquet
    """
    if form == "parquet":
        return _one_file(frame, out / f"{name}.parquet", lambda writer, to: writer.parquet(to))
    texts = with_text_times(frame)
    if form == "json":
        return _one_file(texts, out / f"{name}.json", lambda writer, to: writer.json(to, ignoreNullFields=False))
    flat = {
        field.name: F.array_join(field.name, " ") if isinstance(field.dataType, ArrayType) else F.col(field.name)
        for field in texts.schema
        if isinstance(field.dataType, ArrayType | StringType)
    }
    csv = texts.withColumns(flat).withColumns({each: defused(each) for each in flat})
    return _one_file(csv, out / f"{name}.csv", lambda writer, to: writer.csv(to, header=True, escape='"'))


def write_ocsf(events: DataFrame, out: Path) -> Path:
    """Writes ocsf.json: one OCSF object a line."""
    return _one_file(ocsf(events).select("value"), out / "ocsf.json", lambda writer, to: writer.text(to))


def _one_file(frame: DataFrame, place: Path, write: Callable[[DataFrameWriter, str], None]) -> Path:
    folder = place.with_name(f".{place.name}")
    write(frame.coalesce(1).write.mode("overwrite"), hadoop_path(folder))
    parts = [path for path in folder.iterdir() if path.name.startswith("part-")]
    if place.is_dir():  # written by earlier versions
        shutil.rmtree(place)
    if parts:
        parts[0].replace(place)
    else:
        place.write_bytes(b"")
    shutil.rmtree(folder)
    return place
