"""The summary of an audit: small enough for one JSON document and one page, whatever the size of the logs."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from journal.records.outcome_entry import OUTCOMES_TOPIC
from spark.audit.checks.slice_check import EARLIEST, Limits
from spark.audit.claims.facts import PLACE, By, What

LISTED: Final = 1_000
"""The most findings in the JSON; the Parquet table has all."""
BARS: Final = 120
"""The most windows in the plot; more are put together."""
_ENTRY: Final = (
    "cause string, wall bigint, began bigint, prepared bigint, by string, by_principal string, why string, "
    "owner struct<principal:string,client:string,address:string>, heuristic boolean, "
    "partitions int"
)


def transactions(found: DataFrame) -> DataFrame:
    """Return every transaction of the archive or the checkpoint, with what is known of it; times in µs."""
    entries = found.where(F.col("what") == What.ENTRY.value)
    more = F.from_json("text", _ENTRY)
    return entries.select(
        "session", "serial", "xid", F.col("kind").alias("state"), F.col("lsn"), "messages", "bytes",
        F.when(F.col("kind") == "prepared", F.col("first")).alias("in_doubt"), more.alias("more"),
    ).select("*", "more.*").drop("more")  # fmt: skip


def findings(found: DataFrame) -> DataFrame:
    """Return violations and notices, each with its place; offsets inclusive, -1 where there is none."""
    wrong = found.where(F.col("what").isin(What.VIOLATION.value, What.NOTICE.value))
    return wrong.select(F.col("what").alias("severity"), *PLACE, "lsn")


def summed(
    wrong: DataFrame, ended: DataFrame, windows: DataFrame, found: DataFrame, limits: Limits
) -> dict[str, Any]:
    """Return the summary."""
    kinds = wrong.groupBy("severity", "kind").count().collect()
    counts = {
        severity: {row["kind"]: row["count"] for row in kinds if row["severity"] == severity}
        for severity in (What.VIOLATION.value, What.NOTICE.value)
    }
    logs = found.where(F.col("what") == What.LOG.value).agg(
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
        F.countDistinct("number").alias("partitions"),
        F.countDistinct("path").alias("segments"),
    ).collect()[0]  # fmt: skip
    return {
        "sound": not counts[What.VIOLATION.value],
        "violations": counts[What.VIOLATION.value],
        "notices": counts[What.NOTICE.value],
        "logs": logs.asDict(),
        "proven_by": _proofs(found, windows),
        "transactions": _outcomes(ended),
        "topics": [row.asDict() for row in _topics(windows)],
        "windows": _bars(windows, limits),
        "prepare_to_commit": _histogram(
            ended.where("state = 'committed' and prepared > 0"), F.expr("wall - prepared")
        ),
        "in_doubt": _histogram(ended.where("state = 'prepared'"), F.col("in_doubt")),
        "findings": _listed(wrong),
    }


def _proofs(found: DataFrame, windows: DataFrame) -> dict[str, int]:
    """Return how many messages each proof is the first of, and how many have none; without the archive's own."""
    own = found.where(F.col("topic") != OUTCOMES_TOPIC)
    counts = {
        row["kind"]: row["messages"]
        for row in _messages(own.where(F.col("what") == What.PROOF.value), "kind")
    }
    total = sum(row["messages"] for row in _messages(own.where(F.col("what") == What.LOG.value), "topic"))
    proofs = {each.value: counts.get(each.value, 0) for each in By}
    if "verdict" in windows.columns:
        reported = windows.where("verdict = '' AND unknown_messages = 0").agg(
            F.sum("unclaimed").alias("messages")
        )
        proofs[By.REPORTS] = reported.collect()[0]["messages"] or 0
    proofs[By.NOTHING] = total - sum(proofs.values())
    return proofs


def _messages(rows: DataFrame, by: str) -> list[Any]:
    return rows.groupBy(by).agg(F.sum("messages").alias("messages")).collect()


def _listed(wrong: DataFrame) -> list[dict[str, Any]]:
    """Return some findings of every kind, in the order of their places."""
    place = ("topic", "partition", "first", "path", "position")
    turn = F.row_number().over(Window.partitionBy("severity", "kind").orderBy(*place))
    taken = wrong.withColumn("turn", turn).orderBy("turn").drop("turn").limit(LISTED)
    ordered = taken.orderBy(F.desc("severity"), "kind", *place)
    return [_plain(row.asDict()) for row in ordered.collect()]


def _outcomes(ended: DataFrame) -> list[dict[str, Any]]:
    rows = ended.groupBy("state", "cause").agg(
        F.count("*").alias("transactions"), F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    )
    return [row.asDict() for row in rows.orderBy("state", "cause").collect()]


def _topics(windows: DataFrame) -> list[Any]:
    rows = windows.groupBy("topic").agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    return rows.orderBy("topic").limit(LISTED).collect()


def _bars(windows: DataFrame, limits: Limits) -> dict[str, Any]:
    """Return messages by time in at most so many bars of equal length, each of whole windows; without unusual times."""
    window = limits.window
    inside = windows.where(F.col("window").between(EARLIEST, limits.latest))
    span = inside.agg(F.min("window").alias("low"), F.max("window").alias("high")).collect()[0]
    if span["low"] is None:
        return {"from": 0, "length": window, "bars": []}
    length = window * -(-((span["high"] - span["low"]) // window + 1) // BARS)
    place = F.floor((F.col("window") - F.lit(span["low"])) / F.lit(length)).cast("int")
    rows = (
        inside.groupBy(place.alias("bar")).agg(F.sum("messages").alias("messages")).orderBy("bar").collect()
    )
    return {"from": span["low"], "length": length, "bars": [[row["bar"], row["messages"]] for row in rows]}


def _histogram(rows: DataFrame, value: Any) -> list[list[int]]:
    """Return [least µs, how many] by powers of two."""
    bucket = F.when(value < 1, F.lit(0)).otherwise(F.floor(F.log2(value)).cast("int"))
    found = rows.groupBy(bucket.alias("bucket")).count().orderBy("bucket").collect()
    return [[1 << row["bucket"], row["count"]] for row in found if row["bucket"] is not None]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without fields that are None."""
    return {name: value for name, value in row.items() if value not in ("", -1, None)}
