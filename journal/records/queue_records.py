"""The kinds of journal records about queues and exchanges (decision 0055).

That a queue was made is told by the record that creates its topic, that it was deleted by that topic's deletion, and
that messages in it were acknowledged by records of its consumer group.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.parties import Actor
from journal.records.queue_entries import Binding, ExchangeSettings, Name
from journal.records.record_base import Record
from journal.records.record_parts import Placement, Run
from journal.records.schedule_records import ScheduledId

ExchangeNumber = Annotated[int, msgspec.Meta(ge=1)]
"""A number that no other exchange ever has."""


class ExchangeDeclared(Record, frozen=True, tag=32):
    """An exchange is there. ``by`` is who asked for it, here and in the other records."""

    exchange: Name
    number: ExchangeNumber
    settings: ExchangeSettings
    at: int
    by: Actor | None = None


class ExchangeDeleted(Record, frozen=True, tag=33):
    """An exchange and its bindings, also those to it, are gone."""

    exchange: Name
    number: ExchangeNumber
    at: int
    by: Actor | None = None


class Bound(Record, frozen=True, tag=34):
    """A binding is there."""

    binding: Binding
    at: int
    by: Actor | None = None


class Unbound(Record, frozen=True, tag=35):
    """A binding is gone."""

    binding: Binding
    at: int
    by: Actor | None = None


class Published(Record, frozen=True, tag=36):
    """Messages went through an exchange into queues, each once or several times or not at all.

    They are the ``count`` messages from number ``base`` on of the exchange at that address (:func:`address_of
    <journal.records.queue_entries.address_of>`). The data are their frames, unstamped:
    those of ``runs``, one run after the other; each goes to the log of its partition, and to those of its ``also``.
    Those of partition 0 go nowhere. With ``ids`` these scheduled messages, in the order of the frames, were due: the
    exchange does not count them, which it did when they came.
    """

    address: Annotated[int, msgspec.Meta(le=-2)]
    base: Count
    count: Annotated[int, msgspec.Meta(ge=1)]
    runs: list[Run]
    placements: list[Placement]
    at: int
    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0
    ids: list[ScheduledId] = []  # noqa: RUF012  (a struct's)
