"""Data directories for audits: their content is known, and damage to them has valid checksums."""

from __future__ import annotations

import shutil
from pathlib import Path

from crc32c import crc32c

import journal
from journal.engine.settings import JournalSettings
from journal.formats import frame
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.vfs.filesystem import OSFilesystem
from journal.walks.segment_walk import FrameEntry, partitions, segments, walk_segment
from journal.xid import Xid
from spark.audit.audit import DAY, INNER, PARTS
from spark.audit.checks.shifts import Shifted
from spark.audit.checks.slice_check import Limits, check_slice, joined
from spark.audit.checks.uncommitted import arranged
from spark.audit.claims.decided_from import Known, highest
from spark.audit.claims.directory import Directory, look, undecided, verified, waiting
from spark.audit.claims.entries import NEVER, SHAPE, archive_facts, remembered_facts
from spark.audit.claims.facts import What
from spark.audit.claims.journal_fold import journal_facts
from spark.audit.claims.log_tails import check_tail
from tests.spark.directories import wrapper_of

SETTINGS = JournalSettings(outcome_archive=True, file_bytes=1 << 20, low_water_bytes=0)
MINUTE = 60_000_000
START = 1_700_000_000_000_000


class Making:
    """Fills a directory through the engine. Times of messages are given, a second apart."""

    def __init__(self, path: Path, settings: JournalSettings = SETTINGS, **topic: int) -> None:
        self.path = path
        self.log = journal.open(path, settings)
        self.engine = self.log.engine
        self.log.create_topic("a", 2, **topic)
        self.numbers = [store.number for store in self.engine.catalog.topic("a").partitions]
        self.time = START
        self._serial = 0

    @classmethod
    def again(cls, path: Path, settings: JournalSettings = SETTINGS) -> Making:
        """Another start of a directory that there is."""
        self = cls.__new__(cls)
        self.path, self.log = path, journal.open(path, settings)
        self.engine = self.log.engine
        self.numbers = [store.number for store in self.engine.catalog.topic("a").partitions]
        self.time, self._serial = START + 10**9, 0
        return self

    def frames(self, *values: bytes, key: bytes | None = None) -> bytes:
        made = b""
        for value in values:
            self.time += 1_000_000
            made += frame.encode(value, self.time, key)
        return made

    def send(self, partition: int, *values: bytes) -> int:
        frames = self.frames(*values)
        base = self.engine.append(self.engine.catalog.stores[self.numbers[partition]], frames, len(values))
        self.engine.sync()
        return base

    def batch(self, partition: int, *values: bytes, codec: str | None = None) -> None:
        self.time += 1_000_000
        inner = b"".join(frame.encode_inner(n, value, self.time) for n, value in enumerate(values))
        wrapper = wrapper_of(inner, len(values), self.time, codec)
        self.engine.append(self.engine.catalog.stores[self.numbers[partition]], wrapper, len(values))
        self.engine.sync()

    def transaction(self, *adds: tuple[int, bytes], end: str = "commit", xid: str = "") -> TransactionNumber:
        """``end``: commit, rollback, prepare, or two (prepare, then commit)."""
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 9, self._serial)
        totals = Totals(0, 0, 0)
        transactions = self.engine.transactions
        for partition, value in adds:
            frames = self.frames(value)
            transactions.add(number, self.numbers[partition], frames, 1)
            totals = Totals(totals.messages + 1, totals.requests + 1, crc32c(frames, totals.checksum))
        if end in ("prepare", "two"):
            transactions.prepare(number, Xid(1, xid.encode() or b"x%d" % self._serial, b""), totals)
        if end == "commit":
            transactions.commit(number, Cause.CLIENT, totals)
        elif end == "two":
            transactions.commit(number, Cause.CLIENT)
        elif end == "rollback":
            transactions.rollback(number, Cause.CLIENT)
        self.engine.sync()
        return number

    def checkpoint(self) -> None:
        self.engine.housekeeping.checkpoint_inline()

    def close(self) -> Path:
        self.checkpoint()
        self.log.close()
        return self.path


