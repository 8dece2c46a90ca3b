"""Walks drawn from a seed over a queue whose log is compacted, while everything else on files goes on beside it, step
by step, and the broker ends and starts in every way.

Jobs run one by one, between requests that may not be forced yet. After each start, and now and then, all is taken and
compared with what was answered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from journal.check.verification import Level, verify
from journal.constants import KIB, MIB
from journal.engine.compactor import CompactSegment
from journal.engine.jobs import Job
from journal.formats import filenames, frame
from journal.records.group_entries import Retried
from journal.records.queue_entries import QueueSettings
from journal.records.record import Mark
from journal.testing import ManualClock, MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction_states import Totals
from journal.walks.segment_walk import partitions
from tests.broker.queues.scene import SELF, acknowledged, framed, settled
from tests.queues.queue_room import NEVER, SINGLE_GROUP, Limits, QueueRoom, TinyJournal, messages, xid_of
from txbroker.wire.messages import MAX_TAKEN

GROUP = "txbroker.queues"


def limits(random: Random) -> Limits:
    """Return those of one walk: segments of a few messages, and checkpoints only when they are asked for."""
    journal = TinyJournal(
        file_bytes=64 * KIB,
        pool_bytes=MIB,
        low_water_bytes=0,
        checkpoint_bytes=1 << 30,
        checkpoint_interval=NEVER,
    )
    return Limits(
        journal, segment_bytes=random.choice((300, 700, 1500, 4000)), force_messages=random.choice((1, 4, 1000)),
        slices=False, waits=False, staged=MIB, group_records=SINGLE_GROUP, endings=False,
    )  # fmt: skip


class Walk:
    """One walk. ``live`` are the values that must be delivered, ``doubtful`` those of which no answer has told, and
    ``over`` those that must never come again. ``mine`` are the values that this client has, by offset.
    """

    def __init__(self, seed: int, trace: list[str] | None = None) -> None:
        self.random, self.trace, self.counts = Random(f"compaction {seed}"), trace, Counter[str]()
        self.limits, self.clock = limits(self.random), ManualClock(monotonic=1_000_000)
        self.live, self.doubtful, self.over = set[bytes](), set[bytes](), set[bytes]()
        self.mine: dict[int, bytes] = {}
        self.tries: dict[bytes, int] = {}
        self.held: dict[str, set[bytes]] = {}
        """What transactions acknowledge that are prepared, by name."""
        self.deciding: dict[str, tuple[str, set[bytes]]] = {}
        """Transactions of which a request is not answered yet: which, and what they acknowledge."""
        self.pending: list[tuple[int, Callable[[Any], None]]] = []
        self.names = self.serial = self.number = 0
        self.deleting = False
        self.danger = self.random.choice((0.0, 0.0, 0.01, 0.03))
        self.pins: list[Any] = []
        self._start(MemoryFilesystem())
        self._declare()

    def run(self, steps: Sequence[tuple[Callable[[Walk], None], float]], count: int) -> None:
        """Take so many steps, of these with their weights; end, and see that all is there and nothing else."""
        for _ in range(count):
            [step] = self.random.choices([each for each, _ in steps], [weight for _, weight in steps])
            self.say(step.__name__)
            self.counts[step.__name__] += 1
            try:
                if self.random.random() < self.danger:
                    self.room.plan.on_operation = cut_power_at(self.random.randrange(1, 40))
                step(self)
            except PowerCut:
                self.crash()
            if self.random.random() < 0.5:
                self.room.disarm()
        self.room.disarm()
        self._finish()

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(line)

    # -- requests ----------------------------------------------------------------------------------

    def tell(self, then: Callable[[Any], None], kind: Any, *fields: Any, **named: Any) -> None:
        self.pending.append((self.peer.tell(kind, *fields, **named), then))

    def sync(self) -> None:
        """Let all that was asked be answered."""
        self.room.engine.sync()
        waiting, self.pending = self.pending, []
        for correlation, then in waiting:
            answer = self.peer.answer(correlation)
            assert answer is not None, "not answered"
            then(answer)

    def settle(self) -> None:
        """Let what is done a little later be done."""
        self.sync()
        for _ in range(4):
            self.room.timers.advance(0.02)
            self.sync()

    def _declare(self) -> None:
        self.number = self.peer.ask(messages.DeclareQueue, "q", QueueSettings()).partition

    def publish(self) -> None:
        values = []
        for _ in range(self.random.choice((1, 2, 5, 20))):
            self.names += 1
            values.append(b"%06d" % self.names + b"." * self.random.choice((0, 0, 60, 400)))
        self.doubtful.update(values)
        self.tell(partial(self._published, values), messages.Send, SELF, data=framed("q", *values))

    def _published(self, values: list[bytes], answer: Any) -> None:
        assert isinstance(answer, messages.Sent), answer
        self.doubtful.difference_update(values)
        self.live.update(values)

    def take(self) -> None:
        self.settle()
        most = self.random.choice((1, 5, 50, MAX_TAKEN))
        self.mine.update(self._taken(most))

    def _taken(self, most: int) -> dict[int, bytes]:
        answer = self.peer.ask(messages.TakeMessages, self.number, most, 1 << 30)
        assert isinstance(answer, messages.Taken), answer
        data = self.peer.data[self.peer.answers.index(answer)]
        found = {
            each.offset: each.value or b"" for piece, _ in frame.decode_pieces(data, 0) for each in piece
        }
        told = [offset for first, count in answer.runs for offset in range(first, first + count)]
        assert sorted(found) == sorted(told), (found, answer)
        assert not set(found.values()) & self.over, (
            f"acknowledged, and there again: {set(found.values()) & self.over}"
        )
        assert not set(found) & set(self.mine)
        return found

    def _some(self) -> dict[int, bytes]:
        share = self.random.choice((0.1, 0.5, 0.9, 0.97, 1))
        return {offset: self.mine.pop(offset) for offset in list(self.mine) if self.random.random() < share}

    def acknowledge(self) -> None:
        if some := self._some():
            self._doubt(some.values())
            self.tell(
                partial(self._over, set(some.values())), messages.CommitOffsets, GROUP, [],
                settled=[settled(self.number, *some)],
            )  # fmt: skip

    def _doubt(self, values: Any) -> None:
        self.live.difference_update(values)
        self.doubtful.update(values)

    def _over(self, values: set[bytes], answer: Any) -> None:
        assert isinstance(answer, (messages.Done, messages.Committed)), answer
        self.doubtful -= values
        self.over |= values

    def return_some(self) -> None:
        if some := self._some():
            self.sync()
            known = self.room.broker.groups.groups[GROUP].settlements.get(self.number)
            tries = {n: one.attempts for n, one in known.unfinished.items()} if known else {}
            retried = tuple(Retried(n, tries.get(n, 0), 0, "why", False) for n in some)
            what = [settled(self.number, retried=retried)]
            self.tell(self._done, messages.CommitOffsets, GROUP, [], settled=what)

    def _done(self, answer: Any) -> None:
        assert isinstance(answer, messages.Done), answer

    def leave(self) -> None:
        self.sync()
        self.peer.leave()
        self._come()
        self.settle()

    def _come(self) -> None:
        self.peer, self.serial = self.room.peer(), 0
        self.mine.clear()

    def commit_at_once(self) -> None:
        if some := self._some():
            self.serial += 1
            self._doubt(some.values())
            self.tell(
                partial(self._over, set(some.values())), messages.Commit, serial=self.serial,
                positions=acknowledged(self.number, *some),
            )  # fmt: skip

    def prepare(self) -> None:
        if some := self._some():
            self.serial += 1
            self.names += 1
            name, values = f"x{self.names}", set(some.values())
            self.live -= values
            self.deciding[name] = ("prepare", values)
            self.tell(
                partial(self._prepared, name), messages.Prepare, self.serial, xid_of(name), Totals(0, 0, 0),
                positions=acknowledged(self.number, *some),
            )  # fmt: skip

    def _prepared(self, name: str, answer: Any) -> None:
        assert isinstance(answer, messages.Done), answer
        _, self.held[name] = self.deciding.pop(name)

    def decide(self) -> None:
        if not self.held:
            return
        self.sync()
        name = self.random.choice(sorted(self.held))
        commits = self.random.random() < 0.5
        self.deciding[name] = ("commit" if commits else "rollback", self.held.pop(name))
        self.tell(
            partial(self._decided, name), messages.Commit if commits else messages.Rollback, xid=xid_of(name)
        )

    def _decided(self, name: str, answer: Any) -> None:
        what, values = self.deciding.pop(name)
        assert isinstance(answer, (messages.Done, messages.Committed)), answer
        if what == "commit":
            self.over |= values
        else:
            self.live |= values

    def purge(self) -> None:
        self.settle()
        ready = self.live - set(self.mine.values())
        self._doubt(ready)
        answer = self.peer.ask(messages.PurgeQueue, "q")
        assert isinstance(answer, messages.Counted), answer
        self.settle()
        self._over(ready, messages.Done(0))

    def delete(self) -> None:
        self.leave()
        if self.held:
            return
        self.deleting = True
        answer = self.peer.ask(messages.DeleteQueue, "q", self.number)
        assert isinstance(answer, messages.Counted), answer
        self._deleted()

    def _deleted(self) -> None:
        """Go on with a new queue, if the old one has been deleted."""
        before = self.number
        self._declare()
        self.deleting = False
        if self.number != before:
            self.over |= self.live | self.doubtful
            self.live.clear()
            self.doubtful.clear()

    # -- work on files -----------------------------------------------------------------------------

    def look(self) -> None:
        if not self.room.engine.busy:
            self.room.engine.housekeeping.compactor.look()

    def want_jobs(self) -> None:
        self.jobs.extend(self.room.engine.jobs(self.room.engine.now()))

    def run_job(self, least: int = 0) -> None:
        for _ in range(max(least, self.random.choice((1, 1, 2, 5)))):
            if not self.jobs:
                self.want_jobs()
            if self.jobs:
                self._run(self.jobs.popleft())

    def _run(self, job: Job) -> None:
        self.counts["steps of compactions"] += isinstance(job, CompactSegment)
        job.run()
        self.room.engine.finish(job)

    def all_jobs(self) -> None:
        self.sync()
        while True:
            if not self.jobs:
                self.want_jobs()
            if not self.jobs:
                return
            self._run(self.jobs.popleft())
            self.sync()

    def checkpoint(self) -> None:
        self.room.engine.housekeeping.request_checkpoint()

    def acknowledge_during_checkpoint(self) -> None:
        """Acknowledge behind the copy of the folds, and compact before the checkpoint is written."""
        self.take()
        self.publish()
        self.checkpoint()
        self.want_jobs()
        self.acknowledge()
        self.look()
        self.run_job(least=20)
        self.all_jobs()
        self.verify()

    def checkpoint_now(self) -> None:
        self.sync()
        self.room.engine.accept(Mark(self.room.engine.now()))
        self.checkpoint()
        self.all_jobs()

    def want_flush(self) -> None:
        self.room.engine.want_flush()

    def retain(self) -> None:
        self.room.broker.queues.retain()
        self.room.engine.housekeeping.retain(self.room.engine.now())

    def pin(self) -> None:
        if self.pins:
            self.room.engine.housekeeping.unpin(self.pins.pop())
        elif self.random.random() < 0.5:
            self.pins.append(self.room.engine.housekeeping.pin())

    def pass_time(self) -> None:
        self.clock.advance(self.random.choice((1_000, 1_000_000)))
        self.room.timers.advance(0.1)

    def search(self) -> None:
        """Read from somewhere, by offset and by time: it passes over gaps."""
        store = self.room.engine.catalog.stores[self.number]
        offset = self.random.randrange(store.start_offset, store.high_watermark + 1)
        data = store.read(offset, 1 << 20)
        for each in frame.decode_run(data):
            assert each.offset + 1 > store.start_offset
        engine = self.room.engine
        store.offset_for_time(self.random.randrange(engine.now() + 1) + engine.wall_offset)

    def lose_index(self) -> None:
        """Somebody removes an index, or damages it."""
        self.sync()
        store = self.room.engine.catalog.stores[self.number]
        paths = [path for each in store.sealed_segments for path in each.paths[1:3]]
        there = [path for path in paths if self.room.disk.exists(path)]
        for path in self.random.sample(there, min(1, len(there))):
            if self.random.random() < 0.5:
                self.room.disk.unlink(path)
            else:
                file = self.room.disk.open(path)
                file.write_some(self.random.randrange(file.size()), [b"#"])

    # -- judgement ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Take all, and compare."""
        self.leave()
        found: dict[int, bytes] = {}
        while some := self._taken(MAX_TAKEN):  # of many runs a part
            assert not set(some) & set(found)
            found.update(some)
        got = Counter(found.values())
        assert max(got.values(), default=1) == 1, f"twice: {got}"
        assert set(got) >= self.live, f"lost: {self.live - set(got)}"
        assert set(got) <= self.live | self.doubtful, f"not to come: {set(got) - self.live - self.doubtful}"
        assert not self.doubtful & self.live
        self.over |= self.doubtful - set(got)
        self.live |= self.doubtful & set(got)
        self.doubtful.clear()
        self.mine = found

    def verify(self) -> None:
        self.sync()
        for disk in (self.room.disk.kill_clone(), self.room.disk.crash_clone(self.random.randrange(1 << 30))):
            found = [str(each) for each in verify(disk, Level.DEEP) if not each.harmless]
            assert found == [], found
            self.counts["verified"] += 1

    def _finish(self) -> None:
        self.check()
        while self.held:
            self.decide()
        self.sync()
        self.check()
        for pin in self.pins:
            self.room.engine.housekeeping.unpin(pin)
        self.publish()
        self.checkpoint_now()
        for _ in range(2):  # what was to be compacted already is at first
            self.look()
            self.all_jobs()
        for _ in range(3):
            self.checkpoint_now()
        self._check_files()
        self.verify()
        self.stop()
        self.check()

    def _check_files(self) -> None:
        """Nothing is left that no segment has."""
        engine = self.room.engine
        stores = engine.catalog.stores
        assert {name.number for name, _ in partitions(self.room.disk)} <= set(stores)
        for store in stores.values():
            known_paths = {path for segment in store.segments for path in segment.paths}
            if not self.room.disk.exists(store.directory):
                continue
            files = {f"{store.directory}/{name}" for name in self.room.disk.list_directory(store.directory)}
            assert files <= known_paths, f"left for ever: {files - known_paths}"
        self.counts["compacted segments"] += sum(bool(s.epoch) for s in stores[self.number].segments)
        self.counts["compacted again"] += sum(s.epoch > 1 for s in stores[self.number].segments)
        for segment in stores[self.number].sealed_segments:
            unread = engine.housekeeping.compactor.unread(stores[self.number])
            gone = unread.count_within(segment.base_offset, segment.end_offset)
            there = segment.end_offset - segment.base_offset - segment.removed
            assert (
                gone == segment.removed
                or there > 2 * (gone - segment.removed)
                or segment.end_offset <= (stores[self.number].start_offset)
            ), f"{segment} is worth it, and was not compacted"

    # -- the end, and a start ----------------------------------------------------------------------

    def stop(self) -> None:
        """End and start in order, or nearly."""
        self.room.disarm()
        self.sync()
        if self.random.random() < 0.5:
            self.room.engine.mark()
            self.sync()
            self.room.engine.housekeeping.compactor.stop()
            self.checkpoint()
            self.all_jobs()
        self.room.engine.close()
        self.counts["stops"] += 1
        self._start(self.room.disk.kill_clone() if self.random.random() < 0.3 else self.room.disk)
        self._after_start()

    def crash(self) -> None:
        """The process is killed, or the power goes."""
        seed = self.random.randrange(1 << 30)
        kind = self.random.choice(("kill", "power", "power"))
        disk = self.room.disk.kill_clone() if kind == "kill" else self.room.disk.crash_clone(seed)
        self.say(f"crash: {kind}")
        self.counts[kind] += 1
        if self.random.random() < 0.3:
            self._damage(disk)
        while True:
            cut = self.random.random() < 0.2
            try:
                self._start(disk, cut_power_at(self.random.randrange(1, 30)) if cut else None)
                self.room.disarm()
                break
            except PowerCut:
                self.counts["cuts in a start"] += 1
                disk = disk.crash_clone(self.random.randrange(1 << 30))
        self._after_start()

    def _damage(self, disk: MemoryFilesystem) -> None:
        """Damage the newest checkpoint, if there is one before it."""
        names = disk.list_directory(filenames.CHECKPOINT_DIRECTORY)
        lsns = sorted(lsn for name in names if (lsn := filenames.parse_checkpoint_file(name)) is not None)
        if len(lsns) > 1:
            file = disk.open(filenames.checkpoint_file(lsns[-1]))
            at = self.random.randrange(file.size())
            byte = file.read(at, 1)[0]
            file.write_some(at, [bytes([byte ^ 0x10])])
            file.force()
            self.say("the newest checkpoint is damaged")
            self.counts["damaged checkpoints"] += 1

    def _start(self, disk: MemoryFilesystem, hook: Any = None) -> None:
        self.room = QueueRoom(self.limits, disk, self.clock, self.random.randbytes, hook)
        self.jobs: deque[Job] = deque()
        self.pending.clear()
        self.pins.clear()
        self._come()

    def _after_start(self) -> None:
        prepared = {
            self.room.engine.transactions.live[each].xid for each in self.room.engine.transactions.prepared
        }
        for name, (what, values) in self.deciding.items():
            if xid_of(name) in prepared:
                self.held[name] = values
            elif what == "commit":
                self.over |= values
            else:
                self.live |= values
        self.deciding.clear()
        for name in self.held:
            assert xid_of(name) in prepared, f"{name} is not prepared any more"
        assert len(prepared) == len(self.held)
        if self.deleting:
            self._deleted()
        self.check()
