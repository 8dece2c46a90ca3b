"""The requests of a client. See :mod:`txbroker.wire.messages` for the common properties of all messages."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from journal.random_id import new_id
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.transaction_states import State, Totals
from journal.xid import Xid
from txbroker.wire.delivery import Delivery
from txbroker.wire.secret import Secret

MAX_BEGUN: Final = 1000  # offsets of one BeginMessages


class Request(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """A request of a client. ``correlation`` is the client's, unique among its unanswered requests.

    One with more fields than are known here is not read: what they ask for would be left out without a word.
    """

    correlation: int
    since: ClassVar[int] = 3
    """The version of the protocol from which on a broker knows all that it asks for."""


class FormerSession(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """The session that a client had before, as in its :class:`Welcome`; ``start`` is the nonce of the start."""

    session: int
    start: bytes
    secret: Secret


class Hello(Request, frozen=True, tag=1):
    """The first request. Answered by :class:`Offered`. ``versions`` are those the client speaks, ``client`` names it
    for operators.
    """

    magic: str
    versions: list[int]
    client: str = ""


class Ping(Request, frozen=True, tag=2):
    """Ask whether the broker answers. Answered by :class:`Done` at once."""


class Send(Request, frozen=True, tag=3):
    """Append the data's frames to a partition, all or none. Answered by :class:`Sent` once forced.

    With a ``producer_id`` (not 0) the ``sequence`` of the first message must continue that producer's in this
    partition (it starts at 0 and counts messages); a repeated one is answered as the first time.
    """

    partition: int
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


class OpenProducer(Request, frozen=True, tag=4):
    """Answered by :class:`ProducerOpened`. A name fences the earlier holders of it; "" is a new producer."""

    name: str = ""


class DescribeTopics(Request, frozen=True, tag=5):
    """Answered by :class:`Topics`. ``names`` None means all."""

    names: list[str] | None = None


class Reader(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """Positions of a :class:`Fetch` that are read for a group: ``first`` and as many as there are ``generations``.

    Each generation is the one with which the partition was claimed for the reader; 0 is no claim, and is not checked.
    ``missing`` are offsets that earlier answers told to be waiting, by partition: (partition, set of offsets, base), at
    most one for each, of partitions of these positions. The reader wants to know as soon as one does not wait any more.
    """

    group: str
    first: int
    generations: list[int]
    missing: list[tuple[int, bytes, int]] = []


class Fetch(Request, frozen=True, tag=8):
    """Read from partitions: [(partition, offset, until)]. Answered by :class:`Fetched` with frames as data.

    The answer has what is published in all of them at one moment, and of a partition with ``until`` above 0 only the
    frames that begin below it. Waits up to ``max_wait`` µs until there are at least ``min_bytes``. The answer has about
    ``max_bytes`` at most, but always at least one whole frame if there is one. An error of one partition does not keep
    others from being read. ``readers`` are those that read positions for groups: what they may skip, and what waits, is
    told in :class:`FetchedPartition`. For a group with ``tags`` only frames with a message that matches are answered.
    """

    positions: list[tuple[int, int, int]]
    max_bytes: int = 1 << 20
    max_wait: int = 0
    min_bytes: int = 1
    readers: list[Reader] = []


class OffsetsForTime(Request, frozen=True, tag=9):
    """Answered by :class:`Offsets`: per partition the first offset appended at ``wall`` µs or later."""

    partitions: list[int]
    wall: int


class Add(Request, frozen=True, tag=10):
    """Stage the data's frames for a partition inside a transaction of this session; the first add begins it.

    No answer unless refused (:class:`Refused`; then the transaction is rollback-only): prepare and commit state
    what was sent, and are refused if it did not all arrive. ``serial`` counts up from 1 in a session;
    ``seen`` is the highest serial up to which all outcomes have been seen.
    """

    serial: int
    partition: int
    xid: Xid | None = None
    seen: int = 0


class AddOffsets(Request, frozen=True, tag=11):
    """Commit consumer offsets inside the transaction. No answer unless refused, like :class:`Add`.

    ``id``, 16 random bytes, is the group's id if the commit makes the group. ``settled`` finishes single offsets, as in
    :class:`CommitOffsets`.
    """

    serial: int
    group: str
    offsets: list[PartitionOffset]
    xid: Xid | None = None
    seen: int = 0
    id: bytes = msgspec.field(default_factory=new_id)
    settled: list[Settled] = []


class Prepare(Request, frozen=True, tag=12):
    """Prepare the transaction: the broker keeps it until it is decided. Answered by :class:`Done` once forced.

    It carries all contents that have not been sent yet: the data are the frames of ``runs``, each (partition, length),
    one after the other, and ``positions`` are those of groups. ``cancels`` are ids of scheduled messages that it takes
    back, of which a :class:`ShowScheduled` has told before. ``totals`` states what was added before, None for nothing:
    then this request begins the transaction. A refusal rolls back what had begun; the serial has passed.
    """

    serial: int
    xid: Xid
    totals: Totals | None = None
    seen: int = 0
    runs: list[tuple[int, int]] = []
    positions: list[GroupPositions] = []
    cancels: list[tuple[int, int, int]] = []


class Commit(Request, frozen=True, tag=13):
    """Commit. Answered by :class:`Committed` once forced; a repetition with the same content gets the same answer.

    One phase: ``session`` and ``serial`` of this session's transaction, with all contents that have not been sent yet,
    and ``totals`` of what was added before, all as in :class:`Prepare`; ``xid`` is the transaction's if this begins it.
    With ``delivery``, it delivers numbers of a stream (:class:`Delivery`). Second phase: ``xid``, or ``session`` and
    ``serial``, of a prepared one, from any session, without contents. ``operator``: a person forces it (a heuristic
    outcome), and ``by`` and ``why`` are kept with it.
    """

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    totals: Totals | None = None
    seen: int = 0
    operator: bool = False
    by: str = ""
    why: str = ""
    runs: list[tuple[int, int]] = []
    positions: list[GroupPositions] = []
    delivery: Delivery | None = None
    cancels: list[tuple[int, int, int]] = []


class Rollback(Request, frozen=True, tag=14):
    """Roll back; fields as in :class:`Commit`. Answered by :class:`Done` once forced."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    seen: int = 0
    operator: bool = False
    by: str = ""
    why: str = ""