def some_of_everything(path: Path, rounds: int = 12, settings: JournalSettings = SETTINGS) -> Path:
    """Sends, batches, transactions of every end; the journal of the first half is gone."""
    made = Making(path, settings, segment_bytes=64 * 1024)
    for number in range(rounds):
        made.send(number % 2, b"plain %d" % number, b"v" * 300)
        made.batch(1, b"one", b"two %d" % number)
        made.transaction((0, b"a%d" % number), (1, b"b"), (0, b"c" * 200))
        made.transaction((0, b"two phases %d" % number), end="two")
        made.transaction((1, b"never %d" % number), (1, b"never"), end="rollback")
        if number == rounds // 2:
            for _ in range(3):
                made.send(0, b"filling %d" % number + b"f" * 400_000)
                made.send(1, b"g" * 400_000)
                made.checkpoint()
    made.transaction((0, b"in doubt"), (1, b"in doubt"), end="prepare", xid="doubt")
    return made.close()


def copied(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to


def audited(path: Path, slice_bytes: int = 20_000, in_use: bool = False):
    """All facts of an audit, without Spark: what Spark brings together is brought together here."""
    return audited_as_seen(look(str(path), slice_bytes, in_use))


def audited_as_seen(directory: Directory):
    """All facts of an audit of a directory that has been looked at already."""
    root, in_use, live = directory.root, directory.in_use, directory.live
    ground, limits = directory.ground, Limits(directory.wall + DAY, MINUTE)
    said = list(undecided(directory))
    for part in directory.slices:
        if directory.archive is not None and part.number == directory.archive.number:
            said += archive_facts(root, part, ground)
    for file in directory.journal:
        said += journal_facts(root, file, ground)
    if directory.checkpoint.header.lsn:
        said += remembered_facts(root, ground)
    reached: dict[int, int] = {}
    for fact in said:
        if fact.what == What.END:
            reached[fact.number] = max(fact.last, reached.get(fact.number, 0))
    said += waiting(directory, reached)
    turned, gap = highest(said, What.TURNED), highest(said, What.GAP)
    known = Known.of(directory.archives, directory.first_lsn, turned, gap)
    claims = [fact for fact in said if fact.what == What.CLAIM and known.needs(fact)]
    shapes = arranged((fact for fact in said if fact.what == SHAPE and fact.messages), claims, directory)
    decided: dict[int, int] = {}
    for claim in claims:
        if claim.lsn >= known.since:
            decided[claim.number] = min(decided.get(claim.number, NEVER), claim.first)
    found = list(verified(root, not directory.archives or known.turned, in_use, live))
    for tail in directory.tails if known.whole else ():
        found += check_tail(directory.tails_root or root, tail, reached, in_use)
    claims.sort(key=lambda claim: claim.kind, reverse=True)
    for part in directory.slices:
        mine = sorted((claim for claim in claims if claim.slice == part.id), key=lambda claim: claim.first)
        since = decided.get(part.number, NEVER)
        found += check_slice(root, part, mine, since, limits, shapes.get(part.number), live)
    parts = [fact for fact in (*found, *said) if fact.what in (What.PIECE, What.EDGE, What.SHORT)]
    found += joined(parts, Shifted(fact for fact in found if fact.what == What.SHIFT))
    return [fact for fact in (*said, *found) if fact.what not in (*INNER, *PARTS)]


def violations(path: Path, slice_bytes: int = 20_000):
    return [fact for fact in audited(path, slice_bytes) if fact.what == What.VIOLATION]


def log_of(path: Path, topic: str = "a", partition: int = 0) -> list[tuple[str, FrameEntry]]:
    """Every frame of a log, with its segment."""
    filesystem = OSFilesystem(path)
    [directory] = [d for name, d in partitions(filesystem) if (name.topic, name.index) == (topic, partition)]
    return [
        (segment, each)
        for base, segment in segments(filesystem, directory)
        for each in walk_segment(filesystem, segment, base)
        if isinstance(each, FrameEntry)
    ]


def resealed(
    entry: FrameEntry, payload: bytes, offset: int | None = None, timestamp: int | None = None
) -> bytes:
    """A sound frame of the same length, with another value."""
    length, _, _, appended, old, count, flag, attribute = frame.HEADER.unpack_from(entry.frame)
    body = bytes(entry.frame[frame.HEADER_BYTES : frame.HEADER_BYTES + attribute])
    body += payload.ljust(length - frame.HEADER_BYTES - attribute, b".")
    made = frame.HEADER.pack(
        length, 0, entry.offset if offset is None else offset, appended,
        old if timestamp is None else timestamp, count, flag, attribute,
    ) + body  # fmt: skip
    crc = crc32c(made[frame.CRC_START :])
    return made[:4] + crc.to_bytes(4, "big") + made[8:]
