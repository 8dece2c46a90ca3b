"""Test that no sequence of valid methods breaks anything, answers twice, or loses or doubles a message."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest

from tests.channels.talk import House, Talker, consume, declare, published
from tests.support.thoroughness import examples
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.framing import method_frame

ANSWERS = {
    m.QueueDeclare: m.QueueDeclareOk, m.QueuePurge: m.QueuePurgeOk, m.BasicConsume: m.BasicConsumeOk,
    m.BasicCancel: m.BasicCancelOk, m.BasicQos: m.BasicQosOk, m.BasicRecover: m.BasicRecoverOk,
    m.BasicGet: (m.BasicGetOk, m.BasicGetEmpty), m.TxSelect: m.TxSelectOk, m.TxCommit: m.TxCommitOk,
    m.TxRollback: m.TxRollbackOk, m.ConfirmSelect: m.ConfirmSelectOk, c.ChannelOpen: c.ChannelOpenOk,
    c.ChannelClose: c.ChannelCloseOk, c.ChannelFlow: c.ChannelFlowOk,
}  # fmt: skip
OPTIONAL = (m.BasicConsumeOk, ANSWERS[m.BasicGet])
"""Not answered if their channel is closed before they are."""
QUEUES = {"a": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
          "b": {"x-max-length": 6, "x-overflow": "reject-publish"}, "dead": {}}  # fmt: skip


class Line:
    """A channel as its client sees it: what it has, what it waits for, what it has published."""

    def __init__(self, world: World, talker: Talker, number: int, kind: str) -> None:
        self.world, self.talker, self.number, self.kind = world, talker, number, kind
        self.begin()

    def begin(self) -> None:
        self.waits: deque[Any] = deque()
        self.unacked: dict[int, tuple[bytes, str]] = {}
        self.consumers: dict[str, tuple[str, bool]] = {}
        self.cancelled: dict[str, tuple[str, bool]] = {}
        self.begun: set[str] = set()
        self.ended: set[str] = set()
        self.gets: deque[tuple[str, bool]] = deque()
        self.unconfirmed: dict[int, bytes] = {}
        self.tag = self.count = 0
        self.published: list[bytes] = []
        self.done: list[tuple[int, bytes, str, bool]] = []
        self.commits: deque[Any] = deque()
        self.is_closing = False
        self.recovers = 0
        self.say(c.ChannelOpen())
        if self.kind == "confirm":
            self.say(m.ConfirmSelect(False))
        elif self.kind == "tx":
            self.say(m.TxSelect())

    # -- what is said ------------------------------------------------------------------------------

    def say(self, method: Method) -> None:
        if type(method) in ANSWERS:
            self.waits.append(ANSWERS[type(method)])
        self.world.said.setdefault(self.talker, []).append(method_frame(self.number, method))

    def publish(self) -> None:
        body = self.world.fresh()
        queue = self.world.random.choice(["a", "a", "b", "none"] if self.kind == "confirm" else ["a", "dead"])
        mandatory = queue == "none" or self.world.random.random() < 0.2
        exchange = "amq.topic" if queue == "a" and self.world.random.random() < 0.4 else ""
        frames = published(self.number, queue, body, exchange, mandatory=mandatory)
        self.world.said.setdefault(self.talker, []).append(frames)
        if self.kind == "confirm":
            self.tag += 1
            self.unconfirmed[self.tag] = body
        elif self.kind == "tx":
            self.published.append(body)
        else:
            self.world.alive.add(body)

    def settle(self) -> None:
        """Acknowledge, return or reject something."""
        if not self.unacked:
            return
        random = self.world.random
        tag, multiple = random.choice(list(self.unacked)), random.random() < 0.4
        tags = [each for each in self.unacked if each <= tag] if multiple else [tag]
        kind = random.choice(["ack", "ack", "requeue", "reject"])
        self.say(
            m.BasicAck(tag, multiple) if kind == "ack" else m.BasicNack(tag, multiple, kind == "requeue")
        )
        for each in tags:
            body, queue = self.unacked.pop(each)
            is_done = kind == "ack" or (kind == "reject" and queue != "a")
            if self.kind == "tx":
                self.done.append((each, body, queue, is_done))
            elif is_done:
                self.world.finish(body)

    def step(self) -> None:
        """Say something, unless it is closed."""
        if not self.is_closing and not self.recovers:
            ways = [
                self.publish,
                self.settle,
                self.get,
                self.consume,
                self.cancel,
                self.end_transaction,
                self.other,
            ]
            self.world.random.choices(ways, [10, 10, 3, 2, 2, 4, 2])[0]()

    def some(self) -> tuple[str, bool]:
        return self.world.random.choice(["a", "a", "b", "dead"]), self.world.random.random() < 0.2

    def get(self) -> None:
        queue, no_ack = self.some()
        self.gets.append((queue, no_ack))
        self.say(m.BasicGet(0, queue, no_ack))

    def consume(self) -> None:
        queue, no_ack = self.some()
        if len(self.consumers) < 3:
            self.count += 1
            self.consumers[f"c{self.count}"] = (queue, no_ack)
            self.say(consume(queue, f"c{self.count}", no_ack=no_ack))

    def cancel(self) -> None:
        if self.consumers:
            tag = self.world.random.choice(list(self.consumers))
            self.say(m.BasicCancel(tag, False))
            self.cancelled[tag] = self.consumers.pop(tag)

    def end_transaction(self) -> None:
        if self.kind != "tx":
            return
        if self.world.random.random() < 0.8:
            self.commits.append((self.published, self.done))
            self.say(m.TxCommit())
        else:
            for tag, body, queue, _ in self.done:
                self.unacked[tag] = body, queue
            self.unacked = dict(sorted(self.unacked.items()))
            self.say(m.TxRollback())
        self.published, self.done = [], []

    def other(self) -> None:
        random = self.world.random
        name = random.choice(list(QUEUES))
        said = random.choice(
            [
                declare(name, QUEUES[name]),
                c.ChannelFlow(True),
                m.BasicRecover(True),
                c.ChannelClose(200, "", 0, 0),
            ]
            + [m.BasicQos(0, random.choice([0, 1, 3]), random.random() < 0.5)] * 4
        )
        if isinstance(said, m.BasicRecover):
            if self.waits:
                return  # what comes before its answer would be of both sides
            self.unacked.clear()
            self.recovers += 1
        self.is_closing = isinstance(said, c.ChannelClose)
        self.say(said)

    # -- what is heard -----------------------------------------------------------------------------

    def hears(self, method: Any, body: bytes) -> None:
        kind = type(method)
        if kind is m.BasicDeliver:
            assert method.consumer_tag not in self.ended, "delivered behind cancel-ok"
            assert method.consumer_tag in self.begun, "delivered before consume-ok"
            known = self.consumers.get(method.consumer_tag) or self.cancelled[method.consumer_tag]
            self.has(method.delivery_tag, body, *known)
        elif kind in (m.BasicAck, m.BasicNack):
            tags = [tag for tag in self.unconfirmed if tag <= method.delivery_tag] if method.multiple else [
                method.delivery_tag
            ]  # fmt: skip
            assert tags, "nothing is confirmed"
            for tag in tags:
                confirmed = self.unconfirmed.pop(tag)
                if kind is m.BasicAck and confirmed not in self.world.returned:
                    self.world.alive.add(confirmed)
        elif kind is m.BasicReturn:
            self.world.returned.add(body)
        elif kind is c.ChannelCloseOk:
            self.closed()
        else:
            expected = self.waits.popleft()
            while self.is_closing and expected in OPTIONAL and not isinstance(method, expected):
                if expected is not m.BasicConsumeOk:
                    self.gets.popleft()
                expected = self.waits.popleft()
            assert isinstance(method, expected), (method, expected)
            self.answered(method, body)

    def closed(self) -> None:
        """Begin anew. What was said before the close was done, though a get or a consumer need not be answered."""
        while self.commits:
            self.committed()
        assert all(each not in (m.QueueDeclareOk, m.BasicQosOk, m.TxCommitOk) for each in self.waits)
        self.world.unsure |= set(self.unconfirmed.values())
        self.begin()

    def committed(self) -> None:
        bodies, done = self.commits.popleft()
        self.world.alive |= set(bodies)
        for _, body, _, is_done in done:
            if is_done:
                self.world.finish(body)

    def answered(self, method: Any, body: bytes) -> None:
        if isinstance(method, m.BasicGetOk):
            self.has(method.delivery_tag, body, *self.gets.popleft())
        elif isinstance(method, m.BasicGetEmpty):
            self.gets.popleft()
        elif isinstance(method, m.BasicConsumeOk):
            self.begun.add(method.consumer_tag)
        elif isinstance(method, m.BasicCancelOk):
            self.ended.add(method.consumer_tag)
        elif isinstance(method, m.TxCommitOk):
            self.committed()
        elif isinstance(method, m.BasicRecoverOk):
            self.recovers -= 1

    def has(self, tag: int, body: bytes, queue: str, no_ack: bool) -> None:
        assert tag not in self.unacked
        if no_ack:
            self.world.finish(body)
        elif not self.is_closing and not self.recovers:
            self.unacked[tag] = body, queue


class World:
    """Clients with channels at one broker, and what must be true of their messages."""

    def __init__(self, seed: int) -> None:
        self.random, self.house = Random(seed), House()
        self.said: dict[Talker, list[bytes]] = {}
        self.alive: set[bytes] = set()
        self.finished: set[bytes] = set()
        self.returned: set[bytes] = set()
        self.unsure: set[bytes] = set()
        """Published and not confirmed when their channel was closed."""
        self.last = 0
        first = self.house.talker()
        for name, arguments in QUEUES.items():
            first.queue(name, arguments)
        first.bind("a", "amq.topic", "a")
        self.owner = first
        self.talkers = [Talker(self.house) for _ in range(2)]
        for each in self.talkers:
            each.enter(channels=())
        self.lines = [
            Line(self, talker, number, kind)
            for talker in self.talkers
            for number, kind in enumerate(("confirm", "tx", "plain"), 1)
        ]

    def fresh(self) -> bytes:
        self.last += 1
        return b"%d" % self.last

    def finish(self, body: bytes) -> None:
        assert body not in self.finished, "it was finished twice"
        self.finished.add(body)

    def step(self) -> None:
        """Have some channels say something, in one read each or in pieces, and hear what there is to hear."""
        for line in self.random.sample(self.lines, 3):
            for _ in range(self.random.choice([1, 1, 2, 8])):
                line.step()
        for talker, frames in self.said.items():
            data, random = b"".join(frames), self.random
            cut = random.randrange(len(data)) if random.random() < 0.3 else 0
            for piece in (data[:cut], data[cut:]):
                if piece:
                    talker.feed(piece)
        self.said.clear()
        if self.random.random() < 0.7:
            self.house.settle(self.random.choice([1, 2, 6]))
        if self.random.random() < 0.1:
            self.house.pass_time(self.random.choice([0.2, 61]))
        self.hear()

    def hear(self) -> None:
        for talker in self.talkers:
            assert not talker.closed
            heard, talker.heard = talker.heard, []
            for each in heard:
                next(
                    line for line in self.lines if (line.talker, line.number) == (talker, each.channel)
                ).hears(each.method, each.body)

    def end(self) -> None:
        """Let everything come to rest, lose the connections, and look where the messages are."""
        while True:
            self.house.settle()
            self.hear()
            if not self.said:
                break
            for talker, frames in self.said.items():
                talker.feed(b"".join(frames))
            self.said.clear()
        assert all(not line.waits and not line.unconfirmed for line in self.lines)
        for talker in self.talkers:
            talker.lose()
            self.hear()  # others get what it had
        self.house.settle(60)
        if self.random.random() < 0.5:
            self.house.kill()
            self.owner = self.house.talker()
        assert all(self.house.counts(each)[1] == 0 for each in QUEUES)
        found = [body for each in QUEUES for body in self.owner.all_of(each)]
        assert len(found) == len(set(found)), "a message is there twice"
        known = self.alive - self.finished
        assert known <= set(found), "lost"
        assert set(found) - known <= self.unsure - self.finished, "not finished"


@pytest.mark.parametrize("seed", range(examples(40)))
def test_whatever_is_said_each_message_is_in_one_place_and_each_method_is_answered_once(seed):
    world = World(seed)
    for _ in range(60):
        world.step()
    world.end()
    assert world.last > 50
