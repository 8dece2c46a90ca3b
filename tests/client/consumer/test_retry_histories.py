"""Test random histories of a consumer whose messages fail, with a broker in memory: none is lost, none overtakes.

Lost connections, cancelled calls, transactions, restarts of the broker and passing time come in between. The model is
the naivest: which messages are in hand, finished, or failed and not come again, and how often each has failed.
"""

import random

import pytest

from journal.formats import frame
from tests.client.rig import Rig
from tests.support.broker_room import Room
from tests.support.thoroughness import examples
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.receiver import Receivers
from txbroker.client.consumer.retries import Said, parking_of, retry
from txbroker.client.core.positions import finished_of
from txbroker.client.core.promise import start
from txbroker.wire import messages
from txbroker.wire.codec import request_decoder

MESSAGES = 24
SECOND = 1_000_000


class RoomBroker:
    """A broker in memory, for a rig; it answers also what has waited."""

    def __init__(self):
        self.room = Room()
        self.session = 0
        self.waiting = []
        self._sessions = {}

    def connection(self):
        self.waiting = answers = []
        decoder = request_decoder(1 << 26)
        session = self.room.broker.opened("client:1", answers.append, lambda why: None)
        self.session = session.number
        self._sessions[session.number] = session

        def feed(data):
            for head, body in decoder.feed(data):
                self.room.broker.received(session, head, body)
            self.room.engine.sync()
            return self.taken()

        return feed

    def taken(self):
        found = b"".join(self.waiting)
        self.waiting.clear()
        return found

    def disconnected(self, number):
        session = self._sessions.pop(number, None)
        if session is not None:
            self.room.broker.closed(session)
            self.room.engine.sync()

    def restart(self):
        self._sessions.clear()
        self.room.restart()


class RoomRig(Rig):
    def pump(self):
        super().pump()
        while self.feed is not None and (answers := self.broker.taken()):
            self.core.received(answers)
            super().pump()

    def pass_time(self, seconds):
        self.broker.room.clock.advance(round(seconds * SECOND))
        self.broker.room.timers.advance(seconds)
        self.broker.room.engine.sync()
        self.now += seconds
        self.core.tick()
        self.pump()

    def lose(self, restart=False):
        self.cut()
        if restart:
            self.broker.restart()
        self.connect()


class History:
    def __init__(self, seed, order):
        self.draw = random.Random(f"{seed} {order}")
        self.order = order
        self.broker = RoomBroker()
        [self.partition, _] = self.broker.room.topic("t", 2)
        self.keys = []
        self.rig = RoomRig(self.broker, client="me")
        self.finished = set()
        self.failed = {}
        self.send(MESSAGES)
        draw = random.Random(seed)
        choices = {"max_run": draw.choice((None, 1, 3)), "prefetch": draw.choice((1, 1 << 20))}
        options = consumer_options("t", "g", order=order, partitions=[0], **choices)
        self.consumer = ConsumerCore(self.rig.shared_fetch, options, "me")
        self.hand = {}
        self.parked = set()

    def send(self, count):
        """Send some messages with some keys."""
        keys = [self.draw.choice([None, b"a", b"b", b"c"]) for _ in range(count)]
        self.failed |= dict.fromkeys(range(len(self.keys), len(self.keys) + count), 0)
        self.keys += keys
        frames = b"".join(frame.encode(b"", 1, key=key) for key in keys)
        self.broker.room.peer().ask(messages.Send, self.partition, data=frames)

    # -- what the consumer gives ----------------------------------------------------------------------

    def take(self):
        delivery = self.consumer.look()
        self.rig.pump()
        delivery = delivery or self.consumer.look()
        if delivery is None:
            return False
        message = delivery.one()
        offset = message.offset
        assert offset not in self.finished, f"{offset} is finished"
        assert offset not in self.hand, f"{offset} is in hand"
        assert message.attempts == self.failed[offset], f"{offset} has failed {self.failed[offset]} times"
        self.parked.discard(offset)
        before = [each for each in self.parked if each < offset]
        if self.order == "partition":
            assert not before, f"{offset} overtakes {before}"
        if self.order == "key" and message.key is not None:
            assert not [each for each in before if self.keys[each] == message.key], f"{offset} overtakes"
        self.hand[offset] = message
        return True

    # -- what the program does ------------------------------------------------------------------------

    def some(self):
        offsets = self.draw.sample(sorted(self.hand), min(len(self.hand), self.draw.choice([1, 1, 2])))
        return [self.hand[offset] for offset in offsets]

    def done(self):
        self.rig.run(self.consumer.commits.done(some := self.some()))
        self.are_done(some)

    def are_done(self, some):
        for message in some:
            self.finished.add(message.offset)
            del self.hand[message.offset]

    def have_failed(self, some):
        for message in some:
            self.failed[message.offset] += 1
            self.parked.add(message.offset)
            del self.hand[message.offset]

    def commit(self):
        self.rig.run(self.consumer.commits.commit())
        self.are_done(list(self.hand.values()))

    def retry(self):
        failing, after = self.some(), self.draw.choice([0, 0, 1, 3])
        task = start(retry(self.consumer, failing, Said.again(after, "why"), None))
        self.have_failed(failing)
        match self.draw.choice(["answered", "answered", "cancelled", "lost", "repeated"]):
            case "cancelled":
                task.cancel()
                self.rig.pump()
            case "lost":
                self.rig.lose()
                assert task.done
                task.result()
            case "repeated":
                self.rig.pump()
                self.rig.run(retry(self.consumer, failing, Said.again(after, "again"), None))
            case _:
                self.rig.pump()
                assert task.done
                task.result()

    def transact(self):
        """Finish one, and try another again, or neither."""
        if len(self.hand) < 2:
            return
        one, other = self.draw.sample(sorted(self.hand), 2)
        tx = self.rig.transaction()
        self.rig.run(tx.add_offsets("g", [], self.consumer_finishes(self.hand[one])))
        parking = parking_of(self.consumer, self.hand[other], Said.again(self.draw.choice([0, 2]), "tx"))
        self.rig.run(tx.add_offsets("g", [], parking.settled))
        tx.joined_by(parking)
        if self.draw.random() < 0.5:
            self.rig.run(tx.commit())
            self.are_done([self.hand[one]])
            self.have_failed([self.hand[other]])
        else:
            self.rig.run(tx.rollback())

    def consumer_finishes(self, message):
        return finished_of(self.consumer.positions.values(), message)

    def step(self):
        if not self.hand or self.draw.random() < 0.4:
            self.take()
            return
        match self.draw.choice(["done", "done", "retry", "retry", "commit", "tx", "time", "lose", "restart"]):
            case "done":
                self.done()
            case "retry":
                self.retry()
            case "commit" if self.draw.random() < 0.3:
                self.commit()
            case "tx":
                self.transact()
            case "time":
                self.rig.pass_time(self.draw.choice([0.5, 1, 3]))
            case "lose":
                self.rig.lose()
            case "restart" if self.draw.random() < 0.3:
                self.rig.lose(restart=True)

    def end(self):
        """All come in the end."""
        for _ in range(200):
            while self.take():
                pass
            if self.hand:
                self.done()
            if len(self.finished) == len(self.keys):
                break
            self.rig.pass_time(1)
        left = sorted(set(range(len(self.keys))) - self.finished)
        assert not left, f"{left} do not come again, of these {self.parked} were to"
        self.is_behind_all()

    def is_behind_all(self):
        self.rig.pump()
        assert self.broker.room.broker.groups.find("g").position(self.partition) == len(self.keys)


