"""Test the bytes of both formats: today's code writes the files in ``tests/formats/golden/`` and reads them.

A red test here means that data directories or peers of an earlier version are no longer understood. If that is
meant, or a kind is new, write the files anew and review the difference: ``python -m tests.formats.test_golden``.

Seen to fail: with two fields of a struct swapped, a tag changed, a field put in the middle, a seed off by one.
"""

import typing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from journal.constants import BLOCK
from journal.folds.queues import QueuesFold
from journal.folds.schedule import ScheduleFold
from journal.formats import checkpoint, compression, filenames, frame, frame_check
from journal.formats.checkpoint import CheckpointHeader
from journal.formats.checkpoint_rows import RowReader
from journal.formats.envelope import Clock, Places, envelopes, id_of, pack_places, seal, unpack_places
from journal.formats.store_state import SegmentState, StoreState
from journal.parties import Actor, Owner
from journal.records import access_entries as a
from journal.records import group_entries as g
from journal.records import journal_headers, outcome_entry, record
from journal.records import queue_entries as q
from journal.records import record as r
from journal.records.outcome_entry import NEVER_PLACED, ArchivedOutcome, Part
from journal.records.stream_entries import Delivered
from journal.settings import TopicSettings
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause, State, Totals
from journal.xid import Xid
from tests.formats import queue_examples
from tests.formats.queue_examples import BINDING, EXCHANGE, QUEUE
from tests.support.journal_bytes import records_of
from txbroker.wire import codec
from txbroker.wire import messages as c
from txbroker.wire.secret import Secret

FOLDER = Path(__file__).parent / "golden"
TIME, SALT, LSN = 1_357_034_400_000_000, 0xC0FFEE, (1 << 36) + 2
SESSION = (1 << 32) + 1
NONCE = bytes(range(16))
SECRET = Secret(bytes(range(16, 32)))
XID = Xid(1, b"day-2013-01-01", b"flights")
ID = bytes(range(16))
TOTALS = Totals(3, 2, 0xFFFFFFFF)
OFFSETS = [g.PartitionOffset(1, 1 << 40, 2, "note"), g.PartitionOffset(2, 0)]
PLACED = [r.Placement(1, 1 << 40, 3)]
RUNS = [r.Run(1, 2, 0, 0xFFFFFFFF), r.Run(2, 1, 57, 7, [1 << 33, 9])]
SETTLED = [
    g.Settled(
        1, 2, 1 << 40, b"\x02\x0a", [g.Unfinished(1 << 40, 3, 1 << 50, "why"), g.Unfinished(7)], 1 << 39
    ),
    g.Settled(2, 0, 5),
]
RULES = g.RetryRules(5, 1_000_000, 1 << 33, g.Ending.STOP)
MOVED = [g.GroupPositions("group", ID, OFFSETS, SETTLED)]
SCHEDULED = [(id_of(7, 1 << 38), 1), (id_of(0, 3), -(1 << 34) - 1)]
DUE = [id_of(7, 1 << 38), 0, 1]
SETTLES = [*MOVED, r.TakenBack(SCHEDULED), Delivered(ID, 1 << 36, 1 << 40)]
PLACES = [(7, 1 << 38, 0xFFFFFFFF), (0, 3, 1)]
WAITS = c.ScheduledInfo((7, 1 << 38, 0xFFFFFFFF), "orders", 3, 1, TIME, 57, True, b"m1", "d")
EPOCH = bytes(range(24))
SETTINGS = TopicSettings(10, 1_000_000, 1 << 20, 1 << 30, None, 4096, 0)
ME = Owner("anonymous", "me", "host:1")
ANN = Actor("ann", "ops")
VERIFIER = a.ScramVerifier(  # its text hides the fields
    salt=bytes(range(16)), iterations=15_000, stored_key=bytes(range(32, 64)), server_key=bytes(range(64, 96))
)
TOKEN = a.TokenSubject("https://login.example", "alice@example")
QUOTAS = a.Quotas(1 << 20, None, 7, 8, 9, 10, 1 << 33)
ALICE = a.User("alice", VERIFIER, ["CN=alice", "DNS:a.example"], [TOKEN], ["loaders"], QUOTAS)
RULE = a.Rule(
    "role:loaders", a.Effect.DENY, a.Resource.TOPIC, "orders-", True, [a.Right.READ, a.Right.DESCRIBE]
)
INFO = c.TransactionInfo(
    SESSION, 7, State.PREPARED, XID, "me", 5, 3, 300, ["t"], ["g"], Cause.OPERATOR, "ann", "why", True,
    c.CoordinatorWord(State.COMMITTED, TIME, "me@host:1", "ops"), "host:1", 4, TIME, TIME + 1, TIME + 2,
    c.Policy("rollback", 1 << 33, True, "damaged"), "anonymous", "ops",
)  # fmt: skip

