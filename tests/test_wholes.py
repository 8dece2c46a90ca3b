"""Transactions that come whole are carried out in one go, to the same records, answers and state as one by one."""

from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.testing import StringTransport

from journal.catalog import Catalog
from journal.constants import MIB
from journal.errors import JournalPoisoned, MemoryExhausted
from journal.journal_settings import JournalSettings
from journal.outcome_archive import OutcomeArchive
from journal.record import (
    PartitionOffset,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.tail import Tail
from journal.transaction import State, Totals, TransactionNumber, Xid
from journal.transaction_limits import TransactionLimits
from journal.transaction_table import TransactionTable
from journal.whole_commit import Whole, WholeCommits
from journal.whole_prepare import WholePrepares
from tests.broker_room import Room, frames
from tests.thoroughness import examples
from txbroker import commands, wholes
from txbroker.codec import answer_decoder, encode
from txbroker.commands import (
    MAGIC,
    Add,
    AddOffsets,
    Commit,
    Committed,
    Done,
    Prepare,
    Refused,
    Rollback,
    Send,
)
from txbroker.config import ServiceSettings
from txbroker.groups import GroupsFold
from txbroker.intake import Intake
from txbroker.outbox import Outboxes
from txbroker.producers import ProducersFold
from txbroker.protocol import BrokerFactory

SMALL = TransactionLimits(transactions=2, messages=4, bytes=400, requests=3, total_messages=6)
"""So small that what is drawn below runs into every one of them."""

XID = Xid(1, b"day-1", b"flights")
OTHER = Xid(1, b"other", b"")


class Door:
    """A broker on a memory file system with one connection of its real protocol, and the records that it queues."""

    def __init__(self, hello=True, long_way=False, max_message_bytes=None, **journal):
        self.room = Room(JournalSettings(low_water_bytes=0, file_bytes=MIB, **journal))
        self.partitions = self.room.topic("orders", 2, max_message_bytes=max_message_bytes)
        broker, clock = self.room.broker, self.room.timers
        if long_way:
            broker.wholes.take = lambda *_: 0
        factory = BrokerFactory(
            broker, Intake(broker, 1 << 20), Outboxes(clock), ServiceSettings(data="d"), clock
        )
        self.protocol = factory.buildProtocol(None)
        self.transport = StringTransport()
        self.protocol.makeConnection(self.transport)
        if hello:
            self.protocol.dataReceived(encode(commands.Hello(1, MAGIC, [1])))
        self.carry()
        self.transport.clear()
        self.records = []
        queue = self.room.engine.queue

        def noting(decision, data=b""):
            lsn = queue(decision, data)
            self.records.append((lsn, decision, bytes(data)))
            return lsn

        self.room.engine.queue = noting

    def carry(self):
        """Force, publish, and write the answers out."""
        self.room.engine.sync()
        self.room.timers.advance(0)

    def read(self, *reads):
        """The answers to what comes in reads within one turn."""
        for data in reads:
            self.protocol.dataReceived(data)
        self.carry()
        answers = [head for head, _ in answer_decoder(1 << 24).feed(self.transport.value())]
        self.transport.clear()
        return answers

    def state(self):
        """All that folds and logs hold."""
        kinds = (Catalog, TransactionTable, OutcomeArchive, ProducersFold, GroupsFold)
        engine = self.room.engine
        folds = {fold.name: list(fold.snapshot()) for fold in engine.folds if isinstance(fold, kinds)}
        logs = {n: store.read(0, 1 << 20) for n, store in engine.catalog.stores.items()}
        return folds, logs, dict(engine.transactions.outcomes.forgotten_through)


def whole(serial, partition, *values, seen=0, session=0):
    run = frames(*values)
    totals = Totals(len(values), 1, crc32c(run))
    add, commit = Add(2 * serial, serial, partition, None, seen), Commit(2 * serial + 1, session, serial)
    return encode(add, run) + encode(replace(commit, totals=totals, seen=seen))


def own_number(door):
    """What our clients name in a commit; 0 means the same."""
    return door.protocol.session.number


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


def phases(serial, partition, *values, xid=None, seen=0, session=0):
    """Add and prepare in one read, and the commit."""
    run, xid = frames(*values), xid or Xid(1, b"x%d" % serial, b"")
    prepare = Prepare(3 * serial + 1, serial, xid, Totals(len(values), 1, crc32c(run)), seen)
    first = encode(Add(3 * serial, serial, partition, xid, seen), run) + encode(prepare)
    return first, encode(Commit(3 * serial + 2, session, serial, None, None, seen))


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
    door.room.engine.full = True
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
    outcome = door.room.peer().ask(commands.AskOutcome, number, 1)
    assert outcome.state.name == "COMMITTED"


def test_what_comes_after_it_in_the_read_is_taken_after_it():
    door = Door()
    first = door.partitions[0]
    send, ping = encode(Send(50, first), frames(b"b")), encode(commands.Ping(60))
    answers = door.read(whole(1, first, b"a") + send + whole(2, first, b"c") + ping)
    assert {answer.correlation: getattr(answer, "base_offset", None) for answer in answers} == {
        3: None, 50: 1, 5: None, 60: None
    }  # fmt: skip
    assert [answer.placements[0].base_offset for answer in answers if isinstance(answer, Committed)] == [0, 2]


def test_those_of_a_read_that_take_long_let_others_have_their_turn(monkeypatch):
    door = Door()
    clock = door.room.timers
    run = wholes.check_run
    monkeypatch.setattr(wholes, "check_run", lambda *what: clock.advance(0.015) or run(*what))
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
    door.room.broker.parking.park(waiting.session, commands.Ping(9), memoryview(b""))
    door.read(whole(1, door.partitions[0], b"a"))
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
    door.room.engine.full = True
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
    assert len(door.records) == 2
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
    monkeypatch.setattr(wholes, "check_run", lambda data, limit, opens: seen.append(opens) or 1)
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
    [outcome] = door.read(encode(commands.AskOutcome(90, 0, 2)))
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


# -- in one go or one by one ------------------------------------------------------------------------

VALUES = st.lists(st.sampled_from([b"", b"a", b"bb" * 30, b"c" * 300]), min_size=1, max_size=5)
"""Runs that fit into the limits, and some that do not."""


ODD = (
    "messages", "requests", "checksum", "no totals", "xid", "commit xid", "operator", "own number", "other session",
    "seen ahead", "seen behind", "seen more since", "other serial", "seen below 0", "commit seen below 0", "torn",
    "long xid", "late xid", "commit named", "commit misnamed",
    "add seen own", "commit seen ahead", "commit seen own", "last seen ahead", "last seen own", "last seen below 0",
)  # fmt: skip
"""What may be unusual about a transaction."""


@st.composite
def requests(draw):
    """A client's requests, of which many are whole transactions, and many have something unusual about them."""
    made = []
    serial = 0
    for correlation in range(100, 100 + 10 * draw(st.integers(1, 8)), 10):
        serial += draw(st.sampled_from([1, 1, 1, 1, 2, 0, -1]))
        kind = draw(
            st.sampled_from(
                ["whole"] * 6 + ["phases"] * 6 + ["two adds", "offsets", "prepare", "rollback", "send"]
            )
        )
        what = draw(st.sampled_from([""] * len(ODD) + list(ODD)))
        place, seen = draw(st.sampled_from([0, 0, 1, 9])), draw(st.integers(0, 3))
        made.append(Drawn(kind, correlation, serial, place, frames(*draw(VALUES)), what, seen))
    return made


class Drawn(NamedTuple):
    kind: str
    correlation: int
    serial: int
    place: int
    run: bytes
    what: str
    behind: int


def encoded(door, each):
    """Its requests, as bytes each."""
    kind, correlation, serial, place, run, what, behind = each
    partition = door.partitions[place] if place < 2 else 999
    session = {"own number": door.protocol.session.number, "other session": 77}.get(what, 0)
    count = run_count(run)
    run = run[:-1] if what == "torn" else run
    usual = max(0, serial - 1 - behind)
    seen = {"seen ahead": serial + 1, "seen below 0": -1, "seen more since": 0, "add seen own": serial}.get(
        what, usual
    )
    commit_seen = {
        "seen behind": 0,
        "commit seen below 0": -1,
        "commit seen ahead": serial + 1,
        "commit seen own": serial,
        "add seen own": usual,
        "seen below 0": 0,
        "seen more since": serial - 1,
    }.get(what, seen)
    total = Totals(count + (what == "messages"), 1 + (what == "requests"), crc32c(run) ^ (what == "checksum"))
    add = encode(Add(correlation, serial, partition, XID if what == "xid" else None, seen), run)
    ends = serial + (what == "other serial")
    xid, stated = XID if what == "commit xid" else None, None if what == "no totals" else total
    commit = encode(
        Commit(correlation + 1, session, ends, xid, stated, commit_seen, what == "operator", "me", "why")
    )
    if kind == "phases":
        return in_two_phases(each, add, partition, run, seen, commit_seen, session, total)
    if kind == "two adds":
        return [add, add, commit]
    if kind == "offsets":
        return [encode(AddOffsets(correlation + 2, serial, "g", [])), commit]
    if kind == "prepare":
        return [add, encode(Prepare(correlation + 3, serial, XID, total, seen)), commit]
    if kind == "rollback":
        return [add, encode(Rollback(correlation + 4, 0, serial))]
    if kind in ("two adds, phases", "offsets, phases"):
        xid, twice = Xid(1, b"x%d" % serial, b""), kind.startswith("two")
        add = encode(Add(correlation, serial, partition, xid, seen), run)
        offsets = encode(AddOffsets(correlation + 2, serial, "g", [PartitionOffset(partition, 0)], xid, seen))
        sums = Totals(count * (1 + twice), 2, crc32c(run * (1 + twice)))
        second = Commit(correlation + 1, 0, serial, seen=seen)
        prepare = encode(Prepare(correlation + 3, serial, xid, sums, seen))
        return [add, add if twice else offsets, prepare, encode(second)]
    if kind == "add, send":
        return [add, encode(Send(correlation + 5, partition), run), commit]
    if kind == "send":
        return [encode(Send(correlation + 5, partition), run)]
    return [add, commit]


def in_two_phases(each, add, partition, run, seen, commit_seen, session, total):
    """An add, its prepare, and the commit of what is prepared."""
    what, correlation, serial = each.what, each.correlation, each.serial
    shared = {"xid": XID, "commit xid": XID, "long xid": Xid(1, b"x" * 65, b"")}
    xid = shared.get(what, Xid(1, b"x%d" % serial, b""))
    before = {"late xid": None, "commit xid": OTHER}.get(what, xid)
    if what != "torn":
        add = encode(Add(correlation, serial, partition, before, seen), run)
    ends = serial + (what == "other serial")
    first_seen = seen if what == "no totals" else commit_seen
    last_seen = {"last seen ahead": serial + 1, "last seen own": serial, "last seen below 0": -1}.get(
        what, commit_seen
    )
    return [
        add,
        encode(Prepare(correlation + 1, ends, xid, total, first_seen)),
        encode(
            Commit(
                correlation + 2, session, serial, {"commit named": xid, "commit misnamed": OTHER}.get(what),
                total if what == "no totals" else None, last_seen, what == "operator", "me", "why",
            )
        ),
    ]  # fmt: skip


def run_count(run):
    """How many frames there seem to be."""
    count = position = 0
    while position + 4 <= len(run):
        position += int.from_bytes(run[position : position + 4], "big")
        count += 1
    return count


def same_either_way(drawn, reads, **settings):
    """Assert that it is: in reads of whole transactions, and in reads of a request each."""
    together, apart = Door(**settings), Door(long_way=True, **settings)
    in_one = together.read(*reads(together, drawn))
    one_by_one = apart.read(*read_one_by_one(apart, drawn))
    assert sorted(in_one, key=str) == sorted(one_by_one, key=str)
    assert together.records == apart.records
    assert together.state() == apart.state()
    together.room.restart()
    apart.room.restart()
    assert together.state()[:2] == apart.state()[:2]


def read_each(door, drawn):
    return [b"".join(encoded(door, each)) for each in drawn]


def read_apart(door, drawn):
    """The commit of what is prepared in a read of its own, as clients send it."""
    reads = [encoded(door, each) for each in drawn]
    return [part for parts in reads for part in (b"".join(parts[:2]), b"".join(parts[2:]))]


def read_one_by_one(door, drawn):
    return [part for each in drawn for part in encoded(door, each)]


def read_all(door, drawn):
    return [b"".join(read_each(door, drawn))]


@pytest.mark.slow
@given(requests(), st.sampled_from([read_each, read_apart, read_all]), st.booleans(), st.booleans())
@settings(max_examples=examples(80))
def test_in_one_go_gives_what_one_by_one_gives(drawn, reads, archive, limited):
    same_either_way(drawn, reads, outcome_archive=archive, limits=SMALL if limited else TransactionLimits())


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("kind", ["whole", "phases"])
@pytest.mark.parametrize(("archive", "more"), [(False, 0), (False, 1), (True, 1)])
def test_so_does_what_is_unusual(what, kind, archive, more):
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a"), what if n == 2 else "", 0) for n in range(1, 3 + more)]
    for reads in (read_each, read_apart):
        same_either_way(drawn, reads, outcome_archive=archive)


@pytest.mark.parametrize(
    "kind",
    [
        "two adds", "offsets", "prepare", "rollback", "send", "add, send", "two adds, phases", "offsets, phases",
    ],
)  # fmt: skip
def test_so_does_what_else_begins_with_an_add(kind):
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a"), "", 0) for n in range(1, 4)]
    for reads in (read_each, read_all, read_one_by_one):
        same_either_way(drawn, reads)


@pytest.mark.parametrize("kind", ["whole", "phases"])
def test_so_does_what_is_longer_than_a_message_of_its_topic_may_be(kind):
    limit = len(frames(b"a" * 100))
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a" * (99 + n)), "", 0) for n in range(1, 3)]
    same_either_way(drawn, read_each, max_message_bytes=limit)


@pytest.mark.parametrize("serials", [(2, 1), (1, 1), (0,), (3, 2, 4), ((1 << 63) - 1, 1 << 63), (1, 2, 3, 2)])
def test_so_do_serials_that_do_not_count_up(serials):
    for behind in (0, 9):
        drawn = [
            Drawn("whole", 10 * n, each, 0, frames(b"a"), "", behind) for n, each in enumerate(serials, 1)
        ]
        same_either_way(drawn, read_each)
        same_either_way([each._replace(kind="phases") for each in drawn], read_apart)


@pytest.mark.parametrize(
    "limits",
    [
        TransactionLimits(transactions=0), TransactionLimits(messages=1), TransactionLimits(bytes=50),
        TransactionLimits(requests=0), TransactionLimits(total_messages=1), TransactionLimits(total_bytes=50),
    ],
)  # fmt: skip
def test_so_does_what_is_over_a_limit(limits):
    for kind in ("whole", "phases"):
        same_either_way([Drawn(kind, 10, 1, 0, frames(b"a", b"b"), "", 0)], read_each, limits=limits)


def test_what_is_refused_one_by_one_is_refused_in_one_go_with_the_same_words():
    door = Door()
    [refused, rolled_back] = door.read(whole(1, 999, b"a"))
    assert isinstance(refused, Refused)
    assert refused.error == "UnknownPartition"
    assert rolled_back.error == "ContentMismatch"
