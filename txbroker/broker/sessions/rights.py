"""Rights: which ones each request needs, and on what things.

The table is complete: a request without a row fails a test. Whether somebody has a right is for the rules
(:mod:`txbroker.broker.access.access_policy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

from journal.records.access_entries import Resource, Right
from txbroker.broker.sessions import things
from txbroker.broker.sessions.things import Places, Thing, Things
from txbroker.wire.messages import (
    Add,
    AddOffsets,
    AlterGroup,
    AlterRule,
    AlterTopic,
    AlterUser,
    AskOutcome,
    AskSchedule,
    AskStatus,
    Attend,
    BeginMessages,
    Bind,
    Cancel,
    CancelScheduled,
    CheckAccess,
    ClaimPartitions,
    ClaimStream,
    CloseSession,
    Commit,
    CommitOffsets,
    Consume,
    CreateTopic,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteGroup,
    DeleteQueue,
    DeleteTopic,
    DescribeGroup,
    DescribeTopics,
    Existing,
    Fetch,
    FetchOffsets,
    FindMessages,
    Forget,
    GiveBack,
    Hello,
    JoinGroup,
    LeaveGroup,
    ListExchanges,
    ListGroups,
    ListParked,
    ListQueues,
    ListRules,
    ListScheduled,
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
    PurgeQueue,
    Release,
    ReleaseParked,
    ReleaseScheduled,
    ReleaseStream,
    RemoveUser,
    Rollback,
    Send,
    ShowScheduled,
    ShowTransaction,
    StopConsuming,
    SwitchAccess,
    TakeMessages,
    TakeOver,
    Timed,
    Unbind,
    UnpinFiles,
    Whether,
)
from txbroker.wire.newer_request import NewerRequest


def _always(command: Any) -> bool:  # noqa: ARG001
    return True


class Need(NamedTuple):
    """A right that a request needs on some things; ``if_so`` says of a request whether it does."""

    right: Right
    resource: Resource
    things: Things
    if_so: Callable[[Any], bool] = _always


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


def _gives_up(command: Any) -> bool:
    """Whether it says of messages that they are dead. What a group's rules give up is the broker's doing."""
    return any(things.is_given_up(each) for part in things.parts_of(command) for each in part.settled)


def _releases_dead(command: ReleaseParked) -> bool:
    return command.what is Release.DEAD_LETTER


def _names_dead_topic(command: AlterGroup) -> bool:
    return command.settings.retry is not None and bool(command.settings.retry.target)


def _replaces(command: AlterGroup) -> bool:
    return command.whether is Whether.ALWAYS


def _is_not_own_password(command: AlterUser) -> bool:
    """Whether it is more than a password; whether that is the own one is for the handler, which knows who asks."""
    return command.names != ["scram"] or command.existing is not Existing.YES


def _makes(command: DeclareQueue | DeclareExchange) -> bool:
    return not command.passive


_WRITE, _READ, _DESCRIBE = Right.WRITE, Right.READ, Right.DESCRIBE
_TOPIC, _GROUP, _TRANSACTION = Resource.TOPIC, Resource.GROUP, Resource.TRANSACTION
_MESSAGES: Final = Need(_WRITE, _TOPIC, things.sent_runs, _has_runs)
_QUEUE, _EXCHANGE = Resource.QUEUE, Resource.EXCHANGE
_SENT: Final = (
    Need(_WRITE, _TOPIC, things.sent_to, lambda command: command.partition >= 0),
    Need(_WRITE, _EXCHANGE, things.exchange_sent_to, lambda command: command.partition < 0),
)
_PUBLISHED: Final = Need(
    _WRITE, _EXCHANGE, things.exchanges_of_runs, lambda command: any(each < 0 for each, _ in command.runs)
)
_ACKNOWLEDGED: Final = Need(_READ, _QUEUE, things.queues_settled)
_SETTLES: Final = Need(_READ, _GROUP, things.settling_group)
_BINDING: Final = (
    Need(_READ, _EXCHANGE, things.binding_source), Need(_WRITE, _QUEUE, things.bound_queue),
    Need(_WRITE, _EXCHANGE, things.bound_exchange),
)  # fmt: skip
_POSITIONS: Final = Need(_READ, _GROUP, things.groups_of_positions, _has_positions)
_MOVED: Final = Need(_READ, _TOPIC, things.moved)
_DEAD: Final = (
    Need(_WRITE, _TOPIC, things.dead_topics, _gives_up),
    Need(Right.CREATE, _TOPIC, things.missing_dead_topics, _gives_up),
)
_FORCE: Final = Need(Right.FORCE, _TRANSACTION, things.of_others, _forces)
_DECIDE: Final = Need(Right.DECIDE, _TRANSACTION, things.of_others, _decides_elsewhere)
_IN_GROUP: Final = Need(_READ, _GROUP, things.by_group)
_ATTENDED: Final = Need(_READ, _TOPIC, things.attended)
_OF_GROUP: Final = Need(_DESCRIBE, _GROUP, things.by_group)
THE_BROKER: Final = Need(Right.ADMINISTER, Resource.BROKER, things.the_broker)
_LOOK: Final = Need(_DESCRIBE, Resource.BROKER, things.the_broker)
_BACKUP: Final = Need(Right.BACKUP, Resource.BROKER, things.the_broker)

NEEDS: Final[Mapping[type, tuple[Need, ...]]] = {
    Hello: (),
    Login: (),
    Ping: (),
    Send: _SENT,
    OpenProducer: (Need(_WRITE, Resource.PRODUCER, things.by_name_if_any),),
    DescribeTopics: (Need(_DESCRIBE, _TOPIC, things.by_names_if_any),),
    CreateTopic: (Need(Right.CREATE, _TOPIC, things.by_name),),
    DeleteTopic: (Need(Right.DELETE, _TOPIC, things.by_name),),
    AlterTopic: (Need(Right.ALTER, _TOPIC, things.by_name),),
    Purge: (Need(Right.DELETE, _TOPIC, things.purged),),
    Fetch: (Need(_READ, _TOPIC, things.fetched), Need(_READ, _GROUP, things.by_readers, _has_readers)),
    OffsetsForTime: (Need(_DESCRIBE, _TOPIC, things.by_partitions),),
    FindMessages: (Need(_READ, _TOPIC, things.by_partition),),
    Add: _SENT,
    AddOffsets: (_SETTLES, _MOVED, _ACKNOWLEDGED, *_DEAD),
    Prepare: (
        Need(Right.PREPARE, _TRANSACTION, things.by_xid), _MESSAGES, _PUBLISHED, _POSITIONS, _MOVED, _ACKNOWLEDGED,
        *_DEAD,
    ),
    Commit: (
        _FORCE, _DECIDE, _MESSAGES, _PUBLISHED, _POSITIONS, _MOVED, _ACKNOWLEDGED, *_DEAD,
        Need(Right.PREPARE, _TRANSACTION, things.table_of_delivery, _has_delivery),
    ),
    Rollback: (_FORCE, _DECIDE),
    AskOutcome: (Need(_DESCRIBE, _TRANSACTION, things.of_others, _is_elsewhere),),
    ListTransactions: (Need(_DESCRIBE, _TRANSACTION, things.listed_transactions),),
    ShowTransaction: (Need(_DESCRIBE, _TRANSACTION, things.of_others),),
    Forget: (Need(Right.DECIDE, _TRANSACTION, things.of_others),),
    CommitOffsets: (_SETTLES, _MOVED, _ACKNOWLEDGED, *_DEAD),
    FetchOffsets: (_OF_GROUP, Need(_DESCRIBE, _TOPIC, things.by_partitions)),
    ClaimPartitions: (_IN_GROUP, Need(_READ, _TOPIC, things.by_partitions)),
    ListGroups: (),
    DeleteGroup: (Need(Right.DELETE, _GROUP, things.by_group),),
    JoinGroup: (_IN_GROUP, Need(_READ, _TOPIC, things.joined)),
    Attend: (_IN_GROUP, _ATTENDED),
    BeginMessages: (_IN_GROUP, _ATTENDED),
    LeaveGroup: (_IN_GROUP,),
    DescribeGroup: (_OF_GROUP,),
    ListParked: (_OF_GROUP, Need(_DESCRIBE, _TOPIC, things.by_partition)),
    ReleaseParked: (
        _IN_GROUP, Need(_READ, _TOPIC, things.by_partition), Need(_WRITE, _TOPIC, things.dead_topics, _releases_dead),
        Need(Right.CREATE, _TOPIC, things.missing_dead_topics, _releases_dead),
    ),
    AlterGroup: (
        _IN_GROUP, Need(Right.ALTER, _GROUP, things.by_group, _replaces),
        Need(_WRITE, _TOPIC, things.dead_topics, _names_dead_topic),
        Need(Right.CREATE, _TOPIC, things.missing_dead_topics, _names_dead_topic),
        Need(_READ, _TOPIC, things.topics_of_group, _names_dead_topic),
    ),
    ClaimStream: (Need(Right.PREPARE, _TRANSACTION, things.by_table),),
    ReleaseStream: (Need(Right.PREPARE, _TRANSACTION, things.table_of_stream),),
    ListStreams: (Need(_DESCRIBE, _TRANSACTION, things.listed_streams),),
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
    AskSchedule: (),
    CancelScheduled: (),
    ShowScheduled: (),
    ListScheduled: (),
    ReleaseScheduled: (THE_BROKER,),
    DeclareQueue: (
        Need(Right.CREATE, _QUEUE, things.by_name, _makes), Need(_DESCRIBE, _QUEUE, things.by_name),
        Need(_WRITE, _EXCHANGE, things.dead_letter_exchange, _makes),
    ),
    DeleteQueue: (Need(Right.DELETE, _QUEUE, things.by_name),),
    PurgeQueue: (Need(_READ, _QUEUE, things.by_name),),
    DeclareExchange: (
        Need(Right.CREATE, _EXCHANGE, things.declared_exchange, _makes),
        Need(_DESCRIBE, _EXCHANGE, things.declared_exchange),
        Need(_WRITE, _EXCHANGE, things.alternate_exchange, _makes),
    ),
    DeleteExchange: (Need(Right.DELETE, _EXCHANGE, things.declared_exchange),),
    Bind: _BINDING,
    Unbind: _BINDING,
    TakeMessages: (Need(_READ, _QUEUE, things.queue_of_partition),),
    GiveBack: (Need(_READ, _QUEUE, things.queue_of_partition),),
    Consume: (Need(_READ, _QUEUE, things.queue_of_partition),),
    StopConsuming: (),
    TakeOver: (),
    ListQueues: (Need(_DESCRIBE, _QUEUE, things.listed_queues),),
    ListExchanges: (Need(_DESCRIBE, _EXCHANGE, things.listed_queues),),
}  # fmt: skip
"""What each request needs. ``Timed`` needs what the request in it does; ``Cancel`` ends a fetch of its own session, and
``StopConsuming`` a consumer of it. ``TakeOver`` needs a lease, which only those are shown who may take messages of the
queue; its handler wants the same principal.

