"""The Spark session that is measured: local, on all cores, with our data source and with Spark's own for Kafka."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.jars import jars
from benchmarks.spark.watch import processor_seconds
from spark import TxBrokerDataSource

CORES: Final = os.cpu_count() or 1
DRIVER_MEMORY: Final = "2g"


class Sample(NamedTuple):
    """One measurement: how long it took, and the processor time of all processes that took part, servers included."""

    seconds: float
    processor: float


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Start a session whose JVM has enough memory and no user interface."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": os.fspath(folder / "warehouse"),
        "spark.local.dir": os.fspath(folder / "local"),
        "spark.jars": ",".join(os.fspath(jar) for jar in sorted(jars("spark-kafka").iterdir())),
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench-spark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TxBrokerDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def timed(work: Callable[[], object]) -> Sample:
    """Run an action; return its measurement."""
    busy, began = processor_seconds(os.getpid()), time.monotonic()
    work()
    seconds = time.monotonic() - began
    return Sample(seconds, processor_seconds(os.getpid()) - busy)


def drain(frame: DataFrame) -> None:
    """Make every row with every column of the frame, and drop it: Spark's own way of measuring sources."""
    frame.write.format("noop").mode("overwrite").save()
