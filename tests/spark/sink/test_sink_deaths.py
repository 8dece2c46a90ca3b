"""Test the sink under real Spark and real brokers that are killed: every row is counted afterwards."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import txbroker
from spark.audit.failures import SPARK
from spark.sink import branches, decision
from tests.spark.sink import sink_program, writes
from tests.spark.sink.sink_program import BROKER_DIES, MOMENTS, Job
from tests.spark.standalone import Standalone
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address) as connection:
            connection.create_topic("rows", partitions=3)
        yield process


@pytest.fixture
def job(tmp_path, broker):
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(broker.address, str(folder))


def start(job, life="", **more):
    environment = {
        **more,
        **os.environ,
        "PYTHONPATH": PACKAGES,
        "PYSPARK_PYTHON": sys.executable,
        "LIFE": life,
    }
    return subprocess.Popen(
        sink_program.command(job),
        cwd=job.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, *, dies=False):
    """Wait for its end: a death where it was told to die, DONE else."""
    output, _ = process.communicate(timeout=280)
    if dies:
        assert process.returncode == -signal.SIGKILL, output
    else:
        assert (process.returncode, "DONE" in output) == (0, True), output
    return output


def fail(process):
    """Wait for its end, which is an error; return what it has said."""
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 1, output
    return output


def counted(broker):
    """How often each row is in the topic, and by which attempts."""
    found = collections.defaultdict(list)
    for value in writes.seen(broker.address):
        row, _, attempt = value.decode().rpartition(":")
        found[row].append(attempt)
    return found


def settle_all(broker):
    with txbroker.connect(broker.address) as connection:
        for name in {branch.write.name for branch in branches.undecided(connection).prepared}:
            decision.settle(connection, name)


def assert_nothing_in_doubt(broker):
    with txbroker.connect(broker.address) as connection:
        listed = branches.undecided(connection)
    assert (list(listed.prepared), list(listed.active)) == ([], [])


def assert_once(broker, rows, attempts=("a",)):
    found = counted(broker)
    assert sorted(found) == sorted(rows)
    wrong = {row: by for row, by in found.items() if len(by) != 1 or by[0] not in attempts}
    assert wrong == {}


LIVES = [(moment, 1) for moment in MOMENTS]
LIVES.insert(2, ("between two commits", 0))  # while it finishes what the life before has decided
EACH_ENDED = {"0 prepared": 1, "1 decided": 2, "3 between two commits": 1, "4 committed": 1, "5 told": 1}
"""Each life has one batch of its own that ended well, and one in whose commit it died: its own if that was decided."""


@pytest.mark.parametrize(
    ("lives", "ended"),
    [(LIVES[1:3], {"0 decided": 2}), pytest.param(LIVES, EACH_ENDED, marks=pytest.mark.deep)],
    ids=["some", "every"],
)
def test_a_stream_whose_driver_is_killed_at_every_moment_writes_each_row_once(
    spark, broker, job, lives, ended
):
    """Each life reads the same files, in another number of partitions and to other values, and dies in a commit."""
    files = 2 * len(lives)
    (Path(job.folder) / "lines").mkdir()
    for number in range(files):
        lines = "".join(f"{number}-{row}\n" for row in range(100))
        (Path(job.folder) / "lines" / f"{number:02}.txt").write_text(lines)
    job.kind = "stream"
    for life, (job.moment, job.after) in enumerate(lives):
        job.attempt, job.partitions = f"{life} {job.moment}", 2 + life
        finish(start(job, str(life)), dies=True)
    job.attempt = "last"
    sink_program.write(spark, job)
    found = counted(broker)
    assert sorted(found) == sorted(f"{number}-{row}" for number in range(files) for row in range(100))
    assert {row: by for row, by in found.items() if len(by) != 1} == {}
    by_file = collections.defaultdict(set)
    for row, attempts in found.items():
        by_file[row.partition("-")[0]].update(attempts)
    assert {number: by for number, by in by_file.items() if len(by) != 1} == {}, "a batch of two attempts"
    files_of = collections.Counter(next(iter(by)) for by in by_file.values())
    assert files_of == ended | {"last": files - sum(ended.values())}
    assert_nothing_in_doubt(broker)


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["prepared", "between two commits"])
def test_a_batch_whose_driver_is_killed_is_ended_as_decided(broker, job, moment):
    job.moment = moment
    finish(start(job), dies=True)
    with txbroker.connect(broker.address) as connection:
        assert branches.undecided(connection).prepared
    settle_all(broker)
    if moment == "prepared":
        assert counted(broker) == {}
    else:
        assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


@pytest.mark.deep  # the stream above dies there too; test_deciding.py repeats versions that are half carried out
def test_a_named_batch_that_is_run_again_after_its_driver_was_killed_is_written_once(spark, broker, job):
    job.options = {"txnAppId": "nightly", "txnVersion": "12"}
    job.moment = "between two commits"
    finish(start(job), dies=True)
    job.attempt, job.partitions = "b", 7
    sink_program.write(spark, job)
    job.rows += 900
    with pytest.raises(SPARK, match="is written already, with 2000 rows, and this time it has 2900"):
        sink_program.write(spark, job)
    assert_once(broker, map(str, range(2000)))
    assert_nothing_in_doubt(broker)


@pytest.mark.parametrize("moment", ["executor", pytest.param("task fails", marks=pytest.mark.deep)])
def test_executors_and_tasks_that_die_after_they_have_prepared_leave_nothing_behind(
    broker, job, cluster, moment
):
    job.moment, job.master, job.partitions = moment, cluster.master, 6
    finish(start(job))
    assert (Path(job.folder) / ("task failed" if moment == "task fails" else "executor died")).exists()
    assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


@pytest.mark.deep  # test_deciding.py has such versions, without Spark
def test_a_version_whose_task_is_retried_when_a_later_one_is_decided_fails_and_says_so(spark, broker, job):
    """The retried task found a decided version and wrote nothing, and the job was called done."""
    named = {"txnAppId": "nightly", "txnVersion": "12"}
    job.moment, job.master, job.options = "overtaken", "local[2,3]", named
    process = start(job)
    wait_until(lambda: (Path(job.folder) / "to be overtaken").exists())
    sink_program.write(spark, replace(job, attempt="b", options=named | {"txnVersion": "13"}))
    (Path(job.folder) / "overtaken").touch()
    output = fail(process)
    assert "a task fails when a later version has been decided" in output
    assert re.search(r"WriteRefused: nightly\S*/12 was overtaken: version 13 was decided", output), output
    assert_once(broker, map(str, range(job.rows)), attempts="b")
    assert_nothing_in_doubt(broker)


@pytest.mark.deep  # tasks that die and are run again, above, are as many copies
def test_speculative_copies_write_nothing_twice_and_leave_nothing_behind(broker, job, cluster):
    job.moment, job.master, job.partitions = "slow", cluster.master, 4
    job.conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    finish(start(job))
    assert (Path(job.folder) / "a slow one").exists()
    assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


def test_a_broker_that_is_killed_while_tasks_write_costs_no_row_and_doubles_none(broker, job):
    """A task whose branch was open fails and is retried, which Spark does in a cluster; ``local`` must be told to."""
    job.rows, job.partitions, job.master = 400_000, 8, "local[2,4]"
    process = start(job)
    with txbroker.connect(broker.address) as connection:
        wait_until(lambda: len(branches.undecided(connection).prepared) >= 2)
    broker.kill()
    broker.start()
    finish(process)
    assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


@pytest.mark.deep
def test_a_broker_that_is_killed_between_prepare_and_commit_has_kept_all(broker, job):
    job.moment, job.partitions = "late", 3
    process = start(job)
    with txbroker.connect(broker.address) as connection:
        wait_until(lambda: len(branches.undecided(connection).prepared) == 3)
    broker.kill()
    broker.start()
    finish(process)
    assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


@pytest.mark.deep  # the broker below is killed while tasks write
@pytest.mark.parametrize(
    "moment",
    [
        "between two commits",
        *(
            pytest.param(moment, marks=pytest.mark.deep)
            for moment in ("prepared", "claimed", "decided", "committed")
        ),
    ],
)
def test_a_broker_that_is_killed_at_any_step_of_the_driver_is_waited_for_and_each_row_is_there_once(
    broker, job, moment
):
    job.moment = moment + BROKER_DIES
    process = start(job, BROKER=str(broker.pid))
    wait_until(lambda: broker.exit_code is not None)
    broker.kill()
    broker.start()
    finish(process)
    assert_once(broker, map(str, range(job.rows)))
    assert_nothing_in_doubt(broker)


@pytest.mark.deep  # test_deciding.py steps any number of drivers through all interleavings, without Spark
def test_two_drivers_of_one_version_at_once_write_the_rows_of_one_of_them(broker, job, tmp_path):
    job.options = {"txnAppId": "nightly", "txnVersion": "12"}
    folder = tmp_path / "another job"
    folder.mkdir()
    other = replace(job, folder=str(folder), attempt="b", partitions=7)
    for process in [start(job), start(other)]:
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0 or "WriteRefused" in output, output
    settle_all(broker)
    found = counted(broker)
    assert {attempt for by in found.values() for attempt in by} in ({"a"}, {"b"}), "rows of both, or of none"
    assert_once(broker, map(str, range(job.rows)), attempts="ab")
    assert_nothing_in_doubt(broker)


@pytest.mark.deep
def test_a_stream_whose_checkpoint_was_deleted_is_another_write_and_leaves_nothing_in_doubt(
    spark, broker, job
):
    """As with every sink: who deletes it reads, and writes, everything once more."""
    (Path(job.folder) / "lines").mkdir()
    (Path(job.folder) / "lines" / "0.txt").write_text("".join(f"{row}\n" for row in range(100)))
    job.kind, job.moment = "stream", "decided"
    finish(start(job, "first"), dies=True)
    shutil.rmtree(Path(job.folder) / "checkpoint")
    job.attempt = "b"
    sink_program.write(spark, job)
    with txbroker.connect(broker.address) as connection:
        [left] = {branch.write.name for branch in branches.undecided(connection).prepared}
        decision.settle(connection, left)
    assert {row: sorted(by) for row, by in counted(broker).items()} == {
        str(row): ["a", "b"] for row in range(100)
    }
    assert_nothing_in_doubt(broker)


def wait_until(condition, seconds=120.0):
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come to that")
