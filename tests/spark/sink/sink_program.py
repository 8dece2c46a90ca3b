"""A Spark application that writes, and dies or fails where told: ``python -m tests.spark.sink.sink_program JSON``.

What it writes with is the sink as users have it; it only chooses the moment of a real death (SIGKILL of the driver's
JVM and Python process, or of an executor) or of a failure. ``Job`` has what can be said in the JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession

from spark.data_source import TxBrokerDataSource
from spark.sink import branches
from spark.sink import writer as writing
from spark.sink.options import parse
from spark.sink.register import Register

MOMENTS = ("prepared", "decided", "between two commits", "committed", "told")
"""When a driver dies. Decided are all but the first."""
BROKER_DIES = ", and it is the broker that dies"
"""Behind a moment."""


@dataclass
class Job:
    """What to do. ``folder`` is the program's own: marks of what has happened lie there."""

    broker: str
    folder: str
    kind: str = "batch"
    master: str = "local[2]"
    attempt: str = "a"
    rows: int = 2000
    partitions: int = 4
    moment: str = ""
    after: int = 0
    """So many commits of this life go well before."""
    options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)


class Deaths:
    """Kills once, of all processes that share a folder."""

    def __init__(self, folder: str, victims: list[int]) -> None:
        self.folder = folder
        self.victims = victims

    def once(self, mark: str) -> bool:
        """Whether this is the first call with that mark."""
        try:
            os.close(os.open(Path(self.folder) / mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def driver(self) -> None:
        """Kill the driver, and this process, which is one of its workers."""
        for victim in [*self.victims, os.getpid()]:
            os.kill(victim, signal.SIGKILL)

    def broker(self) -> None:
        """Kill the broker, whoever starts it again."""
        if self.once("broker died"):
            os.kill(int(os.environ["BROKER"]), signal.SIGKILL)

    def executor(self) -> None:
        """Kill the executor whose worker this is: the JVM two processes up."""
        daemon = _parent(os.getpid())
        os.kill(_parent(daemon), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Interfering:
    """A part of both sinks of this program."""

    moment: str
    after: int
    deaths: Deaths

    def write_rows(self, write: Any, begun: Any, batches: Any) -> Any:
        if self.moment == "executor while it sends":
            batches = self._dying(batches)
        written = super().write_rows(write, begun, batches)  # type: ignore[misc]
        context = TaskContext.get()
        assert context is not None
        first = context.partitionId() == 0
        if self.moment == "executor" and first and self.deaths.once("executor died"):
            self.deaths.executor()
        if self.moment == "task fails" and first and self.deaths.once("task failed"):
            raise RuntimeError("a task fails after it has prepared its rows")
        if self.moment == "overtaken" and first and self.deaths.once("to be overtaken"):
            while not (Path(self.deaths.folder) / "overtaken").exists():
                time.sleep(0.02)
            raise RuntimeError("a task fails when a later version has been decided")
        if self.moment == "slow" and first and self.deaths.once("a slow one"):
            time.sleep(600)  # until its copy has won, and it is killed
        if self.moment == "late" and first and self.deaths.once("late"):
            time.sleep(8)
        return written

    def _dying(self, batches: Any) -> Any:
        """Its first rows have been sent when it asks for more."""
        yield next(batches)
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0 and self.deaths.once("executor died"):
            self.deaths.executor()
        yield from batches

    def commit_write(self, *given: Any) -> None:
        deaths, life = self.deaths, os.environ.get("LIFE", "")
        count = next(number for number in itertools.count() if deaths.once(f"life {life} commit {number}"))
        moment = self.moment if count == self.after else ""
        die = deaths.driver
        if moment.endswith(BROKER_DIES):
            moment, die = moment.removesuffix(BROKER_DIES), deaths.broker
        if moment == "prepared":
            die()
        claim, decide, end = Register.claim, Register.decide, branches.end

        def claimed(*given: Any) -> Any:
            generation = claim(*given)
            if moment == "claimed":
                die()
            return generation

        def decided(*given: Any) -> Any:
            decision = decide(*given)
            if moment == "decided":
                die()
            return decision

        def ended(broker: Any, some: Any, *, commit: bool) -> Any:
            some = list(some)
            if moment == "between two commits" and commit:
                end(broker, some[: len(some) // 2], commit=True)
                die()
            refused = end(broker, some, commit=commit)
            if moment == "committed" and commit:
                die()
            return refused

        Register.claim, Register.decide = claimed, decided  # type: ignore[method-assign]
        branches.end = ended  # type: ignore[assignment]
        super().commit_write(*given)  # type: ignore[misc]
        if moment == "told":
            die()


class Batch(Interfering, writing.BatchSink):
    """The batch sink."""


class Stream(Interfering, writing.StreamSink):
    """The stream sink."""


class Source(TxBrokerDataSource):
    """The data source, with options of its own for the moment."""

    def _sink(self, kind: Any, schema: Any, overwrite: bool) -> Any:
        options = dict(self.options)
        moment, after, folder, victims = (options.pop(n) for n in ("moment", "after", "folder", "victims"))
        sink = kind(parse(options), schema, overwrite)
        sink.moment, sink.after, sink.deaths = moment, int(after), Deaths(folder, json.loads(victims))
        return sink

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return self._sink(Batch, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return self._sink(Stream, schema, overwrite)


def session(job: Job) -> SparkSession:
    """Spark, small and quiet."""
    builder = SparkSession.builder.master(job.master).appName("txbroker sink tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{job.folder}/local",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.LIFE": os.environ.get("LIFE", ""),
        "spark.sql.warehouse.dir": f"{job.folder}/warehouse",
        **job.conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write(spark: SparkSession, job: Job, **more: str) -> None:
    """Write its rows, in whatever session; ``more`` are options that this program's sinks alone know."""
    options = {"broker": job.broker, "topic": "rows", "timeout": "60", **more, **job.options}
    if job.kind == "batch":
        frame = spark.range(job.rows, numPartitions=job.partitions).selectExpr(
            f"concat(id, ':{job.attempt}') value"
        )
        frame.write.format("txbroker").mode("append").options(**options).save()
    else:
        lines = spark.readStream.option("maxFilesPerTrigger", "1").text(f"{job.folder}/lines")
        frame = lines.selectExpr(f"concat(value, ':{job.attempt}') value").repartition(job.partitions)
        query = (
            frame.writeStream.format("txbroker")
            .options(**options)
            .option("checkpointLocation", f"{job.folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def run(job: Job) -> None:
    """Do it; prints DONE."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = session(job)
    spark.dataSource.register(Source)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    mine = {"moment": job.moment, "after": str(job.after), "folder": job.folder}
    write(spark, job, **mine, victims=json.dumps([jvm, os.getpid()]))
    print("DONE", flush=True)
    spark.stop()


def command(job: Job) -> list[str]:
    """How to run it in a process of its own."""
    return [sys.executable, "-m", "tests.spark.sink.sink_program", json.dumps(asdict(job))]


if __name__ == "__main__":
    run(Job(**json.loads(sys.argv[1])))
