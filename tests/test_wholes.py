"""Transactions that come whole are carried out in one go, to the same records, answers and state as one by one."""

from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport

from journal.catalog import Catalog
from journal.errors import JournalPoisoned, MemoryExhausted
from journal.journal_settings import JournalSettings
from journal.outcome_archive import OutcomeArchive
from journal.record import TransactionCommitted
from journal.tail import Tail
from journal.transaction import Totals, TransactionNumber, Xid
from journal.transaction_limits import TransactionLimits
from journal.transaction_table import TransactionTable
from journal.whole_commit import Whole, WholeCommits
from tests.broker_room import Room, frames
from tests.thoroughness import examples
from txbroker import commands, wholes
from txbroker.codec import answer_decoder, encode
from txbroker.commands import MAGIC, Add, AddOffsets, Commit, Committed, Prepare, Refused, Rollback, Send
from txbroker.config import ServiceSettings
from txbroker.groups import GroupsFold
from txbroker.intake import Intake
from txbroker.outbox import Outboxes
from txbroker.producers import ProducersFold
from txbroker.protocol import BrokerFactory

SMALL = TransactionLimits(transactions=2, messages=4, bytes=400, requests=3, total_messages=6)
"""So small that what is drawn below runs into every one of them."""

XID = Xid(1, b"day-1", b"flights")


class Door:
    """A broker on a memory file system with one connection of its real protocol, and the records that it queues."""

    def __init__(self, hello=True, **journal):
        self.room = Room(JournalSettings(low_water_bytes=0, **journal))
        self.partitions = self.room.topic("orders", 2)
        broker, clock = self.room.broker, self.room.timers
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


def whole(serial, partition, *values, seen=0, xid=None, **commit):
    run = frames(*values)
    named = {"totals": Totals(len(values), 1, crc32c(run)), "seen": seen, **commit}
    return encode(Add(2 * serial, serial, partition, xid, seen), run) + encode(
        Commit(2 * serial + 1, 0, serial, **named)
    )


def test_a_transaction_in_one_read_is_carried_out_in_one_go():
    door = Door()
    [first, second] = door.partitions
    door.room.broker.received = None  # the long way
    answers = door.read(whole(1, first, b"a", b"b") + whole(2, second, b"c", seen=1) + whole(3, first, b"d"))
    assert [type(answer) for answer in answers] == [Committed] * 3
    assert [(p.partition, p.base_offset, p.count) for a in answers for p in a.placements] == [
        (first, 0, 2), (second, 0, 1), (first, 2, 1)
    ]  # fmt: skip


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


def test_with_a_fold_that_wants_every_commit_all_go_the_long_way():
    room = Room()
    engine, [partition] = room.engine, room.topic()
    run = frames(b"a")
    sent = Whole(
        TransactionNumber(7, 1), engine.catalog.stores[partition], run, Totals(1, 1, crc32c(run)), (0, 0), ""
    )
    usual = engine.routes[TransactionCommitted]
    engine.routes[TransactionCommitted] = (*usual, engine.catalog)
    assert WholeCommits(engine).commit(sent) is None
    engine.routes[TransactionCommitted] = usual
    assert WholeCommits(engine).commit(sent).messages == 1


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
)  # fmt: skip
"""What may be unusual about a transaction."""


@st.composite
def requests(draw):
    """A client's requests, of which many are whole transactions, and many have something unusual about them."""
    made = []
    serial = 0
    for correlation in range(100, 100 + 10 * draw(st.integers(1, 8)), 10):
        serial += draw(st.sampled_from([1, 1, 1, 1, 2, 0, -1]))
        kind = draw(st.sampled_from(["whole"] * 6 + ["two adds", "offsets", "prepare", "rollback", "send"]))
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
    seen = {"seen ahead": serial + 1, "seen below 0": -1, "seen more since": 0}.get(
        what, max(0, serial - 1 - behind)
    )
    commit_seen = {
        "seen behind": 0,
        "commit seen below 0": -1,
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
    if kind == "two adds":
        return [add, add, commit]
    if kind == "offsets":
        return [encode(AddOffsets(correlation + 2, serial, "g", [])), commit]
    if kind == "prepare":
        return [add, encode(Prepare(correlation + 3, serial, XID, total, seen)), commit]
    if kind == "rollback":
        return [add, encode(Rollback(correlation + 4, 0, serial))]
    if kind == "send":
        return [encode(Send(correlation + 5, partition), run)]
    return [add, commit]


def run_count(run):
    """How many frames there seem to be."""
    count = position = 0
    while position + 4 <= len(run):
        position += int.from_bytes(run[position : position + 4], "big")
        count += 1
    return count


def same_either_way(drawn, reads, **journal):
    """Assert that it is: in reads of whole transactions, and in reads of a request each."""
    together, apart = Door(**journal), Door(**journal)
    in_one = together.read(*reads(together, drawn))
    one_by_one = apart.read(*[part for each in drawn for part in encoded(apart, each)])
    assert sorted(in_one, key=str) == sorted(one_by_one, key=str)
    assert together.records == apart.records
    assert together.state() == apart.state()
    together.room.restart()
    apart.room.restart()
    assert together.state()[:2] == apart.state()[:2]


def read_each(door, drawn):
    return [b"".join(encoded(door, each)) for each in drawn]


def read_all(door, drawn):
    return [b"".join(read_each(door, drawn))]


@pytest.mark.slow
@given(requests(), st.sampled_from([read_each, read_each, read_all]), st.booleans(), st.booleans())
@settings(max_examples=examples(80))
def test_in_one_go_gives_what_one_by_one_gives(drawn, reads, archive, limited):
    same_either_way(drawn, reads, outcome_archive=archive, limits=SMALL if limited else TransactionLimits())


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize(("archive", "more"), [(False, 0), (False, 1), (True, 1)])
def test_so_does_what_is_unusual(what, archive, more):
    drawn = [
        Drawn("whole", 10 * n, n, 0, frames(b"a"), what if n == 2 else "", 0) for n in range(1, 3 + more)
    ]
    same_either_way(drawn, read_each, outcome_archive=archive)


@pytest.mark.parametrize("serials", [(2, 1), (1, 1), (0,), (3, 2, 4), ((1 << 63) - 1, 1 << 63), (1, 2, 3, 2)])
def test_so_do_serials_that_do_not_count_up(serials):
    for behind in (0, 9):
        drawn = [
            Drawn("whole", 10 * n, each, 0, frames(b"a"), "", behind) for n, each in enumerate(serials, 1)
        ]
        same_either_way(drawn, read_each)


@pytest.mark.parametrize(
    "limits",
    [
        TransactionLimits(transactions=0), TransactionLimits(messages=1), TransactionLimits(bytes=50),
        TransactionLimits(requests=0), TransactionLimits(total_messages=1), TransactionLimits(total_bytes=50),
    ],
)  # fmt: skip
def test_so_does_what_is_over_a_limit(limits):
    same_either_way([Drawn("whole", 10, 1, 0, frames(b"a", b"b"), "", 0)], read_each, limits=limits)


def test_what_is_refused_one_by_one_is_refused_in_one_go_with_the_same_words():
    door = Door()
    [refused, rolled_back] = door.read(whole(1, 999, b"a"))
    assert isinstance(refused, Refused)
    assert refused.error == "UnknownPartition"
    assert rolled_back.error == "ContentMismatch"
