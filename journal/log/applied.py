"""The effect of a record that has put messages into logs, or has ended a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from journal.log.message_store import MessageStore


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The effect of a record that put messages into logs. ``outcome`` is that of the transaction that it ended, else
    None.

    ``stores`` have its messages, and are to be shown with the record; or ``slices``, a
    :class:`journal.transactions.commit_application.SlicedApply`, is still to be applied to its logs.
    """

    outcome: Any
    stores: Sequence[MessageStore] = ()
    slices: Any = None