What is sent to the schedule, taken back or shown of it is judged by the topics of these messages, which only its
handlers know (:mod:`txbroker.broker.schedule.scheduling`).

Lists of topics, groups and all positions of a group have what may be described, and say whether that is all; frames of
``ShowTransaction`` are those that may be read.
"""


def needs_of(command: Any) -> Iterator[Need]:
    """What one request needs; for a timed one the request in it is asked for."""
    return (need for need in NEEDS[type(command)] if need.if_so(command))


def judge_rights(rights: Rights, command: Any) -> None:
    """Raise unless a request may be carried out: the one place where this is asked, whether it was parked, timed or
    came just now.
    """
    if not rights.knows(command) and type(command) is not NewerRequest:  # which is refused, whoever asks
        meant = command.request if type(command) is Timed else command
        for need in needs_of(meant):
            rights.judge(need, meant)
        rights.learn(meant)


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


def has_right(rights: Rights | None, right: Right, resource: Resource, name: str) -> bool:
    """Return whether these rights (None: all) have one on the thing of that name, whether or not it is there."""
    named = things.exchange_named if resource is Resource.EXCHANGE else things.named
    return rights is None or rights.allows(right, resource, named(name))


def described(resource: Resource, names: Iterable[str], rights: Rights | None) -> Iterable[str]:
    """Return the names of the things that may be described with these rights (None: everything)."""
    return [name for name in names if has_right(rights, Right.DESCRIBE, resource, name)]


def may_describe_topic(name: str, rights: Rights | None) -> bool:
    """Return whether a topic may be described with these rights (None: everything)."""
    return rights is None or rights.allows(Right.DESCRIBE, Resource.TOPIC, things.named(name))


class Policy(Protocol):
    """The rights of all principals."""

    def rights_of(self, principal: str) -> Rights | None:
        """Return the rights of a principal; None if it may do everything, which then costs its requests nothing."""
