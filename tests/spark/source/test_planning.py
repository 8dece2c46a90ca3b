"""Test the plan of a read: all of it once, in parts of about the same size, whatever the indexes say."""

import time

import msgspec
import pytest

import journal
from journal.errors import StorageUnavailable, UnknownPartition, UnknownTopic
from spark.source import partition_plan
from spark.source.files import Directory
from spark.source.logs import MessagesLost
from spark.source.options import read_options
from spark.source.partition_plan import cut_into_tasks, ranges, subscribed
from spark.source.pushdown import Wanted
from spark.source.reader import read_parts
from tests.spark.directories import START, append, fill, flip, numbers_in, segments, value_of
from tests.support.builders import small_files

COLUMNS = ("topic", "partition", "offset", "timestamp", "value")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "d"
    fill(path, 6000, partitions=3)
    return path


def options_of(path, **options):
    return read_options({"path": str(path), "subscribe": "t", **options})


def planned(options, wanted=None):
    logs = Directory(options.path)
    wanted = wanted or Wanted()
    return cut_into_tasks(
        logs, ranges(logs, options, wanted, subscribed(logs, options)), options.min_partitions
    )


def read(options, wanted=None, plan=None):
    """All rows of all tasks, in order."""
    wanted = wanted or Wanted()
    plan = planned(options, wanted) if plan is None else plan
    return [
        row
        for task in plan
        for batch in read_parts(options, COLUMNS, wanted, task.parts)
        for row in batch.to_pylist()
    ]


def spans(plan):
    return [(part.log.index, part.first, part.end) for task in plan for part in task.parts]


def test_all_messages_are_read_once_and_in_order(data):
    rows = read(options_of(data))
    assert sorted(numbers_in([row["value"] for row in rows])) == list(range(6000))
    for index in range(3):
        assert [row["offset"] for row in rows if row["partition"] == index] == list(range(2000))
    assert {row["topic"] for row in rows} == {"t"}
    first = next(row for row in rows if (row["partition"], row["offset"]) == (1, 0))
    assert first["value"] == value_of(100)
    assert int(first["timestamp"].timestamp() * 1e6) == START + 100 * 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("least", [1, 2, 7, 40, pytest.param(6000, marks=pytest.mark.slow)])
def test_one_large_partition_is_cut_by_bytes_into_as_many_parts_as_are_wanted(tmp_path, monkeypatch, least):
    monkeypatch.setattr(partition_plan, "LEAST_TASK_BYTES", 64 << 10)
    fill(tmp_path / "d", 20_000, segment_bytes=256 << 10)
    options = options_of(tmp_path / "d", minPartitions=str(least))
    plan = planned(options)
    assert len(plan) >= least * 0.9
    edges = spans(plan)
    assert [first for _, first, _ in edges] == [0, *(end for _, _, end in edges[:-1])]
    assert edges[-1][2] == 20_000
    if least <= 40:
        sizes = [task.parts[0].end - task.parts[0].first for task in plan]
        assert max(sizes) < 2 * min(sizes), "messages of one length, so parts of one size"
    assert [row["offset"] for row in read(options, plan=plan)] == list(range(20_000))


def test_small_partitions_share_a_task(tmp_path):
    fill(tmp_path / "d", 5000, partitions=50)
    plan = planned(options_of(tmp_path / "d"))
    assert len(plan) == 1
    assert len(plan[0].parts) == 50


@pytest.mark.slow
def test_an_index_that_is_missing_or_damaged_changes_nothing_but_the_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(partition_plan, "LEAST_TASK_BYTES", 32 << 10)
    fill(tmp_path / "d", 10_000, segment_bytes=128 << 10)
    indexes = [file.with_suffix(".index") for file in segments(tmp_path / "d")]
    assert len(indexes) > 4
    indexes[0].unlink()
    indexes[1].write_bytes(b"\xff" * 160)
    indexes[2].write_bytes(indexes[3].read_bytes())
    indexes[3].write_bytes(bytes(160))
    options = options_of(tmp_path / "d", minPartitions="30")
    assert [row["offset"] for row in read(options)] == list(range(10_000))


def test_offsets_are_taken_as_they_are_named(data):
    begin = '{"t": {"0": 5, "1": -2, "2": -1}}'
    end = '{"t": {"0": 7, "1": 3, "2": -1}}'
    rows = read(options_of(data, startingOffsets=begin, endingOffsets=end))
    assert [(row["partition"], row["offset"]) for row in rows] == [(0, 5), (0, 6), (1, 0), (1, 1), (1, 2)]
    assert read(options_of(data, startingOffsets="latest")) == []


