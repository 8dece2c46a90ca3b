"""The union of all answers, which a client decodes."""

from __future__ import annotations

from txbroker.wire.access import AccessChecked, Rules, Users
from txbroker.wire.answers import (
    Attended,
    Claimed,
    Committed,
    Done,
    Fetched,
    FilesPinned,
    GoingAway,
    GroupMembers,
    GroupOffsets,
    Groups,
    Joined,
    MessagesFound,
    Offsets,
    Outcome,
    Parked,
    ProducerOpened,
    Refused,
    Sent,
    Status,
    TimedAnswer,
    Topics,
    Transactions,
    TransactionShown,
)
from txbroker.wire.login import Challenge, Offered, Welcome
from txbroker.wire.queues import Counted, ExchangeDeclared, Exchanges, QueueDeclared, Queues, Taken, TakenOver
from txbroker.wire.schedule import ScheduledList, ScheduledStates, ScheduleTold
from txbroker.wire.sessions import Sessions
from txbroker.wire.streams import StreamHeld, Streams

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
    | TimedAnswer
    | FilesPinned
    | Joined
    | Attended
    | GroupMembers
    | MessagesFound
    | Parked
    | StreamHeld
    | Streams
    | GoingAway
    | Sessions
    | Offered
    | Challenge
    | Users
    | Rules
    | AccessChecked
    | ScheduleTold
    | ScheduledStates
    | ScheduledList
    | QueueDeclared
    | Counted
    | ExchangeDeclared
    | Taken
    | TakenOver
    | Queues
    | Exchanges
)
