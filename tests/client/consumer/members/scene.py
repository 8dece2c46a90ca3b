"""What the tests of members share: messages, whose the partitions are, and waiting for what comes to be."""

import time

from tests.support.waiting import eventually
from txbroker import errors


def send(broker, topic, count, first=0):
    for number in range(first, first + count):
        broker.send_async(topic, b"%d" % number, partition=number % 4)
    broker.flush()


def owners(broker, group):
    """Which client has which partitions."""
    try:
        described = broker.describe_group(group)
    except errors.UnknownGroup:
        return {}
    names = {member.number: member.client for member in described.members}
    found = {name: [] for name in names.values()}
    for each in described.partitions:
        if each.member is not None:
            found[names[each.member]].append(each.partition)
    return found


def shares(broker, group, *sizes):
    """Whether the partitions are shared out in these sizes, and nothing is asked back."""
    found = sorted(len(each) for each in owners(broker, group).values())
    return found == sorted(sizes) and not any(
        each.revoking for each in broker.describe_group(group).partitions
    )


def read_until(consumers, seen, count, commit=True):
    """Have consumers take turns until ``count`` messages are seen."""
    end = time.monotonic() + 10.0
    while len(seen) < count:
        assert time.monotonic() < end, f"{len(seen)} of {count} messages came"
        for consumer in consumers:
            for message in consumer.poll(0.02):
                seen.append(message.value)
            if commit:
                consumer.commit()


def hear_of_loss(broker, topic, consumer):
    """Wait until another consumer has two of four partitions, and the one that has lost them knows it."""
    eventually(lambda: shares(broker, topic, 2, 2))
    eventually(lambda: len(consumer._core.positions) == 2)  # a thread of its client attends
