"""Topics that get more partitions: which producers send to them, from when on, and that nothing is lost.

Seen to fail: with the route kept, the client that altered the topic goes on with the old number, and a send to a
partition that is there is refused for good.
"""

import pytest

from tests.client.rig import Rig
from txbroker import errors
from txbroker.client.core.partitioner import by_key
from txbroker.wire import messages

KEYS = [b"key %d" % number for number in range(30)]


@pytest.fixture
def grown(rig, broker):
    """A client whose topic of two partitions, 2 and 3, has four now."""
    rig.send(b"before", "t2", b"k")
    rig.pump()

    def altered(session, request, data):
        grow(broker)
        return broker.on_describetopics(session, messages.DescribeTopics(request.correlation, ["t2"]), data)

    broker.on_altertopic = altered
    return rig


def grow(broker):
    broker.topics = [(name, (2, 3, 8, 9) if name == "t2" else numbers) for name, numbers in broker.topics]
    for number in (8, 9):
        broker.logs.setdefault(number, [])
        broker.ends.setdefault(number, 0)


def sent_to(rig, keys=KEYS):
    """The indexes of the partitions that messages with these keys go to."""
    batches = [rig.send(b"v", "t2", key)[0] for key in keys]
    rig.wait(1)
    for batch in batches:
        batch.result()
    route = rig.producer.known_route("t2")
    return [route.queues.index(route.choose(key, None)) for key in keys]


def test_the_client_that_altered_the_topic_sends_to_all_partitions_at_once(grown):
    assert sent_to(grown) == [by_key(key, 2) for key in KEYS]
    grown.run(grown.operations.alter_topic("t2", partitions=4))
    assert sent_to(grown) == [by_key(key, 4) for key in KEYS]


def test_another_client_goes_on_with_those_that_it_knows(grown, broker):
    grow(broker)
    assert sent_to(grown) == [by_key(key, 2) for key in KEYS]


def test_what_waits_when_the_topic_grows_is_sent_where_it_was_to_go(broker):
    rig = Rig(broker, linger=10.0)
    batches = [rig.send(b"%d" % number, "t2", key)[0] for number, key in enumerate(KEYS)]
    grow(broker)
    rig.producer.forget_route("t2")
    batches += [rig.send(b"later %d" % number, "t2", key)[0] for number, key in enumerate(KEYS)]
    rig.run(rig.producer.route("t2"))
    rig.wait(20)
    for batch in batches:
        batch.result()
    assert {queue.number for queue in rig.producer._queues["t2"]} == {2, 3, 8, 9}
    assert sum(broker.ends[number] for number in (2, 3, 8, 9)) == 2 * len(KEYS)


def test_a_partition_that_a_producer_does_not_know_is_refused_once_and_looked_for(grown, broker):
    grow(broker)
    with pytest.raises(errors.UnknownPartition, match="partitions 0 to 1, not 3; nothing was sent"):
        grown.producer.known_route("t2").choose(None, 3)
    assert grown.producer.known_route("t2") is None
    assert grown.run(grown.producer.route("t2")).choose(None, 3).number == 9


def test_a_partition_that_is_not_there_is_refused_each_time(grown):
    for _ in range(2):
        with pytest.raises(errors.UnknownPartition, match="not 7"):
            grown.run(grown.producer.route("t2")).choose(None, 7)


def test_an_open_transaction_goes_on_over_the_growth(grown, broker):
    begun = grown.transaction()
    grown.run(begun.send("t2", b"one", b"k", None, None))
    grown.run(grown.operations.alter_topic("t2", partitions=4))
    for key in KEYS:
        grown.run(begun.send("t2", b"two", key, None, None))
    grown.run(begun.commit())
    assert sum(broker.ends[number] for number in (2, 3, 8, 9)) == 2 + len(KEYS)
