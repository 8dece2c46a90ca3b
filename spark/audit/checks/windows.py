"""Windows of time, by topic: the messages in the logs are compared with those that producers report as sent.

``docs/clients.md`` has the format of producers' reports. A message that is reported and not in the log is missing.
Messages that the log has in excess are wrong only where every run of every producer has sent its last report.
"""

from __future__ import annotations

from math import lcm
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.audit.claims.facts import Fact, What

_REPORT: Final = (
    "producer string, run string, number bigint, window bigint, transaction string, closed boolean, "
    "sent array<string>, unknown array<string>"
)
_ROW: Final = "array<string>"


class Reports:
    """The reports in these topics of a data directory. ``window`` is what all their windows fit into, 0 without any."""

    def __init__(self, spark: SparkSession, root: str, topics: list[str]) -> None:
        messages = (
            spark.read.format("txbroker").option("path", root).option("subscribe", ",".join(topics)).load()
        )
        read = messages.select(
            F.from_json(F.col("value").cast("string"), _REPORT).alias("report"),
            "topic",
            "partition",
            "offset",
        )
        whole = read.where("report.run is not null").select("report.*", "topic", "partition", "offset")
        numbered = whole.where("number is not null").dropDuplicates(["run", "number"])
        self._all = numbered.unionByName(whole.where("number is null")).persist()
        self.unreadable = read.where("report.run is null").select("topic", "partition", "offset")
        lengths = [row["window"] for row in self._all.select("window").distinct().collect()]
        self.window = lcm(*lengths) if lengths else 0

    def close(self) -> None:
        """Free the memory."""
        self._all.unpersist()

    def rows(self) -> DataFrame:
        """Return the reported counts by topic, window and producer."""

        def exploded(column: str) -> DataFrame:
            rows = self._all.select("producer", F.explode(column).alias("row"))
            return rows.withColumn("row", F.from_json("row", _ROW)).select(
                "producer",
                F.col("row")[0].alias("topic"),
                F.col("row")[1].cast("bigint").alias("begin"),
                F.col("row")[2].cast("bigint").alias(f"{column}_messages"),
                F.col("row")[3].cast("bigint").alias(f"{column}_bytes"),
            )

        both = exploded("sent").unionByName(exploded("unknown"), allowMissingColumns=True)
        begin = F.col("begin") - F.pmod(F.col("begin"), F.lit(self.window))
        sums = [
            F.coalesce(F.sum(name), F.lit(0)).alias(name)
            for name in ("sent_messages", "sent_bytes", "unknown_messages", "unknown_bytes")
        ]
        return both.withColumn("window", begin).groupBy("topic", "window", "producer").agg(*sums)

    def open_producers(self) -> list[str]:
        """Return producers with a run that has not sent its last report: messages in excess may be theirs."""
        runs = self._all.groupBy("producer", "run").agg(F.max("closed").alias("closed"))
        return sorted(
            row["producer"] for row in runs.where("not closed").select("producer").distinct().collect()
        )

    def missing(self) -> list[Fact]:
        """Return the reports whose numbers are missing."""
        numbered = self._all.where("number is not null")
        runs = numbered.groupBy("producer", "run").agg(
            F.max("number").alias("last"), F.count("*").alias("held"), F.first("topic").alias("topic")
        )
        return [
            Fact(
                What.VIOLATION, "report", row["topic"],
                text=f"producer {row['producer']!r} has made {row['last'] + 1} reports in run {row['run']}, "
                f"{row['held']} of them are there",
            )
            for row in runs.where("held <= last").limit(1000).collect()
        ]  # fmt: skip


def of_logs(found: DataFrame) -> DataFrame:
    """Return messages and bytes of the logs by topic and window, and how many of the messages are not claimed."""
    windows = found.where(F.col("what") == What.WINDOW.value)
    return windows.groupBy("topic", F.col("first").alias("window")).agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.sum("checksum").alias("unclaimed"),
    )


def compared(logs: DataFrame, reports: Reports, opened: list[str]) -> DataFrame:
    """Return both side by side, with a verdict for each window of each topic that producers report on."""
    rows = reports.rows()
    said = rows.groupBy("topic", "window").agg(
        *(
            F.sum(name).alias(name)
            for name in ("sent_messages", "sent_bytes", "unknown_messages", "unknown_bytes")
        ),
        F.sort_array(
            F.collect_list(F.concat_ws(" ", "producer", F.col("sent_messages"), F.col("unknown_messages")))
        ).alias("producers"),
    )
    topics = rows.select("topic").distinct()
    both = (
        logs.join(topics, "topic")
        .join(said, ["topic", "window"], "full_outer")
        .fillna(
            0,
            [
                "messages",
                "bytes",
                "unclaimed",
                "sent_messages",
                "sent_bytes",
                "unknown_messages",
                "unknown_bytes",
            ],
        )
    )
    sent, unknown = F.col("sent_messages"), F.col("unknown_messages")
    bytes_wrong = (F.col("messages") == sent) & (F.col("bytes") != F.col("sent_bytes")) & (unknown == 0)
    verdict = (
        F.when(F.col("messages") < sent, "missing")
        .when(bytes_wrong, "different")
        .when(F.col("messages") > sent + unknown, "unreported" if opened else "excess")
        .otherwise("")
    )
    return both.withColumn("verdict", verdict)


def findings(table: DataFrame, retained: list[str], opened: list[str]) -> DataFrame:
    """Return findings for the verdicts; where retention has removed messages of a topic, these may be the missing
    ones.
    """
    violation, notice = What.VIOLATION.value, What.NOTICE.value
    taken = F.col("topic").isin(retained) if retained else F.lit(False)
    text = F.concat(
        F.col("messages"), F.lit(" messages ("), F.col("bytes"), F.lit(" bytes) are in the log, producers say "),
        F.col("sent_messages"), F.lit(" ("), F.col("sent_bytes"), F.lit(" bytes) and perhaps "),
        F.col("unknown_messages"), F.lit(" more: "), F.concat_ws(", ", "producers"),
        F.lit(f"; not closed: {', '.join(opened)}" if opened else ""),
        F.when(taken, F.lit("; retention has taken some of this topic")).otherwise(F.lit("")),
    )  # fmt: skip
    what = F.when(F.col("verdict") == "unreported", notice).when(
        (F.col("verdict") == "missing") & taken, notice
    )
    return table.where("verdict <> ''").select(
        what.otherwise(violation).alias("what"),
        F.concat(F.lit("window: "), "verdict").alias("kind"),
        "topic",
        F.col("window").alias("first"),
        text.alias("text"),
    )
