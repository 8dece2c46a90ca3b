"""The union of all requests, which a broker decodes."""

from __future__ import annotations

from txbroker.wire.access import (
    AlterRule,
    AlterUser,
    CheckAccess,
    ListRules,
    ListUsers,
    RemoveUser,
    SwitchAccess,
)
from txbroker.wire.login import Login
from txbroker.wire.parked_offsets import AlterGroup, ListParked, ReleaseParked
from txbroker.wire.queues import (
    Bind,
    Consume,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    GiveBack,
    ListExchanges,
    ListQueues,
    PurgeQueue,
    StopConsuming,
    TakeMessages,
    TakeOver,
    Unbind,
)
from txbroker.wire.requests import (
    Add,
    AddOffsets,
    AskOutcome,
    AskStatus,
    Attend,
    BeginMessages,
    Cancel,
    ClaimPartitions,
    Commit,
    CommitOffsets,
    DeleteGroup,
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
    ListTransactions,
    OffsetsForTime,
    OpenProducer,
    PinFiles,
    Ping,
    Prepare,
    Rollback,
    Send,
    ShowTransaction,
    Timed,
    UnpinFiles,
)
from txbroker.wire.schedule import (
    AskSchedule,
    CancelScheduled,
    ListScheduled,
    ReleaseScheduled,
    ShowScheduled,
)
from txbroker.wire.sessions import CloseSession, ListSessions
from txbroker.wire.streams import ClaimStream, ListStreams, ReleaseStream
from txbroker.wire.topics import AlterTopic, CreateTopic, DeleteTopic, Purge

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
    | Timed
    | Cancel
    | PinFiles
    | UnpinFiles
    | Purge
    | AlterTopic
    | JoinGroup
    | Attend
    | LeaveGroup
    | DescribeGroup
    | FindMessages
    | ListParked
    | ReleaseParked
    | AlterGroup
    | BeginMessages
    | ClaimStream
    | ReleaseStream
    | ListStreams
    | ListSessions
    | CloseSession
    | Login
    | AlterUser
    | RemoveUser
    | ListUsers
    | AlterRule
    | ListRules
    | SwitchAccess
    | CheckAccess
    | AskSchedule
    | CancelScheduled
    | ShowScheduled
    | ListScheduled
    | ReleaseScheduled
    | DeclareQueue
    | DeleteQueue
    | PurgeQueue
    | DeclareExchange
    | DeleteExchange
    | Bind
    | Unbind
    | TakeMessages
    | GiveBack
    | ListQueues
    | ListExchanges
    | Consume
    | StopConsuming
    | TakeOver
)
