"""The folds, and behind them the observers, that handle each kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from journal.interfaces import IFold, IObserver


def routes(folds: Sequence[IFold], observers: Sequence[IObserver] = ()) -> dict[type, tuple[Any, ...]]:
    """Return for each kind of record the folds that handle it, in their order, and then the observers."""
    found: dict[type, tuple[Any, ...]] = {}
    everybody: tuple[Any, ...] = (*folds, *observers)
    for each in everybody:
        for handled in each.handles:
            found[handled] = (*found.get(handled, ()), each)
    return found
