"""What one history runs with: limits small enough that few requests reach what takes millions in production."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import journal.engine
import journal.settings
from journal.constants import GROUP_BYTES, GROUP_RECORDS, KIB, MIB
from journal.journal_settings import JournalSettings
from journal.settings import MAX_INTERVAL, TopicSettings
from journal.transaction_limits import TransactionLimits
from txbroker.config import Config, ServiceSettings
from txbroker.settings import SECOND, BrokerSettings, OrphanAction

NEVER = 1 << 50


@dataclass(frozen=True)
class Settings:
    """One history's. ``weights`` are those of the steps and of what clients do: not all things in every history."""

    config: Config
    steps: int
    clients: int
    sizes: str
    weights: dict[str, int]
    small_commit: int
    slice: int
    staged: int
    group_records: int
    group_bytes: int
    network: int
    forgetful: bool
    orphans: str


def draw(random: Random, steps: dict[str, int], deeds: dict[str, int]) -> Settings:
    """The settings of a history."""
    pick = random.choice
    sizes = pick(("small", "small", "middle", "middle", "large"))
    orphans = pick(("", "", "", "", "", "rollback", "commit"))
    outcomes = pick((1000, 1000, 1000, 3))
    limits = TransactionLimits(
        transactions=pick((1000, 1000, 3)), messages=pick((1000, 1000, 8)), bytes=pick((300 * KIB, 300 * KIB, 2000)),
        total_bytes=400 * KIB, partitions=pick((100, 100, 2)), outcomes=outcomes,
    )  # fmt: skip
    journal = JournalSettings(
        pool_bytes=MIB, file_bytes=pick((16, 16, 32, 64, 256)) * KIB, checkpoint_bytes=pick((4, 16, 64, 1 << 20)) * KIB,
        checkpoint_interval=pick((SECOND, 30 * SECOND, NEVER)), low_water_bytes=0, open_files=8, limits=limits,
    )  # fmt: skip
    broker = BrokerSettings(
        max_sessions=pick((100, 100, 4)), transaction_timeout=pick((SECOND, 60 * SECOND, 60 * SECOND)),
        producer_age=pick((3 * SECOND, 10_000 * SECOND, 10_000 * SECOND)), max_producers=pick((100, 100, 2)),
        max_producer_partitions=pick((1000, 1000, 3)), pending_bytes=pick((64, 1024, 32 * 1024)) * KIB,
        orphan_age=5 * SECOND if orphans else None, orphan_action=OrphanAction(orphans or "alert"),
        max_group_positions=pick((1000, 1000, 4)), max_fetch=64 * KIB, max_fetches_per_session=pick((16, 16, 2)),
    )  # fmt: skip
    weights = {name: weight * pick((0, 1, 1, 1, 3)) for name, weight in deeds.items()}
    weights["send"] += 1
    weights |= {name: weight * pick((1, 1, 3)) for name, weight in steps.items()}
    return Settings(
        Config(ServiceSettings(data="simulated", reader_threads=2, scrub_rate=0), broker, journal),
        steps=pick((40, 80, 120, 200)), clients=pick((1, 2, 3, 4)), sizes=sizes, weights=weights,
        small_commit=pick((0, 300, 16 * MIB, 16 * MIB)), slice=pick((1, 200, 4 * MIB)),
        staged=pick((0, 300, 512 * KIB, 512 * KIB)), group_records=pick((2, 5, GROUP_RECORDS, GROUP_RECORDS)),
        group_bytes=pick((2000, GROUP_BYTES, GROUP_BYTES)), network=pick((0, 500, 64 * KIB, 64 * KIB)),
        forgetful=outcomes == 3, orphans=orphans,
    )  # fmt: skip


def topic(random: Random) -> TopicSettings:
    """The settings of a topic; with ``tiny_limits`` a segment may be tiny."""
    pick = random.choice
    return TopicSettings(
        force_messages=pick((1, 3, 1000)),
        force_interval=pick((1000, 10 * SECOND, MAX_INTERVAL)),
        segment_bytes=pick((200, 1000, 8000, 64 * KIB, 1 << 20)),
        retention_bytes=pick((None, None, 0, 500)),
        retention_age=pick((None, None, None, None, SECOND)),
        max_message_bytes=pick((None, None, None, 1000)),
    )


@contextmanager
def tiny_limits(settings: Settings) -> Iterator[None]:
    """Let segments and groups be as small as a history wants them."""
    before = journal.settings.RANGES["segment_bytes"]
    journal.settings.RANGES["segment_bytes"] = (100, before[1])
    journal.engine.GROUP_RECORDS, journal.engine.GROUP_BYTES = settings.group_records, settings.group_bytes
    try:
        yield
    finally:
        journal.settings.RANGES["segment_bytes"] = before
        journal.engine.GROUP_RECORDS, journal.engine.GROUP_BYTES = GROUP_RECORDS, GROUP_BYTES
