"""The client's rules as data: what to do after a lost answer, for each request, and when to connect again."""

from __future__ import annotations

import enum
from collections.abc import Callable
from numbers import Real
from typing import Any, Final, NamedTuple

import msgspec

from journal.arguments import LONGEST, text, truth, whole, wrong_type, wrong_value
from journal.random_id import new_id
from txbroker import errors
from txbroker.client.core.partitioner import Partitioner
from txbroker.wire import messages as commands
from txbroker.wire.messages import Request


class Lost(enum.Enum):
    """What to do about a request that was sent, if the connection died before its answer."""

    READ = "it changes nothing: send it again"
    REPEAT = "once or twice has the same effect: send it again"
    ASK = "never send it again: its operation asks how it ended"


RULES: dict[type[Request], Lost] = {
    commands.Hello: Lost.ASK,
    commands.Login: Lost.ASK,  # of one connection
    commands.Ping: Lost.READ,
    commands.Send: Lost.REPEAT,  # always with a producer id and a sequence
    commands.OpenProducer: Lost.REPEAT,
    commands.DescribeTopics: Lost.READ,
    commands.CreateTopic: Lost.ASK,  # the operation compares the id of the topic of that name
    commands.DeleteTopic: Lost.REPEAT,  # of one id: UnknownTopic on a repetition is success
    commands.AlterTopic: Lost.REPEAT,  # of one id; the last of several alterations counts
    commands.Purge: Lost.REPEAT,  # a start of a log never goes back
    commands.Fetch: Lost.READ,
    commands.OffsetsForTime: Lost.READ,
    commands.FindMessages: Lost.READ,
    commands.Add: Lost.ASK,
    commands.AddOffsets: Lost.ASK,
    commands.Prepare: Lost.ASK,
    commands.Commit: Lost.REPEAT,  # of a prepared one; a one-phase commit asks for ASK itself
    commands.Rollback: Lost.REPEAT,
    commands.AskOutcome: Lost.READ,
    commands.ListTransactions: Lost.READ,
    commands.ShowTransaction: Lost.READ,
    commands.Forget: Lost.REPEAT,  # of one number and xid: UnknownTransaction on a repetition is success
    commands.CommitOffsets: Lost.REPEAT,  # fenced by its generation; if that is 0, by what is expected
    commands.FetchOffsets: Lost.READ,
    commands.ClaimPartitions: Lost.REPEAT,
    commands.ListGroups: Lost.READ,
    commands.DeleteGroup: Lost.REPEAT,  # of one id: UnknownGroup on a repetition is success
    commands.AskStatus: Lost.READ,
    commands.Cancel: Lost.ASK,  # never of a call: the fetch is lost with the connection, too
    commands.PinFiles: Lost.REPEAT,  # in the new session, because the pin ended with the old one
    commands.UnpinFiles: Lost.REPEAT,  # a new session has no pin, and gets that answer
    commands.JoinGroup: Lost.REPEAT,  # of one nonce: the same member
    commands.Attend: Lost.REPEAT,  # it says all that the member has, so the last one counts
    commands.BeginMessages: Lost.REPEAT,  # it says all that the member handles, so the last one counts
    commands.LeaveGroup: Lost.REPEAT,  # a member that has left already is no error
    commands.DescribeGroup: Lost.READ,
    commands.ListParked: Lost.READ,
    commands.ReleaseParked: Lost.REPEAT,  # what has been released, or finished, stays as it is
    commands.AlterGroup: Lost.REPEAT,  # what it says is so already, or another has altered it since
    commands.ClaimStream: Lost.REPEAT,  # the last one counts, and its answer is the one that is waited for
    commands.ReleaseStream: Lost.REPEAT,  # of one epoch: a stream that is not known is released
    commands.ListStreams: Lost.READ,
    commands.ListSessions: Lost.READ,
    commands.CloseSession: Lost.REPEAT,  # if it is gone by then, the repetition says so
    commands.AlterUser: Lost.REPEAT,  # of a new one: UserExists on a repetition is success
    commands.RemoveUser: Lost.REPEAT,  # UnknownUser on a repetition is success
    commands.ListUsers: Lost.READ,
    commands.AlterRule: Lost.REPEAT,  # of rights that it has, or has not, already
    commands.ListRules: Lost.READ,
    commands.SwitchAccess: Lost.REPEAT,
    commands.AskSchedule: Lost.REPEAT,  # makes what is not there
    commands.CancelScheduled: Lost.REPEAT,  # what was taken back is said to be again
    commands.ShowScheduled: Lost.READ,
    commands.ListScheduled: Lost.READ,
    commands.ReleaseScheduled: Lost.REPEAT,
    commands.DeclareQueue: Lost.REPEAT,  # what is there with these settings is what was wanted
    commands.DeleteQueue: Lost.REPEAT,  # of one partition: UnknownQueue on a repetition is success
    commands.PurgeQueue: Lost.ASK,  # what has come since would be lost, too
    commands.DeclareExchange: Lost.REPEAT,
    commands.DeleteExchange: Lost.REPEAT,  # of one number: UnknownExchange on a repetition is success
    commands.Bind: Lost.REPEAT,
    commands.Unbind: Lost.REPEAT,
    commands.TakeMessages: Lost.READ,  # what was taken went back with the session
    commands.GiveBack: Lost.ASK,  # never of a call
    commands.Consume: Lost.REPEAT,  # in the new session: it has ended with the old one
    commands.StopConsuming: Lost.ASK,  # never of a call: it has ended with its session
    commands.TakeOver: Lost.REPEAT,  # what the first one took went back with the session: refused
    commands.ListQueues: Lost.READ,
    commands.ListExchanges: Lost.READ,
    commands.CheckAccess: Lost.READ,
    commands.Timed: Lost.ASK,  # never of a call: a repetition sends the measured request itself
}

