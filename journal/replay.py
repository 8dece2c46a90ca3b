"""Folding the journal again, fast: sends by the hundred, everything else record by record, all as they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from journal.engine import Engine
from journal.errors import InvalidSetting
from journal.interfaces import IRunFold
from journal.message_run import MessageRun, Row
from journal.record import AnyRecord, Mark, Messages
from journal.record_blocks import Block, blocks

_AT: Final = 3
assert Messages.__struct_fields__[_AT] == "at"


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
        for block in blocks(body, count, path, start):
            if isinstance(block, Block):
                self._block(lsn, block.records, block.data)
                lsn += len(block.records)
            else:
                self._even(lsn, block.rows)
                lsn += len(block.rows)

    def _even(self, lsn: int, rows: list[Row]) -> None:
        if not self._in_runs:
            self._block(lsn, [Messages(*row[:-1]) for row in rows], [row[-1] for row in rows])
            return
        split = _by_partition([row[0] for row in rows])
        runs = [MessageRun.of_rows([rows[each] for each in one]) for one in split]
        runs = runs or [MessageRun.of_rows(rows)]
        self._runs(runs, lsn + len(rows), rows[-1][_AT])

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
        """Fold sends, up to the LSN before ``next_lsn``."""
        sends = cast(Sequence[Messages], records)
        split = _by_partition([each.partition for each in sends])
        runs = [MessageRun.of_records([sends[n] for n in one], [data[n] for n in one]) for one in split]
        runs = runs or [MessageRun.of_records(sends, data)]
        self._runs(runs, next_lsn, records[-1].at)

    def _runs(self, runs: list[MessageRun], next_lsn: int, at: int) -> None:
        for run in runs:
            for fold in self._folds:
                fold.apply_run(run)
            self.records += len(run.frames)
        self._engine.next_lsn, self._engine.forced_lsn = next_lsn, next_lsn - 1
        self.at = max(self.at, at)


def _by_partition(partitions: list[int]) -> list[list[int]]:
    """The numbers of the sends to each partition; nothing if there is just one."""
    if partitions.count(partitions[0]) == len(partitions):
        return []
    found: dict[int, list[int]] = {}
    for number, partition in enumerate(partitions):
        known = found.get(partition)
        if known is None:
            found[partition] = [number]
        else:
            known.append(number)
    return list(found.values())
