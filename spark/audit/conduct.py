"""The conduct of an audit, from its options to its report: tables of Parquet, a JSON summary, a page."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import SparkConf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import txbroker
from journal.errors import InvalidSetting
from journal.formats.spark_decision import TOPIC
from journal.records.outcome import wall_text
from journal.records.outcome_entry import OUTCOMES_TOPIC
from spark import TxBrokerDataSource
from spark.audit.audit import DAY, Audit
from spark.audit.checks import windows
from spark.audit.checks.expected_table import Comparison, Expectation, comparing
from spark.audit.checks.slice_check import Limits
from spark.audit.checks.uncommitted import NOT_LOOKED_FOR
from spark.audit.claims.directory import Directory, held, look
from spark.audit.claims.facts import SCHEMA, Fact
from spark.audit.failures import check_master, check_not_connect
from spark.audit.report import summary
from spark.audit.report.page import page
from spark.audit.report.report_files import Report
from spark.audit.state_copy import look_at_copy

LOCAL: Final = "local[*]"
STATE: Final = ".txbroker-audit-state"
"""The copy of the state in the report's directory; it is removed after the audit, so no other file may have this
name.
"""
GENERATED: Final = "spark.sql.codegen.wholeStage"
"""Options that switch compiling off: the JVM has little to do, and compiling took 80 of the 97 s of a small audit."""


class Plan(NamedTuple):
    """The options of an audit. ``window`` is in µs."""

    data: str
    out: str
    master: str | None
    reports: list[str]
    window: int
    expectations: list[Expectation]
    driver: str = ""
    """The jar of PostgreSQL's driver; "" takes Debian's, or the one that Spark has."""
    broker: str = ""
    """The broker that works in the directory: it is asked to remove no files meanwhile."""
    copy_state: bool = False
    """Whether a broker may start as soon as the state has been copied."""


def conduct(plan: Plan) -> dict[str, Any]:
    """Make the audit and write its report; return the summary. Raises what prevents it."""
    check_not_connect(plan.master)
    if SparkSession.getActiveSession() is None:
        check_master(_master(plan))  # before an earlier report is replaced
    if plan.broker:
        return _beside_a_broker(plan)
    if plan.copy_state:
        return _on_a_copy(plan)
    with held(plan.data) as in_use:
        directory = look(plan.data, in_use=in_use)
        report = Report(plan.out, plan.data)
        return _on_spark(plan, directory, report)


def _beside_a_broker(plan: Plan) -> dict[str, Any]:
    with txbroker.connect(plan.broker, client="spark audit") as broker:
        broker.pin_files()
        directory = look(plan.data, in_use=True)
        if directory.identity not in ("", broker.identity):
            raise InvalidSetting(
                f"the broker at {plan.broker} has the data {broker.identity}, and {plan.data} has "
                f"{directory.identity}: it is not at work there; nothing was audited. Name the broker of "
                "this directory, or leave out --broker for a copy"
            )
        return _on_spark(plan, directory, Report(plan.out, plan.data), broker.unpin_files)


def _on_a_copy(plan: Plan) -> dict[str, Any]:
    state = os.path.join(plan.out, STATE)
    try:
        with held(plan.data) as in_use:
            if in_use:
                raise InvalidSetting(
                    f"a broker is at work in {plan.data}, so nothing is to be copied to let one start; nothing was "
                    "audited. Leave out --copy-state, or give --broker"
                )
            look(plan.data)  # raises what prevents the audit before an earlier report is replaced
            report = Report(plan.out, plan.data)
            directory = look_at_copy(plan.data, state)
        return _on_spark(plan, directory, report)
    finally:
        shutil.rmtree(state, ignore_errors=True)


def _on_spark(
    plan: Plan, directory: Directory, report: Report, unpin: Callable[[], bool] | None = None
) -> dict[str, Any]:
    """Run the audit. ``unpin`` lets the directory's files go, and returns whether they were kept until then."""
    spark = session(plan)
    before = spark.conf.get(GENERATED) or "true"  # Spark's default, where none is given
    spark.conf.set(GENERATED, "false")
    try:
        spark.dataSource.register(TxBrokerDataSource)
        with comparing(spark, directory, plan.expectations, plan.driver) as comparisons:
            return _conduct(plan, directory, report, spark, comparisons, unpin)
    finally:
        spark.conf.set(GENERATED, before)


def _conduct(
    plan: Plan,
    directory: Directory,
    report: Report,
    spark: SparkSession,
    comparisons: list[Comparison],
    unpin: Callable[[], bool] | None,
) -> dict[str, Any]:
    began = time.monotonic()
    reports = windows.Reports(spark, directory.root, plan.reports) if plan.reports else None
    if reports is not None and directory.in_use and not directory.live:
        directory = look(plan.data, in_use=True)  # the reported messages must be on disk already
    window = reports.window if reports is not None and reports.window else plan.window
    audit = Audit(spark, directory, window)
    try:
        found = audit.run()
        of_logs = windows.of_logs(found)
        more: list[DataFrame] = []
        if reports is not None:
            opened = reports.open_producers()
            of_logs_all = windows.compared(of_logs, reports, opened)
            more.append(windows.findings(of_logs_all, _retained(directory), opened))
            more.append(_rows(spark, reports.missing()))
            of_logs = of_logs.join(
                of_logs_all.drop("messages", "bytes", "unclaimed"), ["topic", "window"], "full_outer"
            ).fillna(0, ["messages", "bytes", "unclaimed"])
        more += [each.findings() for each in comparisons]
        for each in more:
            found = found.unionByName(each, allowMissingColumns=True)
        return _written(plan, directory, report, found, of_logs, began, window, unpin)
    finally:
        audit.close()
        if reports is not None:
            reports.close()


