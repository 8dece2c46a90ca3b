"""Folding the journal again, fast: sends by the hundred, everything else record by record, all as they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from journal.engine.engine import Engine
from journal.errors import InvalidSetting
from journal.formats.record import (
    AnyRecord,
    Mark,
    Messages,
    TransactionAdded,
    TransactionCommitted,
    TransactionPrepared,
)
from journal.interfaces import IRunFold
from journal.log.message_run import SHORT_RUN, MessageRun, Row
from journal.recovery.record_batches import Block, EvenSends, EvenTransactions, blocks
from journal.recovery.transaction_run import TransactionRun
from journal.recovery.whole_transactions import WholeTransactions

_AT: Final = 3
assert Messages.__struct_fields__[_AT] == "at"


class Replay:
    """Records go into an engine's folds in the order of their LSNs; nothing is queued.

    Only sends to different partitions may change places among themselves, within a group and with nothing else
    between them: no fold can tell. ``at`` is the journal time reached, ``records`` how many there were.
    """

    def __init__(self, engine: Engine, at: int) -> None:
        self._engine = engine
        self._routes = engine.routes
        folds = engine.routes[Messages]
        self._in_runs = all(IRunFold.providedBy(fold) for fold in folds)
        self._folds = cast(tuple[IRunFold, ...], folds)
        self._gathered: dict[int, list[Row]] = {}
        table = engine.transactions
        added, committed = engine.routes[TransactionAdded], engine.routes[TransactionCommitted]
        # If another fold looks at adds, or at commits before the table, each record is folded by itself.
        self._pairing = [fold.name for fold in (*added, committed[0])] == [table.name] * 2
        self._whole = WholeTransactions(table, engine.catalog, committed[1:])
        self.at = at
        self.records = 0

    def group(self, first_lsn: int, count: int, body: bytes, path: str, start: int) -> None:
        """Fold all records of a group whose checksum holds; its ``body`` is from ``start`` on in ``path``."""
        lsn = first_lsn
        for block in blocks(body, count, path, start):
            if isinstance(block, Block):
                self._block(lsn, block.records, block.data)
                lsn += len(block.records)
            elif isinstance(block, EvenSends):
                self._even(lsn, block.rows)
                lsn += len(block.rows)
            else:
                self._even_transactions(lsn, block)
                lsn += 2 * len(block.frames)
        self._fold_gathered()
        self._whole.fold()

    def _even_transactions(self, lsn: int, block: EvenTransactions) -> None:
        pairs = len(block.frames)
        self._fold_gathered()
        run = TransactionRun.of_even(lsn, block) if self._pairing else None
        if run is not None and self._whole.take(run):
            self._whole.fold_block()
            self._folded(2 * pairs, lsn + 2 * pairs, block.last_at)
            return
        records: list[AnyRecord] = []
        data: list[bytes] = []
        for number, frames in enumerate(block.frames):
            records += block.pair(number)
            data += frames, b""
        self._block(lsn, records, data)

    def _even(self, lsn: int, rows: list[Row]) -> None:
        self._whole.fold()
        if not self._in_runs:
            self._block(lsn, [Messages(*row[:-1]) for row in rows], [row[-1] for row in rows])
        elif not self._gathered and _is_one([row[0] for row in rows]):
            self._fold(MessageRun.of_rows(rows))
            self._folded(len(rows), lsn + len(rows), rows[-1][_AT])
        else:
            self._gather(rows)
            self._folded(len(rows), lsn + len(rows), rows[-1][_AT])

    def _block(self, lsn: int, records: list[AnyRecord], data: list[bytes]) -> None:
        in_runs = self._in_runs
        number, end = 0, len(records)
        while number < end:
            first = number
            while number < end and type(records[number]) is Messages and in_runs:
                number += 1
            if first < number:
                self._whole.fold()
                self._sends(lsn + number, records[first:number], data[first:number])
                continue
            if self._gathered:
                self._fold_gathered()
            number = self._transactions(lsn, records, data, number)
            if number == first:
                self.one(lsn + number, records[number], data[number])
                number += 1

    def _transactions(self, lsn: int, records: list[AnyRecord], data: list[bytes], number: int) -> int:
        """Fold the adds and commits from that number on; return the number after them.

        An add before a prepare is most likely what is prepared: it has no commit to wait for.
        """
        engine, whole, end = self._engine, self._whole, len(records) if self._pairing else number
        first = one_by_one = number
        while number < end:
            if number >= one_by_one:
                taken, one_by_one = whole.stretch(lsn, records, data, number)
                if taken:
                    number = one_by_one
                    continue
            each = records[number]
            engine.next_lsn, engine.forced_lsn = lsn + number + 1, lsn + number
            if type(each) is TransactionCommitted:
                whole.commit(lsn + number, each)
                if engine.transactions.applies.current is not None:
                    engine.transactions.finish_apply(engine.on_flush_wanted)
            elif type(each) is not TransactionAdded or (
                number + 1 < end and type(records[number + 1]) is TransactionPrepared
            ):
                break
            else:
                whole.add(lsn + number, each, data[number])
            number += 1
        if first < number:
            whole.fold_block()
            self._folded(number - first, lsn + number, records[number - 1].at)
        return number

    def finish(self) -> None:
        """That was all."""
        self._whole.settle()

    def one(self, lsn: int, decision: AnyRecord, data: bytes | memoryview) -> None:
        """Fold one record."""
        engine = self._engine
        folds = self._routes.get(type(decision), ())
        if not folds and type(decision) is not Mark:
            raise InvalidSetting(
                f"the journal holds a {type(decision).__name__} at LSN {lsn}, which this program does not keep and "
                "would lose. Nothing was lost; open the directory with the program that wrote it"
            )
        engine.next_lsn, engine.forced_lsn = lsn + 1, lsn
        if type(decision) is Messages:
            self._whole.fold()
        else:
            self._whole.settle()
        for fold in folds:
            fold.apply(lsn, decision, data)
        if engine.transactions.applies.current is not None:
            engine.transactions.finish_apply(engine.on_flush_wanted)
        if decision.at > self.at:
            self.at = decision.at
        self.records += 1

    def _sends(self, next_lsn: int, records: Sequence[AnyRecord], data: Sequence[bytes]) -> None:
        """Fold sends, up to the LSN before ``next_lsn``."""
        sends = cast(Sequence[Messages], records)
        if not self._gathered and _is_one([each.partition for each in sends]):
            self._fold(MessageRun.of_records(sends, data))
        else:
            self._gather([row_of(each, frames) for each, frames in zip(sends, data, strict=True)])
        self._folded(len(records), next_lsn, records[-1].at)

    def _gather(self, rows: list[Row]) -> None:
        """Keep sends to many partitions until all of the group are there, for runs that are worth their while.

        100 B sends to 1,000 partitions in turn: 1.6 µs of processor time each, 5.0 without waiting for more of them.
        """
        gathered = self._gathered
        for row in rows:
            known = gathered.get(row[0])
            if known is None:
                gathered[row[0]] = [row]
            else:
                known.append(row)

    def _fold_gathered(self) -> None:
        for rows in self._gathered.values():
            if len(rows) >= SHORT_RUN:
                self._fold(MessageRun.of_rows(rows))
            else:
                for row in rows:
                    send, frames = Messages(*row[:-1]), row[-1]
                    for fold in self._folds:
                        fold.apply(self._engine.forced_lsn, send, frames)  # of an LSN they make nothing
        self._gathered.clear()

    def _fold(self, run: MessageRun) -> None:
        for fold in self._folds:
            fold.apply_run(run)

    def _folded(self, count: int, next_lsn: int, at: int) -> None:
        self._engine.next_lsn, self._engine.forced_lsn = next_lsn, next_lsn - 1
        if at > self.at:
            self.at = at
        self.records += count


def row_of(send: Messages, frames: bytes) -> Row:
    """A send as its row."""
    return (
        send.partition, send.base_offset, send.count, send.at, send.producer_id, send.epoch, send.sequence, frames,
    )  # fmt: skip


def _is_one(partitions: list[int]) -> bool:
    return partitions.count(partitions[0]) == len(partitions)
