"""Forged records, which no engine makes, with valid checksums: each alone, behind an engine's own records.

``REFUSED`` do not follow the records before them: a start refuses each of them. ``UNREADABLE`` have a form that no
record has. ``TOLD`` change nothing that a start could see, and a deep verification reports them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from journal.errors import InvalidFrame
from journal.folds.table import client_folds
from journal.formats import frame
from journal.interfaces import IFilesystem
from journal.parties import Actor
from journal.records import record
from journal.records.access_entries import Effect, Resource, Right, Rule, ScramVerifier, User
from journal.records.group_entries import (
    MAX_ATTEMPTS,
    MAX_PAUSE,
    ClaimKind,
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.journal_headers import pack_group_header
from journal.records.record import (
    AccessSet,
    AnyRecord,
    ArchiveSet,
    GroupAltered,
    GroupDeleted,
    Identified,
    LogStartMoved,
    Messages,
    OffsetsCommitted,
    PartitionsAdded,
    PartitionsClaimed,
    Placement,
    ProducersExpired,
    RuleSet,
    Run,
    Started,
    StreamClaimed,
    StreamReleased,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionAdded,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
    UserRemoved,
    UserSet,
)
from journal.records.stream_entries import Delivered
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.vfs.file_window import window
from journal.wal.reader import FileReader, JournalEntry
from journal.walks.journal_walk import surveyed, walk_journal
from tests.support.engine_room import SMALL, Room, run_of, xid_of

SESSION = 1 << 32 | 7
NEW = TransactionNumber(SESSION, 900)
Made = tuple[AnyRecord, bytes]
"""A record and its data."""
GROUP_ID = b"i" * 16


class Scene(NamedTuple):
    """A directory with a topic of two partitions, a group, and transactions that are prepared or active."""

    room: Room
    prepared: TransactionNumber
    active: TransactionNumber


def scene(checkpoint: bool = False) -> Scene:
    """Build the scene: partition 1 ends at offset 3, partition 2 at 1; group ``held`` is held in partition 2."""
    filesystem = MemoryFilesystem()
    room = Room(filesystem)
    room.engine.close()
    room.engine = engine = recover(filesystem, room.clock, SMALL, client_folds())
    room.topic()
    room.send(b"a", b"b")
    room.send(b"c", number=2)
    engine.accept(PartitionsClaimed("g", "m", [(1, 1)], engine.now(), GROUP_ID))
    engine.accept(Identified("a" * 32, engine.now()))
    room.begin((1, b"committed")).commit().sync()
    prepared = room.begin((1, b"p"), (2, b"p")).prepare("p").sync()
    holding = room.begin((2, b"q"))
    engine.transactions.add_offsets(holding.number, "held", [PartitionOffset(2, 1)])
    holding.totals = replace(holding.totals, requests=2)
    holding.prepare("holding").sync()
    active = room.begin((1, b"active")).sync()
    if checkpoint:
        room.checkpoint()
    return Scene(room, prepared.number, active.number)


def forged(at: Scene, *records: Made) -> MemoryFilesystem:
    """Return the directory after a kill, with these records behind the last of its journal."""
    filesystem = at.room.inner.kill_clone()
    append(filesystem, *records)
    return filesystem


def append(filesystem: IFilesystem, *records: Made) -> int:
    """Append a group of these records to the newest file; return its LSN."""
    file = surveyed(filesystem)[-1]
    assert file.header is not None
    with window(filesystem, file.path) as bytes_of:
        *_, end = FileReader(bytes_of, file.path, file.header).groups()
    salt, lsn = file.header.salt, end.next_lsn
    timed = [_timed(each, data, _wall_offset(filesystem)) for each, data in records]
    body = b"".join(
        record.pack(each, data, record.seed(salt, at)) + data for at, (each, data) in enumerate(timed, lsn)
    )
    header = pack_group_header(len(body), len(records), lsn, lsn - 1, crc32c(body), salt)
    opened = filesystem.open(file.path)
    opened.write_some(end.position, [header + body])
    opened.force()
    opened.close()
    return lsn


def _wall_offset(filesystem: IFilesystem) -> int:
    """Return the wall clock at journal time 0, as the newest start of the journal says it."""
    starts = [
        each.record
        for each in walk_journal(filesystem)
        if isinstance(each, JournalEntry) and isinstance(each.record, Started)
    ]
    return starts[-1].wall - starts[-1].at


def _timed(each: AnyRecord, data: bytes, wall_offset: int) -> Made:
    """Return a record whose frames, if they are stamped, have its append time."""
    found = bytearray(data)
    if isinstance(each, Messages | TransactionCommitted):
        nowhere = [run.start for run in getattr(each, "runs", []) if not run.partition]
        with suppress(InvalidFrame):  # some are forged so
            for position, *_ in frame.walk(data):
                if position not in nowhere:
                    found[position + 16 : position + 24] = (each.at + wall_offset).to_bytes(8)
    return each, bytes(found)


def stamped(base: int, *values: bytes) -> bytes:
    """Return a run with dense offsets; :func:`append` gives it its time."""
    frame.stamp(memoryview(data := bytearray(run_of(*values))), base, 0)
    return bytes(data)


def commit(*runs: tuple[int, int], number: TransactionNumber = NEW, **fields: Any) -> Made:
    """Return a sound commit of everything that its transaction has: a message for each (partition, offset); then
    ``fields``.
    """
    made, data, counts = [], b"", {}
    sums: dict[int, int] = {}
    checksum = 0
    for partition, base in runs or [(1, 3)]:
        sent = run_of(b"v")
        sums[partition] = crc32c(sent, sums.get(partition, 0))
        checksum = crc32c(sent, checksum)
        made.append(Run(partition, 1, len(data), sums[partition]))
        first, count = counts.get(partition, (base, 0))
        counts[partition] = first, count + 1
        data += stamped(base, b"v")
    placements = [Placement(partition, *where) for partition, where in counts.items()]
    sound = TransactionCommitted(*number, placements, 10**9, Cause.CLIENT, runs=made, checksum=checksum)
    data = fields.pop("data", data)
    if "positions" in fields:
        fields["settles"] = fields.pop("positions")
    return replace(sound, **fields), data


STREAM = b"s" * 16


def delivery(claim: int, number: int = 7, serial: int = NEW.serial, base: int = 3) -> Made:
    """Return a sound commit of a message that delivers a number of a stream under the claim at that LSN."""
    settles = [Delivered(STREAM, claim, number)]
    return commit((1, base), number=TransactionNumber(SESSION, serial), settles=settles)


def _claim(table: str = "table", generation: int = 1) -> Made:
    return plain(StreamClaimed(STREAM, table, generation, bytes(16), "m", 10**9))


def prepare(*partitions: int, number: TransactionNumber = NEW, **fields: Any) -> Made:
    """Return a sound prepare with everything that its transaction has: a message for each of these; then ``fields``."""
    made, data = [], b""
    sums: dict[int, int] = {}
    for partition in partitions or [1]:
        sent = run_of(b"v")
        sums[partition] = crc32c(sent, sums.get(partition, 0))
        made.append(Run(partition, 1, len(data), sums[partition]))
        data += sent
    sound = TransactionPrepared(*number, xid_of("new"), None, 10**9, 0, None, made)
    data = fields.pop("data", data)
    return replace(sound, **fields), data


def moved(*offsets: PartitionOffset, group: str = "g", group_id: bytes = GROUP_ID) -> dict[str, Any]:
    """Return the positions of a deciding record."""
    return {"positions": [GroupPositions(group, group_id, list(offsets))]}


def settles(*settled: Settled, group: str = "g") -> Made:
    """What a group settles outside a transaction."""
    return plain(OffsetsCommitted(group, [], 10**9, GROUP_ID, list(settled)))


def alike(bad: int = -1, **fields: Any) -> list[Made]:
    """Return forty similar commits, as a start reads many at a time; one of them differs."""
    made = []
    for n in range(40):
        each, data = commit((1, 3 + n), number=TransactionNumber(SESSION, 900 + n))
        made.append((replace(each, **fields) if n == bad else each, data))
    return made


def rollback(number: TransactionNumber) -> Made:
    """Return the decision against the transaction."""
    return TransactionRolledBack(*number, 10**9, Cause.CLIENT), b""


def plain(made: AnyRecord) -> Made:
    """Return a record without data."""
    return made, b""


Forge = Callable[[Scene], list[Made]]


def _created(at: Scene, name: str, first: int) -> Made:
    return plain(TopicCreated(name, first, 1, at.room.store().settings, 10**9, GROUP_ID))


def grown(at: Scene, index: int, first: int, topic: str = "t", partitions: int = 1) -> Made:
    """Return the record that gives a topic more partitions, from that index and number on."""
    added = PartitionsAdded(index, first, partitions)
    return plain(TopicAltered(topic, at.room.store().settings, 10**9, added))


def retrying(
    attempts: int = 3,
    pause: int = 0,
    longest: int = MAX_PAUSE,
    ending: int = Ending.STOP,
    *,
    group: str = "g",
    group_id: bytes = b"",
) -> Made:
    """Return the record by which a group tries messages again by these rules; not all of these are some."""
    rules = RetryRules(attempts, pause, longest, ending)  # type: ignore[arg-type]
    return plain(GroupAltered(group, GroupSettings(rules), 10**9, group_id))


ANN = Actor("ann", "")


def switched(key: int = 1, *, on: bool = False) -> Made:
    """Return the record that gives the logins this key, and says whether one is demanded."""
    return plain(AccessSet(on, True, bytes([key]) * 32, ANN, 10**9))


def user(name: str = "alice", **ways: Any) -> Made:
    """Return the record of a user with these ways in."""
    return plain(UserSet(User(name, **ways), ANN, 10**9))


def verifier(iterations: int = 4096, salt: int = 16, key: int = 32) -> ScramVerifier:
    """Return the verifier of a password, with keys and a salt of so many bytes."""
    return ScramVerifier(bytes(salt), iterations, bytes(key), bytes(key))


def rule(*rights: Right, holder: str = "alice", pattern: str = "t") -> Made:
    """Return the record of a rule with these rights."""
    return plain(RuleSet(Rule(holder, Effect.ALLOW, Resource.TOPIC, pattern, False, [*rights]), ANN, 10**9))


def _runs(kind: Callable[..., Made], *places: tuple[int, int, int], **fields: Any) -> Made:
    """Return a record with one message for 1 and one for 2, but with these runs: (partition, count, start)."""
    sound, data = kind((1, 3), (2, 1)) if kind is commit else kind(1, 2)
    return replace(sound, runs=[Run(*place, 0) for place in places], **fields), fields.pop("data", data)


SIZE = len(run_of(b"v"))
REFUSED: dict[str, Forge] = {}
UNREADABLE: dict[str, Forge] = {}
TOLD: dict[str, Forge] = {
    "a one-phase commit with another checksum of its run": lambda _: [commit(runs=[Run(1, 1, 0, 7)])],
    "a one-phase commit with another checksum of all": lambda _: [commit(checksum=7)],
    "a one-phase commit that says that more was added before": lambda _: [commit(totals=Totals(5, 5, 5))],
    "a prepare with another checksum of its run": lambda _: [prepare(runs=[Run(1, 1, 0, 7)])],
    "a prepare that says that more was added before": lambda _: [prepare(totals=Totals(5, 5, 5))],
}
for _name, _kind in (("a one-phase commit", commit), ("a prepare", prepare)):
    for _what, _places in {
        "of a partition that is not there": [(1, 1, 0), (9, 1, SIZE)],
        "whose run starts beyond its data": [(1, 1, 0), (2, 1, 10**6)],
        "whose only run starts beyond its data": [(1, 2, 10**6)],
        "whose first run does not start with its data": [(1, 1, 4), (2, 1, SIZE)],
        "whose runs overlap": [(1, 1, 0), (2, 1, 3)],
        "whose runs are not in order": [(2, 1, SIZE), (1, 1, 0)],
        "whose run starts within a frame": [(1, 1, 0), (2, 1, SIZE + 10)],
        "with a run of no bytes": [(1, 1, 0), (2, 1, 0)],
        "whose runs hold other counts": [(1, 3, 0), (2, 1, SIZE)],
        "with a huge count": [(1, 1 << 63, 0), (2, 1, SIZE)],
        "with data and no runs": [],
    }.items():
        REFUSED[f"{_name} {_what}"] = lambda _, kind=_kind, places=_places: [_runs(kind, *places)]
    for _what, _places in {
        "with a negative start": [(1, 1, 0), (2, 1, -5)],
        "with a negative count": [(1, -1, 0), (2, 1, SIZE)],
        "with a count of none": [(1, 0, 0), (2, 1, SIZE)],
        "with a negative partition": [(-1, 1, 0), (2, 1, SIZE)],
    }.items():
        UNREADABLE[f"{_name} {_what}"] = lambda _, kind=_kind, places=_places: [_runs(kind, *places)]
    for _what, _settled in {
        "with a negative base": Settled(1, 1, -1),
        "with negative attempts": Settled(1, 1, 0, b"", [Unfinished(5, -1)]),
        "with a negative due time": Settled(1, 1, 0, b"", [Unfinished(5, 1, -1)]),
        "with a negative unfinished offset": Settled(1, 1, 0, b"", [Unfinished(-5, 1)]),
    }.items():
        UNREADABLE[f"{_name} {_what}"] = lambda _, kind=_kind, settled=_settled: [
            kind(positions=[GroupPositions("g", GROUP_ID, [], [settled])])
        ]
    UNREADABLE[f"{_name} of a negative session"] = lambda _, kind=_kind: [
        kind(number=TransactionNumber(-1, 3))
    ]
    REFUSED |= {
        f"{_name} without its data": lambda _, kind=_kind: [kind(data=b"")],
        f"{_name} whose data are no frames": lambda _, kind=_kind: [kind(data=b"\xff" * 50)],
        f"{_name} whose data end within a frame": lambda _, kind=_kind: [kind(data=run_of(b"v")[:-1])],
        f"{_name} that moves what another transaction holds": lambda _, kind=_kind: [
            kind(**moved(PartitionOffset(2, 1), group="held"))
        ],
        f"{_name} that settles what another transaction holds": lambda _, kind=_kind: [
            kind(positions=[GroupPositions("held", GROUP_ID, [], [Settled(2, 0, 0, b"\x02\x01")])])
        ],
        f"{_name} with a set of offsets that is none": lambda _, kind=_kind: [
            kind(positions=[GroupPositions("g", GROUP_ID, [], [Settled(1, 1, 0, b"\x02\x00")])])
        ],
        f"{_name} of what was rolled back": lambda _, kind=_kind: [rollback(NEW), kind()],
        f"{_name} of what was committed": lambda _, kind=_kind: [
            commit(),
            kind() if kind is prepare else commit((1, 4)),
        ],
    }
UNREADABLE |= {
    "more partitions, which are none": lambda at: [grown(at, 2, 3, partitions=0)],
    "more partitions from a negative index on": lambda at: [grown(at, -2, 3)],
    "more partitions with negative numbers": lambda at: [grown(at, 2, -3)],
    "a group that gives up without an attempt": lambda _: [retrying(0)],
    "a group that gives up after too many attempts": lambda _: [retrying(MAX_ATTEMPTS + 1)],
    "a group that waits a negative time": lambda _: [retrying(pause=-1)],
    "a group that waits too long": lambda _: [retrying(pause=MAX_PAUSE + 1)],
    "a group that waits a negative time at the longest": lambda _: [retrying(longest=-1)],
    "a group that waits too long at the longest": lambda _: [retrying(longest=MAX_PAUSE + 1)],
    "a group that gives up in an unknown way": lambda _: [retrying(ending=7)],
    "a user whose name is none": lambda _: [user("al ice")],
    "a user with a role whose name is none": lambda _: [user(roles=["role:a"])],
    "a user with a certificate without a name": lambda _: [user(certificates=[""])],
    "a user with too many certificates": lambda _: [user(certificates=["DNS:a"] * 17)],
    "a password that is proven too easily": lambda _: [user(scram=verifier(iterations=4095))],
    "a password that takes too long to prove": lambda _: [user(scram=verifier(iterations=1_000_001))],
    "a password with too little salt": lambda _: [user(scram=verifier(salt=15))],
    "a password with too short keys": lambda _: [user(scram=verifier(key=31))],
    "the end of a user whose name is none": lambda _: [plain(UserRemoved("", ANN, 10**9))],
    "a rule about nobody": lambda _: [rule(Right.READ, holder="")],
    "a rule about too long a name": lambda _: [rule(Right.READ, pattern="t" * 256)],
    "a rule with a right that there is not": lambda _: [rule("fly")],  # type: ignore[arg-type]
    "too short a key of the logins": lambda _: [plain(AccessSet(True, True, bytes(31), ANN, 10**9))],
}
REFUSED |= {
    "a commit that is rolled back": lambda _: [commit(), rollback(NEW)],
    "a prepare of what is prepared": lambda _: [prepare(), prepare(xid=xid_of("other"))],
    "a prepare by the xid of another transaction": lambda _: [prepare(xid=xid_of("p"))],
    "an add to what is prepared": lambda at: [(TransactionAdded(*at.prepared, 1, 1, 10**9, 0), run_of(b"z"))],
    "an add for a partition that is not there": lambda at: [
        (TransactionAdded(*at.active, 9, 1, 10**9, 0), run_of(b"z"))
    ],
    "positions for what is prepared": lambda at: [
        plain(TransactionOffsetsAdded(*at.prepared, "g", [PartitionOffset(1, 1, 1)], 10**9, 0))
    ],
    "a commit that places less than was prepared": lambda at: [
        plain(TransactionCommitted(*at.prepared, [Placement(1, 3, 1)], 10**9, Cause.CLIENT))
    ],
    "a commit that places in a partition that is not there, too": lambda at: [
        plain(
            TransactionCommitted(
                *at.prepared,
                [Placement(n, base, 1) for n, base in ((1, 3), (2, 1), (9, 0))],
                10**9,
                Cause.CLIENT,
            )
        )
    ],
    "a commit that places beyond the end": lambda _: [commit((1, 50))],
    "a commit that places elsewhere": lambda _: [commit(placements=[Placement(2, 1, 1)])],
    "a commit that places nothing": lambda _: [commit(placements=[])],
    "a commit of messages that nobody has sent": lambda _: [
        plain(TransactionCommitted(*NEW, [Placement(1, 3, 1)], 10**9, Cause.CLIENT))
    ],
    "a commit amid many for a partition that is not there": lambda _: alike(
        20, placements=[Placement(9, 0, 1)], runs=[Run(9, 1, 0, 0)]
    ),
    "a commit amid many of another's number": lambda _: alike(20, serial=919),
    "a commit amid many that leaves a gap": lambda _: alike(20, placements=[Placement(1, 99, 1)]),
    "a commit amid many that says another count": lambda _: alike(
        20, placements=[Placement(1, 23, 2)], runs=[Run(1, 2, 0, 0)]
    ),
    "messages for a partition that is not there": lambda _: [(Messages(9, 0, 1, 10**9), stamped(0, b"v"))],
    "messages that say another count": lambda _: [(Messages(1, 3, 2, 10**9), stamped(3, b"v"))],
    "messages of a producer that nobody opened": lambda _: [
        (Messages(1, 3, 1, 10**9, 44, 1, 0), stamped(3, b"v"))
    ],
    "a generation that goes back": lambda _: [plain(PartitionsClaimed("g", "m", [(1, 1)], 10**9))],
    "a claim for a member where others are claimed without one": lambda _: [
        plain(PartitionsClaimed("g", "m", [(2, 9)], 10**9, kind=ClaimKind.MEMBER))
    ],
    "a delivery of a stream that nobody has claimed": lambda _: [delivery(claim=5)],
    "a delivery under another claim than the newest": lambda _: [_claim(), delivery(claim=5)],
    "a delivery of what is delivered": lambda at: [
        _claim(),
        delivery(claim=at.room.engine.next_lsn),
        delivery(claim=at.room.engine.next_lsn, number=7, serial=901, base=4),
    ],
    "a claim for another table": lambda _: [_claim(), _claim(table="another")],
    "a claim by which a generation goes back": lambda _: [_claim(generation=3), _claim(generation=2)],
    "a release by which a generation goes back": lambda _: [
        _claim(generation=3),
        plain(StreamReleased(STREAM, 2, 10**9)),
    ],
    "the release of a stream that is not known": lambda _: [plain(StreamReleased(STREAM, 1, 10**9))],
    "an alteration of a group that is not there, without an id for it": lambda _: [retrying(group="z")],
    "an alteration to nothing of a group that is not there": lambda _: [
        plain(GroupAltered("z", GroupSettings(), 10**9))
    ],
    "the end of a group that is not there": lambda _: [plain(GroupDeleted("z", 10**9))],
    "the end of a producer that is not there": lambda _: [plain(ProducersExpired([5], 10**9))],
    "a topic that is there": lambda at: [_created(at, "t", 3)],
    "a topic with a partition of a later number": lambda at: [_created(at, "u", 7)],
    "the end of a topic that is not there": lambda _: [plain(TopicDeleted("z", 10**9))],
    "the end of a topic that transactions have messages for": lambda _: [plain(TopicDeleted("t", 10**9))],
    "a log that starts beyond its end": lambda _: [plain(LogStartMoved(1, 100, 10**9))],
    "the start of a log that is not there": lambda _: [plain(LogStartMoved(9, 0, 10**9))],
    "an alteration of a topic that is not there": lambda at: [
        plain(TopicAltered("nothing", at.room.store().settings, 10**9))
    ],
    "more partitions for a topic that is not there": lambda at: [grown(at, 0, 3, "nothing")],
    "more partitions that overlap those of another topic": lambda at: [grown(at, 2, 2)],
    "more partitions that skip a number": lambda at: [grown(at, 2, 4)],
    "more partitions with an index that there is": lambda at: [grown(at, 1, 3)],
    "more partitions that skip an index": lambda at: [grown(at, 3, 3)],
    "the same more partitions twice": lambda at: [grown(at, 2, 3)] * 2,
    "the end of a topic that transactions have messages for in a partition that it got later": lambda at: [
        _created(at, "u", 3),
        grown(at, 1, 4, "u"),
        (TransactionAdded(*at.active, 4, 1, 10**9, 0), run_of(b"z")),
        plain(TopicDeleted("u", 10**9)),
    ],
    "an archive without a log": lambda at: [plain(ArchiveSet(True, at.room.store().settings, 10**9))],
    "the end of a group of which a transaction holds offsets": lambda _: [
        plain(OffsetsCommitted("held", [], 10**9, GROUP_ID)),
        plain(GroupDeleted("held", 10**9)),
    ],
    "a set of offsets that is none": lambda _: [settles(Settled(1, 1, 0, b"\x07"))],
    "a set of offsets in another form": lambda _: [settles(Settled(1, 1, 0, b"\x01\x00\x01"))],
    "a set of offsets too far above its base": lambda _: [
        settles(Settled(1, 1, 0, b"\x01\x01\xff\xff\xff\x01"))
    ],
    "a set of offsets that never ends": lambda _: [settles(Settled(1, 1, 0, b"\x01" + b"\xff" * 100))],
    "many sets of offsets": lambda _: [
        settles(*[Settled(number, 0, 0, b"\x01\x01\xff\xff\x3f") for number in range(5000)])
    ],
    "large sets of offsets": lambda _: [settles(*[Settled(1, 1, 0, b"\x02" + b"\x55" * 40_000)] * 2)],
    "an offset far below what is finished that is unfinished again": lambda _: [
        settles(Settled(1, 1, 1 << 60)),
        settles(Settled(1, 1, 0, b"", [Unfinished(5, 1)])),
    ],
    "offsets that are tried again in the words of a request": lambda _: [
        settles(Settled(1, 1, 0, retried=[Retried(5)]))
    ],
    "a claim that settles with a set of offsets that is none": lambda _: [
        plain(PartitionsClaimed("g", "m", [(2, 9)], 10**9, b"", [Settled(1, 1, 0, b"\x07")]))
    ],
    "an add of a set of offsets that is none": lambda at: [
        plain(TransactionOffsetsAdded(*at.active, "g", [], 10**9, 0, settled=[Settled(1, 1, 0, b"\x07")]))
    ],
    "settled offsets that another transaction holds": lambda _: [
        settles(Settled(2, 0, 0, b"\x02\x01"), group="held")
    ],
    "the end of a user that is not there": lambda _: [plain(UserRemoved("alice", ANN, 10**9))],
    "the end of a user twice": lambda _: [user(), *[plain(UserRemoved("alice", ANN, 10**9))] * 2],
    "the end of a rule that is not there": lambda _: [rule()],
    "the end of a rule about another name": lambda _: [rule(Right.READ), rule(pattern="u")],
    "another key of the logins": lambda _: [switched(1), switched(2)],
    "a second identity": lambda _: [plain(Identified("b" * 32, 10**9))],
    "a start of another number than its file": lambda _: [plain(Started(9, 10**9, 0, bytes(16)))],
}


def started(filesystem: IFilesystem) -> None:
    """Run a start that ends what is prepared, writes a checkpoint and stops."""
    engine = recover(filesystem, ManualClock(monotonic=5_000_000), SMALL, client_folds())
    for number in list(engine.transactions.prepared):
        engine.transactions.rollback(number, Cause.OPERATOR)
    engine.mark()
    engine.sync()
    engine.housekeeping.checkpoint_inline()
    engine.close()
