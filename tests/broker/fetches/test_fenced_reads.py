"""Test reads for groups whose partition was claimed by another while the disk was read."""

import pytest

from journal.testing import MemoryFile
from tests.broker.fetches.group_scene import ID
from tests.support.broker_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.wire import messages


@pytest.mark.parametrize("has_other", [False, True])
def test_the_fetch_is_answered_and_the_sessions_other_fetches_go_on(monkeypatch, has_other):
    room = Room()
    partition, other = room.topic(partitions=2)
    sender = room.peer()
    sender.send(partition, b"a", b"b")
    sender.send(other, b"c")
    generation = room.peer().ask(messages.ClaimPartitions, "g", "m", [partition], ID).claims[0][1]
    room.flush()
    pool = ManualWorker()
    room.broker.fetching._run_blocking = pool.submit
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    monkeypatch.setattr("txbroker.broker.fetches.fetches.SKIPPED", 0)
    reader = room.peer()
    readers = [messages.Reader("g", 0, [generation])]
    positions = [(partition, 0, 0), (other, 0, 0)] if has_other else [(partition, 0, 0)]
    fenced = reader.tell(messages.Fetch, positions, readers=readers)
    second = reader.tell(messages.Fetch, [(other, 0, 0)])
    room.peer().ask(messages.ClaimPartitions, "g", "n", [partition], ID)
    while pool.work:
        pool.step()
    room.engine.sync()
    first, *rest = reader.answer(fenced).partitions
    assert first.error == "GenerationFenced"
    assert first.length == 0
    assert [part.length > 0 for part in rest] == [True] * has_other
    assert reader.answer(second).partitions[0].length > 0
    assert sum(room.broker.latencies.ages.counts) == 1 + has_other
