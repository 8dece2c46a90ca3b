"""The content of a topic; and waiting for something that is not reported."""

import time

import txbroker


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def resolve_until_done(opens, broker, in_doubt):
    """End what a program left; some of it was in doubt, or none. The database may notice the death only later."""
    with txbroker.Resolver(opens, broker) as resolver:
        done = []

        def resolved():
            found = resolver.resolve()
            done.extend([*found.committed, *found.rolled_back])
            return not found.waiting and bool(done) is in_doubt

        eventually(resolved)
