"""The other acts of clients: they read, create and delete topics, claim partitions, move the positions of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from journal.formats import frame
from journal.records.group_entries import Ending, GroupSettings, PartitionOffset, RetryRules
from tests.simulation.clients.clients import Client
from tests.simulation.model.group_model import Key
from tests.simulation.model.log_model import Floor, require
from tests.simulation.model.model import Intent
from tests.simulation.model.topic_model import Topic
from txbroker.wire import messages

GROUPS = "gh"

OUTPUT = "o"
"""The topic that members send to: it is never deleted, and keeps all."""


def _gaps(run: bytes, start: int) -> list[int]:
    """Return the offsets from ``start`` on that the gaps of a run of frames stand for."""
    frames = [
        (at, first, count)
        for at, _, first, count in frame.walk(run)
        if frame.HEADER.unpack_from(run, at)[6] & frame.GAP
    ]
    return [offset for _, first, count in frames for offset in range(max(first, start), first + count)]


class ConsumingClient(Client):
    """A client that reads too. The topics that it makes have some of ``topic_names``."""

    topic_names: Sequence[str] = "abcdef"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        """Where logs ended when they were read last, all that were read with it at the same moment."""
        self.generations: dict[Key, int] = {}
        self.groups: dict[str, bytes] = {}
        """The ids under which groups were seen last."""

    # -- reading ----------------------------------------------------------------------------------------

    def fetch(self, random: Random) -> None:
        """Read on in some partitions, or from the start again."""
        known = self.world.partitions()
        chosen = random.sample(known, min(len(known), random.choice((1, 2, 3, 8))))
        again = random.random() < 0.2
        bounded = random.random() < 0.3
        positions = [
            (
                p,
                self.model.seen.starts[p] if again else self.positions.get(p, 0),
                self.ends.get(p, 0) if bounded else 0,
            )
            for p in chosen
        ]
        sizes = random.choice((1, 500, 1 << 16, 1 << 20))
        wait = random.choice((0, 0, 50_000, 2_000_000))
        then = partial(self.fetched, positions, self.model.seen.floor(self.model.now, chosen))
        self.ask(messages.Fetch, positions, sizes, wait, random.choice((1, 1, 2000)), then=then)

    def fetch_at_ends(self, wait: int) -> None:
        """Read on in all logs, and wait so many µs for whatever comes next."""
        homes = self.world.topics.homes
        positions = [(p, self.model.seen.ends[p], 0) for p in homes if homes[p].deleted is None]
        floor = self.model.seen.floor(self.model.now, [p for p, *_ in positions])
        then = partial(self.fetched, positions, floor)
        self.ask(messages.Fetch, positions, 1 << 16, wait, then=then)

    def fetched(
        self, positions: list[tuple[int, int, int]], floor: Floor, answer: Any, data: bytes, since: int
    ) -> bool:
        """Take in what was read; says whether anything was."""
        if not isinstance(answer, messages.Fetched):
            return False
        at, ends = 0, {}
        for (partition, offset, until), part in zip(positions, answer.partitions, strict=True):
            if part.error:
                self._not_read(partition, offset, part)
                continue
            run = data[at : at + part.length]
            at += part.length
            found = {
                m.offset: self.world.queues.value(partition, m.value or b"")
                for m in frame.decode_run(run, offset)
            }
            gaps = _gaps(run, offset)
            read = sorted([*found, *gaps])
            ends[partition] = part.high_watermark
            require(
                read == list(range(offset, offset + len(read))),
                f"{partition} is read from {offset} on, each offset once",
                read,
            )
            behind = offset + len(read)
            require(
                part.next_offset == behind, f"the rest of {partition} begins at {behind}", part.next_offset
            )
            most = min(until or part.high_watermark, part.high_watermark)
            require(behind <= most or not read, f"nothing of {partition} from {most} on", behind)
            self.ends[partition] = part.high_watermark
            values = [found.get(each) for each in read]
            self.world.counts["gaps read"] += bool(gaps)
            if partition in self.world.topics.homes:
                self.world.topics.read(partition, part.start_offset, floor.at)
            self.model.saw(partition, part.start_offset, part.high_watermark, offset, values, floor)
            self.positions[partition] = behind
        self.model.one_moment(ends)
        return at > 0

    def _not_read(self, partition: int, offset: int, part: Any) -> None:
        if part.error == "OffsetOutOfRange":
            require(offset < part.start_offset, f"log {partition} has {offset}", part.message)
            self.positions[partition] = part.start_offset
        elif part.error == "UnknownPartition":
            topic = self.world.topics.homes[partition]
            require(topic.deleted, f"partition {partition} is there", part.message)
            self.model.done(topic.deleted)
        else:
            self.world.storage_error(part.error, part.message)

    # -- topics -----------------------------------------------------------------------------------------

    def create_topic(self, random: Random) -> None:
        """Another topic, under a name that is free."""
        name = random.choice(self.topic_names)
        there = [topic.name for topic in self.world.topics.topics if not topic.gone]
        if name in there or len(self.world.topics.topics) > 12:
            return
        self.make_topic(random, name)

    def make_topic(self, random: Random, name: str) -> None:
        """A topic of that name."""
        settings = self.world.topic_settings(random)
        if name == OUTPUT:
            settings = replace(settings, retention_bytes=None, retention_age=None, max_message_bytes=None)
        retained = settings.retention_bytes is not None or settings.retention_age is not None
        partitions = random.choice((1, 1, 2, 3))
        topic = Topic(name, retained, Intent(f"making topic {name}"), partitions, self.world.name_id())
        self.world.topics.topics.append(topic)
        self.ask(
            messages.CreateTopic,
            name,
            partitions,
            settings,
            topic.id,
            then=partial(self._created, topic),
        )
        self.model.ask(topic.created)

    def _created(self, topic: Topic, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Topics):
            [info] = answer.topics
            require(info.id == topic.id, f"the id of topic {topic.name} is {topic.id!r}", info.id)
            self.world.topics.made(topic, [each.number for each in info.partitions])
        else:
            self.model.refused(topic.created)
            if topic.partitions is None:
                self.world.topics.not_made(topic)

    def grow_topic(self, random: Random) -> None:
        """Some topic gets more partitions, or is asked to have as many as somebody knows of."""
        there = [topic for topic in self.world.topics.topics if topic.partitions and topic.deleted is None]
        if there:
            topic = random.choice(there)
            known = len(topic.partitions or ())
            wanted = min(5, known + random.choice((0, 1, 1, 2)))
            topic.most = max(topic.most, wanted)
            changes: dict[str, int | None] = random.choice(
                ({}, {}, {"force_messages": random.choice((1, 9))})
            )
            then = partial(self._grown, topic, wanted)
            self.ask(messages.AlterTopic, topic.name, topic.id, changes, wanted, then=then)

    def _grown(self, topic: Topic, wanted: int, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Topics):
            [info] = answer.topics
            require(len(info.partitions) == wanted, f"{topic.name} has {wanted} partitions", info.partitions)
            self.world.topics.made(topic, [each.number for each in info.partitions])
            self.world.count("topics grown")

    def delete_topic(self, random: Random) -> None:
        """Some topic, if there is more than one; or once more one that is gone, as after a lost answer."""
        gone = [topic for topic in self.world.topics.topics if topic.gone]
        if gone and random.random() < 0.3:
            again = random.choice(gone)
            self.ask(messages.DeleteTopic, again.name, again.id, then=partial(self._deleted_again, again))
            return
        there = [
            topic
            for topic in self.world.topics.topics
            if topic.partitions and topic.deleted is None and topic.name != OUTPUT
        ]
        if len(there) > 1:
            topic = random.choice(there)
            topic.deleted = Intent(f"deleting topic {topic.name}")
            with_scheduled = bool(self.world.schedule.messages) and random.random() < 0.3
            then = partial(self._deleted, topic, topic.deleted, with_scheduled)
            self.ask(messages.DeleteTopic, topic.name, topic.id, with_scheduled, then=then)
            self.model.ask(topic.deleted)

    def _deleted(
        self, topic: Topic, intent: Intent, with_scheduled: bool, answer: Any, data: bytes, since: int
    ) -> None:
        if isinstance(answer, messages.Done):
            if not with_scheduled:
                self.world.schedule.deleted(topic, since)
            self.model.done(intent)
        elif intent is topic.deleted:
            if answer.error == "ScheduledForTopic":
                self.world.schedule.kept(topic, since)
            self.model.refused(intent)
            topic.deleted = None

    def _deleted_again(self, topic: Topic, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Done):
            self.world.topics.deleted_again(topic)

    # -- groups -----------------------------------------------------------------------------------------

    def some_key(self, random: Random) -> Key | None:
        """A group and a partition, rather such as somebody has moved before."""
        known = list(self.world.groups.movers)[-4:]
        if known and random.random() < 0.6:
            return random.choice(known)
        partition = self.world.some_partition(random)
        return None if partition is None else (random.choice(GROUPS), partition)

    def claim(self, random: Random) -> None:
        """Take a partition for a group."""
        key = self.some_key(random)
        if key is not None:
            then = partial(self._claimed, key)
            made = self.world.name_id()
            self.ask(messages.ClaimPartitions, key[0], self.name, [key[1]], made, then=then)

    def _claimed(self, key: Key, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Claimed):
            [(_, generation)] = answer.claims
            self.world.groups.claimed(key, generation, since)
            self.generations[key] = generation

    def commit_offsets(self, random: Random) -> None:
        """Move a group's position, with the generation that this client believes to be current."""
        key = self.some_key(random)
        if key is None:
            return
        intent, offset = self.move(random, Intent(f"offsets {self.world.name_intent()}"), key)
        generations = {key: offset.generation}

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, messages.Done):
                self.world.groups.moved(intent, generations, since)
            else:
                self.model.refused(intent)

        self.ask(messages.CommitOffsets, key[0], [offset], self.world.name_id(), then=then)
        self.model.ask(intent)

    def alter_group(self, random: Random) -> None:
        """A group is to try messages again by other rules; no two are the same."""
        group, number = random.choice(GROUPS), self.world.name_intent()
        rules = RetryRules(random.randint(1, 5), number, 1 << 30, random.choice(list(Ending)))
        intent = Intent(f"rules {number}")
        self.world.groups.rules[group].append((intent, str(rules)))

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, messages.Done):
                self.model.done(intent)
                self.world.count("rules of groups")
            else:
                self.model.refused(intent)

        whether = messages.Whether.ALWAYS
        changed = GroupSettings(rules), ["retry"]
        self.ask(messages.AlterGroup, group, *changed, whether, self.world.name_id(), then=then)
        self.model.ask(intent)

    def describe_group(self, random: Random) -> None:
        """How a group tries messages again."""
        group = random.choice(GROUPS)
        self.ask(messages.DescribeGroup, group, then=partial(self.group_described, group))

    def group_described(self, group: str, answer: Any, data: bytes, since: int) -> None:
        """Take in how it tries messages again."""
        if isinstance(answer, messages.GroupMembers):
            rules = answer.settings.retry
            self.world.groups.rules_read(group, rules and str(rules), since)

    def delete_group(self, random: Random) -> None:
        """All that is known of a group; or of one that is gone, as after a lost answer."""
        group = random.choice(GROUPS)
        gone = [each for each, name in self.world.groups.gone.items() if name == group]
        meant = random.choice(gone) if gone and random.random() < 0.3 else self.groups.get(group)
        if meant is None:
            self.fetch_offsets(random)
            return
        intent = Intent(f"deleting group {group}, {self.world.name_intent()}", vague=True)
        self.world.groups.delete_with(intent, group)

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, messages.Done):
                gone = {p for p, topic in self.world.topics.homes.items() if topic.deleted is not None}
                self.world.groups.deleted(intent, group, meant, since, gone)
            else:
                self.model.refused(intent)

        self.ask(messages.DeleteGroup, group, meant, then=then)
        self.model.ask(intent)

    def move(self, random: Random, intent: Intent, key: Key) -> tuple[Intent, PartitionOffset]:
        """A new position for a group that comes with an intent."""
        token = f"token {self.world.name_intent()}"
        self.world.groups.move_with(intent, key, token)
        offset = random.randint(0, self.model.seen.ends[key[1]])
        return intent, PartitionOffset(key[1], offset, self.generations.get(key, 0), token)

    def fetch_offsets(self, random: Random) -> None:
        """Where a group stands."""
        group = random.choice(GROUPS)
        self.ask(messages.FetchOffsets, group, None, then=partial(self.offsets_fetched, group))

    def offsets_fetched(self, group: str, answer: Any, data: bytes, since: int) -> None:
        """Take in where it stands."""
        if isinstance(answer, messages.GroupOffsets):
            if any(each.offset is not None for each in answer.offsets):
                require(answer.id, f"group {group}, which has positions, has an id", answer)
            if answer.id:
                self.groups[group] = answer.id
            found = {each.partition: each for each in answer.offsets}
            for key in list(self.world.groups.movers):
                topic = self.world.topics.homes[key[1]]
                if key[0] != group or (topic.deleted is not None):
                    continue
                each = found.get(key[1])
                if each is None and answer.is_filtered:
                    continue  # nothing follows from what is not in the answer
                self.world.groups.position(key, (each.metadata or None) if each else None, since)
                self.world.groups.held(key, bool(each and each.pending_by), since)

    # -- what only has to be answered -----------------------------------------------------------------

    def look_around(self, random: Random) -> None:
        """Ask for something that tells the model nothing."""
        kind, *fields = random.choice(
            (
                (messages.Ping,),
                (messages.DescribeTopics,),
                (messages.ListGroups,),
                (messages.AskStatus,),
                (messages.OffsetsForTime, self.world.partitions()[:4], self.world.clock.wall() - 1_000_000),
                (messages.ListTransactions, [], (0, 0), 2),
                (messages.FindMessages, self.world.partitions()[0], 0, b"1"),
            )
        )
        self.ask(kind, *fields)