class AskOutcome(Request, frozen=True, tag=15):
    """Ask how a transaction ended. Answered by :class:`Outcome` once that is forced, or refused (OutcomeForgotten)."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None


class ListTransactions(Request, frozen=True, tag=16):
    """List transactions. Answered by :class:`Transactions`. Without ``states``: the undecided ones (active and
    prepared).

    ``after`` is the last (session, serial) of the page before, ``limit`` at most 1,000. ``format_id`` (None: any) and
    ``global_prefix`` select by xid: its format, and the beginning of its global id; transactions without an xid are
    left out then. ``forced`` selects only outcomes that a person or policy forced, ``own`` only transactions of the
    principal that asks.
    """

    states: list[State] = []
    after: tuple[int, int] = (0, 0)
    limit: int = 1000
    format_id: int | None = None
    global_prefix: bytes = b""
    forced: bool = False
    own: bool = False


class ShowTransaction(Request, frozen=True, tag=17):
    """Answered by :class:`TransactionShown` with the first frames of the transaction as data."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    max_bytes: int = 1 << 16


class Forget(Request, frozen=True, tag=18):
    """Forget a decided transaction's outcome. Answered by :class:`Done`. A forced one needs ``by`` and ``why``.

    It is named by its number and its xid (None: it has none): an xid alone may be another transaction's by now.
    """

    session: int
    serial: int
    xid: Xid | None = None
    by: str = ""
    why: str = ""


