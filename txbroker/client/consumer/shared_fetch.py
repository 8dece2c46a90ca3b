"""The one waiting fetch of a connection: it carries the positions of all its consumers.

If a consumer wants messages and a fetch waits that does not ask for them, that fetch is cancelled. The broker answers
it at once with what there is, and the next fetch asks for all consumers. So a connection may have any number of
consumers, and a closed one leaves nothing at the broker. If they have more positions than the broker takes in one
fetch, they take turns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise
from txbroker.wire.messages import Cancel, Fetch, Fetched, FetchedPartition, Reader

TURN: Final = 0.25
"""Seconds that a fetch waits at most while other positions take turns with it."""

Part = tuple[FetchedPartition, memoryview]


class Asked(NamedTuple):
    """What a consumer asks for: ``positions`` as :class:`Fetch` has them, for the group of ``reader`` if there is one.

    ``until`` is by the core's clock.
    """

    positions: list[tuple[int, int, int]]
    until: float
    max_bytes: int
    answer: Promise[list[Part]]
    reader: Reader | None = None

    def has_news(self, place: int, part: FetchedPartition, untold: dict[int, bytes]) -> bool:
        """Whether the part of an answer for one of its positions says more than was known.

        ``untold`` are the waiting offsets by partition of which this answer has told nothing yet.
        """
        if part.length or part.error:
            return True
        if self.reader is None:
            return False
        number, offset, _ = self.positions[place]
        return bool(part.next_offset > offset or part.finished) or part.waiting != untold.pop(number, b"")


class SharedFetch:
    """Joins the fetches of one connection's consumers into one request at a time."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._asked: dict[object, Asked] = {}
        self._call: Call[Fetched] | None = None
        self._carried: list[tuple[object, Asked]] = []
        self._cancelled = False
        self._giving = False
        core.on_open.append(self._reopened)
        core.on_mend.append(self.mend)

    def ask(
        self,
        consumer: object,
        positions: list[tuple[int, int, int]],
        max_bytes: int,
        seconds: float,
        reader: Reader | None = None,
    ) -> Promise[list[Part]]:
        """Fetch for a consumer: messages of one moment, within the given seconds. Fails as the request does.

        ``reader`` is that of all the positions.

        The answer is in the order of its positions, and includes those without messages.
        """
        answer: Promise[list[Part]] = Promise()
        self._asked[consumer] = Asked(positions, self.core.clock() + seconds, max_bytes, answer, reader)
        if self._call is None:
            self._send()
        else:
            self._cancel()
        return answer

    def leave(self, consumer: object) -> None:
        """Remove a consumer's question; it gets no answer."""
        asked = self._asked.pop(consumer, None)
        if asked is not None and any(carried is asked for _, carried in self._carried):
            self._cancel()

    def hurry(self, consumer: object) -> None:
        """Have a consumer's question answered now, with what there is: it wants to ask for something else."""
        asked = self._asked.get(consumer)
        if asked is not None:
            hurried = asked._replace(until=self.core.clock())
            self._asked[consumer] = hurried
            self._carried = [(each, hurried if known is asked else known) for each, known in self._carried]
            self._cancel()

    def mend(self) -> None:
        """Repair after an interrupt in taking an answer: questions that no request carries are asked anew."""
        self._giving = False
        self.see_to_it()

    def see_to_it(self) -> None:
        """Send a fetch for what is wanted, also if an interrupt came while one was sent."""
        if not self._giving and (self._call is None or not self.core.has(self._call)):
            self._call, self._carried, self._cancelled = None, [], False
            self._send()

    def _cancel(self) -> None:
        if self._call is not None and not self._cancelled:
            self._post_cancel()
            self._cancelled = True  # last: after an interrupt before this line it is sent again

    def _post_cancel(self) -> None:
        if self._call is not None and self._call.attempts:
            self.core.post(Cancel(self.core.correlation(), self._call.request.correlation))

    def _reopened(self) -> None:
        if self._cancelled:  # the fetch was sent again, and the cancellation was lost
            self._post_cancel()

    def _send(self) -> None:
        if self._giving or self._call is not None or not self._asked:
            return
        core, now = self.core, self.core.clock()
        carried: list[tuple[object, Asked]] = []
        positions: list[tuple[int, int, int]] = []
        readers: list[Reader] = []
        for consumer, asked in self._asked.items():
            if carried and len(positions) + len(asked.positions) > core.max_fetch_positions:
                break
            carried.append((consumer, asked))
            if asked.reader is not None:
                readers.append(replace(asked.reader, first=len(positions)))
            positions += asked.positions
        wait = min((asked.until for _, asked in carried), default=now) - now
        if len(carried) < len(self._asked):
            wait = min(wait, TURN)
        wait = max(0.0, wait)
        most = max((asked.max_bytes for _, asked in carried), default=1)
        request = Fetch(core.correlation(), positions, most, int(wait * 1e6), readers=readers)
        self._carried = carried
        self._cancelled = False
        call = core.request(request, Fetched, timeout=wait + core.options.timeout)
        # First: after an interrupt before it is kept, this one has no owner, and another goes out.
        call.then(lambda: self._answered(call))
        self._call = call
        if call.done:
            self._answered(call)

    def _answered(self, call: Call[Fetched]) -> None:
        """Give each consumer its part of the answer, then ask for those that want more."""
        if call is not self._call:
            return
        carried, self._carried = self._carried, []
        self._call = None
        self._giving = True
        try:
            if call.error is not None:
                for consumer, asked in carried:
                    self._done(consumer, asked)
                    asked.answer.fail(call.error)
            else:
                self._give(carried, call)
        finally:
            self._giving = False
        self._send()

    def _give(self, carried: list[tuple[object, Asked]], call: Call[Fetched]) -> None:
        partitions, data = iter(call.result().partitions), memoryview(call.data)
        begin, now = 0, self.core.clock()
        for consumer, asked in carried:
            found: list[Part] = []
            has_some = False
            untold = {} if asked.reader is None else {each[0]: each[1] for each in asked.reader.missing}
            for place in range(len(asked.positions)):
                part = next(partitions)
                has_some = asked.has_news(place, part, untold) or has_some
                found.append((part, data[begin : begin + part.length]))
                begin += part.length
            if self._asked.get(consumer) is not asked:
                continue  # closed meanwhile
            if has_some or now >= asked.until:
                asked.answer.resolve(found)
                self._done(consumer, asked)  # last: if interrupted before, it is asked again
            else:
                self._asked[consumer] = self._asked.pop(consumer)  # behind those that were not carried

    def _done(self, consumer: object, asked: Asked) -> None:
        if self._asked.get(consumer) is asked:
            del self._asked[consumer]
