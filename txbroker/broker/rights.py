"""Rights: which one each request needs, and on what kind of thing. There is no login yet, so everything is allowed.

The table is complete: a request without a row fails a test. It says what can be read off a request by itself; whose a
transaction is, and which names are meant, is for the rules that judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from txbroker.wire.messages import (
    Add,
    AddOffsets,
    AlterGroup,
    AlterTopic,
    AskOutcome,
    AskStatus,
    Attend,
    BeginMessages,
    Cancel,
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
    Fetch,
    FetchOffsets,
    FindMessages,
    Forget,
    Hello,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListParked,
    ListSessions,
    ListStreams,
    ListTransactions,
    OffsetsForTime,
    OpenProducer,
    PinFiles,
    Ping,
    Prepare,
    Purge,
    ReleaseParked,
    ReleaseStream,
    Rollback,
    Send,
    ShowTransaction,
    Timed,
    UnpinFiles,
    Whether,
)


class Right(Enum):
    """The kinds of rights. ``DECIDE`` ends what another session prepared, ``FORCE`` without its coordinator."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    DESCRIBE = "describe"
    PREPARE = "prepare"
    DECIDE = "decide"
    FORCE = "force"
    BACKUP = "backup"
    ADMINISTER = "administer"


class Resource(Enum):
    """On what: topics, groups and producers go by name, transactions by how their xids begin; there is one broker."""

    TOPIC = "topic"
    GROUP = "group"
    PRODUCER = "producer"
    TRANSACTION = "transaction"
    BROKER = "broker"


def _always(command: Any) -> bool:  # noqa: ARG001
    return True


class Need(NamedTuple):
    """A right that a request needs on a kind of thing; ``if_so`` says of a request whether it does."""

    right: Right
    resource: Resource
    if_so: Callable[[Any], bool] = _always


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


def _has_readers(command: Fetch) -> bool:
    return bool(command.readers)


def _replaces(command: AlterGroup) -> bool:
    return command.whether is Whether.ALWAYS


_MESSAGES: Final = Need(Right.WRITE, Resource.TOPIC, _has_runs)
_POSITIONS: Final = Need(Right.READ, Resource.GROUP, _has_positions)
_FORCE: Final = Need(Right.FORCE, Resource.TRANSACTION, _forces)
_DECIDE: Final = Need(Right.DECIDE, Resource.TRANSACTION, _decides_elsewhere)

NEEDS: Final[Mapping[type, tuple[Need, ...]]] = {
    Hello: (),
    Ping: (),
    Send: (Need(Right.WRITE, Resource.TOPIC),),
    OpenProducer: (Need(Right.WRITE, Resource.PRODUCER),),
    DescribeTopics: (Need(Right.DESCRIBE, Resource.TOPIC),),
    CreateTopic: (Need(Right.CREATE, Resource.TOPIC),),
    DeleteTopic: (Need(Right.DELETE, Resource.TOPIC),),
    AlterTopic: (Need(Right.ALTER, Resource.TOPIC),),
    Purge: (Need(Right.DELETE, Resource.TOPIC),),
    Fetch: (Need(Right.READ, Resource.TOPIC), Need(Right.READ, Resource.GROUP, _has_readers)),
    OffsetsForTime: (Need(Right.DESCRIBE, Resource.TOPIC),),
    FindMessages: (Need(Right.READ, Resource.TOPIC),),
    Add: (Need(Right.WRITE, Resource.TOPIC),),
    AddOffsets: (Need(Right.READ, Resource.GROUP),),
    Prepare: (Need(Right.PREPARE, Resource.TRANSACTION), _MESSAGES, _POSITIONS),
    Commit: (_FORCE, _DECIDE, _MESSAGES, _POSITIONS),
    Rollback: (_FORCE, _DECIDE),
    AskOutcome: (Need(Right.DESCRIBE, Resource.TRANSACTION, _is_elsewhere),),
    ListTransactions: (Need(Right.DESCRIBE, Resource.TRANSACTION),),
    ShowTransaction: (Need(Right.DESCRIBE, Resource.TRANSACTION), Need(Right.READ, Resource.TOPIC)),
    Forget: (Need(Right.DECIDE, Resource.TRANSACTION),),
    CommitOffsets: (Need(Right.READ, Resource.GROUP),),
    FetchOffsets: (Need(Right.DESCRIBE, Resource.GROUP),),
    ClaimPartitions: (Need(Right.READ, Resource.GROUP),),
    ListGroups: (Need(Right.DESCRIBE, Resource.GROUP),),
    DeleteGroup: (Need(Right.DELETE, Resource.GROUP),),
    JoinGroup: (Need(Right.READ, Resource.GROUP), Need(Right.READ, Resource.TOPIC)),
    Attend: (Need(Right.READ, Resource.GROUP),),
    BeginMessages: (Need(Right.READ, Resource.GROUP),),
    LeaveGroup: (Need(Right.READ, Resource.GROUP),),
    DescribeGroup: (Need(Right.DESCRIBE, Resource.GROUP),),
    ListParked: (Need(Right.DESCRIBE, Resource.GROUP),),
    ReleaseParked: (Need(Right.READ, Resource.GROUP),),
    AlterGroup: (Need(Right.READ, Resource.GROUP), Need(Right.ALTER, Resource.GROUP, _replaces)),
    ClaimStream: (Need(Right.PREPARE, Resource.TRANSACTION),),
    ReleaseStream: (Need(Right.PREPARE, Resource.TRANSACTION),),
    ListStreams: (Need(Right.DESCRIBE, Resource.TRANSACTION),),
    AskStatus: (Need(Right.DESCRIBE, Resource.BROKER),),
    ListSessions: (Need(Right.DESCRIBE, Resource.BROKER),),
    CloseSession: (Need(Right.ADMINISTER, Resource.BROKER),),
    Timed: (),
    Cancel: (),
    PinFiles: (Need(Right.BACKUP, Resource.BROKER),),
    UnpinFiles: (Need(Right.BACKUP, Resource.BROKER),),
}
"""What each request needs. ``Timed`` needs what the request in it does; ``Cancel`` ends a fetch of its own session."""


def needs_of(command: Any) -> Iterator[Need]:
    """What one request needs."""
    meant = command.request if type(command) is Timed else command
    return (need for need in NEEDS[type(meant)] if need.if_so(meant))


class Rights(Protocol):
    """The rights of one principal."""

    def judge(self, need: Need, command: Any) -> None:
        """Raise the error that refuses a request if this need of it is not met."""


class Policy(Protocol):
    """The rights of all principals."""

    def rights_of(self, principal: str) -> Rights | None:
        """Return the rights of a principal; None if it may do everything, which then costs its requests nothing."""


class Unrestricted:
    """The policy while there is no login: every principal may do everything."""

    def rights_of(self, principal: str) -> None:
        """Return None: every principal may do everything."""
