"""The results of the clients: receipts, messages, positions."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from journal.formats import frame
from journal.message_headers import ID_HEADER, Headers, last_value, tags_of
from journal.scheduled_id import ScheduledId
from txbroker.client.core.retry_policy import RetryPolicy, policy_of
from txbroker.wire.messages import GroupMembers, MemberInfo, MemberPartition, TransactionInfo

T = TypeVar("T")


class Listed(list[T]):
    """A list of all that the client's principal may describe. ``is_filtered``: there may be others."""

    is_filtered = False


def listed(found: Iterable[T], is_filtered: bool) -> Listed[T]:
    """Return a list, and say whether there may be others."""
    result = Listed(found)
    result.is_filtered = is_filtered
    return result


class Durability(enum.Enum):
    """How safe an acknowledged message is."""

    FORCED = "forced"
    """On the broker's disk, forced before the answer."""
    STAGED = "staged"
    """Inside a transaction that is not committed yet."""


class Receipt(NamedTuple):
    """Where a message was stored: ``partition`` is the index in the topic, ``offset`` the place in the partition.

    Inside a transaction ``offset`` is None until the commit; the receipts of ``Transaction.receipts`` have it
    afterwards. ``id`` is the message's id, if its sender gave it one or had one made. The receipt of a message that is
    due later has no offset, but ``scheduled``, by which it can be looked up and taken back.
    """

    topic: str
    partition: int
    offset: int | None
    durability: Durability = Durability.FORCED
    id: bytes | None = None
    scheduled: ScheduledId | None = None


QUEUE_PREFIX: Final = "queue:"
"""What stands before the name of a queue where a message names its topic, whose own name has no colon."""


def topic_of_queue(queue: str) -> str:
    """Return what messages of a queue have as their topic."""
    return f"{QUEUE_PREFIX}{queue}"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message that was read. ``partition`` is the index in the topic, ``timestamp`` the sender's, µs since 1970
    UTC.

    ``value`` is None for a tombstone. ``headers`` are pairs of name and value in the order in which they were sent; a
    name may come more than once. ``attempts`` is how often the group of the consumer that handed it out has failed with
    it before: 0 at the first delivery. ``generation`` is that of the claim of its partition under which it was handed
    out, 0 without one: who has lost the partition since cannot finish it, even after getting it back. ``appended`` is
    when the broker took it, or committed its transaction, µs since 1970 UTC by the broker's clock; 0 if that is
    unknown.

    A message of a queue has ``queue:`` and its name as ``topic``, and the number of the queue's partition. Its
    ``attempts`` are how often it was returned, ``redelivered`` says that it may have been delivered before, and
    ``generation`` is the number of the session in which it was.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    attempts: int = 0
    generation: int = 0
    appended: int = 0
    redelivered: bool = False

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name, None if there is none."""
        return last_value(self.headers, name)

    @property
    def id(self) -> bytes | None:
        """The id that its sender gave it, None if it has none."""
        return last_value(self.headers, ID_HEADER)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its sender gave it."""
        return tags_of(self.headers)


class Frames(NamedTuple):
    """Frames of one partition as they were read, and where the log of the partition begins and ends.

    The first frame may begin below the offset that was asked for, if it is a wrapper that holds it.
    """

    data: memoryview
    start_offset: int
    high_watermark: int


class PinnedFiles(NamedTuple):
    """The files of a broker's data directory that are kept: its newest checkpoint, and all up to ``cut`` is forced."""

    checkpoint: int
    cut: int


class GroupPosition(NamedTuple):
    """The position of a group in a partition: the next ``offset`` to read, None if it has none yet.

    ``pending_by`` names the undecided transaction that will move the position, "" if there is none.
    """

    topic: str
    partition: int
    offset: int | None
    generation: int
    metadata: str
    pending_by: str


class ParkedMessage(NamedTuple):
    """A message that a group is to try again: how often it has failed with it, in how many seconds it is ``due`` (0:
    now), and why, as the program said.

    One that is ``dead`` is not tried again: it is about to be moved to the dead letters. One that is ``stopped`` is not
    tried again until somebody says so (``retry_parked``, ``skip``): its attempts are used up.
    """

    topic: str
    partition: int
    offset: int
    attempts: int
    due: float
    why: str
    dead: bool = False
    stopped: bool = False


class GroupMember(NamedTuple):
    """A member of a group: what its client calls itself, its ``name`` if it is a static member, else "".

    ``address`` is where it is connected from, "" while its connection is gone; ``silent`` are the seconds since it was
    heard of. It reads ``topics``, and those that match ``pattern``.
    """

    number: int
    client: str
    name: str
    address: str
    silent: float
    topics: list[str]
    pattern: str


