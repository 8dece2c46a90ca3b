"""Every fold whose rows a checkpoint may hold, by name: for a start, and for all who read checkpoints."""

from __future__ import annotations

from typing import Final

from journal.folds.groups import GroupsFold
from journal.folds.identity import IdentityFold
from journal.folds.producers import ProducersFold
from journal.interfaces import IFold
from journal.log.catalog import Catalog
from journal.log.starts import Starts
from journal.transactions.outcome_archive import OutcomeArchive
from journal.transactions.table import TransactionTable

CLIENT_FOLDS: Final = (ProducersFold, GroupsFold, IdentityFold)
"""Those that a broker adds to the engine's own."""

FOLDS: Final = {
    fold.name: fold for fold in (Catalog, TransactionTable, OutcomeArchive, Starts, *CLIENT_FOLDS)
}


def client_folds() -> list[IFold]:
    """The folds that a broker needs its engine to have, empty."""
    return [fold() for fold in CLIENT_FOLDS]
