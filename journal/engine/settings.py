"""Settings of one engine, checked."""

from __future__ import annotations

from typing import Final

import msgspec

from journal.constants import (
    BLOCK,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_JOURNAL_BYTES,
    JOURNAL_FILE_BYTES,
    MAX_REQUEST_DATA,
    MIB,
)
from journal.quantities import Bytes, Micros, check_range, quantities_of
from journal.settings import MAX_AGE, TopicSettings
from journal.transactions.limits import TransactionLimits

ARCHIVE_SEGMENT_BYTES = 64 * MIB
"""Retention takes whole segments."""
ARCHIVE_FORCE_MESSAGES = 50_000
"""No reader waits for it to be in segments, and 8 MiB of the pool are few, so a force for each thousand is not
needed.
"""

RANGES: Final[dict[str, tuple[int, int]]] = {
    "pool_bytes": (MIB, 1 << 40),
    "file_bytes": (4 * BLOCK, 1 << 34),
    "checkpoint_bytes": (BLOCK, 1 << 40),
    "checkpoint_interval": (1000, 1 << 50),
    "low_water_bytes": (0, 1 << 50),
    "open_files": (8, 1 << 20),
    "max_partitions": (1, 1 << 24),
    "outcome_archive_bytes": (MIB, 1 << 62),
    "outcome_archive_age": (0, MAX_AGE),
}
"""Least and greatest value of each number, both allowed."""


class JournalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one engine. Sizes in bytes, times in µs.

    ``pool_bytes`` is the memory for tails and staged frames, at most half of it for the latter. A checkpoint follows
    after ``checkpoint_bytes`` of journal or after ``checkpoint_interval``. ``low_water_bytes`` of disk beyond what
    finishing needs must be free, else new work is refused. ``open_files`` bounds the segments held open.

    With ``outcome_archive`` every transaction's outcome is kept in its own log, which then has at least the newest
    ``outcome_archive_bytes`` and outcomes younger than ``outcome_archive_age`` (None: everything). None: as the journal
    has it, for programs that start a directory whose settings are not theirs.
    """

    pool_bytes: Bytes = 256 * MIB
    file_bytes: Bytes = JOURNAL_FILE_BYTES
    checkpoint_bytes: Bytes = CHECKPOINT_JOURNAL_BYTES
    checkpoint_interval: Micros = CHECKPOINT_INTERVAL
    low_water_bytes: Bytes = 256 * MIB
    open_files: int = 512
    max_partitions: int = 100_000
    outcome_archive: bool | None = False
    outcome_archive_bytes: Bytes | None = 1024 * MIB
    outcome_archive_age: Micros | None = None
    limits: TransactionLimits = TransactionLimits()

    def check(self) -> JournalSettings:
        """Return self; raises :class:`InvalidSetting` naming the setting, its value and its range."""
        for name, bounds in RANGES.items():
            quantity = quantities_of(JournalSettings)[name]
            optional = name.startswith("outcome_archive")
            check_range(
                name, getattr(self, name), quantity, bounds, optional=optional, state="nothing was started"
            )
        return self

    @property
    def archive(self) -> TopicSettings | None:
        """Return the settings of the archive's log; None without one."""
        if not self.outcome_archive:
            return None
        return TopicSettings(
            force_messages=ARCHIVE_FORCE_MESSAGES,
            segment_bytes=ARCHIVE_SEGMENT_BYTES,
            retention_bytes=self.outcome_archive_bytes,
            retention_age=self.outcome_archive_age,
        )


assert MAX_REQUEST_DATA < JOURNAL_FILE_BYTES
