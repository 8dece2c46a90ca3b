"""An audit on Spark: it brings every claim to the slices that the claim is about, and collects the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from journal.records.outcome_entry import OUTCOMES_TOPIC
from spark.audit.checks import slice_check, uncommitted
from spark.audit.checks.shifts import Shifted
from spark.audit.checks.slice_check import Limits
from spark.audit.claims.decided_from import Known
from spark.audit.claims.directory import Directory, check_seen, undecided, verified, waiting
from spark.audit.claims.entries import (
    COMMIT,
    NEVER,
    REMEMBERED,
    SHAPE,
    archive_facts,
    remembered_facts,
)
from spark.audit.claims.facts import ARROW, SCHEMA, Fact, What, batches, facts
from spark.audit.claims.journal_fold import journal_facts
from spark.audit.claims.live_files import stable
from spark.audit.claims.log_tails import check_tail

DAY: Final = 86_400_000_000
INNER: Final = [What.CLAIM.value, What.TURNED.value, What.GAP.value, What.END.value, What.SHORT.value, SHAPE]
"""Kinds of facts that only the audit itself needs."""
PARTS: Final = [What.PIECE.value, What.EDGE.value, What.SHIFT.value]
"""Kinds of facts that slices give in parts, which are put together first."""
Work = Callable[[Iterator[Fact]], Iterator[Fact]]


class Audit:
    """One audit. :meth:`run` gives all facts, which are kept on the executors' disks meanwhile."""

    def __init__(self, spark: SparkSession, directory: Directory, window: int) -> None:
        self._spark = spark
        self._directory = directory
        self._limits = Limits(directory.wall + DAY, window)
        self._kept: list[DataFrame] = []

    def run(self) -> DataFrame:
        """Return all facts but the claims."""
        said = self._keep(self._said())
        reached = {row["number"]: row["last"] for row in _most(said, What.END, "last", "number").collect()}
        said = said.unionByName(self._of(waiting(self._directory, reached)))
        known = self._known(said)
        found = self._keep(
            self._verified(deep=not self._directory.archives or known.turned)
            .unionByName(self._tails(reached if known.whole else None))
            .unionByName(self._checked(said, known))
        )
        kept = said.where(~F.col("what").isin(INNER)).unionByName(found.where(~F.col("what").isin(PARTS)))
        shifted = Shifted(self._local(found, What.SHIFT))
        parts = chain(
            *(self._local(found, each) for each in (What.PIECE, What.EDGE)), self._local(said, What.SHORT)
        )
        joined = self._of(slice_check.joined(parts, shifted))
        return self._keep(kept.unionByName(joined).unionByName(self._twice(said)))

    @staticmethod
    def _local(facts_of: DataFrame, what: What) -> Iterator[Fact]:
        rows = facts_of.where(F.col("what") == what.value).select(*Fact._fields)
        return map(Fact._make, rows.toLocalIterator())

    def close(self) -> None:
        """Free the space on the disks."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return frame

    # -- claims and what they come from ------------------------------------------------------------------

    def _said(self) -> DataFrame:
        """Return the archive's entries, the claims on the logs, and the undecided transactions."""
        directory, ground, root = self._directory, self._directory.ground, self._directory.root
        slices = {part.id: part for part in directory.slices}
        archive = [part for part in directory.slices if part.topic == OUTCOMES_TOPIC]

        def entries(tasks: Iterator[Fact]) -> Iterator[Fact]:
            for task in tasks:
                if task.kind == "archive":
                    yield from archive_facts(root, slices[task.slice], ground)
                elif task.kind == REMEMBERED:
                    yield from stable(root, lambda: list(remembered_facts(root, ground)))
                else:
                    yield from journal_facts(root, task.path, ground)

        tasks = [Fact("task", "archive", slice=part.id) for part in archive]
        tasks += [Fact("task", "journal", path=path) for path in directory.journal]
        tasks += [Fact("task", REMEMBERED)] if directory.checkpoint.header.lsn else []
        found = self._tasks(tasks, entries)
        return found.unionByName(self._of(undecided(directory)))

    def _verified(self, deep: bool) -> DataFrame:
        root, in_use, live = self._directory.root, self._directory.in_use, self._directory.live

        def work(tasks: Iterator[Fact]) -> Iterator[Fact]:
            for _ in tasks:
                yield from verified(root, deep, in_use, live)

        return self._tasks([Fact("task")], work)

    def _tails(self, reached: dict[int, int] | None) -> DataFrame:
        """Return facts about the bytes behind the ends of the logs, if it is known how far the journal goes."""
        if reached is None:
            return self._of([])
        directory = self._directory
        root, tails, in_use = directory.tails_root or directory.root, directory.tails, directory.in_use

        def work(tasks: Iterator[Fact]) -> Iterator[Fact]:
            for task in tasks:
                yield from check_tail(root, tails[task.slice], reached, in_use)

        return self._tasks([Fact("task", slice=place) for place in range(len(tails))], work)

    def _twice(self, said: DataFrame) -> DataFrame:
        """Return transactions that have two entries in the archive."""
        entries = said.where((F.col("what") == What.ENTRY.value) & (F.col("topic") == OUTCOMES_TOPIC))
        several = entries.groupBy("session", "serial").agg(
            F.count("*").alias("n"), F.max_by(F.struct(*Fact._fields), "first").alias("one")
        )
        return several.where("n > 1").select(
            *(
                F.lit(What.VIOLATION.value).alias(name)
                if name == "what"
                else F.lit("archive").alias(name)
                if name == "kind"
                else F.concat(F.lit("the transaction has "), F.col("n"), F.lit(" entries")).alias(name)
                if name == "text"
                else F.col(f"one.{name}").alias(name)
                for name in Fact._fields
            )
        )

    # -- the logs ----------------------------------------------------------------------------------------

    def _checked(self, said: DataFrame, known: Known) -> DataFrame:
        """Check every slice with the claims on it."""
        directory = self._directory
        slices = {part.id: part for part in directory.slices}
        claims = said.where(
            (F.col("what") == What.CLAIM.value) & ((F.col("kind") != COMMIT) | (F.col("lsn") < known.commits))
        )
        marks = self._of(Fact("slice", slice=number) for number in slices)
        count = max(1, min(len(slices), 4 * self._spark.sparkContext.defaultParallelism))
        brought = claims.unionByName(marks).repartition(count, "slice")
        root, live, limits = directory.root, directory.live, self._limits
        decided = self._decided(claims, known)
        looked_for = uncommitted.shapes(said.where(F.col("what") == SHAPE), claims, directory)
        shapes = self._spark.sparkContext.broadcast(looked_for)

        def work(incoming: Iterator[Fact]) -> Iterator[Fact]:
            for number, mine in _by_slice(incoming):
                part = slices[number]
                since = decided.get(part.number, NEVER)
                wanted = shapes.value.get(part.number)
                yield from slice_check.check_slice(root, part, mine, since, limits, wanted, live)

        ordered = brought.sortWithinPartitions("slice", "first", "what", F.desc("kind"))
        return self._mapped(ordered, work).unionByName(self._of(uncommitted.left_out(looked_for)))

    def _known(self, said: DataFrame) -> Known:
        highest = {
            row["what"]: row["lsn"] for row in _most(said, [What.TURNED, What.GAP], "lsn", "what").collect()
        }
        directory = self._directory
        return Known.of(
            directory.archives,
            directory.first_lsn,
            highest.get(What.TURNED.value),
            highest.get(What.GAP.value),
        )

    def _decided(self, claims: DataFrame, known: Known) -> dict[int, int]:
        """Return from where on the journal decides every message of a log."""
        rows = claims.where(F.col("lsn") >= known.since).groupBy("number").agg(F.min("first").alias("first"))
        return {row["number"]: row["first"] for row in rows.collect()}

    # -- Spark -------------------------------------------------------------------------------------------

    def _of(self, rows: Iterable[Fact]) -> DataFrame:
        return self._spark.createDataFrame([tuple(row) for row in rows], SCHEMA)

    def _tasks(self, tasks: list[Fact], work: Work) -> DataFrame:
        """Have Spark do ``work`` on each of these tasks by itself."""
        if not tasks:
            return self._of([])
        spread = self._spark.sparkContext.parallelize([tuple(task) for task in tasks], len(tasks))
        return self._mapped(self._spark.createDataFrame(spread, SCHEMA), work)

    def _mapped(self, frame: DataFrame, work: Work) -> DataFrame:
        root, lsn = (
            self._directory.root,
            0 if self._directory.in_use else self._directory.checkpoint.header.lsn,
        )

        def mapped(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            check_seen(root, lsn)
            yield from batches(work(facts(incoming)))

        return frame.select(*ARROW.names).mapInArrow(mapped, SCHEMA)


def _most(said: DataFrame, what: What | list[What], column: str, by: str) -> DataFrame:
    """Return the highest value of a column of such facts."""
    kinds = [each.value for each in (what if isinstance(what, list) else [what])]
    return said.where(F.col("what").isin(kinds)).groupBy(by).agg(F.max(column).alias(column))


def _by_slice(incoming: Iterator[Fact]) -> Iterator[tuple[int, Iterator[Fact]]]:
    """Yield the claims slice by slice; all of one slice must be taken before the next is asked for."""
    ahead = next(incoming, None)
    while ahead is not None:
        number = ahead.slice

        def mine(number: int = number) -> Iterator[Fact]:
            nonlocal ahead
            while ahead is not None and ahead.slice == number:
                fact, ahead = ahead, next(incoming, None)
                if fact.what == What.CLAIM:
                    yield fact

        claims = mine()
        yield number, claims
        for _ in claims:
            pass