REFUSED_FOR_GOOD: Final = (
    errors.VersionRefused,
    errors.InvalidName,
    errors.BrokerReplaced,
    errors.BrokerNotProven,
)
"""Refusals of a hello that the same client would get again, however often it connects."""


def repetition(request: Request) -> Request:
    """Return the request to send as a repetition: the same, except that a group which it makes gets another id.

    The group that the first try made may have been deleted since, and the deleting client may have to repeat that, too.
    """
    if isinstance(
        request, (commands.CommitOffsets, commands.ClaimPartitions, commands.JoinGroup, commands.AlterGroup)
    ):
        return msgspec.structs.replace(request, id=new_id())
    return request


class Backoff:
    """Waiting times before connecting again: doubling, bounded, jittered to between a half and the whole."""

    def __init__(self, random: Callable[[], float], first: float = 0.05, most: float = 2.0) -> None:
        self._random = random
        self._first = first
        self._most = most
        self._failures = 0

    def next(self) -> float:
        """Return how many seconds to wait after one more failure."""
        full = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return full * (0.5 + self._random() / 2)

    def reset(self) -> None:
        """Begin anew after a connection that worked."""
        self._failures = 0


_STATE: Final = "nothing was opened"


class Options(NamedTuple):
    """How a client behaves. Times are in seconds, sizes in bytes.

    ``client`` names the program for operators. ``producer`` is a stable name that fences earlier connections with
    that name. ``timeout`` bounds every operation. With ``reconnect`` a lost connection is made again.

    ``max_buffered`` bounds unanswered messages. Above it senders wait, or get BufferFull if ``when_full`` is
    "raise". A batch goes out when no other batch of its partition is in flight and its first message has waited
    ``linger`` (less than ``timeout``), or when it has ``batch_bytes``; 0 sends every message alone.

    ``reports`` is a topic in which the client reports every ``report_interval`` what it has sent, counted in
    windows of ``report_window``. ``compression`` ("zstd", "lz4" or None) compresses batches, at
    ``compression_level`` (None: the codec's default).

    ``user`` logs in with ``password`` (text, or a function that returns it) or with what is in ``password_file``; a
    ``token`` (the same) or ``token_file`` needs no user. Functions are called, and files read, at each login: so they
    may change. With neither, and no ``user``, the environment names them: ``TXBROKER_USER`` with
    ``TXBROKER_PASSWORD_FILE``, or ``TXBROKER_TOKEN_FILE``. ``channel_binding`` ("disable", "prefer" or "require") ties
    a password's login to the broker's certificate.

    ``partitioner(topic, key, partitions)`` returns the index of the partition for a message without an explicit
    one, or None to leave the choice to the key. It is called for each message, while the connection's lock is held:
    it must be quick, and must not use the connection.
    """

    client: str = ""
    producer: str = ""
    timeout: float = 30.0
    reconnect: bool = True
    max_buffered: int = 64 << 20
    when_full: str = "wait"
    linger: float = 0.0
    batch_bytes: int = 64 << 10
    reports: str = ""
    report_interval: float = 10.0
    report_window: float = 60.0
    compression: str | None = None
    compression_level: int | None = None
    partitioner: Partitioner | None = None
    user: str = ""
    password: str | Callable[[], str] | None = None
    password_file: str | None = None
    token: str | Callable[[], str] | None = None
    token_file: str | None = None
    channel_binding: str = "prefer"

    def __repr__(self) -> str:
        """All but what is secret."""
        shown = self._asdict()
        for name in ("password", "token"):
            shown[name] = None if shown[name] is None else "(hidden)"
        return f"Options({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def longest_pause(self) -> float:
        """Seconds at most between two tries to connect, so that several fit into ``timeout``."""
        return min(2.0, self.timeout / 4)

    def check(self) -> Options:
        """Return itself; raises WrongType and WrongValue for impossible options, before anything is opened."""
        for name in ("client", "producer", "reports"):
            text(name, getattr(self, name), _STATE)
        truth("reconnect", self.reconnect, _STATE)
        for name in ("timeout", "report_interval", "report_window"):
            _check(name, getattr(self, name), lambda n: 0 < n <= LONGEST, "more than 0 s, at most 1e9 s")
        limit = self.timeout
        _check("linger", self.linger, lambda n: 0 <= n < limit, f"from 0 s to less than timeout, {limit} s")
        for name in ("batch_bytes", "max_buffered"):
            _check(name, getattr(self, name), lambda n: n >= 0, "a number of bytes, 0 or more")
        if text("when_full", self.when_full, _STATE) not in ("wait", "raise"):
            raise wrong_value("when_full", self.when_full, "'wait' or 'raise'", _STATE)
        if text("channel_binding", self.channel_binding, _STATE) not in ("disable", "prefer", "require"):
            wanted = "'disable', 'prefer' or 'require'"
            raise wrong_value("channel_binding", self.channel_binding, wanted, _STATE)
        text("user", self.user, _STATE)
        if self.compression is not None:
            text("compression", self.compression, _STATE)
        if self.compression_level is not None:
            whole("compression_level", self.compression_level, _STATE)
        choose: object = self.partitioner
        if choose is not None and not callable(choose):
            wanted = "None or to be called with topic, key and number of partitions"
            raise wrong_type("partitioner", choose, wanted, _STATE)
        return self


def _check(name: str, value: object, fits: Callable[[Any], bool], wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(name, value, wanted, _STATE)
    if not fits(value):
        raise wrong_value(name, value, wanted, _STATE)