class CommitOffsets(Request, frozen=True, tag=19):
    """Move a group's positions, or finish single offsets. Answered by :class:`Done` once forced.

    ``id``, 16 random bytes, is the group's id if this makes the group. With ``expected`` nothing is moved
    (PositionMoved) unless the group's positions are these: an offset, or None for no position yet, for each of
    ``offsets``, in their order; nor while the group has members (GroupInUse), which would go on from where they are.
    With ``stop`` beside ``expected`` their memberships end, all partitions of the group are claimed for nobody, and
    then it is moved; positions are compared only where there was no claim.
    ``settled`` has what is finished, and tried again, offset by offset, of partitions that ``offsets`` does not name;
    ``base`` is the group's position as the client knows it. Offsets that are finished already change nothing, and are
    not tried again (AlreadyFinished). How often an offset was tried, and when it is due, the broker says
    (InvalidSetting for ``unfinished``).
    """

    group: str
    offsets: list[PartitionOffset]
    id: bytes = msgspec.field(default_factory=new_id)
    expected: list[int | None] | None = None
    settled: list[Settled] = []
    stop: bool = False


class FetchOffsets(Request, frozen=True, tag=20):
    """A group's positions. Answered by :class:`GroupOffsets`. ``partitions`` None means all it has."""

    group: str
    partitions: list[int] | None = None


class ClaimPartitions(Request, frozen=True, tag=21):
    """Take partitions for a group from the consumers that had them. Answered by :class:`Claimed` once forced.

    ``id``, 16 random bytes, is the group's id if this makes the group.
    """

    group: str
    member: str
    partitions: list[int]
    id: bytes = msgspec.field(default_factory=new_id)


class ListGroups(Request, frozen=True, tag=22):
    """Answered by :class:`Groups`."""


class DeleteGroup(Request, frozen=True, tag=23):
    """Answered by :class:`Done` once forced. A group made anew under the name is another one (UnknownGroup).

    A group that has members is not deleted (GroupInUse) unless ``stop`` says that their memberships end with it.
    """

    group: str
    id: bytes
    stop: bool = False


class AskStatus(Request, frozen=True, tag=24):
    """Answered by :class:`Status`."""


class Timed(Request, frozen=True, tag=25):
    """Carry out ``request``, whose data these are, and answer where its time went.

    Answered by :class:`TimedAnswer`, or :class:`Refused` as the request would be. Only requests whose answers wait for
    the disk can be timed.
    """

    request: Send | Prepare | Commit | Rollback | CommitOffsets


class Cancel(Request, frozen=True, tag=26):
    """Answer the :class:`Fetch` of that correlation now, with what there is. It has no answer.

    The fetch is answered exactly once; if it has been answered already, this does nothing.
    """

    fetch: int


class PinFiles(Request, frozen=True, tag=27):
    """Remove none of the data directory's files until :class:`UnpinFiles` or the end of this session.

    Answered by :class:`FilesPinned`. A session has one pin; a repetition returns the same one, or a new one if it is
    not held any more. Refused (DiskFull) while the disk is too full to keep removable files. With ``again`` no pin is
    taken: the answer says whether the one taken before is held.
    """

    again: bool = False


class UnpinFiles(Request, frozen=True, tag=28):
    """Release the files. Answered by :class:`FilesPinned`, which says whether they were held all the time."""


MAX_MEMBER_TOPICS: Final = 1000
"""Most topics that one member names."""