class GroupPartition(NamedTuple):
    """A partition that a group reads: its position and lag in messages (None: no position yet), and whose it is.

    ``member`` is the number of the member that has it, None if none has it; ``revoking`` says that it has been asked to
    release it. ``held_by`` names an undecided transaction that holds offsets of the partition, "" for none. A partition
    without a member is kept for ``kept`` more seconds for the one that had it, or for a static member of the name
    ``kept_for``. ``waiting`` is how many seconds ago the first message that the group has not finished was appended;
    None if there is none, or if that is not known.
    """

    topic: str
    partition: int
    position: int | None
    lag: int | None
    generation: int
    member: int | None
    revoking: bool
    held_by: str
    kept: float
    kept_for: str
    waiting: float | None = None


class GroupDescription(NamedTuple):
    """A group with its members and partitions.

    ``kind`` is "members" if the broker shares its partitions out to members, "consumers" if its consumers name their
    partitions, "" if nobody has read for it yet. ``id`` distinguishes the group from others of its name; it is empty
    while nothing of it is in the journal. ``retry`` is how it tries messages again, None if each retry says it.
    ``expiry`` is after how many seconds without use it is deleted: 0 for never, None for what the broker's setting
    says. ``tags`` are those of which a message has one if it is for the group, none if all are.
    ``is_filtered``: there may be partitions, and names that members read, of topics that the client's principal may not
    describe.
    """

    name: str
    kind: str
    members: list[GroupMember]
    partitions: list[GroupPartition]
    id: bytes
    retry: RetryPolicy | None = None
    expiry: float | None = None
    tags: tuple[str, ...] = ()
    is_filtered: bool = False


class Run(NamedTuple):
    """The place of a committed transaction's messages of one partition: the n-th sent is at base_offset + n."""

    topic: str
    partition: int
    base_offset: int
    messages: int


class PartContent(NamedTuple):
    """How many messages and bytes an undecided transaction has for one partition."""

    topic: str
    partition: int
    messages: int
    bytes: int


class GroupMove(NamedTuple):
    """A group's position that a transaction moves when it commits: the next ``offset`` to read."""

    group: str
    topic: str
    partition: int
    offset: int


class TransactionDetails(NamedTuple):
    """A transaction with its first messages (their offsets count from 0 within each part).

    ``contents`` has the size of an undecided transaction, ``runs`` the places of a committed one's messages.
    ``obstacle`` is the reason why its messages cannot be read, "" if they can.
    """

    transaction: TransactionInfo
    messages: list[Message]
    offsets: list[GroupMove]
    contents: list[PartContent]
    runs: list[Run]
    obstacle: str = ""


def described_group(name: str, told: GroupMembers) -> GroupDescription:
    """Return the description in an answer of the broker, with the partitions sorted by topic and index."""
    partitions = sorted(map(_owned, told.partitions), key=lambda each: (each.topic, each.partition))
    members = [_member(each) for each in told.members]
    settings = told.settings
    expiry = None if settings.expiry is None else settings.expiry / 1e6
    return GroupDescription(
        name, told.kind, members, partitions, told.id, policy_of(settings.retry), expiry, tuple(settings.tags),
        told.is_filtered,
    )  # fmt: skip


def _member(told: MemberInfo) -> GroupMember:
    return GroupMember(
        told.member, told.client, told.name, told.peer, told.silent / 1e6, told.topics, told.pattern
    )


def _owned(told: MemberPartition) -> GroupPartition:
    return GroupPartition(
        told.topic, told.index, told.position, told.lag, told.generation, told.member or None, told.revoking,
        told.held_by, told.kept / 1e6, told.kept_for, None if told.waiting is None else told.waiting / 1e6,
    )  # fmt: skip


def decoded(
    topic: str, index: int, data: memoryview, offset: int, max_bytes: int
) -> tuple[list[Message], int]:
    """Return the messages of frames, up to about ``max_bytes`` of decoded bytes, and how many bytes these are."""
    taken, pieces = 0, list[frame.Message]()
    for piece, size in frame.decode_pieces(data, offset):
        pieces += piece
        taken += size
        if taken >= max_bytes:
            break
    messages = [
        Message(
            topic,
            index,
            found.offset,
            found.timestamp,
            found.key,
            found.value,
            found.headers,
            appended=found.appended,
        )
        for found in pieces
    ]
    return messages, taken
