"""Producers' reports: the numbers that a client has sent, by topic and time, so that an audit can compare.

``docs/clients.md`` has the format, and what a crash leaves unreported.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from journal.formats.envelope import SCHEDULE_TOPIC
from journal.formats.frame_times import times_and_sizes
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Errand, Promise

Sends = Callable[[str, bytes, bytes], Coroutine[Promise[Any], None, None]]
"""Sends a message to a topic, with its key and value, and ends once it is acknowledged."""

log = logging.getLogger("txbroker.client")

Counts = dict[tuple[str, int], list[int]]
"""Messages and bytes by topic and beginning of the window."""

LAST_REPORT_FAILED: Final = (
    "the last report could not be sent, what it would have counted is not reported: %s"
)

MOST_WAITING: Final = 1000
"""How many unsent reports are kept; counts beyond that are added up in the next one."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One report, as the audit topic holds it in JSON. Times are µs since 1970 UTC.

    ``run`` is a random name of this connection, ``number`` counts its reports from 0. Rows of ``sent`` and ``unknown``
    are [topic, beginning of the window, messages, bytes]; rows of several reports add up. If ``transaction`` is set,
    there is no number: this report is a message of that transaction and counts the others in it. ``closed``: this is
    the last report of its run.
    """

    producer: str
    run: str
    window: int
    sent: list[tuple[str, int, int, int]] = []
    unknown: list[tuple[str, int, int, int]] = []
    number: int | None = None
    transaction: str | None = None
    closed: bool = False


_encode = msgspec.json.Encoder().encode


class Reports:
    """The counts of one client that are not reported yet, and their reporting."""

    def __init__(self, core: Core, send: Sends) -> None:
        options = core.options
        if not 0 < options.report_window <= 86400 or not options.report_interval > 0:
            raise errors.Misuse(
                f"report_window is {options.report_window} s and report_interval {options.report_interval} s: a window "
                "is more than nothing and at most a day, an interval more than nothing; nothing was opened"
            )
        self.topic = options.reports
        self.interval = options.report_interval
        self.window = round(options.report_window * 1_000_000)
        self._core = core
        self._send = send
        self._name = options.producer or options.client
        self._run = secrets.token_hex(8)
        self._sent: Counts = {}
        self._unknown: Counts = {}
        self._number = 0
        self._waiting: list[bytes] = []
        self._begun = self._busy = self._told = False

    # -- counting ----------------------------------------------------------------------------------

    def tally(self, counts: Counts, topic: str, frames: bytes) -> None:
        """Add the messages of sealed frames to counts."""
        window = self.window
        if topic in (self.topic, SCHEDULE_TOPIC):  # what is scheduled may be taken back, or come in years
            return
        for timestamp, size in times_and_sizes(frames):
            row = counts.setdefault((topic, timestamp - timestamp % window), [0, 0])
            row[0] += 1
            row[1] += size

    def acknowledged(self, topic: str, frames: bytes) -> None:
        """Count frames that the broker has acknowledged."""
        self.tally(self._sent, topic, frames)

    def doubtful(self, topic: str, frames: bytes) -> None:
        """Count frames of which it will not be known whether the broker has them."""
        self.tally(self._unknown, topic, frames)

    def committed(self, counts: Counts) -> None:
        """Count the messages of a transaction that was committed in one phase."""
        for key, (messages, size) in counts.items():
            row = self._sent.setdefault(key, [0, 0])
            row[0] += messages
            row[1] += size

    # -- reporting ---------------------------------------------------------------------------------

    def opened(self) -> None:
        """Report from now on, again and again: there is a connection."""
        if not self._begun:
            self._begun = True
            Errand(self._go_on())

    async def _go_on(self) -> None:
        core = self._core
        while core.fatal is None:
            await core.waits.sleep(self.interval)
            await self.send()

    @property
    def is_over(self) -> bool:
        """Whether the client is closed."""
        return self._core.fatal is not None

    async def report(self, closing: bool = False) -> None:
        """Report now, and return when it is done; for callers that wait for it."""
        while self._busy:
            await self._core.waits.sleep(0.01)
        await self.send(closing)

    async def send(self, closing: bool = False) -> None:
        """Send a report of all counts, durably; counts that cannot be sent now go into the next one."""
        if self._busy:
            return
        if (self._sent or self._unknown or (closing and self._number)) and len(self._waiting) < MOST_WAITING:
            self._waiting.append(self._take(closing))
        self._busy = True
        try:
            while self._waiting:
                await self._send(self.topic, self._name.encode(), self._waiting[0])
                self._waiting.pop(0)
                self._told = False
        except errors.TxBrokerError as error:
            if closing:
                raise
            if not self._told:
                log.warning("a report to %r could not be sent and is tried again: %s", self.topic, error)
                self._told = True
        finally:
            self._busy = False

    def _take(self, closed: bool) -> bytes:
        sent, self._sent = self._sent, {}
        unknown, self._unknown = self._unknown, {}
        number, self._number = self._number, self._number + 1
        return self._made(sent, unknown, number, None, closed)

    def of_transaction(self, counts: Counts, transaction: str) -> bytes:
        """Return the report that a transaction carries about itself."""
        return self._made(counts, {}, None, transaction, False)

    def _made(
        self, sent: Counts, unknown: Counts, number: int | None, transaction: str | None, closed: bool
    ) -> bytes:
        return _encode(
            Report(
                producer=self._name,
                run=self._run,
                window=self.window,
                sent=_rows(sent),
                unknown=_rows(unknown),
                number=number,
                transaction=transaction,
                closed=closed,
            )
        )


def _rows(counts: Counts) -> list[tuple[str, int, int, int]]:
    return [(topic, begin, messages, size) for (topic, begin), (messages, size) in sorted(counts.items())]
