"""A Spark application that copies a topic to files or a topic: ``python -m tests.spark.source.stream_program JSON``."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from spark import TxBrokerDataSource


@dataclass
class Copying:
    """What to do. ``to``: options of a sink instead of files."""

    folder: str
    options: dict[str, str]
    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    to: dict[str, str] = field(default_factory=dict)


def main(job: Copying) -> None:
    """Run the stream."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(job.master).appName("copying")
    for name, value in {
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": f"{job.folder}/local",
        **job.conf,
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TxBrokerDataSource)
    source = spark.readStream.format("txbroker").options(**job.options).load()
    sink = source.writeStream.format("parquet").option("path", f"{job.folder}/out")
    if job.to:
        sink = source.select("value").writeStream.format("txbroker").options(**job.to)
    query = sink.option("checkpointLocation", f"{job.folder}/checkpoint")
    query.trigger(processingTime="100 milliseconds").start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Copying(**json.loads(sys.argv[1])))
