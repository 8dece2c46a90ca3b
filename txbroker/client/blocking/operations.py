"""The blocking client's calls that are one operation of the core each: topics, groups, phases, operators' questions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, Unpack

from journal.settings import TopicChoices
from journal.transaction import State, Xid
from txbroker.client.core.companion import Companion
from txbroker.client.core.core import Core
from txbroker.client.core.operations import Operations
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Frames, GroupPosition, Message, TransactionDetails
from txbroker.client.core.transaction_names import Which
from txbroker.client.transactions.two_phase import TwoPhase
from txbroker.wire.messages import GroupInfo, Outcome, TopicInfo, TransactionInfo

T = TypeVar("T")


class OperationCalls(ABC):
    """A part of :class:`txbroker.client.blocking.Connection`."""

    core: Core
    resolver: Companion | None = None
    """Ends what blocks of ``atomic``, of this or other processes, left undecided; there from the first block on."""
    _operations: Operations
    _two_phase: TwoPhase

    @property
    def identity(self) -> str:
        """The name of the broker's data: xids and numbers mean something only together with it."""
        return self.core.identity

    @abstractmethod
    def run(self, operation: Coroutine[Promise[Any], None, T], timeout: float | None = None) -> T:
        """Run one operation of the core and wait for its end."""

    def read(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, max_wait: float = 0.0
    ) -> list[Message]:
        """What can be read from ``offset`` on, in order, about ``max_bytes`` of it (never less than one message).

        Waits up to ``max_wait`` seconds for a first message; nothing by then is an empty list.
        """
        return self.run(self._operations.read(topic, partition, offset, max_bytes, max_wait))

    def read_frames(self, number: int, offset: int, max_bytes: int = 1 << 20) -> Frames:
        """Read once, undecoded, from the partition with that number (:class:`PartitionInfo` has it)."""
        return self.run(self._operations.read_frames(number, offset, max_bytes, 0.0))

    # -- topics and groups -------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        exist_ok: bool = False,
        **settings: Unpack[TopicChoices],
    ) -> TopicInfo:
        """Create a topic with these settings (durations in seconds, sizes in bytes); raises TopicExists.

        It has one partition unless told otherwise. With ``exist_ok`` one that is there is described as it is, and the
        logger ``txbroker.client`` warns of what is not as wanted.
        """
        return self.run(self._operations.create_topic(name, partitions, settings, exist_ok))

    def delete_topic(self, name: str, topic_id: bytes | None = None) -> None:
        """Delete a topic with its messages; raises UnknownTopic. ``topic_id`` says which one (None: today's)."""
        self.run(self._operations.delete_topic(name, topic_id))

    def topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """Describe topics, sorted by name; unknown ones are left out."""
        return self.run(self._operations.topics(names))

    def offsets_for_time(self, topic: str, time: datetime | int) -> dict[int, int]:
        """Per partition the first offset appended at ``time`` (or µs since 1970 UTC) or later."""
        return self.run(self._operations.offsets_for_time(topic, time))

    def groups(self) -> list[GroupInfo]:
        """All consumer groups with their positions and lags."""
        return self.run(self._operations.groups())

    def group_offsets(self, group: str) -> list[GroupPosition]:
        """A group's positions, sorted by topic and partition."""
        return self.run(self._operations.group_offsets(group))

    def set_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Move a group to other positions: offset by partition."""
        self.run(self._operations.set_offsets(group, topic, offsets))

    def delete_group(self, group: str, group_id: bytes | None = None) -> None:
        """Forget a group and its positions; raises UnknownGroup. ``group_id`` says which one (None: today's)."""
        self.run(self._operations.delete_group(group, group_id))

    # -- two phases ---------------------------------------------------------------------------------

    def tpc_prepare(self) -> None:
        """PEP 249: the first phase; after it the transaction survives client, broker and power."""
        self.run(self._two_phase.prepare())

    def tpc_commit(self, xid: Xid | None = None) -> None:
        """PEP 249: the second phase, or, without ``tpc_prepare``, a commit in one; ``xid``: a recovered one."""
        self.run(self._two_phase.commit(xid))

    def tpc_rollback(self, xid: Xid | None = None) -> None:
        """PEP 249: roll back, prepared or not; with ``xid`` a recovered transaction."""
        self.run(self._two_phase.rollback(xid))

    def tpc_recover(self) -> list[Xid]:
        """PEP 249: the prepared transactions, of any session."""
        return self.run(self._two_phase.recover())

    # -- for operators -----------------------------------------------------------------------------

    def transactions(
        self,
        states: Iterable[State] = (),
        *,
        format_id: int | None = None,
        global_prefix: bytes = b"",
        forced: bool = False,
    ) -> list[TransactionInfo]:
        """All transactions in these states (none given: the undecided ones), with xids of this format and prefix.

        With ``forced`` only outcomes that a person or policy forced.
        """
        return self.run(self._operations.transactions(states, format_id, global_prefix, forced))

    def show_transaction(self, which: Which, max_bytes: int = 1 << 16) -> TransactionDetails:
        """A transaction, by number ("12-3") or xid, with its first messages."""
        return self.run(self._operations.show_transaction(which, max_bytes))

    def commit_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a prepared transaction to commit: a heuristic outcome, kept with who and why."""
        self.run(self._operations.commit_transaction(which, by, why))

    def rollback_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a transaction to roll back: a heuristic outcome, kept with who and why."""
        self.run(self._operations.rollback_transaction(which, by, why))

    def forget_transaction(self, which: Which, by: str, why: str = "") -> None:
        """Forget a decided transaction's outcome; a forced one needs a reason."""
        self.run(self._operations.forget_transaction(which, by, why))

    def outcome(self, which: Which) -> Outcome:
        """How a transaction ended, or its state; raises OutcomeForgotten, UnknownTransaction."""
        return self.run(self._operations.outcome(which))

    def wait_outcome(self, which: Which, timeout: float = 30.0) -> State:
        """How a transaction ended, once it has; raises OutcomeUnknown if it is undecided after so many seconds."""
        return self.run(self._operations.wait_outcome(which, timeout))

    def end_prepared(self, xid: Xid, commit: bool) -> None:
        """Commit or roll back what another session has prepared, as its coordinator decided."""
        self.run(self._operations.end_prepared(xid, commit))

    def status(self) -> dict[str, int | float | str]:
        """The broker's counters and gauges by name."""
        return self.run(self._operations.status())

    def pin_files(self) -> int:
        """Keep the broker from removing files of its data directory; return the LSN of its newest checkpoint.

        For programs that read them. What that checkpoint and the journal above it refer to stays until
        :meth:`unpin_files`, until this connection is lost, or until the disk needs the space; raises DiskFull if it
        does already. A connection has one pin.
        """
        return self.run(self._operations.pin_files())

    def unpin_files(self) -> bool:
        """Let the files go; return whether they have been kept all the time since :meth:`pin_files`."""
        return self.run(self._operations.unpin_files())

    def ping(self) -> None:
        """Return once the broker has answered."""
        self.run(self.core.ping())