RECORDS = [
    r.Started(2, 1000, TIME, NONCE),
    r.Mark(1001),
    r.Messages(1, 1 << 40, 2, 1002, 3, 4, 5),
    r.TopicCreated("orders", 1, 4, SETTINGS, 1003, ID, ANN, QUEUE),
    r.TopicDeleted("orders", 1004, ANN),
    r.LogStartMoved(1, 1 << 33, 1005, ANN),
    r.ProducerOpened(3, 4, "name", 1006, bytes(range(16)), "alice"),
    r.ProducersExpired([3, 1 << 40], 1007),
    r.TransactionAdded(SESSION, 7, 1, 2, 1008, 6, XID, ME, RUNS),
    r.TransactionOffsetsAdded(SESSION, 7, "group", OFFSETS, 1009, 6, XID, ME, ID, SETTLED),
    r.TransactionPrepared(SESSION, 7, XID, TOTALS, 1010, 6, ME, RUNS, MOVED, SCHEDULED),
    r.TransactionCommitted(
        SESSION, 7, PLACED, 1011, Cause.OPERATOR, 6, ANN, "why", TOTALS, RUNS, SETTLES, 0xFFFFFFFF, XID, ME
    ),
    r.TransactionRolledBack(SESSION, 7, 1012, Cause.MISMATCH, ANN, "why"),
    r.TransactionsForgotten([(SESSION, 7)], SESSION, 1013, ANN, "why"),
    r.CoordinatorTold(SESSION, 7, 1014, State.COMMITTED, Actor("me@host:1", "anonymous")),
    r.OffsetsCommitted("group", OFFSETS, 1015, ID, SETTLED),
    r.PartitionsClaimed("group", "member", [(1, 2)], 1016, ID, SETTLED, g.ClaimKind.STATIC_MEMBER),
    r.GroupDeleted("group", 1017, ANN),
    r.Identified("0123456789abcdef" * 2, 1018),
    r.ArchiveSet(True, SETTINGS, 1019),
    r.TopicAltered("orders", SETTINGS, 1020, r.PartitionsAdded(4, 9, 8), ANN),
    r.GroupAltered("group", g.GroupSettings(RULES, 86_400_000_000, ["eu"]), 1021, ID, ANN),
    r.StreamClaimed(ID, "0123456789abcdef", 1 << 33, NONCE, "me", 1022),
    r.StreamReleased(ID, 1 << 33, 1023),
    r.UserSet(ALICE, ANN, 1024),
    r.UserRemoved("alice", ANN, 1025),
    r.RuleSet(RULE, ANN, 1026),
    r.AccessSet(True, False, bytes(range(32)), ANN, 1027),
    r.Due(
        [id_of(7, 1 << 38)],
        [r.Placement(1, 1 << 40, 1), r.Placement(9, 5, 1)],
        [0, 57],
        1028,
        [(id_of(0, 3), 2)],
    ),
    r.Cancelled(SCHEDULED, 1029, ANN),
    r.WallClockTold(TIME, 1030, True, ANN),
    r.ExchangeDeclared("orders", 1 << 33, EXCHANGE, 1031, ANN),
    r.ExchangeDeleted("orders", 1 << 33, 1032, ANN),
    r.Bound(BINDING, 1033, ANN),
    r.Unbound(BINDING, 1034, ANN),
    r.Published(-(1 << 34), 1 << 40, 3, RUNS, PLACED, 1035, 3, 4, 5, DUE),
]
CARRYING = r.Messages | r.TransactionAdded | r.Published
REQUESTS = [
    c.Hello(1, c.MAGIC, [3], "example"),
    c.Ping(2),
    c.Send(3, 1, 2, 3, 4),
    c.OpenProducer(4, "name"),
    c.DescribeTopics(5, ["orders"]),
    c.CreateTopic(6, "orders", 4, SETTINGS, ID),
    c.DeleteTopic(7, "orders", ID, True),
    c.Fetch(
        8,
        [(1, 1 << 40, 1 << 41)],
        1 << 20,
        500_000,
        1000,
        [c.Reader("group", 0, [7], [(1, b"\2\5", 1 << 39)])],
    ),
    c.OffsetsForTime(9, [1, 2], TIME),
    c.Add(10, 7, 1, XID, 6),
    c.AddOffsets(11, 7, "group", OFFSETS, XID, 6, ID, SETTLED),
    c.Prepare(12, 7, XID, TOTALS, 6, [(1, 57), (2, 1 << 20)], MOVED, PLACES),
    c.Commit(
        13,
        SESSION,
        7,
        XID,
        TOTALS,
        6,
        True,
        "ann",
        "why",
        [(1, 57), (2, 1 << 20)],
        MOVED,
        c.Delivery(ID, EPOCH, 1 << 40, 7),
        PLACES,
    ),
    c.Rollback(14, SESSION, 7, XID, 6, True, "ann", "why"),
    c.AskOutcome(15, SESSION, 7, XID),
    c.ListTransactions(16, [State.PREPARED], (SESSION, 7), 10, 1, b"day-", True, True),
    c.ShowTransaction(17, SESSION, 7, XID, 1 << 16),
    c.Forget(18, SESSION, 7, XID, "ann", "why"),
    c.CommitOffsets(19, "group", OFFSETS, ID, [1 << 39, None], SETTLED, True),
    c.FetchOffsets(20, "group", [1, 2]),
    c.ClaimPartitions(21, "group", "member", [1, 2], ID),
    c.ListGroups(22),
    c.DeleteGroup(23, "group", ID, True),
    c.AskStatus(24),
    c.Timed(25, c.Send(25, 1, 3, 0, 7)),
    c.Cancel(26, 25),
    c.PinFiles(27),
    c.UnpinFiles(28),
    c.Purge(29, [(1, 1 << 40), (2, 0)]),
    c.AlterTopic(30, "orders", ID, {"retention_bytes": None, "force_messages": 7}, 12),
    c.JoinGroup(31, "group", NONCE, ["orders"], "pay-*", "worker-3", [(1, 1 << 40)], 9, 8, 1 << 33, ID),
    c.Attend(32, "group", SESSION, SECRET, [(1, 1 << 40), (2, 3)], [2], [g.Settled(2, 3, 5, b"\x02\x01")]),
    c.LeaveGroup(33, "group", SESSION, SECRET, False),
    c.DescribeGroup(34, "group"),
    c.FindMessages(40, 1, 1 << 40, b"key", b"id", 1 << 41, 7, b"tag"),
    c.ListParked(35, "group", 2, 1 << 40),
    c.ReleaseParked(36, "group", ID, 2, [1, 1 << 40], c.Release.DEAD_LETTER),
    c.AlterGroup(42, "group", g.GroupSettings(RULES), ["retry"], c.Whether.NONE_OR_SAME, ID),
    c.BeginMessages(43, "group", SESSION, SECRET, [c.BegunMessages(1, 2, [(1 << 40, 3)], True)]),
    c.ClaimStream(44, ID, "0123456789abcdef", 1 << 33),
    c.ReleaseStream(45, ID, EPOCH, 1 << 40, 1 << 33),
    c.ListStreams(46, "0123456789abcdef", 1 << 36),
    c.ListSessions(47, SESSION),
    c.CloseSession(48, SESSION, "ann", "it hangs"),
    c.Login(49, "SCRAM-SHA-256", b"n,,n=alice,r=abc", c.FormerSession(SESSION, NONCE, SECRET)),
    c.AlterUser(50, ALICE, ["scram", "roles"], c.Existing.NO),
    c.RemoveUser(51, "alice"),
    c.ListUsers(52, "alice"),
    c.AlterRule(53, RULE, True),
    c.ListRules(54, 1000),
    c.SwitchAccess(55, c.Switch.ENABLE),
    c.CheckAccess(56, "alice", a.Right.DECIDE, a.Resource.TRANSACTION, "day-"),
    c.AskSchedule(57),
    c.CancelScheduled(58, PLACES),
    c.ShowScheduled(59, PLACES, True),
    c.ListScheduled(60, "orders", (7, 1 << 38), 10, "orders"),
    c.ReleaseScheduled(61),
    *queue_examples.REQUESTS,
]
ANSWERS = [
    c.Welcome(
        1,
        SESSION,
        1 << 24,
        1 << 24,
        "0123456789abcdef" * 2,
        NONCE,
        SECRET,
        10_000,
        "alice",
        b"v=abc",
        1 << 33,
        TIME,
    ),
    c.Done(2),
    c.Refused(3, "HeuristicallyCommitted", "text", {"wall": 3}, {"by": "ann"}),
    c.Sent(4, 1 << 40),
    c.ProducerOpened(5, 3, 4, [(1, 5)]),
    c.Topics(6, [c.TopicInfo("orders", [c.PartitionInfo(0, 1, 2, 3, 4, 5)], SETTINGS, ID)], True),
    c.Fetched(
        7, [c.FetchedPartition(1, 0, 2, 2, 3, "UnknownPartition", "text", None, None, b"\2\5", b"\2\2")]
    ),
    c.Offsets(8, [(1, 1 << 40)]),
    c.Committed(9, PLACED, True),
    c.Outcome(10, SESSION, 7, State.COMMITTED, Cause.OPERATOR, "ann", "why", PLACED, True, TIME, "ops"),
    c.Transactions(11, [INFO], True),
    c.TransactionShown(12, INFO, [(1, 57)], [("group", OFFSETS[0])], [(1, 3, 300)], PLACED, "damaged"),
    c.GroupOffsets(13, [c.GroupOffset(1, None, 2, "note", "4294967297-7 1:x:y")], ID),
    c.Claimed(14, [(1, 2)]),
    c.Groups(15, [c.GroupInfo("group", [("orders", 0, 5, 2)], ID)], True),
    c.Status(16, {"sends": 1, "rate": 0.5, "state": "up"}),
    c.TimedAnswer(17, c.Sent(17, 1 << 40), c.Times(1, 2, 3, 4, 5, 6)),
    c.FilesPinned(18, 1 << 40, True),
    c.Joined(31, SESSION, SECRET),
    c.Attended(32, [c.AssignedPartition(3, 1 << 40, "orders", 2)], [2], [1]),
    c.GroupMembers(
        34,
        "members",
        [c.MemberInfo(SESSION, "me", "worker-3", "host:1", 7, ["orders"], "pay-*")],
        [
            c.MemberPartition(
                "orders", 2, None, 5, 1 << 40, SESSION, True, "4294967297-7 1:x:y", 9, "w", 1 << 33
            )
        ],
        ID,
        g.GroupSettings(RULES, 0, ["eu"]),
    ),
    c.MessagesFound(40, [5, 1 << 40], 1 << 40, 3, 1 << 41),
    c.Parked(27, [c.ParkedOffset(1 << 40, 3, 1 << 33, "why", False, True)], True, ID),
    c.StreamHeld(44, EPOCH, 1 << 40, EPOCH),
    c.Streams(46, [c.StreamInfo(ID, "0123456789abcdef", 1 << 40, 1 << 36, "me", 7)], True),
    c.GoingAway(0, "it is stopping", 1_000_000),
    c.Sessions(47, [c.SessionInfo(SESSION, "me", "anonymous", "[::1]:7", 1 << 40, 2, 3, 4, 5, 6)], True),
    c.Offered(1, 3, "txbroker", ["SCRAM-SHA-256", "ANONYMOUS"]),
    c.Challenge(49, b"r=abcdef,s=AAAA,i=15000"),
    c.Users(52, [c.UserInfo("alice", 15_000, ["CN=alice"], [TOKEN], ["loaders"], 2, QUOTAS)], True),
    c.Rules(54, [RULE], True, True, False),
    c.AccessChecked(56, True, [RULE]),
    c.ScheduleTold(57, [5, 6, 7, 8, 9, 10, 11, 12], TIME),
    c.ScheduledStates(58, [c.ScheduledState("sent", 2, TIME, 1, 1 << 40, "1:x:y", 57, "d")], TIME + 1),
    c.ScheduledList(60, [WAITS], TIME, (7, 1 << 38), True, True),
    *queue_examples.ANSWERS,
]

