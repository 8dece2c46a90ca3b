"""The scrubber: reads files that are no longer written, in the background, at a set rate, and reports damage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from journal.check.scrub import CheckpointPiece, JournalPiece, Piece, Scrubbed, SegmentPiece, StagedPiece
from journal.constants import MIB
from journal.engine.engine import Engine
from journal.errors import WHAT_ELSE, CorruptData, CorruptSegment
from journal.formats import filenames
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.transaction_states import TransactionNumber
from txbroker.server.threads.worker_thread import Worker

FIRST_PASS: Final = 60.0
"""Seconds after the start before the first pass, unless passes are more frequent."""

LOAD_BYTES: Final = MIB
"""While more than this many bytes wait for the disk, the scrubber does not read."""

LOAD_PAUSE: Final = 0.25

SHARE: Final = 10
"""It reads for at most this fraction of the time, whatever the rate allows: a slow or busy disk slows it down."""

MOST_FINDINGS: Final = 1000


class Scrubber:
    """Passes over all sealed segments, closed journal files, checkpoints and staged files, piece by piece.

    ``rate`` is in bytes a second, 0 switches it off; a pass begins ``interval`` seconds after the last one began, or at
    its end. It never changes a file, and damage never stops it: only a read of damaged bytes fails.
    """

    log = Logger()

    def __init__(
        self, engine: Engine, worker: Worker, clock: IReactorTime, rate: int, interval: float
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._clock = clock
        self._rate = rate
        self._interval = interval
        self._pieces: deque[Piece] = deque()
        self._undecided: Iterator[TransactionNumber] = iter(())
        """Transactions whose staged files are still to be read in this pass; their pieces are made when they
        are due.
        """
        self._call: IDelayedCall | None = None
        self._stopped = False
        self._begun_at = 0.0
        self._ended_at = -1.0
        self._known: set[tuple[str, int]] = set()
        self._seen: set[tuple[str, int]] = set()
        self.bytes = 0
        self.passes = 0

    def start(self) -> None:
        """Schedule the first pass."""
        if self._rate:
            self._later(min(FIRST_PASS, self._interval), self._begin)

    def stop(self) -> None:
        """Read no further piece; a piece that is being read now is not waited for."""
        self._stopped = True
        if self._call is not None and self._call.active():
            self._call.cancel()

    def gauges(self) -> dict[str, int]:
        """Return the figures of ``txbroker status``. ``scrub_age`` is -1 before the first pass has ended, in µs."""
        age = -1 if self._ended_at < 0 else int((self._clock.seconds() - self._ended_at) * 1_000_000)
        return {
            "scrubbed_bytes": self.bytes,
            "scrub_passes": self.passes,
            "scrub_age": age,
            "scrub_findings": len(self._known | self._seen),
        }

    # -- passes ------------------------------------------------------------------------------------

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if not self._stopped:
            self._call = self._clock.callLater(seconds, action)

    def _begin(self) -> None:
        engine = self._engine
        self._begun_at = self._clock.seconds()
        self._seen = set()
        for store in list(engine.catalog.stores.values()):
            self._pieces += [
                SegmentPiece(engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed)
                for segment in store.sealed_segments
            ]
        self._pieces += [
            JournalPiece(engine.filesystem, path, end) for path, end in engine.journal.closed_files()
        ]
        names = engine.filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
        lsns = (filenames.parse_checkpoint_file(name) for name in names)
        self._pieces += [CheckpointPiece(engine.filesystem, lsn) for lsn in lsns if lsn is not None]
        self._undecided = iter(list(engine.transactions.live))
        self._next()

    def _add_staged(self) -> None:
        live = self._engine.transactions.live
        for number in self._undecided:
            transaction = live.get(number)
            if transaction is not None and transaction.staged.file_entries:
                staged = transaction.staged
                piece = StagedPiece(self._engine.filesystem, number, staged.entries, staged.file_entries)
                self._pieces.append(piece)
                return

    def _next(self) -> None:
        if self._stopped or self._engine.failed:
            return
        if not self._pieces:
            self._add_staged()
        if not self._pieces:
            self._end()
        elif self._engine.busy or self._engine.pending_bytes > LOAD_BYTES:
            self._later(LOAD_PAUSE, self._next)
        else:
            self._worker.submit(self._pieces[0].run, self._done, self._failed)

    def _end(self) -> None:
        now = self._clock.seconds()
        self.passes += 1
        self._ended_at = now
        self._known = self._seen
        self._later(max(0.0, self._begun_at + self._interval - now), self._begin)

    def _done(self, scrubbed: Scrubbed) -> None:
        piece = self._pieces.popleft()
        self.bytes += scrubbed.bytes
        ended = isinstance(piece, StagedPiece) and piece.number not in self._engine.transactions.live
        if scrubbed.rest is not None and not ended:
            self._pieces.appendleft(scrubbed.rest)
        if scrubbed.finding is not None and not ended:
            self._found(scrubbed.finding)
        pause = max(scrubbed.bytes / self._rate, SHARE * scrubbed.seconds) - scrubbed.seconds
        self._later(pause, self._next)

    def _failed(self, error: BaseException) -> None:
        """Report bytes that the disk did not return as a finding, and go on with the next file."""
        piece = self._pieces.popleft()
        what = f"{piece.path} cannot be read: {error}. Nothing was changed; look at the disk (dmesg)"
        self._found(CorruptData(what, piece.path))
        self._later(LOAD_PAUSE, self._next)

    def _found(self, error: CorruptData) -> None:
        first = error.first_offset if isinstance(error, CorruptSegment) else error.position
        place = (error.path, first)
        if place not in self._known | self._seen and len(self._known) < MOST_FINDINGS:
            said = str(error)
            self.log.error("scrubber: {said}", said=said if WHAT_ELSE in said else f"{said}. {WHAT_ELSE}")
        if len(self._seen) < MOST_FINDINGS:
            self._seen.add(place)