class Transactions(History):
    """The same in transactions that receive: each finishes what it has received, or tries it again."""

    def __init__(self, seed, order):
        super().__init__(seed, order)
        self.receivers = Receivers(self.rig.shared_fetch)

    def step(self):
        match self.draw.choice(["transact", "transact", "transact", "time", "lose", "restart"]):
            case "transact":
                self.transact()
            case "time":
                self.rig.pass_time(self.draw.choice([0.5, 1, 3]))
            case "lose":
                self.rig.lose()
            case "restart" if self.draw.random() < 0.3:
                self.rig.lose(restart=True)

    def transact(self, ends=("commit", "commit", "rollback", "lose"), failing=0.4):
        """Receive some messages, try some of them again, and end."""
        tx = self.rig.transaction()
        self.consumer = receiver = self.receivers.of(tx, "t", "g", {"order": self.order, "partitions": [0]})
        tx.receives(receiver)
        before = set(self.parked)
        while len(self.hand) < 4 and self.take():
            pass
        again = [each for each in self.hand.values() if self.draw.random() < failing]
        for message in again:
            assert tx.retry_received(message, Said(self.draw.choice([0, SECOND, 3 * SECOND]), "why"))
        match self.draw.choice(ends):
            case "commit":
                self.rig.run(tx.commit())
                self.have_failed(again)
                self.are_done(list(self.hand.values()))
            case "rollback":
                self.rig.run(tx.rollback())
                self.parked = before
            case "lose":
                self.rig.run(tx.send("t", b"", None, None, 1))
                self.rig.lose()
                with pytest.raises(errors.TransactionRolledBack):
                    self.rig.run(tx.commit())
                self.rig.run(tx.rollback())
                self.parked = before
        self.hand.clear()

    def end(self):
        for _ in range(200):
            self.transact(ends=("commit",), failing=0)
            if len(self.finished) == len(self.keys):
                break
            self.rig.pass_time(1)
        left = sorted(set(range(len(self.keys))) - self.finished)
        assert not left, f"{left} do not come again, of these {self.parked} were to"
        self.is_behind_all()


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", [*range(examples(40)), 1031, 1057])  # the last two lost messages once
def test_every_message_is_finished_once_and_none_overtakes_one_that_failed(seed, order):
    history = History(seed, order)
    for _ in range(120):
        history.step()
    history.end()


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_so_it_is_in_transactions_that_receive(seed, order):
    history = Transactions(seed, order)
    for _ in range(25):
        history.step()
    history.end()


def test_a_consumer_that_may_ask_for_nothing_waits_for_the_answer_to_its_retry():
    """A fetch ends while the request is on its way, and until its answer there is nothing to ask for."""
    history = History(0, "partition")
    while not history.take():
        pass
    while history.take():
        pass
    message = history.hand[MESSAGES - 1]
    history.rig.run(retry(history.consumer, message, Said.again(1, "first"), None))
    task = start(retry(history.consumer, message, Said.again(0, "again"), None))
    history.rig.now += 6
    history.broker.room.timers.advance(6)
    history.broker.room.engine.sync()
    history.rig.core.received(history.broker.taken())
    assert not task.done
    history.rig.pump()
    task.result()
    history.have_failed([message])
    history.end()
