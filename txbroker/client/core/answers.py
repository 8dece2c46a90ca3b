"""Answers that have come and are still to be given to their calls; on an event loop, some in each of its turns."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Protocol

from journal.constants import MAX_REQUEST_DATA
from txbroker import errors
from txbroker.client.core.waits import Waits
from txbroker.wire.codec import Decoder, answer_decoder
from txbroker.wire.messages import AnyAnswer

MOST_AT_ONCE: Final = 1000
"""How many callers resume in one turn of an event loop, except those of one batch. 1,000 sends take it about 8 ms."""


class Gives(Protocol):
    """The part of the core that gives answers to its calls."""

    abort: str
    waits: Waits

    def give(self, head: AnyAnswer, body: memoryview) -> int:
        """Give an answer to its call; return how many callers waited for it."""


class Answers:
    """Cuts the broker's bytes into answers and gives each to its call, in order.

    ``most`` bounds how many callers may resume in one call of :meth:`received`. The others resume in later turns,
    because the caller's loop must not be held meanwhile. No answer that has come is lost: before its call would fail
    for a lost connection, the end of the client or lack of time, the core has all of them given (:meth:`drain`).
    """

    def __init__(self, core: Gives) -> None:
        self.most = math.inf
        self._core = core
        self.decoder: Decoder[AnyAnswer] = answer_decoder(MAX_REQUEST_DATA)
        self._came: deque[tuple[AnyAnswer, memoryview]] = deque()
        self._is_due = False

    def begin(self) -> None:
        """Begin with a new connection."""
        self.decoder = answer_decoder(1 << 30)

    def received(self, data: bytes) -> None:
        """Take bytes. If they break the protocol, or an interrupt comes, this sets the core's ``abort``."""
        self._give(0.0 if self._is_due else self.most, data)

    def drain(self) -> None:
        """Give all answers that have come."""
        if self._came:
            self._give(math.inf)

    def _go_on(self) -> None:
        self._is_due = False
        self._give(self.most)

    def _give(self, most: float, data: bytes = b"") -> None:
        came, give = self._came, self._core.give
        try:
            if data:
                came.extend(self.decoder.feed(data))
            while came and most > 0:
                most -= 1 + give(*came.popleft())
            if came and not self._is_due:
                self._is_due = True
                self._core.waits.soon(self._go_on)
        except errors.PeerViolation as violation:
            came.clear()
            self._core.abort = str(violation)
        except BaseException as error:
            # An interrupt, or an error of a partitioner: the rest is not received, and so is asked for again.
            came.clear()
            self._core.abort = f"taking in answers was interrupted ({error!r:.80})"
            raise
