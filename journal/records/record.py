"""The bytes of a journal record, and the kinds of records. Only this module packs or unpacks them.

A record is ``length u32 | crc u32 | head length u32 | head | data``. ``length`` counts the whole record. The head is a
msgpack array beginning with the record's tag, data is a run of message frames or empty. ``crc`` is CRC-32C over all
that follows it, seeded with :func:`seed`, so that a record proves its place: bytes left by an earlier use of the file,
or written to the wrong place, do not pass. ``docs/file_format.md`` has worked bytes.

Times named ``at`` are journal time: microseconds that only grow and stand still while the engine is stopped.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from crc32c import crc32c

from journal.constants import MAX_PARTITIONS_PER_TOPIC
from journal.errors import CorruptJournal, InvalidFrame
from journal.formats.checkpoint_rows import Count
from journal.formats.checksum import Checksum
from journal.parties import Actor, Owner, Principal
from journal.records.access_records import AccessSet as AccessSet
from journal.records.access_records import RuleSet as RuleSet
from journal.records.access_records import UserRemoved as UserRemoved
from journal.records.access_records import UserSet as UserSet
from journal.records.group_entries import ClaimKind, GroupPositions, GroupSettings, PartitionOffset, Settled
from journal.records.queue_entries import Queue
from journal.records.queue_records import Bound as Bound
from journal.records.queue_records import ExchangeDeclared as ExchangeDeclared
from journal.records.queue_records import ExchangeDeleted as ExchangeDeleted
from journal.records.queue_records import Published as Published
from journal.records.queue_records import Unbound as Unbound
from journal.records.record_base import Record
from journal.records.record_bytes import pack as pack
from journal.records.record_header import CRC_END, HEADER
from journal.records.record_header import HEADER_BYTES as HEADER_BYTES
from journal.records.record_header import lengths as lengths
from journal.records.record_parts import Placement as Placement
from journal.records.record_parts import Run as Run
from journal.records.record_parts import Some as Some
from journal.records.restored import Restored as Restored
from journal.records.schedule_records import Cancelled as Cancelled
from journal.records.schedule_records import Due as Due
from journal.records.schedule_records import Scheduled as Scheduled
from journal.records.schedule_records import TakenBack as TakenBack
from journal.records.schedule_records import WallClockTold as WallClockTold
from journal.records.stream_entries import Delivered
from journal.records.stream_records import NONCE_BYTES as NONCE_BYTES
from journal.records.stream_records import Nonce as Nonce
from journal.records.stream_records import StreamClaimed as StreamClaimed
from journal.records.stream_records import StreamReleased as StreamReleased
from journal.settings import TopicSettings
from journal.transaction_states import Cause, State, Totals
from journal.xid import Xid

SECRET_HASH_BYTES = 16
SecretHash = Annotated[bytes, msgspec.Meta(min_length=SECRET_HASH_BYTES, max_length=SECRET_HASH_BYTES)]
"""The owner of a producer: a hash of the secret of the session that opened it."""


class Started(Record, frozen=True, tag=1):
    """The engine started: active transactions are rolled back, sessions of earlier starts are dead.

    ``wall`` is the wall clock (µs since 1970) at journal time ``at``; it is for people only. ``restored`` says whether
    a new time line begins: the earlier starts are forgotten, and what is prepared is restored.
    """

    start: int
    at: int
    wall: int
    nonce: Nonce
    restored: Restored = Restored.NOT


class Mark(Record, frozen=True, tag=2):
    """No change. Its group's header proves that all records before it were forced."""

    at: int


class Messages(Record, frozen=True, tag=3):
    """One accepted send: its frames, stamped. ``producer_id`` 0 is a send without deduplication."""

    partition: Count
    base_offset: Count
    count: Some
    at: int
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


Partitions = Annotated[int, msgspec.Meta(ge=1, le=MAX_PARTITIONS_PER_TOPIC)]
"""How many partitions a record makes."""


