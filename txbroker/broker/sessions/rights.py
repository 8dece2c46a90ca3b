"""Rights: which ones each request needs, and on what things.

The table is complete: a request without a row fails a test. Whether somebody has a right is for the rules
(:mod:`txbroker.broker.access.access_policy`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from journal.records.access_entries import Resource, Right
from journal.records.group_entries import GroupPositions, Settled
from journal.xid import Xid
from txbroker.wire.messages import (
    Add,
    AddOffsets,
    AlterGroup,
    AlterRule,
    AlterTopic,
    AlterUser,
    AskOutcome,
    AskStatus,
    Attend,
    BeginMessages,
    Cancel,
    CheckAccess,
    ClaimPartitions,
    ClaimStream,
    CloseSession,
    Commit,
    CommitOffsets,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    DescribeGroup,
    DescribeTopics,
    Existing,
    Fetch,
    FetchOffsets,
    FindMessages,
    Forget,
    Hello,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListParked,
    ListRules,
    ListSessions,
    ListStreams,
    ListTransactions,
    ListUsers,
    Login,
    OffsetsForTime,
    OpenProducer,
    PinFiles,
    Ping,
    Prepare,
    Purge,
    Release,
    ReleaseParked,
    ReleaseStream,
    RemoveUser,
    Rollback,
    Send,
    ShowTransaction,
    SwitchAccess,
    Timed,
    UnpinFiles,
    Whether,
)


class Thing(NamedTuple):
    """A thing that a right is needed on. ``name`` None: none is known by what the request says of it.

    ``shown`` is what a refusal calls it: what the request has said, and nothing that it has not. ``is_prefix``: all
    things whose names begin so are meant. ``also`` is another name of it, for rules.
    """

    name: str | None
    shown: str
    is_prefix: bool = False
    also: str = ""


class Reads(Protocol):
    """What a member of a group reads: the topics of these names, and those whose names match a pattern."""

    @property
    def topics(self) -> Collection[str]:
        """The names of topics."""

    @property
    def pattern(self) -> str:
        """Shell wildcards; "" matches none."""


class Places(Protocol):
    """What a request's numbers mean, for the principal that asks."""

    def topic_of(self, partition: int) -> str | None:
        """Return the topic of a partition; None if there is none of that number."""

    def table_of(self, stream: bytes) -> str | None:
        """Return the decision table of a stream; None if it is not known."""

    def of_others(self, command: Any) -> Thing | None:
        """Return the transaction that a request names; None if it is the principal's own, or its number is nobody's."""

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic of that name."""

    def topics_of(self, group: str) -> Collection[str]:
        """Return the topics in which a group has positions or claims."""

    def dead_topic_of(self, group: str, partition: int) -> str | None:
        """Return the topic that takes what a group gives up in a partition; None if nothing can be given up there."""

    def reads_of(self, command: Attend | BeginMessages) -> Reads | None:
        """Return what the member that a request names reads; None if there is none with that secret."""


Things = Callable[[Any, Places], Iterable[Thing]]


def _always(command: Any) -> bool:  # noqa: ARG001
    return True


class Need(NamedTuple):
    """A right that a request needs on some things; ``if_so`` says of a request whether it does."""

    right: Right
    resource: Resource
    things: Things
    if_so: Callable[[Any], bool] = _always


# -- the things that are meant ------------------------------------------------------------------


def partition_of(number: int, places: Places) -> Thing:
    """Return the topic of a partition, as what a right is needed on."""
    return Thing(places.topic_of(number), f"the topic of partition {number}")


def _named(name: str) -> Thing:
    return Thing(name, name)


def _the_broker(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (Thing("", ""),)


def _name(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_named(command.name),)


def _name_if_any(command: OpenProducer, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_named(command.name),) if command.name else ()


def _names_if_any(command: DescribeTopics, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return map(_named, command.names or ())


def _group(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_named(command.group),)


def _readers(command: Fetch, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_named(reader.group) for reader in command.readers)


def _groups_of_positions(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_named(each.group) for each in command.positions)


def _partition(command: Any, places: Places) -> Iterable[Thing]:
    return (partition_of(command.partition, places),)


def _partitions(command: OffsetsForTime | ClaimPartitions | FetchOffsets, places: Places) -> Iterable[Thing]:
    return (partition_of(number, places) for number in dict.fromkeys(command.partitions or ()))


def _fetched(command: Fetch, places: Places) -> Iterable[Thing]:
    return (partition_of(number, places) for number, _, _ in command.positions)


def _purged(command: Purge, places: Places) -> Iterable[Thing]:
    return (partition_of(number, places) for number, _ in command.starts)


def _runs(command: Prepare | Commit, places: Places) -> Iterable[Thing]:
    return (partition_of(number, places) for number, _ in command.runs)


def _moved(command: Any, places: Places) -> Iterable[Thing]:
    """A position tells what is in its topic: where it ends, and, in a dead letter, what the message was."""
    parts = _parts(command)
    numbers = [each.partition for part in parts for each in part.offsets]
    numbers += [each.partition for part in parts for each in part.settled]
    return (partition_of(number, places) for number in dict.fromkeys(numbers))


def _dead_topics(command: Any, places: Places) -> Iterable[Thing]:
    return map(_named, _taking(command, places))


def _missing_dead_topics(command: Any, places: Places) -> Iterable[Thing]:
    """Those that the broker would make."""
    return (_named(name) for name in _taking(command, places) if not places.has_topic(name))


def _taking(command: Any, places: Places) -> Iterable[str]:
    """Yield the topics that take what a request gives up, or what is given up by the rules that it sets."""
    if type(command) is AlterGroup:
        retry = command.settings.retry
        found = {retry.target if retry is not None else None}
    elif type(command) is ReleaseParked:
        found = {places.dead_topic_of(command.group, command.partition)}
    else:
        found = {
            places.dead_topic_of(part.group, each.partition)
            for part in _parts(command)
            for each in part.settled
            if _is_given_up(each)
        }
    return sorted(name for name in found if name)


def _topics_of_group(command: AlterGroup, places: Places) -> Iterable[Thing]:
    """What is in these could be read in the topic that takes dead letters."""
    return (Thing(name, f"of group {command.group}") for name in places.topics_of(command.group))


def _attended(command: Attend | BeginMessages, places: Places) -> Iterable[Thing]:
    """All partitions that a member has, or is given, are of topics that it reads; others' are passed over."""
    reads = places.reads_of(command)
    return () if reads is None else _joined(reads, places)


