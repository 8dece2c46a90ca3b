"""Spark for tests: one session in local mode for all tests of a process, with two cores and 1 GiB.

`conf/` has what every Spark of the tests is started with, those of programs and of `spark-submit` too: it halves their
time. What Spark's own launcher and daemons are started with is said in the environment.
"""

import os
import sys
from pathlib import Path

import pytest

BRIEF = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ |= {
    "SPARK_CONF_DIR": str(Path(__file__).resolve().parent / "conf"),
    "SPARK_LAUNCHER_OPTS": BRIEF,
    "SPARK_DAEMON_JAVA_OPTS": BRIEF,
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A session that knows the data source."""
    from pyspark.sql import SparkSession

    from spark import TxBrokerDataSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(TxBrokerDataSource)
    yield session
    session.stop()
