"""The common part of all clients' consumers: group, positions, commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from journal.arguments import NOTHING_SENT
from journal.records.group_entries import PartitionOffset, Settled
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.consumer.notices import Place
from txbroker.client.consumer.retries import Parking, Pause, Said, parking_of, retry
from txbroker.client.consumer.seek import seek
from txbroker.client.core.client_method import part_method
from txbroker.client.core.positions import Joined, Positions, position_at
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Message


class Joins(Protocol):
    """The part of a connection that a consumer's commits need."""

    def _joined(self) -> Joined | None:
        """Return the transaction that commits belong to, between ``tpc_begin`` and its end; else None."""


class ClientConsumer(ABC):
    """The part of a consumer that is the same in every client."""

    _connection: Joins
    _core: ConsumerCore
    _tells: bool
    """Whether it is noted what the caller begins with."""

    def _is_of(self, core: ConsumerCore) -> None:
        """Note its core, and let the connection's transactions find it."""
        self._core = core
        self._tells = core.options.tells_begun or core.options.auto_done or core.watch is not None
        core.commits.known_as(self)

    def _begins(self, delivery: Delivery | None, most: int | None = 1) -> int:
        """Note that the caller begins with the next messages of a delivery, at most so many, and has ended with those
        before; None: that it has ended. Tell the broker, if it is to know. Return how many these are.
        """
        core = self._core
        if core.finishing is not None:
            core.finishing.begins(delivery)
        messages = [] if delivery is None else delivery.next_together(most)
        if core.watch is not None:
            core.watch.begins(bool(messages))
        if core.options.tells_begun and core.membership is not None:
            begun = core.membership.begun
            begun.remove(core)
            if delivery is not None and messages:
                begun.add(core, delivery.position.number, messages, len(messages) > 1)
            begun.tell()
        return len(messages)

    def _check_no_part(self) -> None:
        """Raise Misuse for a consumer that finishes by itself what it has handed out."""
        if self._core.options.auto_done:
            raise errors.Misuse(
                "a consumer with auto_done= finishes what it has handed out, whatever becomes of a transaction, so it "
                f"can be no part of one; {NOTHING_SENT}. Use a consumer without auto_done="
            )

    def _joined(self) -> Joined | None:
        """Return the transaction that a call is a part of, if there is one."""
        joined = self._connection._joined()
        if joined is not None:
            self._check_no_part()
        return joined

    @abstractmethod
    def _at_once(self, work: Callable[[], None]) -> None:
        """Do something with the core, and have sent what comes of it."""

    @property
    def group(self) -> str:
        """The name of the group, "" without one."""
        return self._core.options.group or ""

    @property
    def whole(self) -> bool:
        """Whether the consumer has handed out all that its partitions held at one moment, with no transaction in part.

        This holds for the partitions that it reads, if reading began at such a moment. It is False while there is more
        to hand out, and while an undecided transaction holds a position.
        """
        return self._core.whole

    @property
    def paused(self) -> frozenset[Place]:
        """The partitions that are paused, each as (topic, index)."""
        reading = list(self._core.positions.values())  # in one step: another thread may take some up
        return frozenset((each.topic, each.index) for each in reading if each.paused and not each.ended)

    def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing more of a partition, and fetch nothing of it, until :meth:`resume`.

        What was read ahead of it is dropped, and read anew then. The partition stays the consumer's: what was handed
        out can be committed, and is finished as before. One that goes to another consumer and comes back is not paused.
        Without ``follow`` the reading does not end before a paused partition has been read. Raises WrongType, and
        WrongValue for a partition that the consumer does not read now, or has not begun to read.
        """
        core = self._core
        self._at_once(lambda: core.pause(position_at(core.positions.values(), topic, partition, "pause")))

    def resume(self, topic: str, partition: int) -> None:
        """Go on in a partition behind what was handed out before :meth:`pause`. Does nothing if it is not paused.

        Raises as :meth:`pause`.
        """
        core = self._core
        self._at_once(lambda: core.resume(position_at(core.positions.values(), topic, partition, "resume")))

    def offsets(self) -> list[PartitionOffset]:
        """Return the positions after the messages handed out so far.

        With another order than "partition" a position is at the first message that was left out, if one was.
        """
        return self._core.commits.handed_out()

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes exactly the messages handed out so far, for ``Transaction.commit_offsets``."""
        self._check_no_part()
        return self._core.commits.settlement()

    def tell_lost(self) -> None:
        """Raise GenerationFenced if messages of :meth:`settlement` were lost; they are in no later one then."""
        self._core.commits.tell_lost()

    def finished(self, what: Message | Sequence[Message]) -> list[Settled]:
        """Return what finishes these messages for the group, for ``Transaction.done``."""
        self._check_no_part()
        return self._core.commits.finished(what)

    @part_method
    def done(self, what: Message | Sequence[Message]) -> Coroutine[Promise[Any], None, None]:
        """Finish a message, or each of a list, and no others; it ends once that is forced to disk. With
        ``commit_interval`` it ends at once, and they are finished later.

        The group's position goes on over what is finished without a gap. Messages that are finished already change
        nothing. Between ``tpc_begin`` and the end of that transaction they are finished with it. Raises
        GenerationFenced if another consumer has claimed the partitions, OffsetPending while a prepared transaction
        holds one of them, LimitExceeded if one is too far beyond the first unfinished message (``max_ahead``), Misuse
        without a group, WrongType, WrongValue.
        """
        return self._core.commits.done(what, self._joined())

    @part_method
    async def retry(self, what: Message | Sequence[Message], after: Pause = None, why: str = "") -> None:
        """Have a message, or each of a list, come again ``after`` a pause; it ends once that is forced.

        ``after`` is in seconds or a ``timedelta``; None is the broker's pause, 10 s. The broker counts the attempts
        (``message.attempts`` when it comes again) and keeps ``why``. Until then nothing behind the message is handed
        out, or nothing of its key, as ``order`` says. For other groups nothing changes. Between ``tpc_begin`` and the
        end of that transaction it is tried again if that commits. Raises AlreadyFinished for a message that the group
        has finished, TooManyParked while ``max_parked`` messages of the partition wait, else as :meth:`done`.
        """
        await retry(self._core, what, Said.again(after, why), self._joined())

    @part_method
    async def dead_letter(self, what: Message | Sequence[Message], why: str = "") -> None:
        """Give up a message, or each of a list, for the group; it ends once that is forced.

        The broker moves it to the topic of the same name with ``.dead`` behind it, with headers that say where it was
        and ``why``, and finishes it for the group in the same step, soon after. It is handed out no more. A message
        that the group has finished already stays so. Raises InvalidSetting for a message of a topic of dead letters,
        else as :meth:`retry`.
        """
        await retry(self._core, what, Said.given_up(why), self._joined())

    @part_method
    async def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Go on in a partition at an offset, or at its "earliest" or "latest"; what was read ahead of it is dropped.

        With a group, its position moves there, and it ends once that is forced: all below is finished, and all from
        there on is handed out again, but for what a move forward finds finished one by one (``done``). A later
        :meth:`commit` covers what was handed out since. If the broker refuses, nothing has changed: OffsetOutOfRange
        for an offset outside of the log, GenerationFenced if another consumer has claimed the partition, OffsetPending
        while a prepared transaction holds a part of it. Without a group ``out_of_range`` says what becomes of an offset
        outside of the log. A paused partition stays paused. Raises Misuse between ``tpc_begin`` and the end of that
        transaction, of which it would be no part, and else as :meth:`pause`.
        """
        core = self._core
        joined = None if core.options.group is None else self._joined()
        await seek(core, topic, partition, offset, joined)

    def retrying(self, message: Message, said: Said) -> Parking:
        """Return what tries a message again, for ``Transaction.retry``."""
        self._check_no_part()
        return parking_of(self._core, message, said)

    @part_method
    def commit(self, what: Positions = None) -> Coroutine[Promise[Any], None, None]:
        """Commit positions of the group; it ends once they are forced to disk.

        ``what`` is None for all that has been handed out so far, a message for all up to it in its partition, or a
        mapping of (topic, partition) to the next offset to read. Between ``tpc_begin`` and the end of that
        transaction the positions move with it. Raises GenerationFenced if another consumer has claimed the
        partitions, Misuse without a group, WrongType, WrongValue.
        """
        return self._core.commits.commit(what, self._joined())
