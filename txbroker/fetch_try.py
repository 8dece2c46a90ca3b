"""A fetch that has not been answered, and one try at it: what each of its partitions gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from journal.read_plan import ReadPlan
from txbroker.commands import Fetch, FetchedPartition
from txbroker.errors import CorruptData, StorageUnavailable, TxBrokerError
from txbroker.refusals import error_name, extras
from txbroker.session import Session

if TYPE_CHECKING:
    from journal.message_store import MessageStore


class Cancellable(Protocol):
    """What ``call_later`` gives back."""

    def cancel(self) -> None:
        """Do not call it."""


CallLater = Callable[[float, Callable[[], None]], Cancellable]


class PendingFetch:
    """A fetch that has not been answered. It is not tried again before its logs have ``wanted`` bytes in all."""

    __slots__ = ("command", "expired", "session", "timer", "waits_for", "wanted")

    def __init__(self, session: Session, command: Fetch) -> None:
        self.session = session
        self.command = command
        self.timer: Cancellable | None = None
        self.waits_for: list[MessageStore] = []
        self.wanted = 0
        self.expired = command.max_wait <= 0


class Reading:
    """One try at a fetch: what each partition gave so far, and the plans that must wait for the disk.

    ``cut``: what it has not come to is the next fetch's, because of the disk, or because others wait for their turn.
    """

    __slots__ = ("cold", "cut", "data", "failed", "found", "parts", "room", "stores")

    def __init__(self, room: int) -> None:
        self.parts: list[tuple[int, MessageStore | None, TxBrokerError | None]] = []
        self.data: list[bytes] = []
        self.cold: list[tuple[int, ReadPlan]] = []
        self.stores: list[MessageStore] = []
        self.found = 0
        self.failed = self.cut = False
        self.room = room


def run_plans(plans: list[tuple[int, ReadPlan]]) -> list[tuple[int, bytes | TxBrokerError]]:
    """Carry out plans on a thread of the pool; damage in one partition does not keep the others from reading."""
    results: list[tuple[int, bytes | TxBrokerError]] = []
    try:
        for place, plan in plans:
            try:
                results.append((place, plan.run()))
            except CorruptData as error:
                results.append((place, error))
            except OSError as error:
                results.append((place, unreadable(error)))
    finally:
        for _, plan in plans:
            plan.close()
    return results


def unreadable(error: BaseException) -> StorageUnavailable:
    """What is told of what the disk did not give."""
    return StorageUnavailable(
        f"reading failed: {error}. Nothing has changed, and other partitions can be read; try again, and look at the "
        "broker's log and at its disk"
    )


def part_of(
    partition: int, length: int, store: MessageStore | None, error: TxBrokerError | None
) -> FetchedPartition:
    """What the answer says of a partition: how many bytes are its, where its log begins and ends, or what is wrong."""
    start, end = (store.start_offset, store.high_watermark) if store is not None else (0, 0)
    if error is None:
        return FetchedPartition(partition, length, start, end)
    return FetchedPartition(partition, 0, start, end, error_name(error), str(error), *extras(error))
