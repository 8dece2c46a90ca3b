"""An expected table is compared with a topic by a key: messages may be missing, twice there, different, or too many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from journal.errors import InvalidSetting, UnknownTopic
from spark.audit.checks.tables import NOTHING, TableUnusable, opened, quiet, readable, source_of, why
from spark.audit.claims.directory import Directory
from spark.audit.claims.facts import Fact, What
from spark.audit.claims.file_positions import placed

SHOWN: Final = 200
"""The most characters of a value in a finding's text."""
EXAMPLES: Final = 3
AS_TEXT, AS_SUCH = "value as text", "value as such"
"""Columns with the fields of the value."""
DATA_EXCEPTION: Final = "SQLSTATE: 22"
"""The parts of Spark's messages where values are wrong, and not the query."""
_EXACT: Final = (DecimalType, ArrayType, MapType, StructType)
"""Types that are read from JSON directly: by way of text a decimal would lose digits, and others cannot be cast."""


class Expectation(NamedTuple):
    """An expected table: what a topic should hold.

    ``source`` is a path of Parquet or CSV, or ``jdbc:postgresql://host/db?user=…#TABLE``. ``key`` are columns of it.
    ``fields``: by column of the table, an SQL expression over the log's columns; without one it is the field of that
    name in the value, taken for JSON.
    """

    source: str
    topic: str
    key: tuple[str, ...]
    fields: dict[str, str]
    only: bool = False
    """Whether the log may hold nothing but the table's rows."""

    @property
    def shown(self) -> str:
        """The source, without user and password."""
        return source_of(self.source).shown

    def __repr__(self) -> str:
        """Show the expectation without its source, which may hold a password."""
        return f"Expectation(topic={self.topic!r}, key={self.key!r}, only={self.only!r})"