MESSAGE = frame.encode(b"hello", TIME, key=b"42", headers={"kind": b"new"})
INNER = frame.encode_inner(0, b"a", TIME) + frame.encode_inner(1, None, TIME + 1, b"k", {"h": b""})
# INNER as the packages compressed it (zstandard 0.25, lz4 4.4): what others of them write need not be the same bytes.
PACKED = {
    compression.ZSTD: "28b52ffd2053c501009402000000250004d237315c2800000000010200610000"
    "002e000101020000000a92c4016b9192a168c4000500200b52f9825d80e173400b",
    compression.LZ4: "5800000025000100c304d237315c28000000000102180053610000002e0c0001"
    "190003250013012500f000020000000a92c4016b9192a168c400",
}
OUTCOME = ArchivedOutcome(
    SESSION, 7, State.COMMITTED, Cause.OPERATOR, LSN, 1011, TIME, TIME - 3, TIME - 2, XID, ANN, "why", ME, True,
    5, 450, 2, 0xFFFFFFFF, [Part("orders", 0, 1, 1 << 40, 2, 200, 1), Part("orders", 3, 4, 0, 1, 100, 2),
    Part("txbroker.queue.9", 0, 9, 7, 2, 150, 3)], (2, 150),
)  # fmt: skip
ROLLED_BACK = ArchivedOutcome(
    SESSION, 8, State.ROLLED_BACK, Cause.RESTART, LSN, 1012, TIME, TIME - 3, 0, None, None, "", None, False, 1, 57, 1,
    3, [Part("orders", 0, 1, NEVER_PLACED, 1, 57, 3)],
)  # fmt: skip
ENVELOPE = seal(frame.encode(b"hello", TIME, b"42", {"txbroker.id": b"m1"}), 1 << 33, Clock.WALL, TIME + 1)
PLACES_MESSAGE = Places([(1, 1 << 40, [id_of(7, 1 << 38), id_of(0, 3)])], [id_of(2, 9)])
FILE_HEADER = journal_headers.FileHeader(1 << 36, 2, SALT, 1, (1 << 20) + 1, 64 << 20)
CHECKPOINT = (
    CheckpointHeader(LSN, LSN - 1, 2, 1018, SALT),
    {"catalog": [[1, 2], ["row"]], "transactions": [0]},
    [
        StoreState(
            1,
            "orders",
            0,
            3,
            1 << 40,
            1010,
            [SegmentState(3, 4096, 9, 5, 6, 0x1122334455667788, 0xCAFEBABE)],
            SETTINGS,
            (1 << 40) - 2,
        )
    ],
)


