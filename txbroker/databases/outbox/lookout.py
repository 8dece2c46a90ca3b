"""The lookout of an outbox: it finds what others have left there, has the keeper go on with it, and releases streams.

Time decides only what is worth the effort. A stream that is looked after too early costs its program another claim.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from journal.records.stream_entries import STREAM_BYTES
from txbroker import errors
from txbroker.client.operations.streams import list_streams
from txbroker.databases.outbox.keeper import KEPT, PATIENCE, TAKEN_OVER, Claimed, Keeper
from txbroker.databases.outbox.listing import Listing
from txbroker.databases.outbox.table import StreamRows
from txbroker.databases.tables.resolver_connection import ResolverConnection
from txbroker.wire.messages import StreamInfo

log = logging.getLogger("txbroker.outbox")

LEFT = 60.0
"""Seconds without a delivery after which rows of others that are delivered are deleted here."""

LOOK = 5.0
"""Seconds between looks at what others have left, at least: a program that lives has moved on meanwhile."""

LOOKING = 0.05
"""Share of the time that such looks may take of the database, at most."""

FOUND_SOON = 0.05
"""Seconds for which a look waits for its listing; a longer one is taken up by a later look."""


class Swept(NamedTuple):
    """What was done about others' streams: streams gone on with, rows delivered and refused, streams released."""

    streams: int = 0
    delivered: int = 0
    refused: int = 0
    released: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether there was something to do."""
        return any(self)


class Lookout:
    """The lookout beside a keeper, on the same thread and connection to the database."""

    def __init__(self, keeper: Keeper, connection: ResolverConnection) -> None:
        self._keeper = keeper
        self._database = connection
        self.failed: BaseException | None = None
        """Why what others have left could not be listed; None if it was. The keeper's own connection is as it was."""
        self._listing: Listing | None = None
        self._due = 0.0
        self._seen: dict[str, tuple[int, int]] = {}
        """Of each stream with rows to deliver: the last delivered number and the highest, when last looked at."""

    def sweep(self) -> Swept:
        """Go on with all streams of others, and release those that are long over. It takes as long as it takes."""
        known = self._known()
        listed = self._keeper.table.streams(self._keeper.broker.identity)
        return self._go_over(known, listed, is_patient=False)

    def look(self, patience: float = FOUND_SOON) -> Swept:
        """Go on with streams of others that have not moved since the last look (their programs may live), as a listing
        has found them that is made meanwhile. It may be called often: it waits for a listing for ``patience`` seconds,
        and a later call takes it up. If it cannot be made, ``failed`` says why, until one was.
        """
        now = time.monotonic()
        if self._listing is None and now >= self._due:
            self._due = now + LOOK
            known = self._known()  # and with that the table's name
            self._listing = Listing(self._database.another(), self._keeper.broker.identity, known)
        listing = self._listing
        if listing is None or not listing.wait(patience):
            return Swept()
        self._listing = None
        self._due = time.monotonic() + max(LOOK, listing.seconds / LOOKING)
        self.failed = listing.failed
        if self.failed is not None:
            return Swept()
        return self._go_over(listing.known, listing.rows, is_patient=True)

    def end(self, patience: float) -> None:
        """Wait for so many seconds at the end until a listing that is under way has closed its connection."""
        if self._listing is not None:
            self._listing.wait(patience)

    @property
    def looking(self) -> float:
        """Seconds for which the present listing has been under way; 0 without one."""
        return 0.0 if self._listing is None else time.monotonic() - self._listing.began

    def _known(self) -> dict[str, StreamInfo]:
        broker = self._keeper.broker
        return {info.stream.hex(): info for info in broker.run(list_streams(broker.core, self._keeper.name))}

    def _go_over(
        self, known: Mapping[str, StreamInfo], listed: Iterable[StreamRows], is_patient: bool
    ) -> Swept:
        keeper, left = self._keeper, dict(known)
        own = set() if keeper.streams is None else {name.hex() for name in keeper.streams.all}
        failures = list[Exception]()
        seen, before, streams = dict[str, tuple[int, int]](), self._seen, 0
        delivered, refused = keeper.delivered, keeper.refused
        for name, lowest, highest, _ in listed:
            info = left.pop(name, None)
            if not _is_stream(name) or lowest < 1:
                failures.append(_no_stream(name, lowest))
                continue
            last = 0 if info is None else info.last
            if name in own:
                continue
            if highest <= last:
                if not is_patient or (info is not None and info.idle >= LEFT * 1e6):
                    keeper.delete_up_to(name, last)
                continue
            seen[name] = last, highest
            if keeper.ends_with_mark(name, highest) and seen[name] == before.get(name):
                continue  # nothing but a mark is left
            if not is_patient or (name in before and before[name][0] == last < before[name][1]):
                streams += 1
                try:
                    self._go_on(bytes.fromhex(name))
                except (errors.RequestRefused, TypeError, ValueError) as error:
                    failures.append(error)  # of this stream: the others need not wait for it
        self._seen = seen
        keeper.forget_marks_but(seen)
        over = [name for name, info in left.items() if name not in own and info.idle >= KEPT * 1e6]
        released = keeper.empty_and_release(self._claimed(over))
        if failures:
            raise failures[0]
        return Swept(streams, keeper.delivered - delivered, keeper.refused - refused, released)

    def _claimed(self, names: Iterable[str]) -> list[Claimed]:
        """Claim streams that seem to have no rows; return those that have none above their last numbers."""
        found = []
        for name in names:
            held = self._keeper.claim(bytes.fromhex(name))
            if not self._keeper.table.rows(name, held.last, PATIENCE)[0]:
                found.append(Claimed(bytes.fromhex(name), held.epoch, held.last))
        return found

    def _go_on(self, name: bytes) -> None:
        """Claim a stream, deliver its rows, delete them."""
        held = self._keeper.claim(name)
        self._keeper.delete_up_to(name.hex(), held.last)
        last, is_all = held.last, False
        try:
            while not is_all:
                last, is_all = self._keeper.deliver_some(name, held.epoch, last)
        except TAKEN_OVER as error:
            log.debug("stream %s is another's meanwhile: %s", name.hex(), error)


def _is_stream(name: str) -> bool:
    return len(name) == 2 * STREAM_BYTES and not set(name) - set("0123456789abcdef")


def _no_stream(name: str, lowest: int) -> errors.InvalidSetting:
    return errors.InvalidSetting(
        f"rows of txbroker_outbox are of a stream {name[:80]!r}, with numbers from {lowest} on: a stream has 32 "
        "hexadecimal digits, and numbers from 1 on. No program has left them there; they are neither delivered nor "
        "deleted"
    )
