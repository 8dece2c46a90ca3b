"""The table of all folds whose rows a checkpoint may hold, by name, for starts and for all readers of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import error as StructError
from typing import Any, Final, Protocol

from journal.errors import InvalidFrame
from journal.folds.access import AccessFold
from journal.folds.groups import GroupsFold
from journal.folds.identity import IdentityFold
from journal.folds.producers import ProducersFold
from journal.folds.queues import QueuesFold
from journal.folds.schedule import ScheduleFold
from journal.folds.streams import StreamsFold
from journal.formats.checkpoint_rows import Fact, RowReader
from journal.interfaces import IFold
from journal.log.catalog import Catalog
from journal.log.start_history import Starts
from journal.transactions.outcome_archive import OutcomeArchive
from journal.transactions.table import TransactionTable


class StoredFold(Protocol):
    """A class of folds that defines the types of its rows."""

    name: str

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint; raise as :class:`RowReader` does for impossible ones."""


class ReplayedFold(StoredFold, Protocol):
    """A class of folds that are made from records alone, without logs or memory for messages."""

    handles: tuple[type, ...]

    def __init__(self) -> None: ...

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:
        """Apply one record to the state; raise AssertionError with the reason, or LookupError, if it cannot
        come next.
        """

    def snapshot(self) -> Iterator[Any]:
        """The rows for a checkpoint."""

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by a checkpoint's rows, as :meth:`read` has read them."""

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield all facts of the state, to be compared with another's."""


CLIENT_FOLDS: Final = (ProducersFold, GroupsFold, IdentityFold, StreamsFold, AccessFold, QueuesFold)
"""The folds that a broker adds to the engine's own."""

REPLAYED_FOLDS: Final[tuple[type[ReplayedFold], ...]] = (Starts, ScheduleFold, *CLIENT_FOLDS)
"""The folds that a reader of the journal can make again."""

_STORED: Final[list[StoredFold]] = [
    Catalog,
    TransactionTable,
    OutcomeArchive,
    Starts,
    ScheduleFold,
    *CLIENT_FOLDS,
]
FOLDS: Final = {fold.name: fold for fold in _STORED}


def client_folds() -> list[IFold]:
    """Return the folds that a broker needs its engine to have, empty."""
    return [fold() for fold in CLIENT_FOLDS]


MISFIT: Final = (AssertionError, LookupError, ValueError, OverflowError, StructError, InvalidFrame)
"""What a fold raises for a record that does not follow those before it, sound as its bytes may be."""


def misfit(fold: str, error: Exception) -> str:
    """Why a record does not follow those before it, from what the fold of that name raised for it."""
    if isinstance(error, LookupError):
        return f"it does not continue the {fold} that the records before it make: there is no {error}"
    return str(error)