def schedule():
    """A state of the schedule: its clocks, what is over in two logs, what is held, and both timetables."""
    fold = ScheduleFold()
    fold.apply(1, r.Started(1, 1000, TIME, NONCE), b"")
    for offset in range(4):
        fold.see(0, offset, 7, Clock.ELAPSED, TIME + offset * 1_234_567)
        fold.see(7, offset, 8, Clock.WALL, TIME + offset * 7_200_000_000)
    fold.logs[0].seen = fold.logs[7].seen = 4
    fold.apply(2, r.Cancelled([(id_of(0, 1), 7)], 2000), b"")
    fold.apply(3, r.Due([], [], [], 3000, [(id_of(7, 0), 8)]), b"")
    taken = [(id_of(0, 3), 7)]
    fold.apply(4, r.TransactionPrepared(SESSION, 7, XID, None, 1010, 6, ME, [], [], taken), b"")
    fold.apply(5, r.WallClockTold(TIME + 10**10, 4000, True), b"")
    return fold


def queues():
    """A state of queues: an exchange that has taken messages, two queues, and bindings."""
    fold = QueuesFold()
    for number, name in ((5, "tasks"), (1 << 33, "more"), (7, q.waiting_queue_of(1 << 33))):
        made = r.TopicCreated(
            f"txbroker.queue.{number}", number, 1, SETTINGS, 1003, ID, ANN, replace(QUEUE, name=name)
        )
        fold.apply(1, made, b"")
    fold.apply(2, r.ExchangeDeclared("orders", 1 << 33, EXCHANGE, 1031), b"")
    fold.apply(3, r.Bound(replace(BINDING, to_exchange=False), 1033), b"")
    fold.apply(4, r.Bound(q.Binding("amq.topic", "", "orders", True), 1034), b"")
    fold.apply(5, r.Published(-(1 << 34), 0, 3, [], [], 1035), b"")
    return fold


