"""Test the positions of a stream's driver: how far a batch goes, and what to do if offsets are not valid any more."""

import json
import pickle
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import journal
from journal.errors import InvalidSetting, UnknownTopic
from journal.records.record import TopicDeleted
from spark.source.columns import message_schema
from spark.source.logs import MessagesLost
from spark.source.options import read_options
from spark.source.rate_limit import limited
from spark.source.stream_reader import MessageStream
from tests.spark.directories import append, fill
from tests.support.builders import small_files

ALL = ReadAllAvailable()


def stream_of(path, **options):
    given = read_options({"path": str(path), "subscribe": "t", **options})
    return MessageStream(given, message_schema(given))


def nexts(offset, topic="t"):
    return [at["next"] for _, at in sorted(offset["topics"].get(topic, {}).items())]


def offsets(stream, start, end):
    found = []
    for task in stream.partitions(start, end):
        for batch in pickle.loads(pickle.dumps(stream)).read(task):
            found += [(row["partition"], row["offset"]) for row in batch.to_pylist()]
    return found


def values(stream, start, end):
    return [
        row["value"]
        for task in stream.partitions(start, end)
        for batch in stream.read(task)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def path(tmp_path):
    fill(tmp_path / "d", 3000, partitions=3)
    return tmp_path / "d"


def more(path, count):
    with journal.open(path, small_files()) as log:
        append(log, range(count))


def test_a_new_stream_begins_at_the_end_unless_told_otherwise(path):
    assert nexts(stream_of(path).initialOffset()) == [1000, 1000, 1000]
    assert nexts(stream_of(path, startingOffsets="earliest").initialOffset()) == [0, 0, 0]
    named = '{"t": {"0": 5, "1": -1, "2": -2}}'
    assert nexts(stream_of(path, startingOffsets=named).initialOffset()) == [5, 1000, 0]


def test_batches_follow_each_other_without_a_gap_and_without_overlap(path):
    stream = stream_of(path, startingOffsets="earliest", maxOffsetsPerTrigger="700")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(700)
    at, found, sizes = stream.initialOffset(), [], []
    for _ in range(10):
        upto = stream.latestOffset(at, limit)
        batch = offsets(stream, at, upto)
        assert batch == offsets(stream, at, upto), "a batch that is repeated is the same"
        found += batch
        sizes.append(len(batch))
        if upto == at:
            break
        at = upto
    assert sizes == [700, 700, 700, 700, 200, 0]
    assert sorted(found) == [(p, o) for p in range(3) for o in range(1000)]


def test_available_now_goes_to_where_the_logs_ended_when_it_was_asked(path):
    stream = stream_of(path, startingOffsets="earliest", maxOffsetsPerTrigger="2000")
    stream.prepareForTriggerAvailableNow()
    more(path, 300)
    at = stream.initialOffset()
    first = stream.latestOffset(at, stream.getDefaultReadLimit())
    second = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert sum(nexts(first)) == 2000
    assert nexts(second) == [1000, 1000, 1000]
    assert stream.latestOffset(second, ALL) == second
    assert nexts(stream.reportLatestOffset()) == [1100, 1100, 1100]


def test_topics_that_come_to_match_a_pattern_are_read_from_their_start(path):
    stream = MessageStream(*_patterned(path))
    at = stream.initialOffset()
    assert set(at["topics"]) == {"t"}
    with journal.open(path, small_files()) as log:
        log.create_topic("t-new", 2)
        for partition in (0, 1, 1):
            log.append("t-new", b"x", partition=partition)
    upto = stream.latestOffset(at, ALL)
    assert nexts(upto, "t-new") == [1, 2]
    assert sorted(offsets(stream, at, upto)) == [(0, 0), (1, 0), (1, 1)]


def _patterned(path, **options):
    given = read_options(
        {"path": str(path), "subscribePattern": "t.*", "columns": "partition,offset", **options}
    )
    return given, message_schema(given)


def test_what_retention_takes_before_it_is_read_is_a_loss(path):
    stream = stream_of(path, startingOffsets="earliest")
    at = stream.initialOffset()
    with journal.open(path, small_files()) as log:
        log.trim("t", 400, 1)
    upto = stream.latestOffset(at, ALL)
    with pytest.raises(
        MessagesLost, match="t-1: offsets 0 to 399 cannot be read: retention has taken all below"
    ):
        stream.partitions(at, upto)
    forgiving = stream_of(path, startingOffsets="earliest", failOnDataLoss="false")
    assert len(offsets(forgiving, at, upto)) == 2600


def test_a_topic_that_was_deleted_or_made_anew_is_never_read_from_offsets_of_the_old_one(path):
    options = {"startingOffsets": "earliest"}
    stream, forgiving = (
        MessageStream(*_patterned(path, **options)),
        MessageStream(*_patterned(path, failOnDataLoss="false", **options)),
    )
    at = stream.initialOffset()
    upto = stream.latestOffset(at, ALL)
    with journal.open(path, small_files()) as log:
        log.engine.accept(TopicDeleted("t", log.engine.now()))
        log.engine.sync()
        log.create_topic("t2")
    with pytest.raises(
        MessagesLost, match="t-0: offsets 0 to 999 cannot be read: its topic has been deleted"
    ):
        stream.partitions(at, upto)
    assert forgiving.partitions(at, upto) == []
    with pytest.raises(
        MessagesLost, match=r"its topic has been deleted\. Whether all of it had been read is not known"
    ):
        stream.latestOffset(upto, ALL)
    assert set(forgiving.latestOffset(upto, ALL)["topics"]) == {"t2"}, "told once"
    with journal.open(path, small_files()) as log:
        log.create_topic("t", 3)
        log.append("t", b"%08d of the new one" % 0, partition=2)
    with pytest.raises(MessagesLost, match=r"deleted and made anew \(log 1 is now log 5\)"):
        stream.latestOffset(upto, ALL)
    after = forgiving.latestOffset(upto, ALL)
    assert nexts(after) == [0, 0, 1]
    assert offsets(forgiving, upto, after) == [(2, 0)]


@pytest.mark.parametrize("begins", ["earliest", "latest"])
def test_partitions_that_a_topic_gets_while_it_is_read_are_read_from_their_start(path, begins):
    stream = stream_of(path, startingOffsets=begins, maxOffsetsPerTrigger="700")
    first = {"earliest": 0, "latest": 1000}[begins]
    at = stream.initialOffset()
    upto = stream.latestOffset(at, stream.getDefaultReadLimit())
    with journal.open(path, small_files()) as log:
        grow(log, 5)
        append(log, range(2000))
    found = offsets(stream, at, upto)
    for _ in range(10):
        at, upto = upto, json.loads(json.dumps(stream.latestOffset(upto, stream.getDefaultReadLimit())))
        found += offsets(stream, at, upto)
    assert upto == at
    old = [(partition, offset) for partition in range(3) for offset in range(first, 1400)]
    assert sorted(found) == [*old, *((partition, offset) for partition in (3, 4) for offset in range(400))]


def test_a_stream_up_to_now_leaves_later_partitions_to_the_next_one(path):
    stream = stream_of(path, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    with journal.open(path, small_files()) as log:
        grow(log, 4)
        log.append("t", b"%08d new" % 0, partition=3)
    upto = stream.latestOffset(stream.initialOffset(), ALL)
    assert nexts(upto) == [1000, 1000, 1000]
    following = stream_of(path, startingOffsets="earliest")
    following.prepareForTriggerAvailableNow()
    after = following.latestOffset(upto, ALL)
    assert offsets(following, upto, after) == [(3, 0)]


def grow(log, partitions):
    catalog, engine = log.engine.catalog, log.engine
    engine.accept(catalog.judge_alteration(catalog.topics["t"], {}, engine.now(), partitions))
    engine.sync()


def test_a_topic_that_is_named_and_was_deleted_ends_the_stream_only_if_losses_do(path):
    with journal.open(path, small_files()) as log:
        log.create_topic("kept")
    stream = stream_of(path, subscribe="t,kept", startingOffsets="earliest")
    forgiving = stream_of(path, subscribe="t,kept", startingOffsets="earliest", failOnDataLoss="false")
    at = stream.latestOffset(stream.initialOffset(), ALL)
    with journal.open(path, small_files()) as log:
        log.engine.accept(TopicDeleted("t", log.engine.now()))
        log.append("kept", b"on")
    with pytest.raises(MessagesLost, match="t-0: offset 1000 cannot be read: its topic has been deleted"):
        stream.latestOffset(at, ALL)
    upto = forgiving.latestOffset(at, ALL)
    assert (nexts(upto), nexts(upto, "kept")) == ([], [1])
    assert offsets(forgiving, at, upto) == [(0, 0)]
    assert forgiving.latestOffset(upto, ALL) == upto
    with journal.open(path, small_files()) as log:
        log.append("kept", b"further on")
    for again in (forgiving, stream_of(path, subscribe="t,kept")):
        after = again.latestOffset(json.loads(json.dumps(upto)), ALL)
        assert offsets(again, upto, after) == [(0, 1)], "also after a start, and it was told"
    with journal.open(path, small_files()) as log:
        log.create_topic("t")
        log.append("t", b"of the new one")
    assert nexts(forgiving.latestOffset(after, ALL)) == [1]
    with pytest.raises(UnknownTopic, match="there is no topic never in"):
        stream_of(path, subscribe="kept,never").latestOffset({**at, "topics": {}}, ALL)


def test_what_retention_took_is_passed_over_at_once_and_told_in_full(path):
    """With a limit it was crawled through, batch by batch."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream, forgiving = stream_of(path, **options), stream_of(path, failOnDataLoss="false", **options)
    at = stream.initialOffset()
    with journal.open(path, small_files()) as log:
        log.trim("t", 900, 1)
    upto = stream.latestOffset(at, stream.getDefaultReadLimit())
    assert sum(nexts(upto)) == 930
    with pytest.raises(
        MessagesLost,
        match=r"t-1: offsets 0 to 899 cannot be read: retention has taken all below offset 900\. A new check",
    ):
        stream.partitions(at, upto)
    assert len(offsets(forgiving, at, upto)) == 30


@pytest.mark.slow
def test_a_log_that_ends_before_what_was_read_of_it_was_set_back(path, tmp_path):
    """New messages under the old ones' offsets were skipped without a word."""
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    more(path, 300)
    stream = stream_of(path, startingOffsets="earliest")
    at = stream.latestOffset(stream.initialOffset(), ALL)
    stream.stop()
    shutil.rmtree(path)
    copy.rename(path)
    more(path, 30)
    with pytest.raises(MessagesLost, match=r"t-0: offsets 1\d+ to 1099 .* was set back to an older copy"):
        stream_of(path).latestOffset(at, ALL)
    forgiving = stream_of(path, failOnDataLoss="false")
    upto = forgiving.latestOffset(at, ALL)
    assert nexts(upto) == nexts(forgiving.reportLatestOffset())
    assert offsets(forgiving, at, upto) == []
    more(path, 30)
    assert len(offsets(forgiving, upto, forgiving.latestOffset(upto, ALL))) == 30


@pytest.mark.sampled
@pytest.mark.parametrize("fails", [True, False])
def test_data_that_were_set_back_are_named_though_they_have_grown_past_what_was_read(path, tmp_path, fails):
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    more(path, 300)
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails)}
    stream = stream_of(path, **options)
    before = stream.initialOffset()
    at = stream.latestOffset(before, ALL)
    shutil.rmtree(path)
    copy.rename(path)
    more(path, 3000)
    again = stream_of(path, **options)
    told = r"t-0: which messages are below offset 1100, and of 2 other partitions, is not what the stream has read: the"
    if fails:
        for refused in (lambda: again.latestOffset(at, ALL), lambda: again.partitions(before, at)):
            with pytest.raises(
                MessagesLost, match=told + r" data of .* know nothing of the start 2 in which"
            ):
                refused()
        return
    upto = again.latestOffset(at, ALL)
    assert len(offsets(again, at, upto)) == 2700
    after = again.latestOffset(upto, ALL)
    assert after == upto
    assert stream_of(path).latestOffset(upto, ALL) == upto, "it is told once"