def session(plan: Plan) -> SparkSession:
    """Return the Spark session that is running, or start one."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = _submitted()
    builder = SparkSession.builder.appName(f"txbroker audit of {Path(plan.data).name}")
    if plan.master:
        builder = builder.master(plan.master)
    elif not submitted:
        builder = builder.master(LOCAL)
    if not submitted:
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 2)))
        # The JVM lives for a minute: optimising its code costs more than it saves.
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def _submitted() -> bool:
    """Return whether spark-submit, which has its own settings, has started this process."""
    return "SPARK_ENV_LOADED" in os.environ


def _master(plan: Plan) -> str:
    return plan.master or (SparkConf().get("spark.master") if _submitted() else None) or LOCAL


def _rows(spark: SparkSession, facts: list[Fact]) -> DataFrame:
    return spark.createDataFrame([tuple(fact) for fact in facts], SCHEMA)


def _retained(directory: Directory) -> list[str]:
    """Return the topics of which messages were removed, by retention or by compactions."""
    stores = directory.checkpoint.stores
    return sorted({each.topic for each in stores if each.start_offset or any(s.epoch for s in each.segments)})


def _written(
    plan: Plan,
    directory: Directory,
    report: Report,
    found: DataFrame,
    of_logs: DataFrame,
    began: float,
    window: int,
    unpin: Callable[[], bool] | None,
) -> dict[str, Any]:
    wrong = report.table("findings", summary.findings(found))
    ended = report.table("transactions", summary.transactions(found))
    by_time = report.table("windows", of_logs.where(F.col("topic") != OUTCOMES_TOPIC))
    made = summary.summed(wrong, ended, by_time, found, Limits(directory.wall + DAY, window))
    lines = proven(plan, directory, kept=unpin() if unpin is not None else False)
    if made["notices"].get(NOT_LOOKED_FOR):
        lines.append(f"Not all transactions that were not committed were looked for: see {NOT_LOOKED_FOR!r}.")
    made |= {
        "directory": plan.data,
        "as_of": wall_text(directory.wall),
        "lsn": directory.checkpoint.header.lsn,
        "in_use": directory.in_use,
        "proven": lines,
        "seconds": round(time.monotonic() - began, 1),
    }
    report.finish(made, page(made))
    return made


def proven(plan: Plan, directory: Directory, kept: bool) -> list[str]:
    """Return in sentences what this audit has proven, and what it could not. ``kept``: no file was removed
    meanwhile.
    """
    lines = [
        "Every frame of every segment that the checkpoint knows: whole, sound, offsets without a gap, known content.",
        "Checkpoints, journal, staged files and indexes: sound, and in agreement with each other.",
    ]
    if not directory.checkpoint.header.lsn:
        lines.append(
            "There is no sound checkpoint: only the journal was read, and behind which of its messages the logs go on."
        )
    if directory.archive is None or not directory.archives:
        lines.append(
            "Outcomes are not archived: transactions were compared with the logs only as far as the journal holds "
            "them. Of those that ended before, nothing is proven: not that they are whole, and not that what was "
            "rolled back is not there. outcome_archive=on keeps what proving it takes, of what ends from then on."
        )
    else:
        start = directory.archive.start_offset
        since = f"; retention has taken the first {start:,} outcomes" if start else ""
        lines.append(
            "Every transaction of the outcome archive: in each partition that it named exactly once, with the count, "
            f"the bytes and the checksum of what was sent; nothing of those that were not committed{since}."
        )
        lines.append(
            "Every send that the journal holds: in its log, once, with the bytes that were acknowledged."
        )
    if any(store.topic == TOPIC for store in directory.checkpoint.stores):
        lines.append(
            f"The decisions about Spark's writes that {TOPIC} still holds: every branch that they list is committed, "
            "with as many rows as were decided, and no other one; as far as checkpoint and archive know how they ended."
        )
    lines.append(
        f"Windows against the reports in {', '.join(plan.reports)}." if plan.reports
        else "Nothing was compared with what producers say (--reports)."
    )  # fmt: skip
    for each in plan.expectations:
        lines.append(f"Topic {each.topic} against {each.shown} by {', '.join(each.key)}.")
    if directory.in_use:
        at_work = (
            "Its state was copied, and a broker may have started"
            if directory.live
            else "A broker was at work"
        )
        removed = "nothing was removed meanwhile" if kept else "what went away meanwhile was not looked at"
        lines.append(f"{at_work} in it: all is as of that checkpoint, and {removed}.")
    if retained := _retained(directory):
        lines.append(f"Retention has taken some of {', '.join(retained)}: what it took was not looked at.")
    return lines
