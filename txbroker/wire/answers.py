"""The broker's answers. See :mod:`txbroker.wire.messages` for the common properties of all messages."""

from __future__ import annotations

from typing import Final

import msgspec

from journal.records.group_entries import NO_SETTINGS, GroupSettings, PartitionOffset
from journal.records.record import Placement
from journal.settings import TopicSettings
from journal.transaction_states import Cause, State
from journal.xid import Xid
from txbroker.wire.secret import Secret


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An answer of the broker."""

    correlation: int


class Done(Answer, frozen=True, tag=65):
    """The request has been carried out, and is forced if it changed anything."""


class Refused(Answer, frozen=True, tag=66):
    """The request was not carried out. ``error`` is the name of a class in ``txbroker.errors``; ``numbers``, ``texts``
    are its extras.
    """

    error: str
    message: str
    numbers: dict[str, int] = {}
    texts: dict[str, str] = {}


class GoingAway(Answer, frozen=True, tag=93):
    """Not an answer, its correlation is 0: the broker takes no more requests on this connection, and closes it when all
    that it has read are answered. A client sends what follows on another connection, which it opens ``after`` µs later
    than the end of this one. ``reason`` is for people.
    """

    reason: str
    after: int


class Sent(Answer, frozen=True, tag=67):
    """The first message got ``base_offset``; all are forced to disk."""

    base_offset: int


class ProducerOpened(Answer, frozen=True, tag=68):
    """Use these in :class:`Send`. ``sequences`` are the next ones expected, [(partition, sequence)]."""

    producer_id: int
    epoch: int
    sequences: list[tuple[int, int]] = []


class PartitionInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A partition. ``index`` is its place in the topic, ``number`` the one used in requests."""

    index: int
    number: int
    start_offset: int
    high_watermark: int
    bytes: int = 0
    segments: int = 0


class TopicInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A topic. ``id`` distinguishes it from earlier or later ones of its name; empty for the broker's own topics."""

    name: str
    partitions: list[PartitionInfo]
    settings: TopicSettings
    id: bytes


class Topics(Answer, frozen=True, tag=69):
    """Answers :class:`DescribeTopics`, sorted by name. Unknown names are left out.

    ``is_filtered``: all were asked for, and there may be others, which the client's principal may not describe.
    """

    topics: list[TopicInfo]
    is_filtered: bool = False


class FetchedPartition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One partition's part of an answer: the next ``length`` bytes of the data, or an ``error``.

    The first frame may begin below the offset asked for (a wrapper that holds it): skip the messages below. The data
    end at ``next_offset``. The messages from there to below ``high_watermark``, or the ``until`` that was asked for,
    are the rest. ``numbers`` and ``texts`` are the error's extras: of damage the first and the last offset that cannot
    be read.

    For a :class:`Reader`, ``finished`` and ``waiting`` are sets of offsets relative to the offset asked for, or to the
    base of ``missing`` if that is lower. They tell of the offsets from the one asked for to below ``next_offset``, and
    of ``missing``, which the group has finished, or retention has removed; and which are held by a prepared
    transaction, or not due yet. All others of these may be handed out. The data may begin behind finished offsets.
    ``attempts`` are (offset, how often it was tried), of those from the one asked for to below ``next_offset`` that may
    be handed out and have failed before. One that was tried 0 times is to be handled alone: a member was lost with a
    batch of which it was a part.
    """

    partition: int
    length: int
    next_offset: int
    start_offset: int
    high_watermark: int
    error: str = ""
    message: str = ""
    numbers: dict[str, int] | None = None
    texts: dict[str, str] | None = None
    finished: bytes = b""
    waiting: bytes = b""
    attempts: list[tuple[int, int]] = []


class Fetched(Answer, frozen=True, tag=70):
    """Answers :class:`Fetch`, in the order asked for. Partitions with nothing new have length 0.

    The high watermarks are those of one moment, and the answer has nothing that was published later. To get the rest of
    that moment, fetch each partition from ``next_offset`` on, with its high watermark as ``until``.
    """

    partitions: list[FetchedPartition]


class Offsets(Answer, frozen=True, tag=71):
    """Answers :class:`OffsetsForTime`: [(partition, offset)]."""

    offsets: list[tuple[int, int]]


class Committed(Answer, frozen=True, tag=72):
    """The transaction is committed. ``heuristic``: a person had forced it before this coordinator decided."""

    placements: list[Placement]
    heuristic: bool = False


class Outcome(Answer, frozen=True, tag=73):
    """A transaction's state and, if it is decided, why and when. ``heuristic``: a person or policy forced it.

    ``wall`` is 0 if it is not known. ``by_principal`` is that of the session of ``by``.
    """

    session: int
    serial: int
    state: State
    cause: Cause | None = None
    by: str = ""
    why: str = ""
    placements: list[Placement] = []
    heuristic: bool = False
    wall: int = 0
    by_principal: str = ""


class CoordinatorWord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A coordinator's decision about a transaction whose outcome had been forced: what, when, and from where."""

    decided: State
    wall: int
    by: str
    by_principal: str = ""


