"""Folds that records alone make, as the records make them, against what the newest checkpoint says of them.

Each is restored from the older checkpoint, or begins empty where the first record of all is there, and is given the
records up to the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.check.findings import Affected, Finding
from journal.folds.table import REPLAYED_FOLDS, ReplayedFold
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.wal.reader import JournalEntry


class ReplayedFolds:
    """Follows records in order, from ``since`` on: a checkpoint, or None if the first record of all is among them."""

    def __init__(self, since: Checkpoint | None) -> None:
        self._folds: dict[str, ReplayedFold] = {}
        for kind in REPLAYED_FOLDS:
            if since is None:
                self._folds[kind.name] = kind()
            elif kind.name in since.folds:
                self._folds[kind.name] = _restored(kind, since)

    def follow(self, entry: JournalEntry) -> Iterator[Finding]:
        """Take in the next record. A fold whose state it does not continue is followed no further."""
        for fold in list(self._folds.values()):
            if type(entry.record) not in fold.handles:
                continue
            if problem := _applied(fold, entry):
                del self._folds[fold.name]
                affects = Affected(first_lsn=entry.lsn, last_lsn=entry.lsn)
                what = f"{type(entry.record).__name__} at LSN {entry.lsn}: {problem}"
                yield Finding(entry.path, entry.position, what, affects=affects)

    def against(self, newest: Checkpoint) -> Iterator[Finding]:
        """What that checkpoint says otherwise, once all records up to it have been followed."""
        path = filenames.checkpoint_file(newest.header.lsn)
        names = {store.number: Affected(store.topic, store.index) for store in newest.stores}
        for name, fold in self._folds.items():
            if name not in newest.folds:
                continue
            facts, said = dict(fold.facts()), dict(_restored(type(fold), newest).facts())
            for fact in [*facts, *(each for each in said if each not in facts)]:
                mine, other = (each.get(fact, "not there") for each in (facts, said))
                if mine != other:
                    what = f"{fact.what} is {other}, by the journal {mine}"
                    yield Finding(path, 0, what, affects=names.get(fact.partition, Affected()))


def _restored(kind: type[ReplayedFold], checkpoint: Checkpoint) -> ReplayedFold:
    fold = kind()
    fold.restore(checkpoint.folds[kind.name])
    return fold


def _applied(fold: ReplayedFold, entry: JournalEntry) -> str:
    """Apply a record; what is wrong with it, empty if nothing."""
    try:
        fold.apply(entry.lsn, entry.record, entry.data)
    except AssertionError as error:
        return str(error)
    except LookupError as error:
        return f"it does not continue the {fold.name} that the records before it make: there is no {error}"
    return ""
