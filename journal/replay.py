"""Folding the journal again, fast: sends by the hundred, everything else record by record, all as they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from journal import record
from journal.engine import Engine
from journal.errors import InvalidSetting
from journal.interfaces import IRunFold
from journal.message_run import MessageRun
from journal.record import AnyRecord, Mark, Messages


class Replay:
    """Records go into an engine's folds in the order of their LSNs; nothing is queued.

    Only sends to different partitions may change places among themselves, and with nothing else between them: no fold
    can tell. ``at`` is the journal time reached, ``records`` how many there were.
    """

    def __init__(self, engine: Engine, at: int) -> None:
        self._engine = engine
        folds = engine.routes[Messages]
        self._in_runs = all(IRunFold.providedBy(fold) for fold in folds)
        self._folds = cast(tuple[IRunFold, ...], folds)
        self.at = at
        self.records = 0

    def group(self, first_lsn: int, count: int, body: bytes, path: str, start: int) -> None:
        """Fold all records of a group whose checksum holds; its ``body`` is from ``start`` on in ``path``."""
        lsn = first_lsn
        for records, data in record.proven(body, count, path, start):
            self._block(lsn, records, data)
            lsn += len(records)

    def _block(self, lsn: int, records: list[AnyRecord], data: list[bytes]) -> None:
        first = 0
        for number, each in enumerate(records):
            if type(each) is not Messages or not self._in_runs:
                if first < number:
                    self._sends(lsn + number, records[first:number], data[first:number])
                self.one(lsn + number, each, data[number])
                first = number + 1
        if first < len(records):
            self._sends(lsn + len(records), records[first:], data[first:])

    def one(self, lsn: int, decision: AnyRecord, data: bytes | memoryview) -> None:
        """Fold one record."""
        engine = self._engine
        folds = engine.routes.get(type(decision), ())
        if not folds and type(decision) is not Mark:
            raise InvalidSetting(
                f"the journal holds a {type(decision).__name__} at LSN {lsn}, which this program does not keep and "
                "would lose. Nothing was lost; open the directory with the program that wrote it"
            )
        engine.next_lsn, engine.forced_lsn = lsn + 1, lsn
        for fold in folds:
            fold.apply(lsn, decision, data)
        if engine.busy:
            engine.transactions.finish_apply(engine.on_flush_wanted)
        self.at = max(self.at, decision.at)
        self.records += 1

    def _sends(self, next_lsn: int, records: Sequence[AnyRecord], data: Sequence[bytes]) -> None:
        for run in _runs(cast(Sequence[Messages], records), data):
            for fold in self._folds:
                fold.apply_run(run)
        self._engine.next_lsn, self._engine.forced_lsn = next_lsn, next_lsn - 1
        self.at = max(self.at, records[-1].at)
        self.records += len(records)


def _runs(records: Sequence[Messages], data: Sequence[bytes]) -> list[MessageRun]:
    """The sends by partition."""
    partitions = [each.partition for each in records]
    if partitions.count(partitions[0]) == len(partitions):
        return [MessageRun(records, data)]
    found: dict[int, tuple[list[Messages], list[bytes]]] = {}
    for each, frames in zip(records, data, strict=True):
        run = found.get(each.partition)
        if run is None:
            found[each.partition] = [each], [frames]
        else:
            run[0].append(each)
            run[1].append(frames)
    return [MessageRun(*run) for run in found.values()]