def test_offsets_must_name_all_partitions_and_no_others(data):
    with pytest.raises(
        UnknownPartition, match=r"lacks t-2; t-9 is not subscribed to, or not there; nothing was read"
    ):
        read(options_of(data, startingOffsets='{"t": {"0": 5, "1": -2, "9": 0}}'))


def test_partitions_that_are_assigned_are_read_and_no_others(data):
    options = read_options(
        {"path": str(data), "assign": '{"t": [2, 0]}', "startingOffsets": '{"t": {"0": 1999, "2": 1998}}'}
    )
    assert [(row["partition"], row["offset"]) for row in read(options)] == [(0, 1999), (2, 1998), (2, 1999)]
    for missing, told in (
        ('{"t": [0, 3]}', "assign names t-3, which"),
        ('{"t": [0], "u": [0]}', "no topic u in"),
    ):
        with pytest.raises((UnknownPartition, UnknownTopic), match=told):
            read(read_options({"path": str(data), "assign": missing}))


def test_a_topic_that_is_not_there_is_told_with_those_that_are(data):
    with pytest.raises(UnknownTopic, match=r"no topic nope in .*/d; nothing was read\. There are: t"):
        read(read_options({"path": str(data), "subscribe": "t,nope"}))


def test_offsets_behind_the_end_are_lost_unless_that_is_allowed(data):
    beyond = '{"t": {"0": 1990, "1": 2000, "2": 2000}}', '{"t": {"0": 2005, "1": -1, "2": -1}}'
    with pytest.raises(
        MessagesLost, match="t-0: offsets 2000 to 2004 cannot be read: the log ends at offset 2000"
    ):
        read(options_of(data, startingOffsets=beyond[0], endingOffsets=beyond[1]))
    options = options_of(data, startingOffsets=beyond[0], endingOffsets=beyond[1], failOnDataLoss="false")
    assert [row["offset"] for row in read(options)] == list(range(1990, 2000))


@pytest.mark.slow
def test_what_retention_has_taken_is_said_unless_it_was_not_asked_for(tmp_path):
    path = tmp_path / "d"
    fill(path, 10_000)
    with journal.open(path, small_files()) as log:
        log.trim("t", 4321)
    assert read(options_of(path))[0]["offset"] == 4321
    begin = options_of(path, startingOffsets='{"t": {"0": 4000}}')
    with pytest.raises(MessagesLost) as caught:
        read(begin)
    assert str(caught.value) == (
        "t-0: offsets 4000 to 4320 cannot be read: retention has taken all below offset 4321. Begin at 4321, or at -2 "
        "(earliest); with failOnDataLoss=false what is lost is skipped, with a warning"
    )
    skipping = options_of(path, startingOffsets='{"t": {"0": 4000}}', failOnDataLoss="false")
    assert [row["offset"] for row in read(skipping)] == list(range(4321, 10_000))


def test_filters_on_topic_partition_and_offset_decide_what_is_opened_at_all(tmp_path):
    from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

    path = tmp_path / "d"
    fill(path, 10_000)
    for file in segments(path)[:-1]:
        if int(file.stem) + 2000 < 9000:
            file.unlink()
    wanted = Wanted()
    filters = [GreaterThanOrEqual(("offset",), 9500), LessThan(("offset",), 9510), EqualTo(("partition",), 0)]
    assert list(wanted.take(filters)) == []
    assert [row["offset"] for row in read(options_of(path), wanted)] == list(range(9500, 9510))
    other = Wanted()
    assert list(other.take([EqualTo(("partition",), 1)])) == []
    assert read(options_of(path), other) == []


