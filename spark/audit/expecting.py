"""The log against a table from elsewhere, by a key: what is missing in it, there twice, different, or in excess."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.errors import InvalidSetting
from spark.audit.facts import What

DRIVER: Final = "/usr/share/java/postgresql.jar"
"""Where Debian's ``libpostgresql-jdbc-java`` puts PostgreSQL's driver."""


class Expectation(NamedTuple):
    """What somebody expects in a topic.

    ``source`` is a path of Parquet or CSV, or ``jdbc:postgresql://host/db?user=…#TABLE``. ``key`` are columns of it.
    ``fields``: by column of the table, an SQL expression over the log's columns; without one it is the field of that
    name in the value, taken for JSON.
    """

    source: str
    topic: str
    key: tuple[str, ...]
    fields: dict[str, str]
    only: bool = False
    """Whether the log may hold nothing else."""

    def table(self, spark: SparkSession) -> DataFrame:
        """The expected rows."""
        if self.source.startswith("jdbc:"):
            url, _, table = self.source.partition("#")
            if not table:
                raise InvalidSetting(
                    f"--expect {self.source!r} names no table: put it behind a #, as in jdbc:…#orders"
                )
            return spark.read.format("jdbc").option("url", url).option("dbtable", table).load()
        if self.source.endswith(".csv") or (
            Path(self.source).is_dir() and list(Path(self.source).glob("*.csv"))
        ):
            return spark.read.option("header", True).csv(self.source)
        return spark.read.parquet(self.source)


def needs_driver(expectations: list[Expectation]) -> str:
    """The jar that Spark needs for them; empty if none."""
    wanted = any(each.source.startswith("jdbc:postgresql:") for each in expectations)
    return DRIVER if wanted and os.path.exists(DRIVER) else ""


def compare(spark: SparkSession, root: str, expectation: Expectation) -> DataFrame:
    """A finding for each key that is not in the log just as expected; the rows of equal keys count."""
    expected = expectation.table(spark)
    unknown = [name for name in (*expectation.key, *expectation.fields) if name not in expected.columns]
    if unknown:
        raise InvalidSetting(
            f"--expect {expectation.source}: there is no column {', '.join(unknown)}; there are "
            f"{', '.join(expected.columns)}. Nothing was compared"
        )
    compared = list(dict.fromkeys((*expectation.key, *(expectation.fields or expected.columns))))
    log = spark.read.format("txbroker").option("path", root).option("subscribe", expectation.topic).load()
    kinds = dict(expected.dtypes)

    def found(name: str) -> Column:
        given = expectation.fields.get(name)
        raw = F.expr(given) if given else F.get_json_object(F.col("value").cast("string"), f"$.{name}")
        return (
            raw.try_cast(kinds[name]).alias(name)
            if hasattr(raw, "try_cast")
            else raw.cast(kinds[name]).alias(name)
        )

    key = [F.col(name).cast("string") for name in expectation.key]
    others = [name for name in compared if name not in expectation.key]
    row = (
        F.to_json(F.struct(*(F.col(name).cast("string").alias(name) for name in others)))
        if others
        else F.lit("")
    )
    ours = log.select(*(found(name) for name in compared), F.struct("partition", "offset").alias("place"))
    ours = ours.select(F.to_json(F.array(*key)).alias("key"), row.alias("row"), "place")
    theirs = expected.select(*compared).select(F.to_json(F.array(*key)).alias("key"), row.alias("row"))
    left = ours.groupBy("key").agg(
        F.count("*").alias("held"), F.min("place").alias("first"), F.max("place").alias("last"),
        F.min("row").alias("low"), F.max("row").alias("high"),
    )  # fmt: skip
    right = theirs.groupBy("key").agg(
        F.count("*").alias("wanted"), F.min("row").alias("expected_low"), F.max("row").alias("expected_high")
    )
    both = left.join(right, "key", "full_outer").fillna(0, ["held", "wanted"])
    kind = (
        F.when(F.col("held") < F.col("wanted"), "missing")
        .when((F.col("wanted") == 0), "unexpected")
        .when(F.col("held") > F.col("wanted"), "twice")
        .when(
            (F.col("low") != F.col("expected_low")) | (F.col("high") != F.col("expected_high")), "different"
        )
    )
    return _as_findings(both.withColumn("kind", kind).where("kind is not null"), expectation)


def _as_findings(wrong: DataFrame, expectation: Expectation) -> DataFrame:
    harmless = (F.col("kind") == "unexpected") & F.lit(not expectation.only)
    detail = F.when(
        F.col("kind") == "different",
        F.concat(
            F.lit(": the log has "),
            F.substring("low", 1, 500),
            F.lit(", expected is "),
            F.substring("expected_low", 1, 500),
        ),
    ).otherwise(F.lit(""))
    name = F.lit(f" in {expectation.source.partition('?')[0]}")
    text = F.concat(
        F.lit(f"key {', '.join(expectation.key)} = "), F.col("key"), F.lit(" is there "), F.col("held"),
        F.lit(" times, expected "), F.col("wanted"), name, detail,
    )  # fmt: skip
    return wrong.select(
        F.when(harmless, What.NOTICE.value).otherwise(What.VIOLATION.value).alias("what"),
        F.concat(F.lit("expect: "), "kind").alias("kind"),
        F.lit(expectation.topic).alias("topic"),
        F.coalesce(F.col("last.partition"), F.lit(-1)).cast("int").alias("partition"),
        F.coalesce(F.col("last.offset"), F.lit(-1)).alias("first"),
        F.coalesce(F.col("last.offset"), F.lit(-1)).alias("last"),
        text.alias("text"),
    )
