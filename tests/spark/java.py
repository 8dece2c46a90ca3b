"""What every Java machine of the tests is started with; and an archive of Spark's classes, from which it starts sooner.

``python -m tests.spark.java`` makes the archive, as ``make test`` does: a Java machine that is at work a first time
writes down its loaded classes (Class Data Sharing). Another one maps them instead of reading, checking and linking
them anew: a start and some queries take 15 s of processor with it, and 25 s without. An archive that does not fit the
Java or the Spark that is there is passed over.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from pathlib import Path

from tests.support.repository import ROOT

KEPT = ROOT / ".make"
ARCHIVE = KEPT / "spark.jsa"
PROPERTIES = KEPT / "spark.properties"
NO_CONFIGURATION = KEPT / "no-spark-conf"
"""Spark has this folder among those that it looks for classes in; classes are shared only if there is no file in it."""

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What the Java machines of the tests live for is a minute: to compile the utmost out of it, and to collect on many
threads, costs them a third of their time and the other workers their processor."""

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
SHARED = f"-XX:SharedArchiveFile={ARCHIVE} {QUIET}"
"""For every Java machine, also those whose options a program of ours gives; without a word where it does not fit."""

SETTINGS = {
    "spark.driver.extraJavaOptions": BRIEF,
    "spark.executor.extraJavaOptions": BRIEF,
    "spark.sql.shuffle.partitions": "2",  # 200 partitions of a dozen rows are 200 tasks
    "spark.ui.enabled": "false",
}
SUBMITTED = ("--properties-file", str(PROPERTIES))
"""Options of ``spark-submit``."""


def provide(**other: str) -> None:
    """Have all Sparks of this process and its programs take these settings; with others none uses the archive."""
    NO_CONFIGURATION.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{name} {value}\n" for name, value in {**SETTINGS, **other}.items())
    with tempfile.NamedTemporaryFile("w", dir=KEPT, delete=False) as file:
        file.write(text)
    os.replace(file.name, PROPERTIES)
    os.environ |= {
        "JDK_JAVA_OPTIONS": "" if other else SHARED,
        "SPARK_CONF_DIR": str(NO_CONFIGURATION),
        "PYSPARK_SUBMIT_ARGS": f"{' '.join(SUBMITTED)} pyspark-shell",
        "SPARK_LAUNCHER_OPTS": BRIEF,
        "SPARK_DAEMON_JAVA_OPTIONS": BRIEF,
    }


def train(folder: Path) -> None:
    """Do a bit of everything: tables, our source, a stream; and wait for the end of the Java machine."""
    from pyspark.sql import SparkSession

    from spark import TxBrokerDataSource
    from tests.spark.audit.audited import Making

    made = Making(folder / "data")
    for number in range(20):
        made.send(number % 2, b'{"id": %d}' % number)
    source = {"subscribe": "a", "startingOffsets": "earliest"}
    data = str(made.close())
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.dataSource.register(TxBrokerDataSource)
    spark.range(20).selectExpr("id", "concat('name ', id) AS name").write.parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).write.csv(str(folder / "csv"), header=True)
    rows = spark.read.csv(str(folder / "csv"), header=True).groupBy("id").count()
    messages = spark.read.format("txbroker").options(**source).load(data)
    found = messages.selectExpr("get_json_object(CAST(value AS STRING), '$.id') AS id").join(rows, "id")
    assert len(found.orderBy("id").collect()) == 20
    stream = spark.readStream.format("txbroker").options(**source).load(data)
    query = stream.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.sql("SELECT * FROM seen").count() == 20
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    pause = threading.Event()
    while gateway.proc.poll() is None or Path(f"/proc/{pid}").exists():
        pause.wait(0.1)


def main() -> None:
    """Make the archive anew."""
    argparse.ArgumentParser("python -m tests.spark.java", description=main.__doc__).parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    new = ARCHIVE.with_suffix(".new")
    ARCHIVE.unlink(missing_ok=True)
    provide(**{"spark.driver.extraJavaOptions": f"{BRIEF} {QUIET} -XX:ArchiveClassesAtExit={new}"})
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder))
    os.replace(new, ARCHIVE)
    provide()


if __name__ == "__main__":
    main()
