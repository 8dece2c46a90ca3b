"""Test the engine against a list of decisions, through every interleaving of its three threads and every kind of
end.
"""

from __future__ import annotations

import os

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from journal.formats.frame import HEADER_BYTES
from journal.records import outcome_entry
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC
from journal.transaction_states import State as Ended
from journal.transaction_states import TransactionNumber
from tests.engine.engine_machine import EngineMachine
from tests.support.engine_room import SMALL, Room, run_of, xid_of
from tests.support.thoroughness import examples

pytestmark = pytest.mark.slow

WORDS = {Ended.COMMITTED: "committed", Ended.ROLLED_BACK: "rolled back"}


class ArchivingMachine(EngineMachine):
    """The same with an archive: one entry for each transaction that ended, in the order of the decisions."""

    settings = msgspec.structs.replace(SMALL, outcome_archive=True)

    def adopt(self, room: Room) -> None:
        self.short = False
        if not self.history.decisions:
            self.history.note(room.engine.last_lsn - 1, "create", OUTCOMES_TOPIC, 1)
        super().adopt(room)

    def without_archive(self, topics):
        assert topics.keys() >= {OUTCOMES_TOPIC}
        return topics

    @property
    def archive(self):
        return self.room.store(1)

    def compare(self) -> None:
        state = self.state
        # Where prepared transactions and tails fill the memory, a start leaves entries to a later group.
        waiting = [self.frame_of(each)[HEADER_BYTES:] for each in self.engine.transactions.archive.waiting]
        entries = [outcome_entry.unpack(each) for each in (*self.room.values(1), *waiting)]
        found = [(e.number, WORDS[e.state], e.xid) for e in entries]
        assert found == [
            (number, how, xid_of(str(TransactionNumber(*number))) if self.was_prepared(number) else None)
            for number, how, _ in state.ended
        ]
        for entry, (_, how, adds) in zip(entries, state.ended, strict=True):
            self.compare_parts(entry, adds, how == "committed")
        usage = self.engine.allocator.usage()
        assert not waiting or usage.used + usage.reserved > self.settings.pool_bytes // 2
        super().compare()

    def frame_of(self, waiting) -> bytes:
        return waiting if isinstance(waiting, bytes) else waiting()

    def lsn_of(self, waiting) -> int:
        if isinstance(waiting, bytes):
            return outcome_entry.unpack(waiting[HEADER_BYTES:]).lsn
        return waiting.lsn

    def was_prepared(self, number) -> bool:
        return any(what == "prepare" and numbers[0] == number for _, what, numbers in self.history.decisions)

    def compare_parts(self, entry, adds, committed) -> None:
        runs: dict[int, list[bytes]] = {}
        for partition, value in adds:
            runs.setdefault(partition, []).append(value)
        assert entry.checksum == crc32c(run_of(*(value for _, value in adds)))
        assert (entry.messages, entry.requests) == (len(adds), len(adds))
        assert [part.number for part in entry.parts] == list(runs)
        for part, values in zip(entry.parts, runs.values(), strict=True):
            frames = run_of(*values)
            assert (part.count, part.bytes, part.checksum) == (len(values), len(frames), crc32c(frames))
            if not committed:
                assert part.base_offset == NEVER_PLACED
            elif part.number in self.engine.catalog.stores:
                start = self.room.store(part.number).start_offset
                log = self.room.values(part.number)
                for place, value in enumerate(values, part.base_offset - start):
                    assert place < 0 or log[place] == value

    @invariant()
    def what_readers_see_is_in_the_archive(self) -> None:
        """At once or before, unless memory was short; and nothing is that is not forced."""
        forced = len(self.history.upto(self.engine.forced_lsn).ended)
        shown = self.archive.high_watermark
        waiting = self.engine.transactions.archive.waiting
        if waiting and self.lsn_of(waiting[0]) <= self.engine.forced_lsn:
            self.short = True
        elif shown == forced:
            self.short = False
        assert shown == forced or (self.short and shown < forced)


QUICK = settings(max_examples=examples(100), stateful_step_count=40, suppress_health_check=list(HealthCheck))
LONG = settings(
    max_examples=int(os.environ.get("ENGINE_EXAMPLES", "1000")),
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)


def test_the_engine_holds_what_was_decided_through_crashes_at_any_moment():
    run_state_machine_as_test(EngineMachine, settings=QUICK)


def test_the_archive_holds_every_outcome_once_through_crashes_at_any_moment():
    run_state_machine_as_test(ArchivingMachine, settings=QUICK)


@pytest.mark.deep
def test_the_archive_holds_every_outcome_once_through_many_more_crashes():
    run_state_machine_as_test(ArchivingMachine, settings=LONG)


@pytest.mark.deep
def test_the_engine_holds_what_was_decided_through_many_more_crashes():
    run_state_machine_as_test(EngineMachine, settings=LONG)