class Comparison:
    """The comparison of one table with one topic, made before the audit begins, so that an unusable table is reported
    then.

    The table is read once, and kept on the executors' disks until :meth:`close`.
    """

    def __init__(
        self, spark: SparkSession, directory: Directory, expectation: Expectation, jar: str = ""
    ) -> None:
        self._expectation = expectation
        self._directory = directory
        self._findings: DataFrame | None = None
        self._source = source_of(expectation.source)
        self._check_topic()
        table = opened(spark, self._source, jar)
        self._check_columns(table)
        self._others = [name for name in (expectation.fields or table.columns) if name not in expectation.key]
        self._types = {field.name: field.dataType for field in table.schema.fields}
        self._log = self._of_log(spark)
        with readable(self._source):
            rows = table.select(
                self._key(_shown(_column(name), self._types[name]) for name in expectation.key).alias("key"),
                _cells(_shown(_column(name), self._types[name]) for name in self._others).alias("expected"),
            )
            self._table = rows.persist(StorageLevel.DISK_ONLY)
        try:
            with readable(self._source):
                self._check_rows()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the space on the disks."""
        self._table.unpersist()
        if self._findings is not None:
            self._findings.unpersist()

    # -- reasons why they cannot be compared ------------------------------------------------------------

    def _check_topic(self) -> None:
        topics = sorted({store.topic for store in self._directory.checkpoint.stores})
        if self._expectation.topic not in topics:
            known = ", ".join(topics[:20]) + (f" and {len(topics) - 20} more" if len(topics) > 20 else "")
            raise UnknownTopic(
                f"--topic {self._expectation.topic}: {self._directory.root} has no such topic at its newest "
                f"checkpoint; there are {known or 'none'}. {NOTHING}"
            )

    def _check_columns(self, table: DataFrame) -> None:
        if not table.columns:  # the columns of an empty file
            raise self._empty()
        wanted = (*self._expectation.key, *self._expectation.fields)
        if unknown := [name for name in wanted if name not in table.columns]:
            raise InvalidSetting(
                f"--expect {self._source.shown}: there is no column {', '.join(unknown)}; there are "
                f"{', '.join(table.columns)}. {NOTHING}"
            )

    def _check_rows(self) -> None:
        shown, named = self._source.shown, ", ".join(self._expectation.key)
        counts = self._table.agg(F.count("*").alias("rows"), F.count("key").alias("keys")).collect()[0]
        if not counts["rows"] and not self._expectation.only:
            raise self._empty()
        if nulls := counts["rows"] - counts["keys"]:
            raise TableUnusable(
                f"--expect {shown}: the key {named} is null in {nulls:,} of {counts['rows']:,} rows, which no message "
                f"can be compared with. {NOTHING}. Leave them out (of a database: #(SELECT … WHERE … IS NOT NULL) AS "
                "t), or name another key"
            )
        twice = self._table.groupBy("key").count().where("count > 1")
        if found := twice.limit(EXAMPLES).collect():
            examples = ", ".join(f"{row['key']} ({row['count']} times)" for row in found)
            raise TableUnusable(
                f"--expect {shown}: {named} is no key: there are several rows of {examples}. It is unknown "
                f"which one a message should be like. {NOTHING}. Name more columns with --key, so that each row has "
                "its own"
            )

    def _empty(self) -> TableUnusable:
        return TableUnusable(
            f"--expect {self._source.shown} has no rows, so every log would pass. {NOTHING}. Name the table that was "
            "meant; if the topic is to be empty, say --only"
        )

    # -- the log -----------------------------------------------------------------------------------------

    def _of_log(self, spark: SparkSession) -> DataFrame:
        """Return key, cells and place of every message that the checkpoint knows."""
        topic, traced = self._expectation.topic, self._directory.archive is not None
        stores = [store for store in self._directory.checkpoint.stores if store.topic == topic]
        ends = {str(store.index): max(store.end_offset, store.start_offset) for store in stores}
        log = (
            spark.read.format("txbroker").option("path", self._directory.root).option("subscribe", topic)
            .option("includeHeaders", True).option("includeTransactions", traced)
            .option("endingOffsets", json.dumps({topic: ends}))
            .option("failOnDataLoss", False)  # the audit reports damaged messages; here they are missing
            .load()
        )  # fmt: skip
        origin = [
            (F.col(name) if traced else F.lit(None).cast("string")).alias(name)
            for name in ("transaction", "xid")
        ]
        for name, given in self._expectation.fields.items():
            with _understood(f"--field {name}={given}"):
                log.select(F.expr(given))
        with _understood("--field"):
            found = self._found()
            return self._read(log).select(
                self._key(found[name] for name in self._expectation.key).alias("key"),
                _cells(found[name] for name in self._others).alias("cells"),
                F.struct("partition", "offset", *origin).alias("place"),
            )

    def _read(self, log: DataFrame) -> DataFrame:
        """Return the messages with the fields of their values, read once for all columns."""
        names = (*self._expectation.key, *self._others)
        read = [name for name in names if name not in self._expectation.fields]
        exact = [name for name in read if isinstance(self._types[name], _EXACT)]
        value = F.col("value").cast("string")
        text = StructType([StructField(name, StringType()) for name in read])
        such = StructType([StructField(name, self._types[name]) for name in exact])
        return log.select(
            "*", F.from_json(value, text).alias(AS_TEXT), F.from_json(value, such).alias(AS_SUCH)
        )

    def _found(self) -> dict[str, Column]:
        """Return the messages' cells for each column as text in the table's type; a value of another type is kept as it
        is.
        """
        fields = self._expectation.fields
        found = {}
        for name in (*self._expectation.key, *self._others):
            kind = self._types[name]
            if name in fields:
                raw = F.expr(fields[name])
                typed = (
                    raw.cast(kind)
                    if isinstance(kind, (ArrayType, MapType, StructType))
                    else raw.try_cast(kind)
                )
            else:
                raw = _column(AS_TEXT).getField(name)
                if self._source.is_text:
                    raw = F.nullif(raw, F.lit(""))
                if isinstance(kind, _EXACT):
                    typed = _column(AS_SUCH).getField(name)
                else:
                    typed = raw.try_cast(kind)
            found[name] = F.coalesce(_shown(typed, kind), raw.cast("string"))
        return found

    @staticmethod
    def _key(parts: Iterator[Column]) -> Column:
        """Return all parts of the key as one text; null if one is null."""
        columns = list(parts)
        whole = F.lit(True)
        for each in columns:
            whole = whole & each.isNotNull()
        return F.when(whole, F.to_json(F.array(*columns)))

    # -- both --------------------------------------------------------------------------------------------

    def findings(self) -> DataFrame:
        """Return a finding for each key that is not in the log exactly as expected, with the place of its last
        message.
        """
        place = F.struct("place.partition", "place.offset")
        held = self._log.groupBy("key").agg(
            F.count("*").alias("held"), F.min(place).alias("first"), F.max("place").alias("last"),
            F.max_by("cells", place).alias("cells"),
        )  # fmt: skip
        wanted = self._table.withColumn("wanted", F.lit(1))
        both = held.join(wanted, "key", "full_outer").fillna(0, ["held", "wanted"])
        different = F.concat_ws("; ", *map(self._difference, range(len(self._others))))
        kind = (
            F.when(F.col("wanted") == 0, "unexpected")
            .when(F.col("held") == 0, "missing")
            .when(F.col("held") > 1, "twice")
            .when(F.col("difference") != "", "different")
        )
        compared = both.withColumn(
            "difference", F.when((F.col("held") > 0) & (F.col("wanted") > 0), different).otherwise("")
        )
        wrong = self._told(compared.withColumn("kind", kind).where("kind is not null"))
        self._findings = placed(wrong, self._directory).persist(StorageLevel.DISK_ONLY)
        try:
            with quiet():
                self._findings.count()
        except PySparkException as error:
            if not (self._expectation.fields and DATA_EXCEPTION in str(error)):
                raise
            raise InvalidSetting(
                f"--field: an expression fails for a message of {self._expectation.topic}: {why(error)}. There is no "
                "report. Let it give NULL there, with try_cast, try_element_at and the like"
            ) from error
        return self._findings

    def _difference(self, place: int) -> Column:
        ours, theirs = F.col("cells")[place], F.col("expected")[place]
        said = [F.coalesce(F.substring(each, 1, SHOWN), F.lit("NULL")) for each in (ours, theirs)]
        named = F.lit(f"{self._others[place]}: the log has ")
        return F.when(~ours.eqNullSafe(theirs), F.concat(named, said[0], F.lit(", expected is "), said[1]))

    def _told(self, wrong: DataFrame) -> DataFrame:
        expectation, topic = self._expectation, self._expectation.topic
        retained = any(
            store.start_offset for store in self._directory.checkpoint.stores if store.topic == topic
        )
        kind, named = F.col("kind"), ", ".join(expectation.key)
        harmless = (kind == "unexpected") & F.lit(not expectation.only) | (kind == "missing") & F.lit(
            retained
        )
        nameless = F.concat(
            F.col("held"),
            F.lit(f" messages have no {named}: their values are no JSON objects with it (see --field)"),
        )
        counted = F.concat(
            F.lit(f"key {named} = "), F.col("key"), F.lit(" is there "), F.col("held"), F.lit(" times, expected "),
            F.col("wanted"), F.lit(f" in {self._source.shown}"),
            F.when(kind == "twice", F.concat(
                F.lit(f"; first in {topic}-"), F.col("first.partition"), F.lit(" at offset "), F.col("first.offset")
            )).otherwise(F.lit("")),
            F.when(F.col("difference") != "", F.concat(F.lit("; "), "difference")).otherwise(F.lit("")),
            F.when((kind == "missing") & F.lit(retained), F.lit("; retention has taken some of this topic"))
            .otherwise(F.lit("")),
        )  # fmt: skip
        number = [F.split("last.transaction", "-")[place].cast("long") for place in (0, 1)]
        said = {
            "what": F.when(harmless, What.NOTICE.value).otherwise(What.VIOLATION.value),
            "kind": F.concat(F.lit("expect: "), kind),
            "topic": F.lit(topic),
            "partition": F.coalesce("last.partition", F.lit(-1)).cast("int"),
            "first": F.coalesce("last.offset", F.lit(-1)),
            "last": F.coalesce("last.offset", F.lit(-1)),
            "session": F.coalesce(number[0], F.lit(-1)),
            "serial": F.coalesce(number[1], F.lit(-1)),
            "xid": F.coalesce("last.xid", F.lit("")),
            "text": F.when(F.col("key").isNull(), nameless).otherwise(counted),
        }
        empty = Fact("")._asdict()
        return wrong.select(*(said.get(name, F.lit(empty[name])).alias(name) for name in Fact._fields))


@contextmanager
def comparing(
    spark: SparkSession, directory: Directory, expectations: list[Expectation], jar: str
) -> Iterator[list[Comparison]]:
    """Prepare all comparisons that are wanted; close them at the end."""
    made: list[Comparison] = []
    try:
        for each in expectations:
            made.append(Comparison(spark, directory, each, jar))
        yield made
    finally:
        for comparison in made:
            comparison.close()


@contextmanager
def _understood(what: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise InvalidSetting(
            f"{what} is no SQL expression over the columns of messages: {why(error)}. {NOTHING}. There are topic, "
            "partition, offset, timestamp, appended, key, value and headers, as in CAST(CAST(value AS STRING) AS INT)"
        ) from error


def _column(name: str) -> Column:
    """Return the column of exactly that name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _shown(column: Column, kind: DataType) -> Column:
    return F.hex(column) if isinstance(kind, BinaryType) else column.cast("string")


def _cells(columns: Iterator[Column]) -> Column:
    return F.array(*columns, F.lit(None).cast("string"))
