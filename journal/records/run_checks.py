"""The checks of what a record says of its runs, beside that its frames fit: a start refuses what fails them."""

from __future__ import annotations

from journal.errors import InvalidFrame
from journal.records.record import Published, TransactionAdded, TransactionCommitted, TransactionPrepared
from journal.records.record_parts import Run


def check_runs(record: TransactionAdded | TransactionPrepared | TransactionCommitted | Published) -> None:
    """Raise :class:`InvalidFrame` if a run goes to a partition twice, or on from nowhere, or if all runs together have
    other messages than the record.
    """
    for run in record.runs:
        if run.also:
            _check_ways(run)
    if type(record) is TransactionAdded:
        _check_added(record)
    elif type(record) is Published:
        _check_count(record.runs, record.count)
        if record.ids and not (len(record.ids) == len(set(record.ids)) == record.count):
            raise InvalidFrame(
                f"it says {record.count} messages, and that {len(set(record.ids))} scheduled ones were due"
            )


def _check_ways(run: Run) -> None:
    if not run.partition or not all(run.also):
        raise InvalidFrame(f"a run goes to the partitions numbered {run.partition} and {run.also}")
    if len({run.partition, *run.also}) <= len(run.also):
        raise InvalidFrame(
            f"a run goes twice to one of the partitions numbered {run.partition} and {run.also}"
        )


def _check_added(record: TransactionAdded) -> None:
    if not record.runs and not record.partition:
        raise InvalidFrame("there is no partition number 0")
    if record.runs:
        if record.partition:
            raise InvalidFrame(f"it has runs, and is for partition number {record.partition}")
        _check_count(record.runs, record.count)


def _check_count(runs: list[Run], count: int) -> None:
    held = sum(run.count for run in runs)
    if held != count:
        raise InvalidFrame(f"it says {count} messages, its runs have {held}")
