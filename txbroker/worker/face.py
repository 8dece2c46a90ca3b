"""What a worker needs of a client: ways to wait, the consumer, and calls of the handler within a transaction."""

from __future__ import annotations

import enum
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from journal.formats.group_entries import PartitionOffset, Settled
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import GroupDescription, Message
from txbroker.errors import GenerationFenced
from txbroker.worker.schedule import Work

T = TypeVar("T")


class Role(enum.Enum):
    """What a part of the worker waits for."""

    READ = "room for a message"
    HANDLE = "a message to handle"
    SETTLE = "a message to finish"
    ATTEND = "the end"
    PAUSE = "time to pass"


class Over(enum.Enum):
    """What a look returns if there is nothing more to wait for."""

    OVER = enum.auto()


OVER: Final = Over.OVER


class Abandoned(Exception):
    """The worker has ended while the handler was under way: its transaction is rolled back."""


def check_claim(settled: Iterable[Settled], generation: int) -> None:
    """Raise GenerationFenced unless what is settled is so with the claim under which it was handed out."""
    if any(each.generation != generation for each in settled):
        raise GenerationFenced(
            "the partition was another consumer's since the message was handed out; nothing was sent"
        )


class Claimed:
    """A consumer that finishes messages only with the claim under which they were handed out.

    A partition may be lost and had again while the handler runs. Meanwhile another consumer may have handled the
    message, so it must not be finished with the new claim.
    """

    def __init__(self, consumer: Finishes, generation: int) -> None:
        self._consumer = consumer
        self._generation = generation

    @property
    def group(self) -> str:
        """The group's name."""
        return self._consumer.group

    def offsets(self) -> list[PartitionOffset]:
        """Return the consumer's positions."""
        return self._consumer.offsets()

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes what the consumer has handed out."""
        return self._consumer.settlement()

    def finished(self, what: Message | Sequence[Message]) -> list[Settled]:
        """Return what finishes these messages; raises GenerationFenced if the partition was lost meanwhile."""
        found = self._consumer.finished(what)
        check_claim(found, self._generation)
        return found

    def tell_lost(self) -> None:
        """Raise GenerationFenced, once, if the consumer has lost messages that it has handed out."""
        self._consumer.tell_lost()


class Attempt:
    """One call of the handler, with what is committed with it."""

    def __init__(
        self, work: Work, messages: list[Message], claim: Claimed, is_over: Callable[[], bool]
    ) -> None:
        self.work = work
        self.messages = messages
        self.claim = claim
        self.raised: BaseException | None = None
        """What the handler raised."""
        self.ask: Callable[[], Any] | None = None
        """Asks the broker how the transaction ended: None or COMMITTED is yes; raises as ``commit`` does."""
        self.is_over = is_over
        """Whether the worker has ended."""

    def check(self) -> None:
        """Raise Abandoned if the worker has ended, so that nothing may be committed."""
        if self.is_over():
            raise Abandoned


class Hand(Protocol):
    """One of the handler's callers. It has a database connection of its own, if there is one."""

    async def attempt(self, attempt: Attempt) -> None:
        """Call the handler, and finish its messages with what it did, if there is a transaction."""

    async def outcome(self, attempt: Attempt) -> bool:
        """Ask how the transaction ended: whether it was committed. Raises OutcomeUnknown if that is still not known."""

    async def renew(self) -> None:
        """Close the database connection: the next attempt opens another one."""


class Face(Protocol):
    """A client, as a worker uses it."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """What protects the state of the worker."""

    def wake(self, role: Role) -> None:
        """Have one of those that wait in a role look again; under the lock."""

    def wake_all(self) -> None:
        """Have all look again; under the lock."""

    def until(
        self, role: Role, look: Callable[[], T | None], seconds: float | None = None
    ) -> Coroutine[Any, Any, T | None]:
        """Wait until ``look``, which is called under the lock, returns something, and return that.

        Returns None after ``seconds``.
        """

    def consumer(self) -> ConsumerCore:
        """Return the consumer's core."""

    def claim(self, generation: int) -> Claimed:
        """Return what finishes messages that were handed out under a claim."""

    async def delivery(self) -> Delivery | None:
        """Wait for the next messages; None if no further ones will come."""

    async def run(self, operation: Coroutine[Promise[Any], None, T]) -> T:
        """Run an operation of the client's core."""

    async def done(self, messages: list[Message]) -> None:
        """Finish messages for the group."""

    async def description(self) -> GroupDescription:
        """Describe the group."""

    def ended(self) -> None:
        """Let the caller of the worker go on; called once."""
