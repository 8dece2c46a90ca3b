"""What is in a topic, and waiting until something has happened that nobody tells."""

import time


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def eventually(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
