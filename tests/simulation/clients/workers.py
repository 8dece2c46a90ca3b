"""The work of members: they read for a group, and finish each message in one step with one that they send for it."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, NamedTuple

from crc32c import crc32c

from journal.formats import frame
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.transaction_states import Totals
from tests.simulation.clients.transactions import Begun, TransactionalClient
from tests.simulation.model.group_model import Key
from tests.simulation.model.log_model import Floor, require
from tests.simulation.model.model import DONE, NEVER, Intent
from txbroker.wire import messages as commands


class Task(NamedTuple):
    """Messages that are being worked on."""

    partition: int
    generation: int
    offsets: list[int]


class WorkingClient(TransactionalClient):
    """A client that works on partitions which it has for a group, one step at a time in each of them.

    ``owned`` are these partitions with their generations, ``revoked`` those that it is about to release.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.group = ""
        self.owned: dict[int, int] = {}
        self.revoked: dict[int, int] = {}
        self.stale: set[tuple[int, int]] = set()
        """Partitions with generations that were refused."""
        self.undecided: list[Begun] = []
        """Its transactions that are prepared, over all its sessions."""
        self.least, self.most = 1, 4
        """So many messages are worked on in one step, if there are."""
        self.forget_work()

    def forget_work(self) -> None:
        """Begin anew: where the group stands must be asked."""
        self.cursors: dict[int, int] = {}
        self.begins: dict[int, int] = {}
        self.left_out: set[int] = set()
        """Partitions of which something below the cursor waits for somebody else."""
        self.finished_singly: set[int] = set()
        """Partitions of which single messages were finished since it was asked where the group stands."""
        self.free: dict[int, list[int]] = {}
        """What was read and not worked on."""
        self.busy: set[tuple[int, int]] = set()
        """Partitions with generations, for which an answer is awaited."""
        self.tasks: dict[Begun, list[Task]] = {}
        self.begun_work: list[Begun] = []
        """Transactions in which all is staged, and that are to be ended."""

    def work(self, random: Random) -> None:
        """Take the next step in some partition."""
        if self.undecided and random.random() < 0.5:
            self.decide(random, self.undecided.pop(0), random.random() < 0.85)
        if self.begun_work and random.random() < 0.5:
            self._end_work(random, self.begun_work.pop(0))
        idle = [
            number
            for number, generation in self.owned.items()
            if number not in self.revoked and number in self.world.topics.homes
            and (number, generation) not in self.stale and (number, generation) not in self.busy
        ]  # fmt: skip
        if not idle:
            return
        number = random.choice(idle)
        if self.free.get(number):
            others = [each for each in idle if self.free.get(each) and each != number]
            self._settle(random, [number, *others[:1]] if random.random() < 0.4 else [number])
        elif number in self.cursors:
            others = [each for each in idle if each in self.cursors and not self.free.get(each)]
            self._read(random, list(dict.fromkeys([number, *random.sample(others, min(2, len(others)))])))
        else:
            self.busy.add((number, self.owned[number]))
            then = partial(self._begins, number, self.owned[number])
            self.ask(commands.FetchOffsets, self.group, [number], then=then)

    def is_through(self) -> bool:
        """Return whether everything that it can read is worked on."""
        return not self.tasks and not self.undecided and all(
            self.cursors.get(number, -1) >= self.model.seen.ends[number]
            and not self.free.get(number) and number not in self.left_out
            for number in self.owned
        )  # fmt: skip

    def _key(self, number: int) -> Key:
        return self.group, number

    def _is_gone(self, number: int) -> bool:
        return self.world.topics.homes[number].deleted is not None

    def _again(self, number: int) -> None:
        """Ask where the group stands before anything else is done in a partition."""
        self.cursors.pop(number, None)
        self.free.pop(number, None)

    def _begins(self, number: int, generation: int, answer: Any, data: bytes, since: int) -> None:
        self.busy.discard((number, generation))
        if isinstance(answer, commands.GroupOffsets):
            [place] = answer.offsets
            topic = self.world.topics.homes[number]
            if topic.deleted is None:
                self.world.members.stands(self._key(number), place.generation, since)
                self.world.members.begins(self._key(number), place.offset or 0, topic.retained, since)
            if self.owned.get(number) == generation:
                self.cursors[number] = self.begins[number] = place.offset or 0
                self.left_out.discard(number)
                self.finished_singly.discard(number)
        else:
            require(self._is_gone(number), f"partition {number} is there", answer)

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, random: Random, numbers: list[int]) -> None:
        positions = [(number, self.cursors[number], 0) for number in numbers]
        generations = [self.owned[number] for number in numbers]
        self.busy.update(zip(numbers, generations, strict=True))
        floor = self.model.seen.floor(self.model.now, numbers)
        self.ask(
            commands.Fetch, positions, random.choice((1, 2000, 1 << 20, 1 << 20)), random.choice((0, 0, 300_000)), 1,
            [commands.Reader(self.group, 0, generations)], then=partial(self._was_read, positions, generations, floor),
        )  # fmt: skip

    def _was_read(
        self, positions: list[tuple[int, int, int]], generations: list[int], floor: Floor, answer: Any, data: bytes,
        since: int,
    ) -> None:  # fmt: skip
        numbers = [number for number, *_ in positions]
        self.busy.difference_update(zip(numbers, generations, strict=True))
        if not isinstance(answer, commands.Fetched):
            return
        ends = {}
        for (number, offset, _), generation, part in zip(
            positions, generations, answer.partitions, strict=True
        ):
            if part.error:
                self._unread(number, offset, generation, part, since)
                continue
            self._take_in(number, offset, generation, part, data[: part.length], floor, since)
            data = data[part.length :]
            ends[number] = part.high_watermark
        self.model.one_moment(ends)

    def _unread(self, number: int, offset: int, generation: int, part: Any, since: int) -> None:
        if part.error == "GenerationFenced":
            self._refused_as_old(number, generation, since)
        else:
            self._not_read(number, offset, part)
        if self.owned.get(number) == generation:
            self._again(number)
            if part.error == "OffsetOutOfRange":
                self.cursors[number] = self.begins[number] = part.start_offset

    def _take_in(
        self, number: int, offset: int, generation: int, part: Any, data: bytes, floor: Floor, since: int
    ) -> None:
        found, key = frame.decode_run(data, offset), self._key(number)
        finished, waiting = decode_offsets(part.finished, offset), decode_offsets(part.waiting, offset)
        first = found[0].offset if found else part.next_offset
        offsets = [each.offset for each in found]
        require(offsets == list(range(first, part.next_offset)), f"{number} is read without gaps", offsets)
        skipped = [each for each in range(offset, first) if each not in finished]
        require(not skipped, f"only what is finished of {number} is skipped", skipped)
        self.world.topics.read(number, part.start_offset, floor.at)
        values = [each.value or b"" for each in found]
        self.model.saw(number, part.start_offset, part.high_watermark, first, values, floor)
        members = self.world.members
        members.stands(key, generation, since)
        for each, attempts in part.attempts:
            members.tried(key, each, attempts)
            self.world.count("members' attempts" if attempts else "members' batches")
        retained = self.world.topics.homes[number].retained
        members.read(key, range(offset, part.next_offset), finished, waiting, retained, since)
        if self.owned.get(number) != generation:
            return
        self.free[number] = [each for each in offsets if each not in finished and each not in waiting]
        if waiting:
            self.left_out.add(number)
        self.cursors[number] = part.next_offset
        if not self.free[number] and number in self.left_out:
            self._again(number)

    # -- finishing --------------------------------------------------------------------------------------

    def _settle(self, random: Random, numbers: list[int]) -> None:
        """Finish some of what was read in these partitions, in one transaction, or plainly."""
        tasks: list[Task] = []
        offsets: list[PartitionOffset] = []
        settled: list[Settled] = []
        for number in numbers:
            self.busy.add((number, self.owned[number]))
            task, place = self._take_some(random, number)
            tasks.append(task)
            if isinstance(place, Settled):
                settled.append(place)
            else:
                offsets.append(place)
        outputs = self.world.output_partitions()
        if not outputs or random.random() < 0.15:
            self._finish_plainly(tasks, offsets, settled)
        else:
            positions = GroupPositions(self.group, self.world.name_id(), offsets, settled)
            self._finish_with_effects(random, tasks, random.choice(outputs), positions)

    def _may_move(self, number: int) -> bool:
        """Return whether a position may be committed: it finishes nothing of others, and does not go back.

        What finishes single messages moves a position to the start of a log, if retention has removed more; a position
        below that, which the client still thinks to be a later one, would make unfinished what is finished above it.
        """
        is_retained = self.world.topics.homes[number].retained
        return number not in self.left_out and not (is_retained and number in self.finished_singly)

    def _take_some(self, random: Random, number: int) -> tuple[Task, PartitionOffset | Settled]:
        """Return messages of a partition, and what finishes them: all up to there as a position, or one by one."""
        free, generation = self.free[number], self.owned[number]
        count = min(len(free), random.choice((self.least, self.most)))
        is_position = self._may_move(number) and random.random() < 0.5
        taken = free[:count] if is_position or random.random() < 0.5 else sorted(random.sample(free, count))
        task = Task(number, generation, taken)
        if is_position:
            return task, PartitionOffset(number, taken[-1] + 1, generation)
        self.finished_singly.add(number)
        base, done = min(self.begins[number], taken[0]), OffsetSet()
        for offset in taken:
            done.add(offset)
        return task, Settled(number, generation, base, encode_offsets(done, base))

    def _finish_plainly(
        self, tasks: list[Task], offsets: list[PartitionOffset], settled: list[Settled]
    ) -> None:
        intent = Intent(f"settlement {self.world.name_intent()}", vague=True)
        self._work_with(intent, tasks)

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, commands.Done):
                self.model.done(intent)
                self.world.count("members' settlements")
            else:
                self.model.refused(intent)
                if answer.error == "GenerationFenced":
                    self._one_is_old(tasks, since)
                elif answer.error not in ("OffsetPending", "UnknownPartition"):
                    self.world.storage_error(answer.error, answer.message)
            self._ended(tasks, intent)

        self.ask(commands.CommitOffsets, self.group, offsets, self.world.name_id(), None, settled, then=then)
        self.model.ask(intent)

    def _work_with(self, intent: Intent, tasks: list[Task]) -> None:
        for number, generation, offsets in tasks:
            self.world.members.work_with(intent, self._key(number), generation, offsets)

    def _finish_with_effects(
        self, random: Random, tasks: list[Task], output: int, positions: GroupPositions
    ) -> None:
        """Send a message for each one that was read, in the transaction that finishes these."""
        begun = self._new()
        self.active.remove(begun)
        values = [
            b"%d for %s of %d/%d" % (self.world.name_intent(), self.group.encode(), task.partition, offset)
            for task in tasks
            for offset in task.offsets
        ]
        self.model.put_into(begun, output, values)
        data = b"".join(frame.encode(value, 1) for value in values)
        self.tasks[begun] = tasks
        if random.random() < 0.6:
            begun.whole = True
            begun.unsent.append((output, data))
            begun.unsent_messages += len(values)
        else:
            self._add_to(begun, len(values), data)
            self.ask(
                commands.Add, begun.number[1], output, begun.xid, data=data, then=partial(self._add_refused, begun)
            )  # fmt: skip
        if not begun.whole and random.random() < 0.5:
            self._add_to(begun, 0, b"")
            self.ask(
                commands.AddOffsets, begun.number[1], self.group, positions.offsets, begun.xid, id=positions.id,
                settled=positions.settled, then=partial(self._add_refused, begun),
            )  # fmt: skip
        else:
            begun.positions.append(positions)
        self._work_with(begun, tasks)
        if begun.positions or random.random() < 0.5:
            self._end_work(random, begun)
        else:
            self.begun_work.append(begun)

    def _end_work(self, random: Random, begun: Begun) -> None:
        self.world.members.ends(begun)
        if random.random() < 0.4:
            self.prepare(random, begun)
        else:
            self.commit_own(random, begun)

    @staticmethod
    def _add_to(begun: Begun, count: int, data: bytes) -> None:
        before = begun.totals
        begun.totals = Totals(before.messages + count, before.requests + 1, crc32c(data, before.checksum))

    # -- how it ended -----------------------------------------------------------------------------------

    def _ended(self, tasks: list[Task], intent: Intent) -> None:
        """Go on in partitions, behind what is finished now, or where the group stands."""
        if intent.state == DONE:
            self.world.members.accepted(intent)
        for number, generation, offsets in tasks:
            self.busy.discard((number, generation))
            if self.owned.get(number) != generation:
                continue
            if intent.state == DONE and number in self.free:
                self.free[number] = [each for each in self.free[number] if each not in offsets]
                if not self.free[number] and number in self.left_out:
                    self._again(number)
            else:
                self._again(number)

    def _one_is_old(self, tasks: list[Task], since: int) -> None:
        """Take note of a refusal because of the generation of one of these partitions."""
        self.world.count("members' work fenced")
        if len(tasks) == 1:
            self._refused_as_old(tasks[0].partition, tasks[0].generation, since)

    def _refused_as_old(self, number: int, generation: int, since: int) -> None:
        self.stale.add((number, generation))
        if not self._is_gone(number):
            self.world.members.fenced(self._key(number), generation, since)
        self.world.count("members fenced")

    def _prepared(self, begun: Begun, answer: Any, data: bytes, since: int) -> None:
        super()._prepared(begun, answer, data, since)
        if begun.prepared_at < NEVER and (tasks := self.tasks.pop(begun, None)) is not None:
            self.world.members.accepted(begun)
            self.undecided.append(begun)
            for number, generation, _ in tasks:
                self.busy.discard((number, generation))
                if self.owned.get(number) == generation:
                    self._again(number)

    def _refused(self, begun: Begun, answer: Any, since: int) -> None:
        tasks = self.tasks.get(begun)
        super()._refused(begun, answer, since)
        if tasks is None:
            return
        if answer.error == "GenerationFenced":
            self._one_is_old(tasks, since)
        if answer.error == "LimitExceeded":
            self.least, self.most = 1, max(1, self.most // 2)
        if self.tasks.pop(begun, None) is not None:
            self._ended(tasks, begun)

    def _over(self, begun: Begun) -> None:
        super()._over(begun)
        tasks = self.tasks.pop(begun, None)
        if tasks is not None:
            if begun.state == DONE:
                self.world.count("members' transactions")
            self._ended(tasks, begun)
