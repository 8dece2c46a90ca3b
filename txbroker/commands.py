"""Every message of the wire protocol, typed. ``docs/wire_protocol.md`` explains them with worked bytes.

A head is a msgpack array ``[tag, correlation, field, ...]``. Fields may be appended in later versions with a
default; their order and meaning never change. Requests may be pipelined without limit; an answer carries its
request's correlation number, and answers may come in another order than their requests. Frames travel in the
data part, as they will lie on disk.

Times are µs: ``at`` and ``age`` journal time, ``wall`` since 1970 UTC. Offsets ``end`` and ``high_watermark``
are exclusive.
"""

from __future__ import annotations

import msgspec

from journal.record import PartitionOffset, Placement
from journal.settings import TopicSettings
from journal.transaction import Cause, State, Totals, Xid

MAGIC = "txbroker"
VERSIONS = (1,)
"""The protocol versions this code speaks."""

MAX_HEAD = 1 << 20
"""Most bytes of a head."""


class Request(msgspec.Struct, array_like=True, frozen=True, gc=False, kw_only=False):
    """What a client sends. ``correlation`` is the client's, unique among its unanswered requests."""

    correlation: int


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the broker sends back."""

    correlation: int


# -- requests --------------------------------------------------------------------------------------


class Hello(Request, tag=1):
    """Must come first. ``versions`` are those the client speaks, ``client`` names it for operators."""

    magic: str
    versions: list[int]
    client: str = ""


class Ping(Request, tag=2):
    """Are you there? Answered by :class:`Done` at once."""


class Send(Request, tag=3):
    """Append the data's frames to a partition, all or none. Answered by :class:`Sent` once forced.

    With a ``producer_id`` (not 0) the ``sequence`` of the first message must continue that producer's in this
    partition (it starts at 0 and counts messages); a repeated one is answered as the first time.
    """

    partition: int
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0


class OpenProducer(Request, tag=4):
    """Answered by :class:`ProducerOpened`. A name fences the earlier holders of it; "" is a new producer."""

    name: str = ""


class DescribeTopics(Request, tag=5):
    """Answered by :class:`Topics`. ``names`` None means all."""

    names: list[str] | None = None


class CreateTopic(Request, tag=6):
    """Answered by :class:`Topics` with the one topic. An existing one is refused (TopicExists)."""

    name: str
    partitions: int
    settings: TopicSettings


class DeleteTopic(Request, tag=7):
    """Answered by :class:`Done` once forced. Refused while an undecided transaction holds messages for it."""

    name: str


class Fetch(Request, tag=8):
    """Read from partitions: [(partition, offset)]. Answered by :class:`Fetched` with frames as data.

    Waits up to ``max_wait`` µs until at least ``min_bytes`` can be given; gives about ``max_bytes`` at most, but
    always at least one whole frame if there is one. One partition in error does not keep others from reading.
    """

    positions: list[tuple[int, int]]
    max_bytes: int = 1 << 20
    max_wait: int = 0
    min_bytes: int = 1


class OffsetsForTime(Request, tag=9):
    """Answered by :class:`Offsets`: per partition the first offset appended at ``wall`` µs or later."""

    partitions: list[int]
    wall: int


class Add(Request, tag=10):
    """Stage the data's frames for a partition inside a transaction of this session; the first add begins it.

    No answer unless refused (:class:`Refused`; then the transaction is rollback-only): prepare and commit state
    what was sent, and are refused if it did not all arrive. ``serial`` counts up from 1 in a session;
    ``seen`` is the highest serial up to which all outcomes have been seen.
    """

    serial: int
    partition: int
    xid: Xid | None = None
    seen: int = 0


class AddOffsets(Request, tag=11):
    """Commit consumer offsets inside the transaction. No answer unless refused, like :class:`Add`."""

    serial: int
    group: str
    offsets: list[PartitionOffset]
    xid: Xid | None = None
    seen: int = 0


class Prepare(Request, tag=12):
    """Promise to keep the transaction over anything. Answered by :class:`Done` once forced."""

    serial: int
    xid: Xid
    totals: Totals
    seen: int = 0


class Commit(Request, tag=13):
    """Commit. Answered by :class:`Committed` once forced, and as the first time when repeated.

    One phase: ``session`` and ``serial`` of this session's active transaction, and ``totals``. Second phase:
    ``xid``, or ``session`` and ``serial``, of a prepared one, from any session. ``operator`` says that a person
    forces it (a heuristic outcome), ``by`` and ``why`` are kept with it.
    """

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    totals: Totals | None = None
    seen: int = 0
    operator: bool = False
    by: str = ""
    why: str = ""


class Rollback(Request, tag=14):
    """Roll back; fields as in :class:`Commit`. Answered by :class:`Done` once forced."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    seen: int = 0
    operator: bool = False
    by: str = ""
    why: str = ""


class AskOutcome(Request, tag=15):
    """How did it end? Answered by :class:`Outcome` once that is forced, or refused (OutcomeForgotten)."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None


class ListTransactions(Request, tag=16):
    """Answered by :class:`Transactions`. ``states`` empty means the undecided ones (active and prepared).

    ``after`` is the last (session, serial) of the page before, ``limit`` at most 1,000.
    """

    states: list[State] = []
    after: tuple[int, int] = (0, 0)
    limit: int = 1000


class ShowTransaction(Request, tag=17):
    """Answered by :class:`TransactionShown` with the first frames of the transaction as data."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    max_bytes: int = 1 << 16


