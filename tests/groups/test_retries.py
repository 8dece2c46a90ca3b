"""Test messages that are tried again, as the broker records and tells them: attempts and times are its own.

The model test compares random histories with the naivest model, over restarts and checkpoints. Seen to fail: with the
attempt of a repetition counted, the journal's clock read by the reader's pause alone, details kept of what is finished,
and attempts told of what waits.
"""

import random

import pytest
from msgspec.structs import replace

from journal.constants import MAX_REQUEST_ENTRIES
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import (
    MAX_PAUSE,
    STOPPED,
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.record import LogStartMoved
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.support.broker_room import Room, refused
from txbroker.groups.retries import DEFAULT_PAUSE
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
SECOND = 1_000_000
PARKED = 3
MESSAGES = 20


@pytest.fixture
def room():
    return Room(max_parked=PARKED, max_offset_metadata=9)


@pytest.fixture
def partition(room):
    return filled(room)


def filled(room):
    [partition] = room.topic()
    room.peer().send(partition, *[b"%d" % number for number in range(MESSAGES)])
    return partition


def said(partition, *retried, finished=(), base=0, generation=0):
    done = OffsetSet()
    for offset in finished:
        done.add(offset)
    return Settled(
        partition, generation, base, encode_offsets(done, base), retried=[Retried(*each) for each in retried]
    )


def commit(room, *what, offsets=()):
    return room.peer().ask(messages.CommitOffsets, "g", list(offsets), ID, None, list(what))


def retry(room, *what):
    answer = commit(room, *what)
    assert isinstance(answer, messages.Done), answer


def prepare(room, *what, kind=messages.Prepare):
    fields = (1, XID, None) if kind is messages.Prepare else (0, 1, XID)
    return room.peer().ask(kind, *fields, positions=[GroupPositions("g", ID, [], list(what))])


def kept(room, partition):
    """What is kept of unfinished offsets: attempts, seconds from now on, and reasons."""
    settlement = room.broker.groups.find("g").settlements.get(partition)
    now = room.engine.now()
    return {
        offset: (each.attempts, (each.due - now) / SECOND, each.reason)
        for offset, each in (settlement.unfinished if settlement else {}).items()
    }


def fetched(room, partition, offset=0, until=0):
    """What a reader is told: the offset after the answer, what waits, and attempts."""
    reader = messages.Reader("g", 0, [0])
    answer = room.peer().ask(messages.Fetch, [(partition, offset, until)], 1 << 20, 0, 1, [reader])
    [part] = answer.partitions
    return part.next_offset, str(decode_offsets(part.waiting, offset)), dict(part.attempts)


def test_the_broker_counts_the_attempts_and_sets_the_time(room, partition):
    retry(room, said(partition, (3, 0, 2 * SECOND, "first"), (5, 0, None)))
    assert kept(room, partition) == {3: (1, 2.0, "first"), 5: (1, DEFAULT_PAUSE / SECOND, "")}
    assert fetched(room, partition) == (MESSAGES, "3, 5", {})
    room.clock.advance(2 * SECOND)
    assert fetched(room, partition) == (MESSAGES, "5", {3: 1})
    assert fetched(room, partition, 3, 4) == (4, "", {3: 1})
    assert fetched(room, partition, 4) == (MESSAGES, "5", {})
    retry(room, said(partition, (3, 1, SECOND, "second")))
    assert kept(room, partition)[3] == (2, 1.0, "second")
    room.restart()
    assert kept(room, partition)[3][0] == 2


def test_a_repetition_counts_nothing_and_keeps_the_time(room, partition):
    retry(room, said(partition, (3, 0, 2 * SECOND, "first")))
    room.clock.advance(SECOND)
    retry(room, said(partition, (3, 0, 9 * SECOND, "again"), finished=[4]))
    assert kept(room, partition) == {3: (1, 1.0, "first")}
    assert 4 in room.broker.groups.find("g").settlements[partition].finished


def test_a_reason_is_cut(room, partition):
    retry(room, said(partition, (3, 0, 0, "0123456789")))
    assert kept(room, partition)[3][2] == "012345678"


def test_attempts_that_a_client_makes_up_count_as_one(room, partition):
    retry(room, said(partition, (3, 1 << 60, 0)))
    retry(room, said(partition, (3, 1 << 60, 0)))
    assert kept(room, partition)[3][0] == 2


def test_a_waiting_fetch_is_given_it_when_it_is_due(room, partition):
    retry(room, said(partition, (3, 0, 2 * SECOND)))
    missing = [(partition, encode_offsets(of(3), 3), 3)]
    reader = messages.Reader("g", 0, [0], missing)
    peer = room.peer()
    end = (partition, MESSAGES, MESSAGES)
    asked = peer.tell(messages.Fetch, [end], 1 << 20, 5 * SECOND, 1, [reader])
    room.engine.sync()
    room.timers.advance(1.9)
    assert peer.answer(asked) is None
    room.clock.advance(2 * SECOND)
    room.timers.advance(0.2)
    [part] = peer.answer(asked).partitions
    assert not decode_offsets(part.waiting, 3)


def of(*offsets):
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return found


def test_finishing_it_or_setting_the_group_back_ends_its_attempts(room, partition):
    retry(room, said(partition, (3, 0, 0), (4, 0, 0)))
    retry(room, said(partition, finished=[3]))
    assert set(kept(room, partition)) == {4}
    commit(room, offsets=[PartitionOffset(partition, 10)])
    assert kept(room, partition) == {}
    commit(room, offsets=[PartitionOffset(partition, 2)])
    retry(room, said(partition, (3, 1, 0), base=2))
    assert kept(room, partition)[3][0] == 1


@pytest.mark.parametrize("finished", ["by offset", "by position"])
def test_what_is_finished_is_not_tried_again(room, partition, finished):
    if finished == "by offset":
        retry(room, said(partition, finished=[3]))
    else:
        commit(room, offsets=[PartitionOffset(partition, 7)])
    lsn = room.engine.last_lsn
    text = refused(commit(room, said(partition, (3, 0, 0))), "AlreadyFinished")
    assert "offset 3 of orders-0" in text
    assert "nothing has changed" in text
    refused(prepare(room, said(partition, (3, 0, 0))), "AlreadyFinished")
    assert room.engine.last_lsn == lsn


def test_only_so_many_wait_and_the_refusal_says_so(room, partition):
    retry(room, said(partition, *[(offset, 0, SECOND) for offset in range(PARKED)]))
    text = refused(commit(room, said(partition, (9, 0, SECOND))), "TooManyParked")
    assert f"the limit is {PARKED} (max_parked); nothing has changed" in text
    refused(prepare(room, said(partition, (9, 0, SECOND))), "TooManyParked")
    retry(room, said(partition, (0, 0, SECOND)))
    retry(room, said(partition, finished=[1]))
    retry(room, said(partition, (9, 0, SECOND)))


@pytest.mark.parametrize("way", ["plain", "prepare", "one phase", "added"])
def test_what_cannot_be_meant_is_refused_and_changes_nothing(room, partition, way):
    def ask(what):
        match way:
            case "plain":
                return commit(room, what)
            case "added":
                peer = room.peer()
                correlation = peer.tell(messages.AddOffsets, 1, "g", [], XID, 0, ID, [what])
                return peer.answer(correlation)
            case _:
                return prepare(room, what, kind=messages.Prepare if way == "prepare" else messages.Commit)

    lsn = room.engine.last_lsn
    for error, text, what in (
        ("InvalidSetting", "which the broker counts and sets", Settled(partition, 0, 0, b"", [Unfinished(3, 1)])),
        ("InvalidSetting", "which the broker counts and sets", Settled(partition, 0, 0, b"", [Unfinished(3)])),
        ("InvalidSetting", "a year", said(partition, (3, 0, MAX_PAUSE + 1))),
        ("InvalidSetting", "a year", said(partition, (3, 0, -1))),
        ("InvalidSetting", "an offset comes twice", said(partition, (3, 0, 0), (3, 1, 5))),
        ("InvalidSetting", "is finished and unfinished", said(partition, (3, 0, 0), finished=[3])),
        ("OffsetOutOfRange", "offset 20", said(partition, (MESSAGES, 0, 0))),
        ("UnknownPartition", "99", said(99, (3, 0, 0))),
        ("GenerationFenced", "no generation", said(partition, (3, 0, 0), generation=4)),
    ):  # fmt: skip
        assert text in refused(ask(what), error)
    many = Settled(partition, 0, 0, retried=[Retried(0)] * MAX_REQUEST_ENTRIES)
    assert "4,096 are" in refused(ask(many), "LimitExceeded").replace("4096", "4,096")
    assert room.engine.last_lsn == lsn
    assert "g" not in room.broker.groups.groups


def test_what_retention_has_removed_is_not_tried_again(room, partition):
    room.engine.accept(LogStartMoved(partition, 4, room.engine.now()))
    assert "the log starts at 4" in refused(commit(room, said(partition, (3, 0, 0))), "OffsetOutOfRange")


class TestTransactions:
    @pytest.mark.parametrize("ends", [messages.Commit, messages.Rollback])
    def test_a_prepared_one_holds_what_it_tries_again(self, room, partition, ends):
        retry(room, said(partition, (3, 0, 0)))
        assert isinstance(
            prepare(room, said(partition, (3, 1, 2 * SECOND, "tx"), finished=[4])), messages.Done
        )
        assert fetched(room, partition)[1] == "3-4"
        refused(commit(room, said(partition, (3, 1, 0))), "OffsetPending")
        room.engine.sync()
        room.restart()
        room.peer().ask(ends, 0, 0, XID)
        attempts, _, reason = kept(room, partition)[3]
        assert (attempts, reason) == ((2, "tx") if ends is messages.Commit else (1, ""))

    def test_one_phase_is_one_record(self, room, partition):
        lsn = room.engine.last_lsn
        assert isinstance(
            prepare(room, said(partition, (3, 0, 0), finished=[0]), kind=messages.Commit), messages.Committed
        )
        assert room.engine.last_lsn == lsn + 1
        assert set(kept(room, partition)) == {3}

    def test_an_added_retry_of_what_was_finished_since_rolls_it_back(self, room, partition):
        peer = room.peer()
        peer.tell(messages.AddOffsets, 1, "g", [], XID, 0, ID, [said(partition, (3, 0, 0))])
        retry(room, said(partition, finished=[3]))
        answer = peer.ask(messages.Commit, 0, 1, totals=Totals(0, 1, 0))
        assert "has been rolled back" in refused(answer, "AlreadyFinished")
        assert kept(room, partition) == {}


class Naive:
    """A group in one partition, message by message."""

    def __init__(self, rules):
        self.finished = set()
        self.failed = {}
        self.rules = rules

    def finish(self, offsets):
        self.finished |= set(offsets)
        for offset in offsets:
            self.failed.pop(offset, None)

    def retry(self, offset, handed, due, reason):
        attempts, *_ = self.failed.get(offset, (0,))
        if handed < attempts:
            return
        is_last = self.rules is not None and attempts + 1 >= self.rules.attempts
        if is_last and self.rules.ending is Ending.DROP:
            self.finish([offset])
        else:
            self.failed[offset] = attempts + 1, STOPPED if is_last else due, reason

    def told(self, now):
        """What waits, and the attempts of what does not."""
        waiting = {offset for offset, (_, due, _) in self.failed.items() if due > now}
        return waiting, {o: attempts for o, (attempts, *_) in self.failed.items() if o not in waiting}


RULES = (None, RetryRules(2, 0, 0, Ending.DROP), RetryRules(3, 0, 0, Ending.STOP))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(30))
def test_random_histories_are_those_of_a_naive_model(seed):
    draw = random.Random(seed)
    room = Room(max_parked=MESSAGES)
    partition, model = filled(room), Naive(RULES[seed % 3])
    room.peer().ask(
        messages.AlterGroup, "g", GroupSettings(model.rules), ["retry"], messages.Whether.ALWAYS, ID
    )
    commit(room, offsets=[PartitionOffset(partition, 0)])
    prepared = None
    for _ in range(60):
        unfinished = [o for o in range(MESSAGES) if o not in model.finished]
        held = prepared[0] if prepared else set()
        free = [offset for offset in unfinished if offset not in held]
        match draw.choice(["done", "retry", "retry", "time", "restart", "checkpoint", "prepare", "end"]):
            case "done" if free:
                some = draw.sample(free, min(len(free), draw.randint(1, 2)))
                retry(room, said(partition, finished=some))
                model.finish(some)
            case "retry" if free:
                offset, pause, handed = draw.choice(free), draw.randint(0, 5) * SECOND, draw.randint(0, 3)
                retry(room, said(partition, (offset, handed, pause, f"r{pause}")))
                model.retry(offset, handed, room.engine.now() + pause, f"r{pause}")
            case "time":
                room.clock.advance(draw.randint(1, 4) * SECOND)
            case "restart":
                room.restart()
            case "checkpoint":
                room.engine.housekeeping.checkpoint_inline()
            case "prepare" if prepared is None and len(free) > 1:
                one, other = draw.sample(free, 2)
                answer = prepare(room, said(partition, (one, 9, SECOND, "tx"), finished=[other]))
                assert isinstance(answer, messages.Done), answer
                prepared = {one, other}, one, other, room.engine.now() + SECOND
            case "end" if prepared is not None:
                _, one, other, due = prepared
                kind = draw.choice([messages.Commit, messages.Rollback])
                room.peer().ask(kind, 0, 0, XID)
                room.peer().ask(messages.Forget, *last_outcome(room), XID, "me", "test")
                if kind is messages.Commit:
                    model.finish([other])
                    model.retry(one, 9, due, "tx")
                prepared = None
        compare(room, partition, model, prepared[0] if prepared else set())


def last_outcome(room):
    return next(iter(room.engine.transactions.outcomes.by_number))


def compare(room, partition, model, held):
    waiting, attempts = model.told(room.engine.now())
    waiting |= held
    group = room.broker.groups.find("g")
    settlement = group.settlements.get(partition)
    details = settlement.unfinished if settlement else {}
    assert {o: (each.attempts, each.due, each.reason) for o, each in details.items()} == model.failed
    position = next((o for o in range(MESSAGES) if o not in model.finished), MESSAGES)
    assert group.position(partition) == position
    _, told, known = fetched(room, partition)
    assert told == str(of(*waiting))
    assert known == {offset: count for offset, count in attempts.items() if offset not in held}


def test_a_request_says_nothing_of_base_and_start_that_the_broker_takes(room, partition):
    retry(room, replace(said(partition, (3, 0, 0)), start=15))
    assert room.broker.groups.find("g").position(partition) == 0
