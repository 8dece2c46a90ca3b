"""A fetch that has not been answered, and one attempt at it with the results of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from journal.offset_set import OffsetSet
from txbroker.broker.sessions.session import Session
from txbroker.errors import CorruptData, StorageUnavailable, TxBrokerError
from txbroker.wire.messages import Fetch, FetchedPartition
from txbroker.wire.refusals import error_name, extras

if TYPE_CHECKING:
    from journal.log.message_store import MessageStore
    from txbroker.groups.group_position import GroupPosition


class Cancellable(Protocol):
    """The result of ``call_later``."""

    def cancel(self) -> None:
        """Do not call it."""


CallLater = Callable[[float, Callable[[], None]], Cancellable]


class PendingFetch:
    """A fetch that has not been answered.

    It is not tried again before the end positions of its logs are ``wanted`` in all: what is dropped does not count.
    ``for_groups`` are those of its positions that are read for groups; ``due`` rings when the next offset that waits is
    due. ``examined`` is what was examined for those of them whose groups have a filter, None if there are none. It
    ``is_stuck`` if it has read and got no further: the next attempt is made when something has changed.
    """

    __slots__ = (
        "command", "due", "examined", "expired", "for_groups", "is_stuck", "session", "timer", "waits_for", "wanted",
    )  # fmt: skip

    def __init__(self, session: Session, command: Fetch, for_groups: dict[int, GroupPosition]) -> None:
        self.session = session
        self.command = command
        self.for_groups = for_groups
        self.timer: Cancellable | None = None
        self.due: Cancellable | None = None
        self.waits_for: list[MessageStore] = []
        self.wanted = 0
        self.expired = command.max_wait <= 0
        self.examined: Examined | None = None
        self.is_stuck = False


class Examined:
    """What was examined for a fetch since it came: by the places of its positions, and ``size`` bytes in all."""

    __slots__ = ("ends", "size", "tags", "unmatched")

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        """The offsets up to which positions were examined, by their places in the fetch."""
        self.unmatched: dict[int, OffsetSet] = {}
        """The offsets that do not match."""
        self.tags: dict[int, list[str]] = {}
        """The tags that the groups had."""
        self.size = 0

    def end(self, place: int, tags: list[str]) -> int:
        """Return up to where a position was examined for these tags, 0 if it was not; forget what was for others."""
        if self.tags.get(place, tags) != tags:
            del self.ends[place], self.unmatched[place], self.tags[place]
        return self.ends.get(place, 0)

    def take(self, place: int, end: int, unmatched: OffsetSet, tags: list[str]) -> None:
        """Note that a position was examined further for these tags, up to ``end``."""
        self.tags[place] = tags
        self.ends[place] = end
        self.unmatched.setdefault(place, OffsetSet()).update(unmatched)


class Part:
    """The result of one partition: ``data`` up to offset ``end``, or an ``error``; where its log began and
    ended then; what its group has ``finished`` and what is ``waiting``, encoded; and the ``attempts`` by offset.
    """

    __slots__ = (
        "attempts", "data", "end", "error", "finished", "high_watermark", "partition", "start_offset", "waiting",
    )  # fmt: skip

    def __init__(self, partition: int, offset: int, store: MessageStore | None) -> None:
        self.partition = partition
        self.end = offset
        self.data = b""
        self.finished = self.waiting = b""
        self.attempts: list[tuple[int, int]] = []
        self.error: TxBrokerError | None = None
        self.start_offset, self.high_watermark = (
            (store.start_offset, store.high_watermark) if store is not None else (0, 0)
        )

    def told(self) -> FetchedPartition:
        """Return its part of the answer."""
        place = (self.end, self.start_offset, self.high_watermark)
        if self.error is None:
            if self.finished or self.waiting or self.attempts:
                return FetchedPartition(
                    self.partition, len(self.data), *place,
                    finished=self.finished, waiting=self.waiting, attempts=self.attempts,
                )  # fmt: skip
            return FetchedPartition(self.partition, len(self.data), *place)
        return FetchedPartition(
            self.partition, 0, *place, error_name(self.error), str(self.error), *extras(self.error)
        )


class Reading:
    """One attempt at a fetch: the results of partitions so far, and the plans that must wait for the disk.

    All is decided in one step of the reactor, in which nothing is published, so all partitions are as of one moment,
    also those whose plans run later.

    ``cut``: it stopped early, because of the disk, or because others wait for their turn; the next fetch gets the rest.
    ``news``: there is something to tell of a group beside messages. ``filtered`` are reads of positions whose groups
    have a filter.
    """

    __slots__ = ("cold", "cut", "failed", "filtered", "found", "news", "parts", "room", "stores")

    def __init__(self, room: int) -> None:
        self.parts: list[Part] = []
        self.cold: list[tuple[Part, Planned]] = []
        self.filtered: list[tuple[Part, Planned]] = []
        self.stores: list[MessageStore] = []
        self.found = 0
        self.failed = self.cut = self.news = False
        self.room = room


class Planned(Protocol):
    """A read that was planned on the reactor."""

    def run(self) -> Any:
        """Carry it out; raises CorruptData and OSError."""

    def close(self) -> None:
        """Drop it, if it did not run."""


def run_plans(plans: list[tuple[Part, Planned]]) -> list[tuple[Part, Any]]:
    """Run plans on a thread of the pool; damage in one partition does not keep the others from being read.

    Each result is what the plan returns, or a TxBrokerError.
    """
    results: list[tuple[Part, Any]] = []
    try:
        for part, plan in plans:
            try:
                results.append((part, plan.run()))
            except CorruptData as error:
                results.append((part, error))
            except OSError as error:
                results.append((part, unreadable(error)))
    finally:
        for _, plan in plans:
            plan.close()
    return results


def unreadable(error: BaseException) -> StorageUnavailable:
    """Return the error for a failed read of the disk."""
    return StorageUnavailable(
        f"reading failed: {error}. Nothing has changed, and other partitions can be read; try again, and look at the "
        "broker's log and at its disk"
    )