def packed_record(each):
    data = MESSAGE if isinstance(each, CARRYING) else b""
    return record.pack(each, data, record.seed(SALT, LSN)) + data


def packed_group():
    bodies = [
        record.pack(each, b"", record.seed(SALT, LSN + n)) for n, each in enumerate([r.Mark(1), r.Mark(2)])
    ]
    body = b"".join(bodies)
    crc = journal_headers.body_checksum(bodies)
    return journal_headers.pack_group_header(len(body), 2, LSN, LSN - 1, crc, SALT) + body


def packed_checkpoint():
    filesystem = MemoryFilesystem()
    filesystem.make_directory(filenames.CHECKPOINT_DIRECTORY)
    header, folds, stores = CHECKPOINT
    checkpoint.write_checkpoint(filesystem, header, {n: iter(rows) for n, rows in folds.items()}, stores)
    file = filesystem.open(filenames.checkpoint_file(LSN))
    return file.read(0, file.size())


def named(values, pack):
    """By their text, which names every field: two of one type that change places leave the bytes as they were."""
    return {repr(each): pack(each) for each in values}


def written():
    """What today's code writes: file → name → bytes."""
    return {
        "frames": {
            "message": MESSAGE,
            "tombstone": frame.encode(None, -1),
            "wrapper": frame.encode_wrapper(INNER, 2, TIME),
            **{
                f"wrapper, {codec.name}": frame.encode_wrapper(
                    compression.SIZE.pack(len(INNER)) + bytes.fromhex(packed), 2, TIME, codec.number
                )
                for codec, packed in PACKED.items()
            },
        },
        "records": named(RECORDS, packed_record),
        "schedule": {
            "envelope": ENVELOPE,
            "places": pack_places(PLACES_MESSAGE, TIME),
            **{f"row {n}": msgspec.msgpack.encode(row) for n, row in enumerate(schedule().snapshot())},
        },
        "queues": {f"row {n}": msgspec.msgpack.encode(row) for n, row in enumerate(queues().snapshot())},
        "outcomes": named([OUTCOME, ROLLED_BACK], outcome_entry.pack),
        "journal_file": {
            "header": journal_headers.pack_file_header(FILE_HEADER)[:BLOCK].rstrip(b"\0"),
            "group": packed_group(),
        },
        "checkpoint": {"checkpoint": packed_checkpoint()},
        "requests": named(
            REQUESTS, lambda each: codec.encode(each, MESSAGE if isinstance(each, c.Send | c.Add) else b"")
        ),
        "answers": named(ANSWERS, codec.encode),
    }