class Forget(Request, tag=18):
    """Forget a decided transaction's outcome (of a forced one: after telling). Answered by :class:`Done`."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None
    by: str = ""


class CommitOffsets(Request, tag=19):
    """Move a group's positions. Answered by :class:`Done` once forced."""

    group: str
    offsets: list[PartitionOffset]


class FetchOffsets(Request, tag=20):
    """A group's positions. Answered by :class:`GroupOffsets`. ``partitions`` None means all it has."""

    group: str
    partitions: list[int] | None = None


class ClaimPartitions(Request, tag=21):
    """Take partitions for a group from whoever had them. Answered by :class:`Claimed` once forced."""

    group: str
    member: str
    partitions: list[int]


class ListGroups(Request, tag=22):
    """Answered by :class:`Groups`."""


class DeleteGroup(Request, tag=23):
    """Answered by :class:`Done` once forced."""

    group: str


class AskStatus(Request, tag=24):
    """Answered by :class:`Status`."""


# -- answers ---------------------------------------------------------------------------------------


class Welcome(Answer, tag=64):
    """Answers :class:`Hello`. ``session`` is this session's number; limits are in bytes."""

    version: int
    session: int
    server: str
    max_frame: int
    max_request: int


class Done(Answer, tag=65):
    """It is done, and forced if it changed anything."""


class Refused(Answer, tag=66):
    """It was not done. ``error`` is the name of a class in ``txbroker.errors``; ``numbers`` are its extras."""

    error: str
    message: str
    numbers: dict[str, int] = {}


class Sent(Answer, tag=67):
    """The first message got ``base_offset``; all are forced to disk."""

    base_offset: int


class ProducerOpened(Answer, tag=68):
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
    """A topic."""

    name: str
    partitions: list[PartitionInfo]
    settings: TopicSettings


class Topics(Answer, tag=69):
    """Answers :class:`DescribeTopics`, sorted by name. Unknown names are left out."""

    topics: list[TopicInfo]


class FetchedPartition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One partition's part of an answer: the next ``length`` bytes of the data, or an ``error``.

    The first frame may begin below the offset asked for (a wrapper that holds it): skip what is below.
    """

    partition: int
    length: int
    start_offset: int
    high_watermark: int
    error: str = ""
    message: str = ""


class Fetched(Answer, tag=70):
    """Answers :class:`Fetch`, in the order asked for. Partitions with nothing new have length 0."""

    partitions: list[FetchedPartition]


class Offsets(Answer, tag=71):
    """Answers :class:`OffsetsForTime`: [(partition, offset)]."""

    offsets: list[tuple[int, int]]


class Committed(Answer, tag=72):
    """The transaction is committed. ``heuristic``: a person had forced it before this coordinator decided."""

    placements: list[Placement]
    heuristic: bool = False


class Outcome(Answer, tag=73):
    """A transaction's state and, if it is decided, why. ``heuristic``: a person forced it."""

    session: int
    serial: int
    state: State
    cause: Cause | None = None
    by: str = ""
    why: str = ""
    placements: list[Placement] = []
    heuristic: bool = False


class TransactionInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A transaction as operators see it. ``age`` is since it began, or ended if it has."""

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
    coordinator_told: bool = False


class Transactions(Answer, tag=74):
    """Answers :class:`ListTransactions`, by number. ``more``: ask again after the last one."""

    transactions: list[TransactionInfo]
    more: bool = False


class TransactionShown(Answer, tag=75):
    """Answers :class:`ShowTransaction`. ``parts`` are [(partition, bytes of the data)], in order of adding."""

    transaction: TransactionInfo
    parts: list[tuple[int, int]]
    offsets: list[tuple[str, PartitionOffset]] = []


class GroupOffset(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group's position. ``offset`` None: it has none yet.

    ``pending_by``: an undecided transaction (its number and xid, readable) that will move it; do not read on.
    """

    partition: int
    offset: int | None
    generation: int = 0
    metadata: str = ""
    pending_by: str = ""


class GroupOffsets(Answer, tag=76):
    """Answers :class:`FetchOffsets`."""

    offsets: list[GroupOffset]


class Claimed(Answer, tag=77):
    """Answers :class:`ClaimPartitions`: [(partition, generation)]; use them in offset commits."""

    claims: list[tuple[int, int]]


class GroupInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group: its positions as topic, index, offset and lag (messages behind the high watermark)."""

    name: str
    positions: list[tuple[str, int, int, int]]


class Groups(Answer, tag=78):
    """Answers :class:`ListGroups`, sorted by name."""

    groups: list[GroupInfo]


class Status(Answer, tag=79):
    """Answers :class:`AskStatus`: counters and gauges by name; docs/operations.md explains each."""

    values: dict[str, int | float | str]


AnyRequest = (
    Hello
    | Ping
    | Send
    | OpenProducer
    | DescribeTopics
    | CreateTopic
    | DeleteTopic
    | Fetch
    | OffsetsForTime
    | Add
    | AddOffsets
    | Prepare
    | Commit
    | Rollback
    | AskOutcome
    | ListTransactions
    | ShowTransaction
    | Forget
    | CommitOffsets
    | FetchOffsets
    | ClaimPartitions
    | ListGroups
    | DeleteGroup
    | AskStatus
)

AnyAnswer = (
    Welcome
    | Done
    | Refused
    | Sent
    | ProducerOpened
    | Topics
    | Fetched
    | Offsets
    | Committed
    | Outcome
    | Transactions
    | TransactionShown
    | GroupOffsets
    | Claimed
    | Groups
    | Status
)