class JoinGroup(Request, frozen=True, tag=31):
    """Become a member of a group, which shares out the partitions of topics. Answered by :class:`Joined`.

    The member reads the ``topics`` of these names, as far as they exist, and those whose names match the ``pattern``
    (shell wildcards; "": none), also later ones. ``name`` makes it a static member: nobody else may have the name
    (MemberNameInUse), and its partitions are kept for it while it is away. ``nonce``, 16 random bytes, identifies this
    member: a repetition is the same member. ``owned`` are partitions that it has from before, each with its generation:
    those of topics that it reads, of which that is the claim, and that no other member has, stay its own. A member that
    is not heard of for ``session_timeout`` µs is lost; one that does not release a partition within ``max_handover`` µs
    loses it. ``start`` is where the group begins in a partition in which it has no position: "earliest", "latest" or an
    offset; None: the client says it with its first commit. ``id``, 16 random bytes, is the group's id if this makes the
    group.
    """

    group: str
    nonce: bytes
    topics: list[str] = []
    pattern: str = ""
    name: str = ""
    owned: list[tuple[int, int]] = []
    session_timeout: int = 45_000_000
    max_handover: int = 300_000_000
    start: str | int | None = "earliest"
    id: bytes = msgspec.field(default_factory=new_id)


class Attend(Request, frozen=True, tag=32):
    """Say that a member is there, and which partitions it has: [(partition, generation)]. Answered by
    :class:`Attended`.

    It is answered at once if the broker has other partitions for the member, or asks for one back that is not among
    ``releasing``, those that the member is about to release; else after a third of the session time-out at the latest.
    A later request of the member answers the earlier one. A partition that was asked back and is not in ``owned`` any
    more is released. One that an answer has given which the request has crossed is not. ``finished`` are offsets of its
    partitions, finished in the record that claims a released one for another, else at once. Such a request is answered
    at once, and they are said again until it was; those of partitions that are not its own are passed over. Refused
    with UnknownMember if the member was lost: it may join again.
    """

    group: str
    member: int
    secret: Secret
    owned: list[tuple[int, int]] = []
    releasing: list[int] = []
    finished: list[Settled] = []


MAX_RELEASED: Final = 100
"""Most partitions of which a member says at once what it has finished: they are judged in one turn, 5 ms."""


class BegunMessages(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Messages of a partition that a member has begun to handle: [(offset, attempts that it had when it was handed
    out)], and the generation under which it was. ``together``: in one step, so that nobody knows which of them fails.
    """

    partition: int
    generation: int
    offsets: list[tuple[int, int]]
    together: bool = False


class BeginMessages(Request, frozen=True, tag=43):
    """Say which messages a member is handling, instead of what it has said before. Answered by :class:`Done`.

    It changes nothing in the journal. If the member is lost, the record that claims a partition for another counts an
    attempt for each of these that is not finished, held or counted by then, as if it had been reported as failed; those
    that were begun together count none, and come one at a time. It has 1,000 offsets at most (LimitExceeded). Those of
    partitions that are not the member's are passed over. Refused with UnknownMember if the member was lost.
    """

    group: str
    member: int
    secret: Secret
    begun: list[BegunMessages]


class LeaveGroup(Request, frozen=True, tag=33):
    """End a membership: its partitions are the others'. Answered by :class:`Done`, also if there is no such member.

    ``for_good``: those of a static member are not kept for it. ``lost``: it leaves with messages under way, as one that
    is not heard of any more: what it has said to be handling are attempts.
    """

    group: str
    member: int
    secret: Secret
    for_good: bool = True
    lost: bool = False


class DescribeGroup(Request, frozen=True, tag=34):
    """Answered by :class:`GroupMembers`: who is in the group, and who has which partition."""

    group: str


class FindMessages(Request, frozen=True, tag=36):
    """Search a partition for messages with this key, this id (the header ``txbroker.id``) and this tag (one of the
    headers ``txbroker.tag``), of which two may be left out, from ``offset`` on.

    Answered by :class:`MessagesFound` with the offsets of at most ``most``, of messages below ``until`` (0: the high
    watermark). An answer examines a part of the log: ask again from its ``next_offset`` on.
    """

    partition: int
    offset: int
    key: bytes | None = None
    id: bytes | None = None
    until: int = 0
    most: int = 100
    tag: bytes | None = None
