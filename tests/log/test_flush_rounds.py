"""Test flushes of several partitions at a time: they are written one after the other, forced together."""

import pytest

from journal.engine import housekeeping
from journal.engine.jobs import FlushStore, ForceLogs
from journal.records.record import TopicDeleted
from tests.support.engine_room import Room


def due(partitions):
    """A room whose partitions have a message each to be flushed, and the jobs for that."""
    room = Room()
    room.topic(partitions=partitions)
    for number in range(1, partitions + 1):
        room.send(b"message", number=number)
    room.engine.housekeeping.want_flush()
    jobs = room.engine.jobs(room.engine.now())
    return room, [job for job in jobs if isinstance(job, FlushStore | ForceLogs)]


def carry_out(room, jobs):
    for job in jobs:
        job.run()
        room.engine.finish(job)


def surviving(room):
    """The logs, by size, that a power cut would leave which takes whatever is not forced."""
    disk = room.inner.crash_clone(1, survive=0)
    stores = room.engine.catalog.stores.values()
    paths = [f"{store.directory}/{0:032d}.log" for store in stores]
    return [disk.open(path, writable=False).size() if disk.exists(path) else 0 for path in paths]


@pytest.mark.parametrize("partitions", [2, 5, 30])
def test_several_are_written_first_and_forced_together_last(partitions):
    room, jobs = due(partitions)
    assert [type(job) for job in jobs] == [FlushStore] * partitions + [ForceLogs]
    carry_out(room, jobs[:1])
    assert surviving(room)[0] == 0
    carry_out(room, jobs[1:])
    assert all(surviving(room)), "names and bytes of all are on disk"
    assert [store.unflushed_messages for store in room.engine.catalog.stores.values()] == [0] * partitions


def test_a_lone_one_forces_itself():
    room, jobs = due(1)
    assert [type(job) for job in jobs] == [FlushStore]
    carry_out(room, jobs)
    assert all(surviving(room))


def test_a_cut_between_writing_and_forcing_loses_nothing():
    room, jobs = due(5)
    carry_out(room, jobs[:-1])
    for survive in (0, None):
        after = room.crashed(3, survive)
        assert [after.values(number) for number in range(1, 6)] == [[b"message"]] * 5


def test_a_checkpoint_amid_a_round_forces_what_the_round_has_written():
    room, jobs = due(3)
    carry_out(room, jobs[:-1])
    room.checkpoint()
    assert all(surviving(room))
    assert room.crashed(1, survive=0).values(2) == [b"message"]


class TestRoundsOfManyTurns:
    """No turn begins more flushes than so many, however many are due; one force is for all of them."""

    @pytest.fixture
    def room(self, monkeypatch):
        monkeypatch.setattr(housekeeping, "FLUSHES_AT_ONCE", 4)
        room = Room()
        room.topic(partitions=10)
        for number in range(1, 11):
            room.send(b"message", number=number)
        room.engine.housekeeping.want_flush()
        return room

    @staticmethod
    def turn(room):
        jobs = [job for job in room.engine.jobs(room.engine.now()) if isinstance(job, FlushStore | ForceLogs)]
        carry_out(room, jobs)
        return [getattr(getattr(job, "store", None), "number", type(job).__name__) for job in jobs]

    def test_they_go_on_with_the_next_and_end_with_a_force(self, room):
        assert self.turn(room) == [1, 2, 3, 4]
        assert self.turn(room) == [5, 6, 7, 8]
        assert surviving(room) == [0] * 10
        assert self.turn(room) == [9, 10, "ForceLogs"]
        assert all(surviving(room))
        assert self.turn(room) == []

    def test_also_if_the_last_turn_begins_none(self, room):
        self.turn(room)
        self.turn(room)
        for number in (9, 10):
            room.store(number).finish_flush(run(room.store(number).begin_flush()))
            room.engine.dirty.discard(room.store(number))
        assert self.turn(room) == ["ForceLogs"]
        assert all(surviving(room))

    def test_what_becomes_due_meanwhile_is_in_the_next_round(self, room):
        self.turn(room)
        room.send(b"more", number=1)
        room.engine.sync()
        room.engine.housekeeping.want_flush()
        assert self.turn(room) == [5, 6, 7, 8]
        assert self.turn(room) == [9, 10, "ForceLogs"]
        room.engine.housekeeping.want_flush()
        assert self.turn(room) == [1]

    def test_a_topic_that_is_deleted_meanwhile_costs_no_more_than_its_own_flushes(self, room):
        self.turn(room)
        room.engine.accept(TopicDeleted("t", room.engine.now()))
        room.engine.sync()
        for _ in range(3):
            room.checkpoint()
        assert room.crashed(1, survive=0).engine.catalog.stores == {}

    def test_a_power_cut_in_its_midst_loses_nothing(self, room):
        self.turn(room)
        room.checkpoint()
        self.turn(room)
        for survive in (0, None):
            after = room.crashed(3, survive)
            assert [after.values(number) for number in range(1, 11)] == [[b"message"]] * 10


def run(flush):
    flush.run()
    return flush
