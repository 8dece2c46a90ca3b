"""What clients do: requests drawn from a stream of choices, and what each answer means to the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from journal import frame
from journal.record import PartitionOffset
from tests.simulation.model import DONE, Intent, Topic
from tests.simulation.wire import Connection
from txbroker import commands
from txbroker.codec import answer_decoder, encode
from txbroker.commands import Refused

if TYPE_CHECKING:
    from tests.simulation.world import World

Then = Callable[[Any, bytes, int], None]
"""Takes an answer, its data, and the time of the request."""

SIZES = {"small": (0, 0, 10, 100), "middle": (0, 50, 700, 3000), "large": (0, 200, 6000, 20_000, 45_000)}


class Producer:
    """An idempotent producer: what it has sent and not been answered must be sent again, in order."""

    def __init__(self, number: int, epoch: int) -> None:
        self.id = number
        self.epoch = epoch
        self.next: dict[int, int] = {}
        self.unanswered: dict[int, deque[tuple[int, Intent, bytes]]] = {}
        self.stale = False


class Client:
    """One client: a connection at a time, a producer, the transactions that it has begun on this session."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.model = world.model
        self.name = f"client {number}"
        self.number = number
        self.connection: Connection | None = None
        self.session = 0
        self.producer: Producer | None = None
        self._correlation = 0
        self._pending: dict[int, tuple[str, Then | None, int]] = {}
        self._decoder = answer_decoder(1 << 26)
        self._sends = 0
        self.serial = 0
        self.active: list[Any] = []
        self.positions: dict[int, int] = {}
        self.generations: dict[tuple[str, int], int] = {}

    # -- the connection -------------------------------------------------------------------------------

    def connect(self, after: int = 0) -> None:
        """Connect, and say hello."""
        self.connection = self.world.connect()
        self._decoder = answer_decoder(1 << 26)
        self._pending.clear()
        self.session, self.serial, self._sends = 0, 0, 0
        self.active = []
        if self.producer is not None:
            self.producer.stale = True
        self.ask(commands.Hello, commands.MAGIC, [1], f"c{self.number}", after, then=self._welcomed)

    def _welcomed(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Welcome):
            self.model.fresh("session", answer.session)
            self.session = answer.session

    def lost(self, kept: int) -> None:
        """The connection breaks; of what was sent the first ``kept`` bytes still arrive."""
        if self.connection is not None:
            self.connection.leave(kept)
            self.connection = None

    @property
    def ready(self) -> bool:
        """Whether requests may be sent."""
        return self.connection is not None and bool(self.session)

    def ask(
        self,
        kind: Callable[..., Any],
        *fields: Any,
        then: Then | None = None,
        data: bytes = b"",
        **named: Any,
    ) -> None:
        """Send a request; ``then`` is told of its answer, if one comes."""
        assert self.connection is not None
        self._correlation += 1
        request = kind(self._correlation, *fields, **named)
        self._pending[self._correlation] = (kind.__name__, then, self.model.tick())
        self.world.count(kind.__name__)
        if self.world.trace is not None:
            self.world.say(f"{self.name}: {_short(request)}{f' with {len(data)} bytes' if data else ''}")
        self.connection.to_broker += encode(request, data)

    def take(self, size: int) -> bool:
        """Read what has come; says whether there was anything."""
        connection = self.connection
        if connection is None:
            return False
        data = connection.take(size)
        for answer, part in self._decoder.feed(data) if data else ():
            self._answered(answer, bytes(part))
        if connection.broker_gone and not connection.to_client:
            self.connection = None
        return bool(data)

    def _answered(self, answer: Any, data: bytes) -> None:
        self.model.tick()
        if self.world.trace is not None:
            self.world.say(
                f"    {self.name} is told: {_short(answer)}{f' with {len(data)} bytes' if data else ''}"
            )
        self.world.count(f"{type(answer).__name__} {getattr(answer, 'error', '')}".strip())
        if not answer.correlation:
            return  # a goodbye
        pending = self._pending.pop(answer.correlation, None)
        self.model.require(pending, "every request is answered once", _short(answer))
        assert pending is not None
        if pending[1] is not None:
            pending[1](answer, data, pending[2])

    # -- sends ----------------------------------------------------------------------------------------

    def send(self, random: Random) -> None:
        """One request of one to three messages."""
        partition = self.world.some_partition(random)
        if partition is None:
            return
        values, data = self.world.messages(random)
        self._sends += 1
        intent = Intent(
            f"send {self.world.name_intent()} to {partition}", f"session {self.session}", self._sends
        )
        self.model.put_into(intent, partition, values)
        self._send(intent, partition, data)

    def _send(self, intent: Intent, partition: int, data: bytes, *producer: int) -> None:
        then = partial(self._sent, intent, partition, self.producer if producer else None)
        self.ask(commands.Send, partition, *producer, data=data, then=then)
        self.model.ask(intent)

    def send_once(self, random: Random) -> None:
        """An idempotent send; first all again that is unanswered, if the connection is another."""
        producer = self.producer
        if producer is None:
            name = self.world.producer_name(random)
            self.ask(commands.OpenProducer, name, then=self._opened)
            return
        partition = self.world.some_partition(random)
        if producer.stale or partition is None:
            self.send_again(random)
            return
        values, data = self.world.messages(random)
        sequence = producer.next.setdefault(partition, 0)
        producer.next[partition] += len(values)
        intent = Intent(
            f"send {self.world.name_intent()} to {partition}",
            f"producer {producer.id}.{producer.epoch}",
            sequence,
        )
        self.model.put_into(intent, partition, values)
        producer.unanswered.setdefault(partition, deque()).append((sequence, intent, data))
        self._send(intent, partition, data, producer.id, producer.epoch, sequence)

    def _opened(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.ProducerOpened):
            self.model.fresh("producer", (answer.producer_id, answer.epoch))
            self.producer = Producer(answer.producer_id, answer.epoch)

    def send_again(self, random: Random) -> None:
        """All that is unanswered once more, in order, answered or not meanwhile."""
        producer = self.producer
        if producer is not None:
            producer.stale = False
            for partition, unanswered in list(producer.unanswered.items()):
                for sequence, intent, data in unanswered:
                    self.world.count("retried sends")
                    self._send(intent, partition, data, producer.id, producer.epoch, sequence)

    def _sent(
        self, intent: Intent, partition: int, producer: Producer | None, answer: Any, data: bytes, since: int
    ) -> None:
        model = self.model
        if isinstance(answer, commands.Sent):
            if intent.state == DONE:
                self.world.count("sends answered again")
            model.done(intent, {partition: answer.base_offset})
        elif answer.error == "SequenceOutOfOrder" and answer.numbers[
            "expected"
        ] >= intent.place + self._count(intent):
            model.done(intent)
        else:
            model.refused(intent)
            if (
                answer.error in ("UnknownProducer", "ProducerFenced", "LimitExceeded")
                and producer is self.producer
            ):
                self.producer = None
            if answer.error != "UnknownPartition":
                return
        if producer is not None:
            left = [each for each in producer.unanswered.get(partition, ()) if each[1] is not intent]
            producer.unanswered[partition] = deque(left)

    @staticmethod
    def _count(intent: Intent) -> int:
        return sum(map(len, intent.values.values()))

    # -- reading ----------------------------------------------------------------------------------------

    def fetch(self, random: Random) -> None:
        """Read on in some partitions, or from the start again."""
        known = self.world.partitions()
        chosen = random.sample(known, min(len(known), random.choice((1, 2, 3, 8))))
        again = random.random() < 0.2
        positions = [(p, self.model.starts[p] if again else self.positions.get(p, 0)) for p in chosen]
        sizes = random.choice((1, 500, 1 << 16, 1 << 20))
        wait = random.choice((0, 0, 50_000, 2_000_000))
        then = partial(self.fetched, positions, self.model.floor(chosen))
        self.ask(commands.Fetch, positions, sizes, wait, random.choice((1, 1, 2000)), then=then)

    def fetched(
        self, positions: list[tuple[int, int]], floor: Any, answer: Any, data: bytes, since: int
    ) -> bool:
        """Take in what was read; says whether anything was."""
        if not isinstance(answer, commands.Fetched):
            return False
        at, ends = 0, {}
        for (partition, offset), part in zip(positions, answer.partitions, strict=True):
            if part.error:
                self._not_read(partition, part)
                continue
            found = frame.decode_run(data[at : at + part.length], offset)
            at += part.length
            ends[partition] = part.high_watermark
            self.model.require(
                [m.offset for m in found] == list(range(offset, offset + len(found))),
                f"{partition} is read from {offset} on without gaps",
                [m.offset for m in found],
            )
            values = [m.value or b"" for m in found]
            self.model.saw(partition, part.start_offset, part.high_watermark, offset, values, floor)
            self.positions[partition] = offset + len(found)
        self.model.one_moment(ends)
        return at > 0

    def _not_read(self, partition: int, part: Any) -> None:
        if part.error == "OffsetOutOfRange":
            self.positions[partition] = part.start_offset
        elif part.error == "UnknownPartition":
            topic = self.model.homes[partition]
            self.model.require(topic.deleted, f"partition {partition} is there", part.message)
            self.model.done(topic.deleted)
        else:
            self.world.storage_error(part.error, part.message)

    # -- topics -----------------------------------------------------------------------------------------

    def create_topic(self, random: Random) -> None:
        """Another topic, under a name that is free."""
        name = random.choice("abcdef")
        if len(self.model.topics) > 12 or any(
            topic.name == name and not (topic.deleted and topic.deleted.state == DONE)
            for topic in self.model.topics
        ):
            return
        settings = self.world.topic_settings(random)
        retained = settings.retention_bytes is not None or settings.retention_age is not None
        topic = Topic(name, retained, Intent(f"making topic {name}"))
        self.model.topics.append(topic)
        self.ask(
            commands.CreateTopic,
            name,
            random.choice((1, 1, 2, 3)),
            settings,
            then=partial(self._created, topic),
        )
        self.model.ask(topic.created)

    def _created(self, topic: Topic, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Topics):
            [info] = answer.topics
            self.model.made(topic, [each.number for each in info.partitions])
        else:
            self.model.refused(topic.created)
            if topic in self.model.topics and topic.partitions is None:
                self.model.topics.remove(topic)

    def delete_topic(self, random: Random) -> None:
        """Some topic, if there is more than one."""
        there = [topic for topic in self.model.topics if topic.partitions and topic.deleted is None]
        if len(there) > 1:
            topic = random.choice(there)
            topic.deleted = Intent(f"deleting topic {topic.name}")
            self.ask(commands.DeleteTopic, topic.name, then=partial(self._deleted, topic, topic.deleted))
            self.model.ask(topic.deleted)

    def _deleted(self, topic: Topic, intent: Intent, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Done):
            self.model.done(intent)
        elif intent is topic.deleted:
            self.model.refused(intent)
            topic.deleted = None

    # -- groups -----------------------------------------------------------------------------------------

    def claim(self, random: Random) -> None:
        """Take a partition for a group."""
        partition = self.world.some_partition(random)
        if partition is not None:
            key = (random.choice("gh"), partition)
            then = partial(self._claimed, key)
            self.ask(commands.ClaimPartitions, key[0], self.name, [partition], then=then)

    def _claimed(self, key: tuple[str, int], answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Claimed):
            [(_, generation)] = answer.claims
            self.world.groups.claimed(key, generation, since)
            self.generations[key] = generation

    def commit_offsets(self, random: Random) -> None:
        """Move a group's position, with the generation that this client believes to be current."""
        partition = self.world.some_partition(random)
        if partition is None:
            return
        key = (random.choice("gh"), partition)
        intent, offset = self.move(random, Intent(f"offsets {self.world.name_intent()}"), key)
        generations = {key: offset.generation}

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, commands.Done):
                self.world.groups.moved(intent, generations, since)
            else:
                self.model.refused(intent)

        self.ask(commands.CommitOffsets, key[0], [offset], then=then)
        self.model.ask(intent)

    def move(self, random: Random, intent: Intent, key: tuple[str, int]) -> tuple[Intent, PartitionOffset]:
        """A new position for a group that comes with an intent."""
        token = f"token {self.world.name_intent()}"
        self.world.groups.move_with(intent, key, token)
        offset = random.randint(0, self.model.ends[key[1]])
        return intent, PartitionOffset(key[1], offset, self.generations.get(key, 0), token)

    def fetch_offsets(self, random: Random) -> None:
        """Where a group stands."""
        group = random.choice("gh")
        self.ask(commands.FetchOffsets, group, None, then=partial(self.offsets_fetched, group))

    def offsets_fetched(self, group: str, answer: Any, data: bytes, since: int) -> None:
        """Take in where it stands."""
        if isinstance(answer, commands.GroupOffsets):
            found = {each.partition: each for each in answer.offsets}
            for key in list(self.world.groups.movers):
                topic = self.model.homes[key[1]]
                if key[0] != group or (topic.deleted is not None):
                    continue
                each = found.get(key[1])
                self.world.groups.position(key, (each.metadata or None) if each else None, since)
                self.world.groups.held(key, bool(each and each.pending_by), since)

    # -- what only has to be answered -----------------------------------------------------------------

    def look_around(self, random: Random) -> None:
        """Ask for something that tells the model nothing."""
        kind, *fields = random.choice(
            (
                (commands.Ping,),
                (commands.DescribeTopics,),
                (commands.ListGroups,),
                (commands.AskStatus,),
                (commands.OffsetsForTime, self.world.partitions()[:4], self.world.clock.wall() - 1_000_000),
                (commands.ListTransactions, [], (0, 0), 2),
            )
        )
        self.ask(kind, *fields)

    def error_of(self, answer: Any) -> str:
        """The name of a refusal, "" for anything else."""
        return answer.error if isinstance(answer, Refused) else ""


def _short(message: Any) -> str:
    text = repr(message)
    return text if len(text) < 300 else text[:297] + "..."