def _joined(command: Reads, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """All that a pattern could match begins with what stands before its first wildcard."""
    yield from map(_named, command.topics)
    if command.pattern:
        literal = re.split(r"[*?[]", command.pattern, maxsplit=1)[0]
        yield Thing(literal, f"{literal}*", is_prefix=literal != command.pattern)


def _xid(command: Prepare, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (xid_thing(command.xid),)


def _of_others(command: Any, places: Places) -> Iterable[Thing]:
    found = places.of_others(command)
    return () if found is None else (found,)


def _listed(command: ListTransactions, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """A list is whole, or refused: who concludes something from what is not in it would be wrong."""
    if command.own:
        return ()
    prefix = resource_name(command.global_prefix)
    return (Thing(prefix, f"{prefix}*", is_prefix=True),)


def _table(command: ClaimStream, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_rows_of(command.table),)


def _table_of_stream(command: ReleaseStream, places: Places) -> Iterable[Thing]:
    table = places.table_of(command.stream)
    return () if table is None else (_rows_of(table),)  # one that is not known is released already


def _table_of_delivery(command: Commit, places: Places) -> Iterable[Thing]:
    assert command.delivery is not None
    table = places.table_of(command.delivery.stream)
    return () if table is None else (_rows_of(table),)  # which is refused for that reason


def _listed_streams(command: ListStreams, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    return (_rows_of(command.table) if command.table else Thing("", "*", is_prefix=True),)


def _rows_of(table: str) -> Thing:
    """A decision table's blocks: their xids, and the streams of its outbox, begin with its identity."""
    prefix = f"{resource_name(table.encode())}-"
    return Thing(prefix, f"{prefix}*", is_prefix=True)


def resource_name(global_id: bytes) -> str:
    """Return the name by which rules know transactions of a global id, or of ids that begin so.

    Letters, digits and ``._-`` are themselves, other bytes ``%XX``: so what begins alike is named alike.
    """
    return quote(global_id, safe="").replace("~", "%7E")


def xid_thing(xid: Xid) -> Thing:
    """Return the transaction of an xid, as what a right is needed on."""
    return Thing(resource_name(xid.global_id), str(xid))


# -- whether a need is there --------------------------------------------------------------------


def _forces(command: Commit | Rollback) -> bool:
    return command.operator


def _decides_elsewhere(command: Commit | Rollback) -> bool:
    return not command.operator and _is_elsewhere(command)


def _is_elsewhere(command: Commit | Rollback | AskOutcome) -> bool:
    """Whether it names a transaction otherwise than by a serial of its own session."""
    return bool(command.session) or not command.serial


def _has_runs(command: Prepare | Commit) -> bool:
    return bool(command.runs)


def _has_positions(command: Prepare | Commit) -> bool:
    return bool(command.positions)


def _has_delivery(command: Commit) -> bool:
    return command.delivery is not None


def _has_readers(command: Fetch) -> bool:
    return bool(command.readers)


def _parts(command: Any) -> Sequence[GroupPositions | CommitOffsets | AddOffsets]:
    """Return what a request moves and settles, group by group."""
    return command.positions if isinstance(command, Prepare | Commit) else (command,)


def _is_given_up(settled: Settled) -> bool:
    return any(each.dead for each in settled.retried)


def _gives_up(command: Any) -> bool:
    """Whether it says of messages that they are dead. What a group's rules give up is the broker's doing."""
    return any(_is_given_up(each) for part in _parts(command) for each in part.settled)


def _releases_dead(command: ReleaseParked) -> bool:
    return command.what is Release.DEAD_LETTER


def _names_dead_topic(command: AlterGroup) -> bool:
    return command.settings.retry is not None and bool(command.settings.retry.target)


def _replaces(command: AlterGroup) -> bool:
    return command.whether is Whether.ALWAYS


def _is_not_own_password(command: AlterUser) -> bool:
    """Whether it is more than a password; whether that is the own one is for the handler, which knows who asks."""
    return command.names != ["scram"] or command.existing is not Existing.YES


_WRITE, _READ, _DESCRIBE = Right.WRITE, Right.READ, Right.DESCRIBE
_TOPIC, _GROUP, _TRANSACTION = Resource.TOPIC, Resource.GROUP, Resource.TRANSACTION
_MESSAGES: Final = Need(_WRITE, _TOPIC, _runs, _has_runs)
_POSITIONS: Final = Need(_READ, _GROUP, _groups_of_positions, _has_positions)
_MOVED: Final = Need(_READ, _TOPIC, _moved)
_DEAD: Final = (
    Need(_WRITE, _TOPIC, _dead_topics, _gives_up),
    Need(Right.CREATE, _TOPIC, _missing_dead_topics, _gives_up),
)
_FORCE: Final = Need(Right.FORCE, _TRANSACTION, _of_others, _forces)
_DECIDE: Final = Need(Right.DECIDE, _TRANSACTION, _of_others, _decides_elsewhere)
_IN_GROUP: Final = Need(_READ, _GROUP, _group)
_ATTENDED: Final = Need(_READ, _TOPIC, _attended)
_OF_GROUP: Final = Need(_DESCRIBE, _GROUP, _group)
THE_BROKER: Final = Need(Right.ADMINISTER, Resource.BROKER, _the_broker)
_LOOK: Final = Need(_DESCRIBE, Resource.BROKER, _the_broker)
_BACKUP: Final = Need(Right.BACKUP, Resource.BROKER, _the_broker)

NEEDS: Final[Mapping[type, tuple[Need, ...]]] = {
    Hello: (),
    Login: (),
    Ping: (),
    Send: (Need(_WRITE, _TOPIC, _partition),),
    OpenProducer: (Need(_WRITE, Resource.PRODUCER, _name_if_any),),
    DescribeTopics: (Need(_DESCRIBE, _TOPIC, _names_if_any),),
    CreateTopic: (Need(Right.CREATE, _TOPIC, _name),),
    DeleteTopic: (Need(Right.DELETE, _TOPIC, _name),),
    AlterTopic: (Need(Right.ALTER, _TOPIC, _name),),
    Purge: (Need(Right.DELETE, _TOPIC, _purged),),
    Fetch: (Need(_READ, _TOPIC, _fetched), Need(_READ, _GROUP, _readers, _has_readers)),
    OffsetsForTime: (Need(_DESCRIBE, _TOPIC, _partitions),),
    FindMessages: (Need(_READ, _TOPIC, _partition),),
    Add: (Need(_WRITE, _TOPIC, _partition),),
    AddOffsets: (_IN_GROUP, _MOVED, *_DEAD),
    Prepare: (Need(Right.PREPARE, _TRANSACTION, _xid), _MESSAGES, _POSITIONS, _MOVED, *_DEAD),
    Commit: (
        _FORCE, _DECIDE, _MESSAGES, _POSITIONS, _MOVED, *_DEAD,
        Need(Right.PREPARE, _TRANSACTION, _table_of_delivery, _has_delivery),
    ),
    Rollback: (_FORCE, _DECIDE),
    AskOutcome: (Need(_DESCRIBE, _TRANSACTION, _of_others, _is_elsewhere),),
    ListTransactions: (Need(_DESCRIBE, _TRANSACTION, _listed),),
    ShowTransaction: (Need(_DESCRIBE, _TRANSACTION, _of_others),),
    Forget: (Need(Right.DECIDE, _TRANSACTION, _of_others),),
    CommitOffsets: (_IN_GROUP, _MOVED, *_DEAD),
    FetchOffsets: (_OF_GROUP, Need(_DESCRIBE, _TOPIC, _partitions)),
    ClaimPartitions: (_IN_GROUP, Need(_READ, _TOPIC, _partitions)),
    ListGroups: (),
    DeleteGroup: (Need(Right.DELETE, _GROUP, _group),),
    JoinGroup: (_IN_GROUP, Need(_READ, _TOPIC, _joined)),
    Attend: (_IN_GROUP, _ATTENDED),
    BeginMessages: (_IN_GROUP, _ATTENDED),
    LeaveGroup: (_IN_GROUP,),
    DescribeGroup: (_OF_GROUP,),
    ListParked: (_OF_GROUP, Need(_DESCRIBE, _TOPIC, _partition)),
    ReleaseParked: (
        _IN_GROUP, Need(_READ, _TOPIC, _partition), Need(_WRITE, _TOPIC, _dead_topics, _releases_dead),
        Need(Right.CREATE, _TOPIC, _missing_dead_topics, _releases_dead),
    ),
    AlterGroup: (
        _IN_GROUP, Need(Right.ALTER, _GROUP, _group, _replaces), Need(_WRITE, _TOPIC, _dead_topics, _names_dead_topic),
        Need(Right.CREATE, _TOPIC, _missing_dead_topics, _names_dead_topic),
        Need(_READ, _TOPIC, _topics_of_group, _names_dead_topic),
    ),
    ClaimStream: (Need(Right.PREPARE, _TRANSACTION, _table),),
    ReleaseStream: (Need(Right.PREPARE, _TRANSACTION, _table_of_stream),),
    ListStreams: (Need(_DESCRIBE, _TRANSACTION, _listed_streams),),
    AskStatus: (_LOOK,),
    ListSessions: (_LOOK,),
    CloseSession: (THE_BROKER,),
    AlterUser: (THE_BROKER._replace(if_so=_is_not_own_password),),
    RemoveUser: (THE_BROKER,),
    ListUsers: (THE_BROKER,),
    AlterRule: (THE_BROKER,),
    ListRules: (THE_BROKER,),
    SwitchAccess: (THE_BROKER,),
    CheckAccess: (THE_BROKER,),
    Timed: (),
    Cancel: (),
    PinFiles: (_BACKUP,),
    UnpinFiles: (_BACKUP,),
}  # fmt: skip
"""What each request needs. ``Timed`` needs what the request in it does; ``Cancel`` ends a fetch of its own session.

Lists of topics, groups and all positions of a group have what may be described, and say whether that is all; frames of
``ShowTransaction`` are those that may be read.
"""


def needs_of(command: Any) -> Iterator[Need]:
    """What one request needs; for a timed one the request in it is asked for."""
    return (need for need in NEEDS[type(command)] if need.if_so(command))


class Rights(Places, Protocol):
    """The rights of one principal."""

    def knows(self, command: Any) -> bool:
        """Return whether a request like this was allowed before."""

    def learn(self, command: Any) -> None:
        """Note that a request was allowed."""

    def judge(self, need: Need, command: Any) -> None:
        """Raise the error that refuses a request if this need of it is not met."""

    def allows(self, right: Right, resource: Resource, thing: Thing) -> bool:
        """Return whether the principal has a right on a thing."""


def described(resource: Resource, names: Iterable[str], rights: Rights | None) -> Iterable[str]:
    """Return the names of the things that may be described with these rights (None: everything)."""
    if rights is None:
        return names
    return [name for name in names if rights.allows(Right.DESCRIBE, resource, _named(name))]


def may_describe_topic(name: str, rights: Rights | None) -> bool:
    """Return whether a topic may be described with these rights (None: everything)."""
    return rights is None or rights.allows(Right.DESCRIBE, Resource.TOPIC, _named(name))


class Policy(Protocol):
    """The rights of all principals."""

    def rights_of(self, principal: str) -> Rights | None:
        """Return the rights of a principal; None if it may do everything, which then costs its requests nothing."""
