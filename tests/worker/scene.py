"""What the tests of workers share: messages, what a group has finished, and waiting for events of other threads."""

import threading
from contextlib import contextmanager

PATIENCE = 30.0


def fill(broker, topic, count, key=None):
    for number in range(count):
        broker.send_async(topic, b"%d" % number, key=None if key is None else key(number))
    broker.flush()


def position(broker, group):
    """The first unfinished offset of the group in its one partition."""
    found = broker.group_offsets(group)
    return found[0].offset or 0 if found else 0


def unfinished(broker, topic, group, partitions=None):
    """The offsets that a consumer of the group still gets; ``partitions`` if those of the group name theirs."""
    with broker.consume(topic, group, partitions=partitions, follow=False, order=None) as consumer:
        return sorted(message.offset for message in consumer)


def values(broker, topic):
    with broker.consume(topic, follow=False) as consumer:
        return sorted(int(message.value) for message in consumer)


def reached(event):
    assert event.wait(PATIENCE), "that never came"


@contextmanager
def running(worker, stops=True):
    """The worker, in a thread; what it raised is in the list afterwards. It is stopped, or ends by itself."""
    raised = []

    def run():
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    except BaseException:
        worker.stop()
        raise
    finally:
        if stops:
            worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
