"""Test that a consumer takes and gives up single partitions while it reads the others."""

import pytest

from journal.formats import frame
from tests.client.rig import Rig
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.core.positions import Position


@pytest.fixture
def rig(broker):
    rig = Rig(broker)
    for number in (2, 3):
        for value in (b"a", b"b", b"c"):
            broker.append(number, memoryview(frame.encode(value, 1)))
    return rig


def consumer(rig):
    """A consumer of the first partition of two, which has read what is there."""
    core = ConsumerCore(rig.shared_fetch, consumer_options("t2", "g", partitions=[0]), "me")
    core.look()
    rig.pump()
    return core


def taken(rig, core):
    found = []
    for _ in range(6):
        delivery = core.look()
        rig.pump()
        if delivery is not None:
            found += [(message.partition, message.offset) for message in delivery.some()]
    return found


def test_a_partition_that_is_assigned_is_read_at_once_from_the_groups_position(rig, broker):
    core = consumer(rig)
    assert taken(rig, core) == [(0, offset) for offset in range(3)]
    broker.offsets[3] = 1
    position = Position("t2", 1, 3, 3)
    position.generation = 7
    rig.run(core.assign([position]))
    rig.pump()
    assert taken(rig, core) == [(1, offset) for offset in range(1, 3)]
    assert {at.partition: at.generation for at in core.handed_out()}[3] == 7


def test_what_was_read_of_a_revoked_partition_is_dropped_and_nothing_more_of_it_comes(rig, broker):
    core = consumer(rig)
    rig.run(core.assign([Position("t2", 1, 3, 3)]))
    rig.pump()
    core.revoke([2])
    rig.pump()
    assert taken(rig, core) == [(1, 0), (1, 1), (1, 2)]
    broker.append(2, memoryview(frame.encode(b"more", 1)))
    assert taken(rig, core) == []
    assert 2 not in core.positions
    with pytest.raises(errors.WrongValue):
        rig.run(core.commit({("t2", 0): 0}))
