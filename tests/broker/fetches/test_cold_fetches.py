"""Test fetches from disk: they are read on a thread, one after the other, with failures and damage."""

import pytest
from twisted.logger import capturedLogs

from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.testing import MemoryFile
from tests.broker.fetches.fetch_scene import SECOND, unreadable, values
from tests.support.broker_room import Room, frames, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches.fetches import MOST_COLD_READS
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


def make_cold(room, monkeypatch):
    """Everything is in segments, and nothing of them in the page cache."""
    room.flush()
    pool = ManualWorker()
    room.broker.fetching._run_blocking = pool.submit
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    return pool


class TestCold:
    def test_what_is_not_in_memory_is_read_on_the_pool(self, room, partition, monkeypatch):
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        pool = make_cold(room, monkeypatch)
        asked = peer.tell(messages.Fetch, [(partition, 1, 0)])
        assert peer.answers[-1].correlation != asked
        pool.step()
        assert values(peer, peer.answer(asked)) == {partition: [b"b"]}

    def test_a_session_has_one_read_at_the_disk_and_its_fetches_follow_in_order(
        self, room, partition, monkeypatch
    ):
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        pool = make_cold(room, monkeypatch)
        asked = [peer.tell(messages.Fetch, [(partition, offset, 0)]) for offset in (0, 1)]
        assert len(pool.work) == 1
        pool.step()
        assert [peer.answer(each) is None for each in asked] == [False, True]
        pool.step()
        assert values(peer, peer.answer(asked[1])) == {partition: [b"b"]}

    def test_memory_first_then_nothing_is_held_while_the_disk_is_waited_for(self, room, monkeypatch):
        cold, hot = room.topic(partitions=2)
        peer = room.peer()
        peer.send(cold, b"cold")
        pool = make_cold(room, monkeypatch)
        peer.send(hot, b"hot")
        asked = peer.tell(messages.Fetch, [(hot, 0, 0), (cold, 0, 0)], min_bytes=1000, max_wait=SECOND)
        assert values(peer, peer.answer(asked)) == {hot: [b"hot"], cold: []}
        asked = peer.tell(messages.Fetch, [(cold, 0, 0), (hot, 0, 0)])
        pool.step()
        assert values(peer, peer.answer(asked)) == {cold: [b"cold"], hot: []}

    def test_several_cold_partitions_share_the_room(self, room, monkeypatch):
        one, two = room.topic(partitions=2)
        peer = room.peer()
        size = len(frames(b"x" * 100))
        for partition in (one, two):
            peer.send(partition, *[b"x" * 100] * 3)
        pool = make_cold(room, monkeypatch)
        asked = peer.tell(messages.Fetch, [(one, 0, 0), (two, 0, 0)])
        pool.step()
        assert [part.length for part in peer.answer(asked).partitions] == [3 * size, 3 * size]
        asked = peer.tell(messages.Fetch, [(one, 0, 0), (two, 0, 0)], 2 * size)
        pool.step()
        assert [part.length for part in peer.answer(asked).partitions] == [2 * size, 0]

    def test_a_fetch_holds_a_bounded_number_of_files_open_while_it_waits_for_the_disk(
        self, room, monkeypatch
    ):
        partitions = room.topic(partitions=100)
        peer = room.peer()
        for partition in partitions:
            peer.send(partition, b"a")
        pool = make_cold(room, monkeypatch)
        room.engine.open_files.close()
        found, wanted = set(), list(partitions)
        while wanted:
            asked = peer.tell(messages.Fetch, [(partition, 0, 0) for partition in wanted], 16 << 20)
            assert len(room.engine.open_files) <= MOST_COLD_READS + 1, "and an index"
            pool.step()
            got = values(peer, peer.answer(asked))
            found |= {partition for partition, some in got.items() if some}
            room.engine.open_files.close()
            wanted = [partition for partition in partitions if partition not in found]
        assert found == set(partitions)

    def test_a_cold_frame_too_large_for_what_is_left_is_the_next_fetchs_too(self, room, monkeypatch):
        one, two = room.topic(partitions=2)
        peer = room.peer()
        peer.send(one, b"a" * 60_000)
        peer.send(two, b"b" * 100_000)
        pool = make_cold(room, monkeypatch)
        asked = peer.tell(messages.Fetch, [(one, 0, 0), (two, 0, 0)], 130_000)
        pool.step()
        assert values(peer, peer.answer(asked)) == {one: [b"a" * 60_000], two: []}

    def test_a_failed_read_refuses_that_fetch_and_the_session_goes_on(self, room, partition, monkeypatch):
        peer = room.peer()
        peer.send(partition, b"a")
        pool = make_cold(room, monkeypatch)
        asked = peer.tell(messages.Fetch, [(partition, 0, 0)])
        _, _, failed = pool.work.pop()
        failed(OSError(5, "Input/output error"))
        assert "Input/output error" in refused(peer.answer(asked), "TxBrokerError")
        asked = peer.tell(messages.Fetch, [(partition, 0, 0)])
        pool.step()
        assert values(peer, peer.answer(asked)) == {partition: [b"a"]}

    def test_a_file_that_cannot_be_opened_is_that_fetchs_error_and_publishing_goes_on(
        self, room, monkeypatch
    ):
        [partition] = room.topic()
        producer, consumer = room.peer(), room.peer()
        producer.send(partition, b"a")
        room.flush()
        asked = consumer.tell(messages.Fetch, [(partition, 0, 0)], 1 << 20, 10 * SECOND, min_bytes=100)
        assert consumer.answer(asked) is None

        def too_many(*_, **__):
            raise OSError(24, "Too many open files")

        monkeypatch.setattr("journal.log.read_plan.open_log", too_many)
        assert isinstance(producer.send(partition, b"b" * 100), messages.Sent)
        assert not room.engine.failed
        assert "Too many open files" in consumer.answer(asked).partitions[0].message

    def test_a_damaged_segment_is_that_partitions_error(self, room, monkeypatch):
        bad, good = room.topic(partitions=2)
        peer = room.peer()
        for partition in (bad, good):
            peer.send(partition, b"a")
        pool = make_cold(room, monkeypatch)
        directory = room.engine.catalog.stores[bad].directory
        [log] = [name for name in room.filesystem.list_directory(directory) if name.endswith(".log")]
        file = room.filesystem.open(f"{directory}/{log}")
        file.write_some(SEGMENT_HEADER_BYTES, [b"\xff" * 40])
        with capturedLogs() as logged:
            asked = peer.tell(messages.Fetch, [(bad, 0, 0), (good, 0, 0)])
            pool.step()
            answer = peer.answer(asked) or peer.answer(asked)
            assert [part.error for part in answer.partitions] == ["CorruptSegment", ""]
            assert values(peer, answer)[good] == [b"a"]
            peer.tell(messages.Fetch, [(bad, 0, 0)])
            pool.step()
        told = [event["error"] for event in logged]
        assert len(told) == 1, "once, though readers try again"
        assert log in told[0]

    def test_a_disk_that_cannot_read_one_partition_is_that_partitions_error(self, room, monkeypatch):
        bad, good = room.topic(partitions=2)
        peer = room.peer()
        for partition in (bad, good):
            peer.send(partition, b"a")
        pool = make_cold(room, monkeypatch)
        directory = room.engine.catalog.stores[bad].directory
        unreadable(monkeypatch, directory)
        with capturedLogs() as logged:
            asked = peer.tell(messages.Fetch, [(bad, 0, 0), (good, 0, 0)])
            pool.step()
            answer = peer.answer(asked) or peer.answer(asked)
        assert [part.error for part in answer.partitions] == ["StorageUnavailable", ""]
        assert directory in answer.partitions[0].message
        assert values(peer, answer)[good] == [b"a"]
        assert any(directory in event["error"] for event in logged)

    def test_a_disk_that_cannot_be_read_refuses_that_question_and_the_session_goes_on(
        self, room, partition, monkeypatch
    ):
        peer = room.peer()
        for _ in range(3):
            peer.send(partition, b"a" * 40_000)
            room.clock.advance(SECOND)
        room.flush()
        with monkeypatch.context() as patch, capturedLogs():
            unreadable(patch, room.engine.catalog.stores[partition].directory)
            answer = peer.ask(messages.OffsetsForTime, [partition], room.clock.wall() - 3 * SECOND // 2)
        assert "Input/output error" in refused(answer, "StorageUnavailable")
        assert isinstance(peer.send(partition, b"goes on"), messages.Sent)

    def test_the_answer_to_a_session_that_has_ended_is_dropped(self, room, partition, monkeypatch):
        peer = room.peer()
        peer.send(partition, b"a")
        pool = make_cold(room, monkeypatch)
        peer.tell(messages.Fetch, [(partition, 0, 0)])
        peer.leave()
        answers = len(peer.answers)
        pool.step()
        assert len(peer.answers) == answers
