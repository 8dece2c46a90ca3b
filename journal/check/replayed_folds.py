"""The check of folds that records alone make, against their state in the newest checkpoint.

Each is restored from the older checkpoint, or begins empty if the first record of all exists, and gets the records up
to the newest checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.folds.table import MISFIT, REPLAYED_FOLDS, ReplayedFold, misfit
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding


class ReplayedFolds:
    """Follows records in order, from ``since`` on: a checkpoint, or None if the first record of all is among them."""

    def __init__(self, since: Checkpoint | None) -> None:
        self._folds: dict[str, ReplayedFold] = {}
        for kind in REPLAYED_FOLDS:
            fold = kind()
            if since is not None and kind.name in since.folds:
                fold.restore(since.folds[kind.name])
            elif since is not None and any(True for _ in fold.snapshot()):
                continue  # the checkpoint was made without this fold
            self._folds[kind.name] = fold

    def follow(self, entry: JournalEntry) -> Iterator[str]:
        """Follow the next record; yield what is wrong with it. A fold that it does not continue is followed no
        further.
        """
        for fold in list(self._folds.values()):
            if type(entry.record) in fold.handles and (problem := _applied(fold, entry)):
                del self._folds[fold.name]
                yield problem

    def against(self, newest: Checkpoint) -> Iterator[Finding]:
        """Yield what differs in that checkpoint, once all records up to it have been followed."""
        path = filenames.checkpoint_file(newest.header.lsn)
        names = {store.number: Affected(store.topic, store.index) for store in newest.stores}
        for name, fold in self._folds.items():
            if name not in newest.folds:
                continue
            other = type(fold)()
            other.restore(newest.folds[name])
            facts, said = dict(fold.facts()), dict(other.facts())
            for fact in [*facts, *(each for each in said if each not in facts)]:
                mine, theirs = (each.get(fact, "not there") for each in (facts, said))
                if mine != theirs:
                    what = f"{fact.what} is {theirs}, by the journal {mine}"
                    yield Finding(path, 0, what, affects=names.get(fact.partition, Affected()))


def _applied(fold: ReplayedFold, entry: JournalEntry) -> str:
    """Apply a record; return what is wrong with it, empty if nothing."""
    try:
        fold.apply(entry.lsn, entry.record, entry.data)
    except MISFIT as error:
        return misfit(fold.name, error)
    return ""