def text_of(entries):
    """A line with each name, then its bytes, 32 to a line."""
    lines = []
    for name, data in entries.items():
        lines += [f"# {name}", *(data[n : n + 32].hex(" ", -4) for n in range(0, len(data), 32))]
    return "\n".join(lines) + "\n"


def golden(file):
    found, name = {}, ""
    for line in (FOLDER / f"{file}.hex").read_text().splitlines():
        if line.startswith("# "):
            name = line[2:]
            found[name] = b""
        else:
            found[name] += bytes.fromhex(line)
    return found


ENTRIES = [(file, name) for file, entries in written().items() for name in entries]


@pytest.mark.parametrize(("file", "name"), ENTRIES, ids=lambda text: text.partition("(")[0])
def test_todays_code_writes_the_bytes_that_were_pinned(file, name):
    assert written()[file][name] == golden(file)[name]


@pytest.mark.parametrize("file", written())
def test_nothing_that_was_pinned_is_no_longer_written(file):
    assert list(golden(file)) == list(written()[file])


def test_there_is_an_example_of_every_kind():
    for examples, kinds in ((RECORDS, r.AnyRecord), (REQUESTS, c.AnyRequest), (ANSWERS, c.AnyAnswer)):
        assert [type(each) for each in examples] == list(typing.get_args(kinds))


