"""Which folds take in which kind of record."""

from __future__ import annotations

from collections.abc import Sequence

from journal.interfaces import IFold


def routes(folds: Sequence[IFold]) -> dict[type, tuple[IFold, ...]]:
    """The folds that take in each kind of record, in their order."""
    found: dict[type, tuple[IFold, ...]] = {}
    for fold in folds:
        for handled in fold.handles:
            found[handled] = (*found.get(handled, ()), fold)
    return found
