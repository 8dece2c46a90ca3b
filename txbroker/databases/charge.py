"""One decision table that a resolver's thread looks after, and what it does for the blocks of this process there."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from typing import Any, Final

from journal.transaction_states import State
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.core.promise import Promise
from txbroker.databases.adapters.database import Connector
from txbroker.databases.outbox.keeper import Keeper
from txbroker.databases.outbox.streams import Streams
from txbroker.databases.resolver import Resolution, Resolver

log = logging.getLogger("txbroker.resolver")

TIDY: Final = 1.0
"""Seconds between checks of what the broker has acknowledged, while blocks run."""

AGAIN: Final = 0.05
"""Seconds until a stream is looked at again whose block must end first."""


LONG: Final = 300.0
"""Seconds after which a listing of what others have left is reported while it is under way."""


class Charge:
    """A decision table, how it is connected to, and when what is due. For one thread, but for its streams."""

    def __init__(self, connector: Connector | None) -> None:
        self.connector = connector
        self.resolver: Resolver | None = None
        self.streams: Streams | None = None
        """The streams of blocks of this process, once there was one that may use them."""
        self.keeper: Keeper | None = None
        self.questions: dict[tuple[str, int], State | errors.TxBrokerError | None] = {}
        """How blocks of an outbox have ended, which is asked for: None until it is found out."""
        self.attend_due = math.inf
        self.keys: deque[str] = deque()
        """Rows of decisions that the broker has acknowledged."""
        self.due = 0.0
        self.sweep_due = 0.0
        self.used = 0.0
        self.failure = self.look_failure = ""
        self.last = Resolution([], [], [], [], 0, 0)

    @property
    def next_due(self) -> float:
        """When something is to be done."""
        return min(self.due, self.attend_due)

    @property
    def is_busy(self) -> bool:
        """Whether answers are awaited, or rows can be deleted."""
        return self.streams is not None and self.streams.is_busy

    def remove_decisions(self) -> None:
        """Delete the rows of acknowledged decisions."""
        assert self.resolver is not None
        keys = list(self.keys)
        self.resolver.remove(keys)
        for _ in keys:
            self.keys.popleft()

    # -- blocks that only send ---------------------------------------------------------------------

    def attend(self) -> None:
        """Bring the streams of this process to where blocks deliver from memory, and find out what is asked."""
        keeper = self.keeper
        assert keeper is not None
        try:
            if keeper.attend():
                self.attend_due = min(self.attend_due, time.monotonic() + AGAIN)
        except errors.RequestRefused:
            self._answer(keeper)  # of some stream: who asks for another need not wait for it
            raise
        self._answer(keeper)

    def _answer(self, keeper: Keeper) -> None:
        for question, answer in list(self.questions.items()):
            if answer is None:
                try:
                    self.questions[question] = keeper.outcome(*question)
                except errors.RequestRefused as error:
                    self.questions[question] = error

    def look(self) -> None:
        """Look for what others have left. If that cannot be listed, nothing else is the worse for it."""
        assert self.resolver is not None
        if (lookout := self.resolver.lookout) is None:
            return
        lookout.look()
        before, self.look_failure = self.look_failure, ""
        if lookout.failed is not None:
            why = f"{type(lookout.failed).__name__}: {str(lookout.failed).strip()}"
            self.look_failure = f"what others have left in the outbox cannot be listed: {why}"
        elif lookout.looking > LONG:
            self.look_failure = (
                f"what others have left in the outbox has not been listed for {LONG:g} s and more"
            )
        if self.look_failure and not before:
            log.warning("%s; blocks of this process are delivered all the same", self.look_failure)

    def remove_delivered(self) -> None:
        """Delete the rows of delivered blocks."""
        assert self.keeper is not None
        self.keeper.tidy()

    def take_in(self) -> bool:
        """Take in the answers to deliveries; return whether they have come."""
        streams = self.streams
        assert streams is not None
        newest, connection = streams.newest, streams.connection
        if newest is None or connection is None:
            return True
        drive(connection, newest)
        return newest.done

    def finish(self, deadline: float) -> None:
        """Have all delivered that can be until a time of the monotonic clock, delete the rows, release the streams."""
        keeper, streams = self.keeper, self.streams
        assert keeper is not None
        assert streams is not None
        streams.send_held()
        while time.monotonic() < deadline and not streams.is_settled:
            waits = keeper.attend()
            if not self.take_in() or waits:
                break
            if not streams.is_settled:  # an answer is to come
                time.sleep(AGAIN)
        keeper.tidy()
        if time.monotonic() < deadline:
            keeper.release_own()


def drive(connection: Connection, promise: Promise[Any]) -> None:
    """Wait for an answer, or for a second."""
    try:
        connection._driver.wait(promise, TIDY)
    except TimeoutError:
        pass  # checked again in the next round
    except errors.TxBrokerError as error:
        log.debug("waiting for an acknowledgement: %s", error)