@pytest.mark.parametrize("each", RECORDS, ids=lambda each: type(each).__name__)
def test_a_pinned_record_is_read_with_its_data(each):
    data = golden("records")[repr(each)]
    unpacked = record.unpack(memoryview(data), 0, record.seed(SALT, LSN), "f")
    assert (unpacked.record, bytes(unpacked.data)) == (each, MESSAGE if isinstance(each, CARRYING) else b"")


@pytest.mark.parametrize("each", REQUESTS + ANSWERS, ids=lambda each: type(each).__name__)
def test_a_pinned_message_is_read_with_its_data(each):
    request = isinstance(each, c.Request)
    decoder = (codec.request_decoder if request else codec.answer_decoder)(1 << 20)
    data = golden("requests" if request else "answers")[repr(each)]
    [(head, frames)] = decoder.feed(data)
    assert (head, bytes(frames)) == (each, MESSAGE if isinstance(each, c.Send | c.Add) else b"")


def test_pinned_frames_are_read():
    pinned = golden("frames")
    assert [frame_check.check_run(data) for data in pinned.values()] == [1, 1, 2, 2, 2]
    assert [m for data in pinned.values() for m in frame.decode_run(data)] == [
        frame.Message(0, TIME, b"42", b"hello", (("kind", b"new"),)),
        frame.Message(0, -1, None, None, ()),
        *[
            frame.Message(0, TIME, None, b"a", ()),
            frame.Message(1, TIME + 1, b"k", None, (("h", b""),)),
        ]
        * 3,
    ]


def test_pinned_outcomes_are_read():
    payloads = [frame.decode_run(data)[0].value for data in golden("outcomes").values()]
    assert [outcome_entry.unpack(each) for each in payloads] == [OUTCOME, ROLLED_BACK]


def test_a_pinned_schedule_is_read():
    envelope, places, *rows = golden("schedule").values()
    [found] = envelopes(envelope)
    assert (found.partition, found.clock, found.due) == (1 << 33, Clock.WALL, TIME + 1)
    [message] = frame.decode_run(found.frame)
    assert (message.value, message.headers) == (b"hello", (("txbroker.id", b"m1"),))
    assert frame.decode_run(envelope)[0].headers == (("txbroker.id", b"m1"),)
    assert unpack_places(frame.decode_run(places)[0].value) == PLACES_MESSAGE
    reader = RowReader([msgspec.msgpack.decode(row) for row in rows])
    ScheduleFold.read(reader)
    fold = ScheduleFold()
    fold.restore(reader.typed)
    assert list(fold.facts()) == list(schedule().facts())
    assert [sorted(each.entries()) for each in fold.timetables.values()] == [
        sorted(each.entries()) for each in schedule().timetables.values()
    ]


def test_pinned_queues_are_read():
    reader = RowReader([msgspec.msgpack.decode(row) for row in golden("queues").values()])
    QueuesFold.read(reader)
    fold = QueuesFold()
    fold.restore(reader.typed)
    assert list(fold.facts()) == list(queues().facts())


def test_a_pinned_journal_file_is_read():
    header, group = golden("journal_file").values()
    data = header.ljust(2 * BLOCK, b"\0") + group
    assert journal_headers.unpack_file_header(data, "f") == FILE_HEADER
    found = journal_headers.unpack_group_header(memoryview(data), 2 * BLOCK, SALT)
    assert found == (len(group) - 40, 2, LSN, LSN - 1, journal_headers.body_checksum([group[40:]]))
    found = records_of(data, FILE_HEADER._replace(first_lsn=LSN))
    assert [(each.lsn, each.record) for each in found] == [
        (LSN, r.Mark(1)),
        (LSN + 1, r.Mark(2)),
    ]


def test_a_pinned_checkpoint_is_read():
    filesystem = MemoryFilesystem()
    filesystem.make_directory(filenames.CHECKPOINT_DIRECTORY)
    file = filesystem.open(filenames.checkpoint_file(LSN), create=True)
    file.write_some(0, [golden("checkpoint")["checkpoint"]])
    found = checkpoint.read_checkpoint(filesystem, LSN)
    assert (found.header, found.folds, found.stores) == CHECKPOINT


if __name__ == "__main__":
    for file, entries in written().items():
        (FOLDER / f"{file}.hex").write_text(text_of(entries))