@pytest.mark.slow
def test_data_that_were_set_back_and_have_grown_to_the_same_offsets_are_told_once(path, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    more(path, 300)
    forgiving = stream_of(path, startingOffsets="earliest", failOnDataLoss="false")
    at = forgiving.latestOffset(forgiving.initialOffset(), ALL)
    shutil.rmtree(path)
    copy.rename(path)
    more(path, 300)
    upto = forgiving.latestOffset(at, ALL)
    assert (upto["topics"], upto["start"] == at["start"]) == (at["topics"], False)
    assert stream_of(path).latestOffset(upto, ALL) == upto


def test_starts_in_which_nothing_was_set_back_are_no_news(path):
    stream = stream_of(path, startingOffsets="earliest")
    at = stream.latestOffset(stream.initialOffset(), ALL)
    for _ in range(3):
        more(path, 0)
    assert stream_of(path).latestOffset(at, ALL) == at
    unmarked = {name: value for name, value in at.items() if name != "start"}
    assert stream_of(path).latestOffset(unmarked, ALL) == unmarked


def test_a_start_that_is_too_long_ago_to_be_remembered_is_no_loss(path):
    stream = stream_of(path, startingOffsets="earliest")
    at = stream.latestOffset(stream.initialOffset(), ALL)
    assert stream_of(path).latestOffset({**at, "start": [0, "00" * 16]}, ALL)


def test_a_batch_with_a_new_topic_is_the_same_when_it_is_repeated(path):
    """Where the topic begins may be another by then."""
    stream, forgiving = (
        MessageStream(*_patterned(path)),
        MessageStream(*_patterned(path, failOnDataLoss="false")),
    )
    at = stream.initialOffset()
    with journal.open(path, small_files()) as log:
        log.create_topic("t-new", 1)
        for _ in range(10):
            log.append("t-new", b"x")
    upto = json.loads(json.dumps(stream.latestOffset(at, ALL)))
    assert len(offsets(stream, at, upto)) == 10
    with journal.open(path, small_files()) as log:
        log.trim("t-new", 4, 0)
    with pytest.raises(MessagesLost, match="t-new-0: offsets 0 to 3 cannot be read"):
        stream.partitions(at, upto)
    assert len(offsets(forgiving, at, upto)) == 6
    assert stream.latestOffset(upto, ALL) == upto, "another offset would make a batch of nothing"
    with journal.open(path, small_files()) as log:
        log.append("t-new", b"x")
    after = stream.latestOffset(upto, ALL)
    assert after["topics"]["t-new"]["0"].keys() == {"log", "next"}, "it is new in one batch"


def test_offsets_of_another_brokers_data_are_refused(path):
    stream = stream_of(path)
    at = stream.initialOffset()
    with pytest.raises(
        InvalidSetting, match=r"its offsets mean nothing there; nothing was read\. Give the query a new"
    ):
        stream.latestOffset({**at, "identity": "f" * 32}, ALL)


def test_a_stream_has_no_end(path):
    with pytest.raises(InvalidSetting, match="a stream has no end"):
        stream_of(path, endingOffsets="latest")
    with pytest.raises(InvalidSetting, match="a stream has no end"):
        stream_of(path, endingTimestamp="1")


@given(
    st.dictionaries(st.tuples(st.just("t"), st.integers(0, 50)), st.integers(0, 10_000)),
    st.integers(1, 30_000),
    st.integers(0, 1 << 70),
)
def test_what_may_be_read_is_shared_so_that_all_of_it_is_used(behind, most, seed):
    found = limited(behind, most, seed)
    assert sum(found.values()) == min(most, sum(behind.values()))
    assert all(0 <= found[place] <= behind[place] for place in behind)
    if most >= sum(map(bool, behind.values())):
        assert all(found[place] for place in behind if behind[place])


@pytest.mark.parametrize(
    ("partitions", "backlog", "most"), [(200, 0, 150), (200, 0, 3), (20, 1000, 15), (20, 10**6, 21)]
)
def test_no_partition_is_forgotten_however_few_may_be_read_and_whatever_others_have(
    partitions, backlog, most
):
    """A message a trigger comes to each. 50 of 200 were given none in 300 triggers."""
    behind, given, seed = dict.fromkeys(range(partitions), 0), dict.fromkeys(range(partitions), 0), 0
    behind[0] = backlog
    for _ in range(300 if most > 10 else 3000):
        behind = {place: messages + 1 for place, messages in behind.items()}
        for place, messages in limited(behind, most, seed).items():
            behind[place] -= messages
            given[place] += messages
            seed += messages
    others = [given[place] for place in behind if place]
    assert min(others) > 0.6 * sum(others) / len(others) > 0
