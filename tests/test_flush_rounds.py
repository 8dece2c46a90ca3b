"""Flushes of several partitions at a time: written one after the other, forced together."""

import pytest

from journal.jobs import FlushStore, ForceLogs
from tests.engine_room import Room


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