class PartitionsAdded(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The new partitions of a topic: the first one's index in the topic and number, and how many there are."""

    first_index: Count
    first_partition: Count
    partitions: Partitions

    @property
    def numbers(self) -> range:
        """Return their numbers, in the order of their indexes."""
        return range(self.first_partition, self.first_partition + self.partitions)


class TopicCreated(Record, frozen=True, tag=4):
    """A topic with partitions numbered ``first_partition`` and on. ``id`` is random, empty for the engine's own.

    ``by`` is who asked for it, here and in the other records; None for the broker itself. ``queue`` is the queue whose
    messages the topic has, None for others.
    """

    topic: str
    first_partition: Count
    partitions: Partitions
    settings: TopicSettings
    at: int
    id: bytes = b""
    by: Actor | None = None
    queue: Queue | None = None

    @property
    def added(self) -> PartitionsAdded:
        """Return its partitions, as :attr:`TopicAltered.added` has those that come later."""
        return PartitionsAdded(0, self.first_partition, self.partitions)


class TopicDeleted(Record, frozen=True, tag=5):
    """The topic and its partitions are gone; their numbers are never used again."""

    topic: str
    at: int
    by: Actor | None = None


class LogStartMoved(Record, frozen=True, tag=6):
    """Retention, or ``by``, dropped everything of a partition below ``start_offset``."""

    partition: Count
    start_offset: Count
    at: int
    by: Actor | None = None


class ProducerOpened(Record, frozen=True, tag=7):
    """A producer may send with this id and epoch; lower epochs of the id are fenced. ``owner``: hash of a secret.

    ``principal`` is who had logged in, empty for nobody.
    """

    producer_id: int
    epoch: int
    name: str
    at: int
    owner: SecretHash
    principal: Principal = ""


class ProducersExpired(Record, frozen=True, tag=8):
    """These producers' sends are no longer remembered; their sequences are refused from now on."""

    producer_ids: list[int]
    at: int


class TransactionAdded(Record, frozen=True, tag=9):
    """Frames (unstamped) staged for a partition. The first such record of a transaction begins it.

    ``seen`` is the highest serial up to which the client has seen every outcome of its session, as in RIFL (Lee et al.,
    SOSP 2015, section 3). ``owner`` is said only by what begins a transaction. Frames that went through an exchange are
    those of ``runs``, and the partition is 0.
    """

    session: Count
    serial: Count
    partition: Count
    count: Some
    at: int
    seen: int
    xid: Xid | None = None
    owner: Owner | None = None
    runs: list[Run] = []


class TransactionOffsetsAdded(Record, frozen=True, tag=10):
    """Consumer offsets that the transaction will commit; they are held from prepare until the outcome.

    ``id`` is the group's id if the commit makes the group. ``settled`` comes behind ``offsets``.
    """

    session: Count
    serial: Count
    group: str
    offsets: list[PartitionOffset]
    at: int
    seen: int
    xid: Xid | None = None
    owner: Owner | None = None
    id: bytes = b""
    settled: list[Settled] = []


class TransactionPrepared(Record, frozen=True, tag=11):
    """A transaction was prepared: from now on, whatever happens, it can be committed or rolled back.

    Its data are what was sent with the request: the frames of ``runs``, one after the other, unstamped. It begins the
    transaction if nothing was added before. ``totals`` is what the client says it had added before, None for nothing.
    """

    session: Count
    serial: Count
    xid: Xid
    totals: Totals | None
    at: int
    seen: int
    owner: Owner | None = None
    runs: list[Run] = []
    positions: list[GroupPositions] = []
    taken_back: list[Scheduled] = []
    """Scheduled messages that it holds from here on, and takes back if it is committed."""


class TransactionCommitted(Record, frozen=True, tag=12):
    """A transaction was committed. The frames are those of its adds, then those of ``runs``, each in order.

    ``runs`` and ``settles`` came with the request; the runs' frames are the record's data, one after the other,
    stamped. ``totals``, of a one-phase commit, is what the client says it had added before, None for nothing.
    ``checksum`` is CRC-32C over all frames of the transaction, unstamped, in the order in which they were sent; ``xid``
    and ``owner`` are those of a transaction that begins with this record.
    """

    session: Count
    serial: Count
    placements: list[Placement]
    at: int
    cause: Cause
    seen: int = 0
    by: Actor | None = None
    why: str = ""
    totals: Totals | None = None
    runs: list[Run] = []
    settles: list[GroupPositions | TakenBack | Delivered] = []
    checksum: int = 0
    xid: Xid | None = None
    owner: Owner | None = None

    @property
    def positions(self) -> list[GroupPositions]:
        """The positions of groups among what it settles."""
        return [each for each in self.settles if type(each) is GroupPositions]

    @property
    def delivered(self) -> Delivered | None:
        """The number of a stream, which comes last of what it settles."""
        last = self.settles[-1] if self.settles else None
        return last if type(last) is Delivered else None

    @property
    def taken_back(self) -> list[Scheduled]:
        """The scheduled messages that it takes back."""
        return next((each.messages for each in self.settles if type(each) is TakenBack), [])


class TransactionRolledBack(Record, frozen=True, tag=13):
    """A transaction was rolled back. ``by`` is who decided it, if not the transaction's own session."""

    session: Count
    serial: Count
    at: int
    cause: Cause
    by: Actor | None = None
    why: str = ""


class TransactionsForgotten(Record, frozen=True, tag=14):
    """Outcomes removed from memory: each (session, serial); a question about one is answered ``OutcomeForgotten``.

    Sessions below ``session_mark`` that are not in the table are forgotten as a whole.
    """

    numbers: list[tuple[int, int]]
    session_mark: int
    at: int
    by: Actor | None = None
    why: str = ""


class CoordinatorTold(Record, frozen=True, tag=15):
    """The coordinator of a transaction with a heuristic outcome decided, too; the answer names the outcome.

    ``decided`` is its decision: if it is not the outcome, the participants of the transaction disagree for good.
    """

    session: int
    serial: int
    at: int
    decided: State
    by: Actor | None


class OffsetsCommitted(Record, frozen=True, tag=16):
    """A group's positions moved, outside a transaction, and then it settled offsets.

    ``id`` is the group's if this makes it, else empty.
    """

    group: str
    offsets: list[PartitionOffset]
    at: int
    id: bytes = b""
    settled: list[Settled] = []


class PartitionsClaimed(Record, frozen=True, tag=17):
    """A consumer claimed partitions for a group, or the broker gave them to a member; lower generations of each are
    fenced from now on.

    ``id`` is the group's if this makes it, else empty. ``settled`` is what those who had the partitions have settled,
    with attempts of what they were handling when they were lost, and where the group begins in those without a
    position. ``member`` is the name of the client; a static member's own.
    """

    group: str
    member: str
    claims: list[tuple[int, int]]
    """(partition, new generation)."""
    at: int
    id: bytes = b""
    settled: list[Settled] = []
    kind: ClaimKind = ClaimKind.CONSUMER


class GroupDeleted(Record, frozen=True, tag=18):
    """A group and its positions are gone."""

    group: str
    at: int
    by: Actor | None = None


class Identified(Record, frozen=True, tag=19):
    """The data's own random name, made at their first start. It never changes."""

    identity: str
    at: int


class ArchiveSet(Record, frozen=True, tag=20):
    """From here on every outcome is put into the outcome archive, kept by these settings; or none is any more."""

    on: bool
    settings: TopicSettings
    at: int


class TopicAltered(Record, frozen=True, tag=21):
    """A topic has these settings from here on, and the ``added`` partitions behind those that it had; nil for none."""

    topic: str
    settings: TopicSettings
    at: int
    added: PartitionsAdded | None = None
    by: Actor | None = None


class GroupAltered(Record, frozen=True, tag=22):
    """A group has these settings from here on. ``id`` is the group's if this makes it."""

    group: str
    settings: GroupSettings
    at: int
    id: bytes = b""
    by: Actor | None = None


AnyRecord = (
    Started | Mark | Messages | TopicCreated | TopicDeleted | LogStartMoved | ProducerOpened
    | ProducersExpired | TransactionAdded | TransactionOffsetsAdded | TransactionPrepared
    | TransactionCommitted | TransactionRolledBack | TransactionsForgotten | CoordinatorTold
    | OffsetsCommitted | PartitionsClaimed | GroupDeleted | Identified | ArchiveSet | TopicAltered
    | GroupAltered | StreamClaimed | StreamReleased | UserSet | UserRemoved | RuleSet | AccessSet
    | Due | Cancelled | WallClockTold | ExchangeDeclared | ExchangeDeleted | Bound | Unbound | Published
)  # fmt: skip


def slices(
    record: TransactionAdded | TransactionPrepared | TransactionCommitted | Published,
    data: bytes | memoryview,
) -> list[tuple[Run, bytes | memoryview]]:
    """Each run of a record with its frames; raises :class:`InvalidFrame` if they do not fit."""
    runs = record.runs
    if len(runs) == 1 and not runs[0].start:
        return [(runs[0], data)]
    view = memoryview(data)
    edges = [*(run.start for run in runs), len(view)]
    if edges[0] != 0 or edges != sorted(edges):
        raise InvalidFrame(f"its runs start at {edges[:-1]} in {edges[-1]} bytes of data")
    return [(run, view[run.start : end]) for run, end in zip(runs, edges[1:], strict=True)]


def sends(record: Messages | Due | Published, data: bytes | memoryview) -> list[tuple[Messages, memoryview]]:
    """Return what a record puts into logs without a transaction, as sends: each with its frames, which are stamped but
    for those that were published.

    Raises :class:`InvalidFrame` if they do not fit.
    """
    view = memoryview(data)
    if type(record) is Messages:
        return [(record, view)]
    if type(record) is Published:
        return _published(record, view)
    assert type(record) is Due
    edges = [*record.starts, len(view)]
    if len(record.starts) != len(record.placements) or edges[0] != 0 or edges != sorted(edges):
        raise InvalidFrame(f"its frames start at {edges[:-1]} in {len(view)} bytes of data")
    return [
        (Messages(placed.partition, placed.base_offset, placed.count, record.at), view[start:end])
        for placed, start, end in zip(record.placements, record.starts, edges[1:], strict=True)
    ]


def _published(record: Published, data: memoryview) -> list[tuple[Messages, memoryview]]:
    bases = {placed.partition: placed.base_offset for placed in record.placements}
    found = []
    for run, frames in slices(record, data):
        for partition in run.targets:
            base = bases.get(partition)
            if base is None:
                raise InvalidFrame(f"it has messages for partition number {partition}, and no place for them")
            found.append((Messages(partition, base, run.count, record.at), memoryview(frames)))
            bases[partition] = base + run.count
    if bases != {placed.partition: placed.base_offset + placed.count for placed in record.placements}:
        raise InvalidFrame("it places other messages than it has")
    return found


decode_head = msgspec.msgpack.Decoder(AnyRecord).decode
"""Returns the record of a head; raises as msgspec does."""


class Unpacked(NamedTuple):
    """A record read from a journal file; ``length`` is how many bytes it takes there."""

    record: AnyRecord
    data: memoryview
    length: int


def seed(salt: int, lsn: int) -> int:
    """Return the seed of the checksum of the record at ``lsn``; ``salt`` is the start's."""
    return (salt + lsn) & 0xFFFFFFFF


def unpack(
    view: memoryview, position: int, crc_seed: int, path: str, start: int = 0, checksum: Checksum = crc32c
) -> Unpacked:
    """Read the record at ``position`` of a file's bytes, or of those from ``start`` on.

    Raises :class:`CorruptJournal` with the reason if it is not whole and sound; ``path`` is for its message.
    """
    at = start + position
    room = len(view) - position
    if room < HEADER_BYTES:
        raise CorruptJournal(f"{path}: {room} bytes at {at} are too few for a record", path, at)
    length, crc, head_length = HEADER.unpack_from(view, position)
    if not HEADER_BYTES < length <= room or head_length > length - HEADER_BYTES:
        raise CorruptJournal(f"{path}: the record at {at} says {length} bytes of {room}", path, at)
    body = view[position + CRC_END : position + length]
    if checksum(body, crc_seed) != crc:
        raise CorruptJournal(f"{path}: the record at {at} fails its checksum", path, at)
    head_end = position + HEADER_BYTES + head_length
    try:
        record = decode_head(view[position + HEADER_BYTES : head_end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unknown(path, at, error) from error
    return Unpacked(record, view[head_end : position + length], length)


def unknown(path: str, position: int, error: Exception) -> CorruptJournal:
    """The error for a sound record that this program cannot read."""
    message = f"{path}: the record at {position} is of a kind or form that is not known here: {error}"
    return CorruptJournal(message, path, position)
