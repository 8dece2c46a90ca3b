"""A session of Spark without settings for the data source: ``python -m tests.spark.session_program PATH``."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import journal
from spark import TxBrokerDataSource


def session() -> SparkSession:
    """A small one."""
    builder = SparkSession.builder.master("local[1]").appName("session")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(path: str) -> None:
    """Read a message, untold and told."""
    spark = session()
    with journal.open(path) as log:
        log.create_topic("t")
        log.append("t", b"x")
    found = [spark.read.format("txbroker").option("subscribe", "t").load(path).count()]
    spark.dataSource.register(TxBrokerDataSource)
    found.append(spark.read.format("txbroker").option("subscribe", "t").load(path).count())
    print(*found)


if __name__ == "__main__":
    main(sys.argv[1])
