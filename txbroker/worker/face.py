"""What a worker needs of a client: ways to wait, the consumer, and calls of the handler within a transaction."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.core.positions import Finishes
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import GroupDescription, Message
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


class Attempt:
    """One call of the handler, with what is committed with it."""

    def __init__(
        self,
        work: Work,
        messages: list[Message],
        consumer: Finishes,
        lock: AbstractContextManager[Any],
        has_ended: Callable[[], bool],
    ) -> None:
        self.work = work
        self.messages = messages
        self.consumer = consumer
        """Finishes messages with a transaction."""
        self.raised: BaseException | None = None
        """What the handler raised."""
        self.ask: Callable[[], Any] | None = None
        """Asks the broker how the transaction ended: None or COMMITTED is yes; raises as ``commit`` does."""
        self.called_at: float | None = None
        """When the handler was called, while it has not returned."""
        self.has_timed_out = False
        self._lock = lock
        self._has_ended = has_ended

    def called(self) -> None:
        """Note that the handler is called now."""
        self.called_at = time.monotonic()

    def returned(self) -> None:
        """Note that it has returned; raises Abandoned if that came too late."""
        with self._lock:
            self.called_at = None
            if self.has_timed_out:
                raise Abandoned

    def time_out(self, before: float) -> bool:
        """Give the call up if it has begun before a time and has not returned; return whether that is so."""
        with self._lock:
            if self.called_at is None or self.called_at >= before:
                return False
            self.called_at, self.has_timed_out = None, True
            return True

    def is_over(self) -> bool:
        """Whether nothing of it may be committed: the worker has ended, or the handler took too long."""
        return self.has_timed_out or self._has_ended()

    def check(self) -> None:
        """Raise Abandoned if nothing may be committed."""
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

    def finishes(self) -> Finishes:
        """Return what finishes messages with a transaction."""

    async def delivery(self) -> Delivery | None:
        """Wait for the next messages; None if no further ones will come."""

    async def run(self, operation: Coroutine[Promise[Any], None, T]) -> T:
        """Run an operation of the client's core."""

    async def tell_begun(self) -> None:
        """Tell the broker which messages are being handled; it returns once that is sent, and waits for no answer."""

    async def done(self, messages: list[Message]) -> None:
        """Finish messages for the group."""

    async def description(self) -> GroupDescription:
        """Describe the group."""

    def ended(self) -> None:
        """Let the caller of the worker go on; called once."""
