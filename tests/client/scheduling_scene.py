"""A rig with the broker itself for tests of scheduled messages, both with clocks that are moved by hand."""

from journal.formats import frame
from journal.formats.envelope import SCHEDULE_TOPIC, envelopes
from tests.client.lossy_room import LossyRoom
from tests.client.rig import Rig

SECOND = 1_000_000


class Scene:
    """Topics orders (two partitions) and others; the clocks of client and broker go together."""

    def __init__(self, settings=None, **options):
        self.broker = LossyRoom(**(settings or {}))
        self.room = self.broker.room
        self.orders = self.room.topic("orders", 2)
        [self.others] = self.room.topic("others")
        self.rig = self.client(**options)

    def client(self, **options):
        rig = Rig(self.broker, **options)
        rig.core.wall = self.room.clock.wall
        return rig

    def append(self, value=b"v", topic="orders", key=None, headers=None, partition=0, rig=None, **due):
        """Begin to send a message for later; the promise of its place."""
        message = (value, self.room.clock.wall(), key, headers)
        given = (due.get("after"), due.get("at"))
        rig = rig or self.rig
        return rig.start(rig.producer.append_later(topic, message, partition, True, *given))

    def send(self, *args, **choices):
        """Send a message for later; its receipt."""
        appended = self.append(*args, **choices).result()
        self.rig.pump()
        return appended.receipt(appended.batch.base_offset, None)

    def pass_time(self, seconds, rigs=()):
        self.room.clock.advance(round(seconds * SECOND))
        for rig in (self.rig, *rigs):
            rig.now += seconds
        self.room.timers.advance(seconds)
        for _ in range(20):  # what goes on in later turns
            self.room.timers.advance(0)
            self.room.engine.sync()

    def values(self, number):
        store = self.room.engine.catalog.stores[number]
        return [message.value for message in frame.decode_run(store.read(0, 1 << 20), 0)]

    def log(self, index):
        """The messages of one of the schedule's logs: each with its envelope."""
        store = self.room.engine.catalog.topics[SCHEDULE_TOPIC].partitions[index]
        return list(envelopes(store.read(0, 1 << 20)))

    def waiting(self):
        return sum(len(self.log(index)) for index in range(8))
