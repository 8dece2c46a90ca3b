"""The folds that handle each kind of record."""

from __future__ import annotations

from collections.abc import Sequence

from journal.interfaces import IFold


def routes(folds: Sequence[IFold]) -> dict[type, tuple[IFold, ...]]:
    """Return for each kind of record the folds that handle it, in their order."""
    found: dict[type, tuple[IFold, ...]] = {}
    for fold in folds:
        for handled in fold.handles:
            found[handled] = (*found.get(handled, ()), fold)
    return found