class Policy(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The orphan policy's next action for a prepared transaction (``alert``, ``rollback``, ``commit``).

    It follows ``due_in`` µs from now. ``done``: the alert has been given, or ``obstacle`` says why nothing else can be
    done.
    """

    action: str
    due_in: int
    done: bool = False
    obstacle: str = ""


class TransactionInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A transaction as operators see it. ``owner`` is the client's name, ``address`` the address that it connected
    from.

    ``principal`` is that of the session that began it, ``by_principal`` of whoever ended it from elsewhere.

    ``age`` is since it began, or ended if it has, ``prepared_age`` since it was prepared (None: it is not): both count
    only while the broker runs. ``began``, ``prepared`` and ``ended`` are of the wall clock, 0 for an event that has not
    happened. ``told`` is its coordinator's decision after a forced outcome, ``policy`` (None: there is none) what
    happens next by itself. ``restored``: it was prepared when the backup was made that the data are restored from, and
    only a person rolls it back.
    """

    session: int
    serial: int
    state: State
    xid: Xid | None
    owner: str
    age: int
    messages: int
    bytes: int
    topics: list[str]
    groups: list[str]
    cause: Cause | None = None
    by: str = ""
    why: str = ""
    heuristic: bool = False
    told: CoordinatorWord | None = None
    address: str = ""
    prepared_age: int | None = None
    began: int = 0
    prepared: int = 0
    ended: int = 0
    policy: Policy | None = None
    principal: str = ""
    by_principal: str = ""
    restored: bool = False

    @property
    def contradicted(self) -> bool:
        """Whether it was forced one way and its coordinator decided the other: its participants disagree."""
        return self.told is not None and self.told.decided is not self.state


class Transactions(Answer, frozen=True, tag=74):
    """Answers :class:`ListTransactions`, by number. ``more``: ask again after the last one."""

    transactions: list[TransactionInfo]
    more: bool = False


class TransactionShown(Answer, frozen=True, tag=75):
    """Answers :class:`ShowTransaction`. ``parts`` are [(partition, bytes of the data)], in order of adding.

    ``contents`` are all messages of an undecided one, [(partition, messages, bytes)], ``placements`` where those of a
    committed one are. ``obstacle`` is the reason why its messages cannot be read, "" if they can.
    """

    transaction: TransactionInfo
    parts: list[tuple[int, int]]
    offsets: list[tuple[str, PartitionOffset]] = []
    contents: list[tuple[int, int, int]] = []
    placements: list[Placement] = []
    obstacle: str = ""


class GroupOffset(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group's position. ``offset`` None: it has none yet.

    ``pending_by``: an undecided transaction (its number and xid, readable) that will move it; do not read on.
    """

    partition: int
    offset: int | None
    generation: int = 0
    metadata: str = ""
    pending_by: str = ""


class GroupOffsets(Answer, frozen=True, tag=76):
    """Answers :class:`FetchOffsets`. ``id`` is the group's, empty if there is no such group.

    ``is_filtered``: all were asked for, and there may be others, in topics that the client's principal may not
    describe.
    """

    offsets: list[GroupOffset]
    id: bytes
    is_filtered: bool = False


class Claimed(Answer, frozen=True, tag=77):
    """Answers :class:`ClaimPartitions`: [(partition, generation)]; use them in offset commits."""

    claims: list[tuple[int, int]]


class GroupInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group: its positions as topic, index, offset and lag (messages behind the high watermark).

    ``id`` distinguishes it from earlier or later ones of its name.
    """

    name: str
    positions: list[tuple[str, int, int, int]]
    id: bytes


class Groups(Answer, frozen=True, tag=78):
    """Answers :class:`ListGroups`, sorted by name. ``is_filtered``: there may be others, and positions in other topics,
    which the client's principal may not describe.
    """

    groups: list[GroupInfo]
    is_filtered: bool = False


class Status(Answer, frozen=True, tag=79):
    """Answers :class:`AskStatus`: counters and gauges by name; docs/operations.md explains each."""

    values: dict[str, int | float | str]


class Times(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a request's time went inside the broker, in µs: one phase after the other, without gaps.

    ``judge``: from when the broker took the request up to when its record was queued. ``wait``: until the writer began
    with its group. ``write``, ``force``: the system calls. ``publish``: until readers could see it; a large commit is
    applied in this phase. ``answer``: until this answer was made.
    """

    judge: int
    wait: int
    write: int
    force: int
    publish: int
    answer: int


class TimedAnswer(Answer, frozen=True, tag=80):
    """Answers :class:`Timed`: the request's answer, and its times."""

    answer: Done | Sent | Committed
    times: Times


class FilesPinned(Answer, frozen=True, tag=81):
    """Answers :class:`PinFiles` and :class:`UnpinFiles`. ``lsn``: the newest checkpoint's when the pin was taken.

    ``held``: no file has been removed since then that this checkpoint, or the journal above it, refers to. It is false
    if the disk needed the space meanwhile, and for a session that has no pin, whose ``lsn`` is then 0. ``cut`` is the
    LSN of the last record that had been accepted when the pin was taken: all of them are forced when this is sent.
    """

    lsn: int
    held: bool
    cut: int = 0


class Joined(Answer, frozen=True, tag=82):
    """Answers :class:`JoinGroup`: the member's number, and the secret that its later requests show."""

    member: int
    secret: Secret


class AssignedPartition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A partition that a member has, with the generation of its claim."""

    partition: int
    generation: int
    topic: str
    index: int


MAX_ASSIGNED: Final = 1000
"""Most partitions in one :class:`Attended`; the next one has the rest."""


class Attended(Answer, frozen=True, tag=83):
    """Answers :class:`Attend` with the differences to what the member has said that it has.

    ``assigned`` are its own from now on. ``revoked`` are asked back: hand out nothing more of them, finish what is
    under way, commit it, and then leave them out of ``owned``. ``lost`` are not its own any more: what was
    not committed is another's by now. The same partition may be in ``lost`` and, by a new claim, in ``assigned``.
    """

    assigned: list[AssignedPartition] = []
    revoked: list[int] = []
    lost: list[int] = []


class MemberPartition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A partition in :class:`GroupMembers`: its position and lag in messages (None: no position), and whose it is.

    ``member`` is 0 if no member has it; ``revoking`` says that it is asked back. ``held_by`` is a prepared transaction
    (its number and xid, readable) that holds offsets of it, "" for none. A partition without a member is kept for
    ``kept`` more µs for the one that had it, or for a static one of the name ``kept_for``. ``waiting`` is how many µs
    ago the message at its position was appended; None if there is none yet, or if that is not known.
    """

    topic: str
    index: int
    position: int | None
    lag: int | None
    generation: int
    member: int = 0
    revoking: bool = False
    held_by: str = ""
    kept: int = 0
    kept_for: str = ""
    waiting: int | None = None


class MemberInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A member: what its client calls itself, its address ("" while it is away), and µs since it was heard of."""

    member: int
    client: str
    name: str
    peer: str
    silent: int
    topics: list[str]
    pattern: str


class GroupMembers(Answer, frozen=True, tag=84):
    """Answers :class:`DescribeGroup`. ``kind``: "members", "consumers" (that name their partitions), or "" as yet.

    ``is_filtered``: there may be others, of topics that the client's principal may not describe.
    """

    kind: str
    members: list[MemberInfo]
    partitions: list[MemberPartition]
    id: bytes
    settings: GroupSettings = NO_SETTINGS
    is_filtered: bool = False


class MessagesFound(Answer, frozen=True, tag=86):
    """Answers :class:`FindMessages`: the offsets of the messages that were found, ascending.

    The messages from the offset asked for to below ``next_offset`` were examined, so far as they are in the log, which
    goes from ``start_offset`` to ``high_watermark``.
    """

    offsets: list[int]
    next_offset: int
    start_offset: int
    high_watermark: int


class ParkedOffset(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An offset that a group is to try again: how often it was tried, in how many µs it is due (0: now), and why.

    One that is ``dead`` is not tried again: it is about to be moved to the dead letters. One that is ``stopped`` is
    not, either, until somebody says so: its attempts are used up.
    """

    offset: int
    attempts: int
    left: int
    reason: str
    dead: bool = False
    stopped: bool = False


class Parked(Answer, frozen=True, tag=90):
    """Answers :class:`ListParked`. ``more``: there may be others behind the last."""

    offsets: list[ParkedOffset]
    more: bool
    id: bytes