def tick():
    """Let some milliseconds of the wall clock pass."""
    begin = time.time_ns()
    while time.time_ns() < begin + 3_000_000:
        pass


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """10 runs of 1,000 messages, and the wall clock between them, in ms."""
    path = tmp_path_factory.mktemp("timed") / "d"
    fill(path, 0)
    marks = []
    with journal.open(path, small_files()) as log:
        for run in range(10):
            tick()  # or what was appended in the mark's own millisecond is no earlier than the mark
            marks.append(time.time_ns() // 1_000_000)
            tick()
            append(log, range(1000 * run, 1000 * run + 1000))
    return path, marks


class TestTimes:
    """Times of appending: what was appended later is not left out, what was earlier is spared by the segment."""

    @pytest.mark.slow
    @pytest.mark.parametrize("run", [0, 3, 9])
    def test_a_start_by_time_leaves_out_nothing_that_came_later(self, timed, run):
        path, marks = timed
        found = read(options_of(path, startingTimestamp=str(marks[run])))
        offsets = [row["offset"] for row in found]
        assert offsets == list(range(offsets[0], 10_000))
        assert 1000 * run - 1100 <= offsets[0] <= 1000 * run

    @pytest.mark.parametrize("run", [1, 4, 9])
    def test_an_end_by_time_leaves_out_nothing_that_came_before(self, timed, run):
        path, marks = timed
        offsets = [row["offset"] for row in read(options_of(path, endingTimestamp=str(marks[run])))]
        assert offsets == list(range(len(offsets)))
        assert 1000 * run <= len(offsets) <= 1000 * run + 1100

    def test_times_before_all_and_behind_all_are_the_start_and_the_end(self, timed):
        path, marks = timed
        assert len(read(options_of(path, startingTimestamp="0"))) == 10_000
        assert len(read(options_of(path, endingTimestamp=str(marks[-1] + 10**9)))) == 10_000
        assert read(options_of(path, startingTimestamp=str(marks[-1] + 10**9))) == []

    def test_a_filter_on_the_senders_time_spares_segments_if_their_clocks_can_be_trusted(self, timed):
        from datetime import UTC, datetime

        from pyspark.sql.datasource import GreaterThanOrEqual

        path, marks = timed
        for skew, begins in ((None, [0]), ("1h", [0]), ("0s", range(4500, 5001))):
            wanted = Wanted()
            after = datetime.fromtimestamp((marks[5] + 1) / 1000, UTC)
            assert list(wanted.take([GreaterThanOrEqual(("timestamp",), after)])) == []
            given = {} if skew is None else {"clockSkew": skew}
            assert spans(planned(options_of(path, **given), wanted))[0][1] in begins


class TestWhereLogsEnd:
    @pytest.mark.slow
    def test_what_came_after_the_checkpoint_is_not_read_however_long_the_files_are(self, tmp_path):
        path = tmp_path / "d"
        fill(path, 1000)
        log = journal.open(path, small_files())
        try:
            append(log, range(1000, 2000))
            log.engine.want_flush()
            log.engine.housekeeping.run_inline()
            assert sum(file.stat().st_size for file in segments(path)) > 80_000, "it is in the files"
            assert len(read(options_of(path))) == 1000
        finally:
            log.close()
        assert len(read(options_of(path))) == 2000

    def test_torn_bytes_behind_the_end_are_never_looked_at(self, tmp_path):
        path = tmp_path / "d"
        fill(path, 1000)
        with segments(path)[-1].open("ab") as file:
            file.write(b"\x00\x00torn")
        assert len(read(options_of(path))) == 1000

    def test_logs_are_read_to_where_all_show_the_same_transactions(self, tmp_path, monkeypatch):
        path = tmp_path / "d"
        fill(path, 400, partitions=2)
        directory = Directory(str(path))
        states = directory.checkpoint.stores
        early = [msgspec.structs.replace(state, end_offset=150) for state in states]
        directory.checkpoint.stores[:] = early
        assert [log.end for log in directory.logs(lambda _: True)] == [150, 150]

    def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(self, tmp_path):
        path = tmp_path / "d"
        fill(path, 1000)
        with journal.open(path, small_files()) as log:
            append(log, range(1000, 1500))
        old, new = sorted((path / "checkpoints").iterdir())
        flip(new, 100)
        assert len(read(options_of(path))) == 1000
        flip(old, 100)
        with pytest.raises(StorageUnavailable, match=r"none of the 2 checkpoints .* can be read"):
            read(options_of(path))

    def test_a_place_that_is_no_data_directory_is_named_for_what_it_is(self, tmp_path):
        with pytest.raises(StorageUnavailable, match=r"there is no directory .*/nowhere"):
            read(options_of(tmp_path / "nowhere"))
        with pytest.raises(StorageUnavailable, match="is no data directory of txbroker"):
            read(options_of(tmp_path))
        fill(tmp_path / "d", 1)
        for file in (tmp_path / "d" / "checkpoints").iterdir():
            file.unlink()
        with pytest.raises(StorageUnavailable, match="has no checkpoint yet"):
            read(options_of(tmp_path / "d"))

    def test_a_directory_amid_a_repair_is_not_read(self, tmp_path):
        fill(tmp_path / "d", 10)
        (tmp_path / "d" / "repair.plan").write_bytes(b"{}")
        with pytest.raises(StorageUnavailable, match=r"a repair of .*/d has been begun and not ended"):
            read(options_of(tmp_path / "d"))

    def test_a_log_without_messages_gives_none(self, tmp_path):
        fill(tmp_path / "d", 0, partitions=4)
        assert read(options_of(tmp_path / "d")) == []
