"""Transactions that come whole are carried out in one go: forced, shown, answered and bounded like any other."""

import pytest
from crc32c import crc32c

from journal.errors import JournalPoisoned, MemoryExhausted
from journal.formats.record import (
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.log.tail import Tail
from journal.transaction import State, Totals, TransactionNumber, Xid
from journal.transactions.limits import TransactionLimits
from journal.transactions.whole_commit import Whole, WholeCommits
from journal.transactions.whole_prepare import WholePrepares
from tests.broker.whole_scene import XID, Door, own_number, phases, whole
from tests.support.broker_room import Room, frames
from txbroker.broker import whole_transactions
from txbroker.broker.backlog import SMALL
from txbroker.broker.scheduler import STINT
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import Commit, Committed, Done, Refused, Send


@pytest.mark.parametrize("named", [own_number, lambda door: 0], ids=["own number", "none"])
def test_a_transaction_in_one_read_is_carried_out_in_one_go(named):
    door = Door()
    [first, second] = door.partitions
    door.room.broker.received = None  # the long way
    session = named(door)
    answers = door.read(
        whole(1, first, b"a", b"b", session=session)
        + whole(2, second, b"c", seen=1, session=session)
        + whole(3, first, b"d", session=session)
    )
    assert [type(answer) for answer in answers] == [Committed] * 3
    assert [(p.partition, p.base_offset, p.count) for a in answers for p in a.placements] == [
        (first, 0, 2), (second, 0, 1), (first, 2, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("named", [own_number, lambda door: 0], ids=["own number", "none"])
def test_a_prepared_transaction_of_one_add_takes_each_phase_in_one_go(named):
    door = Door()
    [first, second] = door.partitions
    door.room.broker.received = None  # the long way
    session = named(door)
    one, commit_one = phases(1, first, b"a", b"b", session=session)
    two, commit_two = phases(2, second, b"c", session=session)
    assert [type(answer) for answer in door.read(one + two)] == [Done, Done]
    table = door.room.engine.transactions
    assert [(t.number.serial, t.state) for t in table.prepared.values()] == [
        (1, State.PREPARED),
        (2, State.PREPARED),
    ]
    assert (len(table.live), len(table.live_xids), table.active) == (2, 2, {})
    assert table.holds_partition(first) == (door.protocol.session.number, 1)
    [answer, other] = door.read(commit_two, commit_one)
    assert [(p.partition, p.base_offset, p.count) for a in (answer, other) for p in a.placements] == [
        (second, 0, 1), (first, 0, 2)
    ]  # fmt: skip
    assert (table.live, table.prepared, table.live_xids, table.staging.held_bytes) == ({}, {}, {}, 0)
    assert table.holds_partition(first) is None
    assert [door.room.engine.catalog.stores[p].high_watermark for p in door.partitions] == [2, 1]


def test_prepared_in_one_go_it_is_in_doubt_after_a_restart_and_can_be_committed():
    door = Door()
    first, _ = phases(1, door.partitions[0], b"a")
    door.read(first)
    door.room.restart()
    peer = door.room.peer()
    assert peer.ask(Commit, 0, 0, Xid(1, b"x1", b"")).placements[0].count == 1
    assert door.room.engine.catalog.stores[door.partitions[0]].high_watermark == 1


@pytest.mark.parametrize("ended", [False, True])
def test_an_xid_that_is_in_use_or_remembered_is_refused_as_ever(ended):
    door = Door()
    first, commit = phases(1, door.partitions[0], b"a", xid=XID)
    door.read(*([first, commit] if ended else [first]))
    before = len(door.records)
    [refused, passed] = door.read(phases(2, door.partitions[0], b"b", xid=XID)[0])
    assert "belongs to transaction" in refused.message
    assert isinstance(passed, Refused)
    assert [type(record).__name__ for _, record, _ in door.records[before:]] in (
        [],
        ["TransactionRolledBack"],
    )
    assert len(door.room.engine.transactions.prepared) == (0 if ended else 1)


def test_neither_phase_is_answered_before_it_is_forced():
    door = Door()
    store = door.room.engine.catalog.stores[door.partitions[0]]
    first, commit = phases(1, door.partitions[0], b"a")
    door.protocol.dataReceived(first)
    assert (store.end_offset, door.transport.value()) == (0, b"")
    door.carry()
    assert door.transport.value()
    door.transport.clear()
    door.protocol.dataReceived(commit)
    assert (store.end_offset, store.high_watermark, door.transport.value()) == (1, 0, b"")
    door.carry()
    assert store.high_watermark == 1


def test_what_is_in_its_staged_file_by_now_is_committed_the_long_way():
    door = Door()
    first, commit = phases(1, door.partitions[0], b"a")
    door.read(first)
    door.room.engine.housekeeping.checkpoint_inline()
    door.read(encode(Send(50, door.partitions[1]), frames(b"b")))
    door.room.engine.housekeeping.checkpoint_inline()
    [transaction] = door.room.engine.transactions.prepared.values()
    assert transaction.staged.file_entries == 1
    [answer] = door.read(commit)
    assert answer.placements[0].count == 1
    assert door.room.engine.transactions.ended_files == [transaction.number]


def test_on_a_full_disk_what_is_prepared_can_be_committed_and_nothing_new_be_prepared():
    door = Door()
    one, commit_one = phases(1, door.partitions[0], b"a")
    door.read(one)
    door.room.engine.full_at = -1
    two, _ = phases(2, door.partitions[0], b"b")
    [committed, refused, _] = door.read(commit_one, two)
    assert isinstance(committed, Committed)
    assert refused.error == "DiskFull"


@pytest.mark.parametrize("phase", [0, 1])
def test_when_applying_a_phase_fails_the_engine_goes_no_further(phase):
    door = Door()

    def broken(*arguments):
        raise ZeroDivisionError("a bug")

    ended = []
    door.room.broker.on_failure = lambda doing, error: ended.append((doing, error))
    first, commit = phases(1, door.partitions[0], b"a")
    if phase:
        door.read(first)
    table = door.room.engine.transactions
    table.enter = table.outcomes.remember = broken
    door.protocol.dataReceived(commit if phase else first)
    assert "a bug" in door.room.engine.failed
    assert [type(error) for _, error in ended] == [ZeroDivisionError]


def test_the_second_phase_goes_the_long_way_where_memory_is_short(monkeypatch):
    door = Door()
    first, commit = phases(1, door.partitions[0], b"a")
    door.read(first)
    append, tries = Tail.append, []

    def short_once(*arguments):
        tries.append(arguments)
        if len(tries) == 1:
            raise MemoryExhausted("there is none")
        return append(*arguments)

    monkeypatch.setattr(Tail, "append", short_once)
    [answer] = door.read(commit)
    assert isinstance(answer, Committed)
    assert len(tries) == 2
    assert door.room.engine.catalog.stores[door.partitions[0]].high_watermark == 1


def test_it_is_neither_answered_nor_shown_before_it_is_forced():
    door = Door()
    store = door.room.engine.catalog.stores[door.partitions[0]]
    door.protocol.dataReceived(whole(1, door.partitions[0], b"a"))
    assert (store.end_offset, store.high_watermark, door.transport.value()) == (1, 0, b"")
    door.carry()
    assert store.high_watermark == 1
    assert door.transport.value()


def test_it_survives_a_restart_and_its_outcome_is_known():
    door = Door()
    door.read(whole(1, door.partitions[0], b"a"))
    number = door.protocol.session.number
    door.room.restart()
    assert door.room.engine.catalog.stores[door.partitions[0]].high_watermark == 1
    outcome = door.room.peer().ask(messages.AskOutcome, number, 1)
    assert outcome.state.name == "COMMITTED"


def test_what_comes_after_it_in_the_read_is_taken_after_it():
    door = Door()
    first = door.partitions[0]
    send, ping = encode(Send(50, first), frames(b"b")), encode(messages.Ping(60))
    answers = door.read(whole(1, first, b"a") + send + whole(2, first, b"c") + ping)
    assert {answer.correlation: getattr(answer, "base_offset", None) for answer in answers} == {
        3: None, 50: 1, 5: None, 60: None
    }  # fmt: skip
    assert [answer.placements[0].base_offset for answer in answers if isinstance(answer, Committed)] == [0, 2]


def test_those_of_a_read_that_take_long_let_others_have_their_turn(monkeypatch):
    door = Door()
    clock = door.room.timers
    run = whole_transactions.check_run
    monkeypatch.setattr(
        whole_transactions, "check_run", lambda *what: clock.advance(STINT * 0.75) or run(*what)
    )
    door.protocol.dataReceived(b"".join(whole(n, door.partitions[0], b"a") for n in range(1, 9)))
    assert len(door.records) == 2 * 2 + 1
    door.carry()
    door.carry()
    door.carry()
    door.carry()
    assert len(door.records) == 2 * 8


def test_while_requests_wait_it_gets_in_line():
    door = Door()
    waiting = door.room.peer()
    door.room.broker.parking.park(waiting.session, messages.Ping(9), memoryview(b""))
    door.read(whole(1, door.partitions[0], bytes(SMALL)))
    assert (door.records, len(door.room.broker.parking.line)) == ([], 3)
    door.room.broker.parking.move()
    assert [type(record).__name__ for _, record, _ in door.records] == [
        "TransactionAdded",
        "TransactionCommitted",
    ]


def test_before_hello_nothing_is_taken():
    door = Door(hello=False)
    door.read(whole(1, door.partitions[0], b"a"))
    assert door.records == []
    assert door.transport.disconnecting


def test_an_internal_topic_takes_none():
    door = Door(outcome_archive=True)
    internal = door.room.engine.transactions.archive.store.number
    [refused, _] = door.read(whole(1, internal, b"a"))
    assert refused.error == "InvalidName", refused


def test_on_a_full_disk_it_is_refused():
    door = Door()
    door.room.engine.full_at = -1
    [refused, _] = door.read(whole(1, door.partitions[0], b"a"))
    assert refused.error == "DiskFull"


def test_a_large_one_is_applied_in_slices_and_the_next_waits_for_it():
    door = Door()
    table = door.room.engine.transactions
    table.small_bytes = table.slice_bytes = 200
    first = door.partitions[0]
    door.protocol.dataReceived(whole(1, first, b"a" * 150, b"b" * 150))
    assert door.room.engine.busy
    door.protocol.dataReceived(whole(2, first, b"c"))
    assert len(door.records) == 3, "the add passes it, its commit does not"
    door.carry()
    assert [record.serial for _, record, _ in door.records] == [1, 1, 2, 2]
    assert door.room.engine.catalog.stores[first].high_watermark == 3


def test_where_memory_is_short_it_goes_the_long_way(monkeypatch):
    door = Door()
    append, tries = Tail.append, []

    def short_once(*arguments):
        tries.append(arguments)
        if len(tries) == 1:
            raise MemoryExhausted("there is none")
        return append(*arguments)

    monkeypatch.setattr(Tail, "append", short_once)
    [answer] = door.read(whole(1, door.partitions[0], b"a"))
    assert isinstance(answer, Committed)
    assert [type(record).__name__ for _, record, _ in door.records] == [
        "TransactionAdded",
        "TransactionCommitted",
    ]
    assert door.room.engine.catalog.stores[door.partitions[0]].high_watermark == 1


def test_where_a_topic_says_so_what_is_compressed_is_believed_unopened(monkeypatch):
    seen = []
    monkeypatch.setattr(
        whole_transactions, "check_run", lambda data, limit, opens, most: seen.append(opens) or 1
    )
    door = Door()
    believed = door.room.topic("believed", check_compressed=0)[0]
    door.read(whole(1, door.partitions[0], b"a"), whole(2, believed, b"a"))
    assert seen == [True, False]


@pytest.mark.parametrize("kind", [TransactionAdded, TransactionPrepared, TransactionCommitted])
def test_with_a_fold_that_wants_every_record_of_a_kind_all_go_the_long_way(kind):
    room = Room()
    engine, [partition] = room.engine, room.topic()
    run = frames(b"a")
    sent = Whole(
        TransactionNumber(7, 1), engine.catalog.stores[partition], run, Totals(1, 1, crc32c(run)), (0, 0), ""
    )
    usual = engine.routes[kind]
    engine.routes[kind] = (*usual, engine.catalog)
    commits_too = kind is TransactionPrepared
    assert (WholeCommits(engine).commit(sent) is not None) is commits_too
    assert not WholePrepares(engine).prepare(sent._replace(number=TransactionNumber(7, 2)), XID)
    engine.routes[kind] = usual
    if not commits_too:
        assert WholeCommits(engine).commit(sent).messages == 1
    prepared = sent._replace(number=TransactionNumber(7, 3))
    assert WholePrepares(engine).prepare(prepared, XID)
    engine.routes[kind] = (*usual, engine.catalog)
    transaction = engine.transactions.live[prepared.number]
    assert WholePrepares(engine).commit(transaction, 0) is None
    engine.routes[kind] = usual
    assert WholePrepares(engine).commit(transaction, 0).messages == 1


@pytest.mark.parametrize("begin", [whole, lambda *what: phases(*what)[0]], ids=["whole", "prepared"])
def test_of_just_its_limit_of_bytes_it_is_taken_in_one_go_and_of_one_more_refused(begin):
    limit = len(frames(b"a" * 100))
    door = Door(limits=TransactionLimits(bytes=limit))
    partition, transactions = door.partitions[0], door.room.engine.transactions
    long_way, door.room.broker.received = door.room.broker.received, None
    [taken] = door.read(begin(1, partition, b"a" * 100))
    assert isinstance(taken, Committed | Done)
    before, records = (len(transactions.live), transactions.staging.held_bytes), len(door.records)
    door.room.broker.received = long_way
    refused, then = door.read(begin(2, partition, b"a" * 101))
    assert refused.error == "LimitExceeded"
    assert f"{limit + 1} bytes in one transaction, the limit is {limit}; nothing of this" in refused.message
    assert then.error == "ContentMismatch"
    assert (len(transactions.live), transactions.staging.held_bytes) == before
    assert [type(record) for _, record, _ in door.records[records:]] == [TransactionRolledBack]
    [outcome] = door.read(encode(messages.AskOutcome(90, 0, 2)))
    assert outcome.state is State.ROLLED_BACK


def test_once_the_engine_has_failed_nothing_is_taken():
    door = Door()
    door.room.engine.fail("the disk is gone")
    door.protocol.dataReceived(whole(1, door.partitions[0], b"a"))
    assert door.records == []
    assert door.room.engine.catalog.stores[door.partitions[0]].end_offset == 0


def test_when_applying_fails_the_engine_goes_no_further():
    door = Door()

    def broken(outcome):
        raise ZeroDivisionError("a bug")

    ended = []
    door.room.broker.on_failure = lambda doing, error: ended.append((doing, error))
    door.room.engine.transactions.outcomes.remember = broken
    door.protocol.dataReceived(whole(1, door.partitions[0], b"a"))
    assert "a bug" in door.room.engine.failed
    assert [type(error) for _, error in ended] == [ZeroDivisionError]
    with pytest.raises(JournalPoisoned):
        door.room.engine.queue(door.records[0][1])
