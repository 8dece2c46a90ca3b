"""Test that the partitions of a worker take turns: whatever their messages came in, and whenever it was given them."""

import os
import threading
import time
from collections import Counter

import pytest

import txbroker
from tests.support.waiting import eventually
from tests.worker.scene import running

pytestmark = pytest.mark.slow

BATCH = 400
"""Messages of a partition that lie in one block: they are read together."""


def many(broker, partitions, batches=1):
    """A topic with blocks of messages in each partition, each larger than what a worker reads ahead of small ones."""
    topic = f"turns-{os.urandom(4).hex()}"
    broker.create_topic(topic, partitions=partitions)
    for _ in range(batches):
        for partition in range(partitions):
            for number in range(BATCH):
                broker.send_async(topic, b"%050d" % number, partition=partition)
        broker.flush()
    return topic


@pytest.mark.parametrize("partitions", [3, 12])
def test_partitions_take_turns_however_many_messages_of_each_are_here(broker, partitions):
    topic, handled = many(broker, partitions), []
    broker.work(topic, topic, handled.append, follow=False).run()
    soon = handled[: 2 * 16 * partitions]
    assert {message.partition for message in soon} == set(range(partitions))
    for partition in range(partitions):
        offsets = [message.offset for message in handled if message.partition == partition]
        assert offsets == list(range(BATCH))


@pytest.mark.parametrize("attempt", range(3))
def test_partitions_that_a_worker_is_given_have_their_turn_soon(broker, url, attempt):
    topic, begun, handled = many(broker, 12, batches=3), threading.Event(), []

    def slow(message):
        begun.set()
        time.sleep(0.002)

    def handle(message):
        time.sleep(0.002)
        handled.append(message.partition)

    def has_its_share():
        partitions = broker.describe_group(topic).partitions
        members = [each.member for each in partitions if not each.revoking]
        return sorted(map(members.count, {*members})) == [6, 6]

    with txbroker.connect(url) as other, running(broker.work(topic, topic, slow)):
        begun.wait()
        with running(other.work(topic, topic, handle)):
            eventually(has_its_share)
            had = len(handled)
            eventually(lambda: len({*handled[had:]}) == 6)
            assert max(Counter(handled).values()) < 3 * BATCH, "all of one came before the first of another"
            had = len(handled)
            eventually(lambda: len(handled) > had + 2 * BATCH)
    # in less than two blocks, which would be two partitions' if one came whole before the next; less is a matter of how
    # soon a busy machine fetches the next block
    assert len({*handled[had : had + 2 * BATCH]}) == 6
