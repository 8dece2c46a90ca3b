"""The settings of a history: limits so small that few requests reach what takes millions in production."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType
from typing import Any

from msgspec import structs

import journal.engine.engine
import journal.engine.settings
import journal.folds.schedule
import journal.folds.timetable
import journal.formats.index
import journal.log.segment_index
import journal.recovery.record_batches
import journal.recovery.replay
import journal.schedule.cancelling
import journal.schedule.placing
import journal.schedule.schedule
import journal.schedule.seeing
import journal.settings
import journal.transactions.outcome_archive
import txbroker.broker.fetches.fetches
import txbroker.broker.parked_requests
import txbroker.broker.queues.delaying
import txbroker.broker.schedule.scheduling
import txbroker.channels.connection
import txbroker.channels.consuming
import txbroker.channels.publishing
import txbroker.channels.settling
import txbroker.queues.due_messages
import txbroker.server.connections.send_buffer
from journal.constants import INDEX_INTERVAL_BYTES, KIB, MIB
from journal.engine.settings import JournalSettings
from journal.formats.envelope import DAY, LOGS, PLACES_TOPIC, SCHEDULE_TOPIC
from journal.settings import MAX_INTERVAL, TopicSettings
from journal.transactions.limits import TransactionLimits
from txbroker.broker.sessions.settings import SECOND, BrokerSettings, OrphanAction
from txbroker.channels.virtual_hosts import ROOT_NAME
from txbroker.server.settings.config import Config, ServiceSettings

NEVER = 1 << 50

_TINY = (
    (journal.engine.engine, "GROUP_RECORDS", (2, 5)), (journal.engine.engine, "GROUP_BYTES", (2000,)),
    (journal.engine.engine, "BATCH", (1, 2)), (journal.transactions.outcome_archive, "BATCH", (1, 2)),
    (journal.engine.settings, "ARCHIVE_SEGMENT_BYTES", (200, 1000)),
    (journal.recovery.record_batches, "FEWEST_EVEN", (2,)), (journal.recovery.record_batches, "BLOCK_RECORDS", (4,)),
    (journal.recovery.replay, "SHORT_RUN", (1,)),
    (txbroker.broker.parked_requests, "SLICE", (1, 2)), (txbroker.server.connections.send_buffer, "CONGESTED", (300,)),
    (txbroker.broker.fetches.fetches, "LEAST_COLD_READ", (100,)),
    (txbroker.broker.fetches.fetches, "MOST_COLD_READS", (1, 2)),
)  # fmt: skip
"""Constants that are so large that short histories never reach them, and what they are in some."""

_TINY_SCHEDULE = (
    (journal.folds.timetable, "PIECE", (1, 3)), (journal.folds.schedule, "KEPT", (2, 5)),
    (journal.schedule.placing, "MOST", (1, 2)), (journal.schedule.placing, "MOST_BYTES", (100,)),
    (journal.schedule.seeing, "SEEN_AT_ONCE", (100,)), (journal.schedule.schedule, "FETCHED_AT_ONCE", (1, 2)),
    (journal.schedule.schedule, "FETCHED_BYTES", (100,)), (journal.schedule.schedule, "READ_BYTES", (200,)),
    (journal.schedule.cancelling, "AT_ONCE", (200, 2000)), (journal.schedule.schedule, "LOOKED_AT", (1, 3)),
    (txbroker.broker.schedule.scheduling, "LISTED_AT_ONCE", (200,)),
)  # fmt: skip
"""The same, in histories in which messages are due later."""


_TINY_DELAYS = (
    *_TINY_SCHEDULE,
    (txbroker.broker.queues.delaying, "MOST", (1, 2)), (txbroker.broker.queues.delaying, "PIECE", (200,)),
    (txbroker.queues.due_messages, "MOST", (1, 2)), (txbroker.queues.due_messages, "MOST_BYTES", (300,)),
    (txbroker.channels.publishing, "MOST", (1, 2)), (txbroker.channels.consuming, "TAKEN_AT_ONCE", (1, 3)),
    (txbroker.channels.connection, "DELIVERED_AT_ONCE", (1, 2)),
    (txbroker.channels.settling, "RETURNED_AT_ONCE", (1, 2)),
)  # fmt: skip
"""The same, in histories in which clients speak AMQP, and messages wait at an exchange."""


class TinyJournal(JournalSettings, frozen=True, kw_only=True):
    """Settings of a journal that may be smaller than makes sense."""

    def check(self) -> JournalSettings:
        """Anything goes."""
        return self


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
    network: int
    forgetful: bool
    orphans: str
    cold: bool
    index_interval: int
    tiny: dict[tuple[ModuleType, str], Any]
    members: str = ""
    """The group of each client that is a member."""
    outboxes: int = 0
    """How many clients deliver rows of outboxes."""
    schedulers: int = 0
    """How many clients schedule messages."""
    amqp_clients: int = 0
    """How many clients speak AMQP."""
    amqp_host: str = ROOT_NAME
    """The virtual host that they choose."""
    principals: tuple[str, ...] = ()
    """The user that each client is, where clients have rights."""


def draw(random: Random, steps: dict[str, int], deeds: dict[str, int]) -> Settings:
    """The settings of a history."""
    pick = random.choice
    sizes = pick(("small", "small", "middle", "middle", "large"))
    orphans = pick(("", "", "", "", "alert", "rollback", "commit"))
    pool = MIB if sizes == "large" else pick((192 * KIB, 256 * KIB, MIB))
    outcomes = pick((1000, 1000, 1000, 3))
    limits = TransactionLimits(
        transactions=pick((1000, 1000, 3)), messages=pick((1000, 1000, 8)), bytes=pick((300 * KIB, 300 * KIB, 2000)),
        total_bytes=400 * KIB, partitions=pick((100, 100, 2)), outcomes=outcomes,
    )  # fmt: skip
    journal = TinyJournal(
        pool_bytes=pool, file_bytes=pick((16, 16, 16, 32, 64, 256)) * KIB,
        checkpoint_bytes=pick((4, 16, 64, 1 << 20)) * KIB, checkpoint_interval=pick((SECOND, 30 * SECOND, NEVER)),
        low_water_bytes=0, open_files=8, limits=limits, outcome_archive=pick((True, True, False)),
        outcome_archive_bytes=None,
    )  # fmt: skip
    broker = BrokerSettings(
        max_sessions=pick((100, 100, 4)), transaction_timeout=pick((SECOND, 60 * SECOND, 60 * SECOND)),
        producer_age=pick((3 * SECOND, 10_000 * SECOND, 10_000 * SECOND)), max_producers=pick((100, 100, 2)),
        max_producer_partitions=pick((1000, 1000, 3)), pending_bytes=pick((64, 1024, 32 * 1024)) * KIB,
        orphan_age=5 * SECOND if orphans else None, orphan_action=OrphanAction(orphans or "alert"),
        max_group_positions=pick((1000, 1000, 4)), max_fetch=64 * KIB, max_fetches_per_session=pick((16, 16, 2)),
        max_request=pool // 2, max_frame=pool // 2,
    )  # fmt: skip
    weights = {name: weight * pick((0, 1, 1, 1, 3)) for name, weight in deeds.items()}
    weights["send"] += 1
    weights |= {name: weight * pick((1, 1, 3)) for name, weight in steps.items()}
    return Settings(
        Config(ServiceSettings(data="simulated", reader_threads=2, scrub_rate=pick((0, 1 << 20))), broker, journal),
        steps=pick((40, 80, 120, 200)), clients=pick((1, 2, 3, 4)), sizes=sizes, weights=weights,
        small_commit=pick((0, 300, 16 * MIB, 16 * MIB)), slice=pick((1, 200, 4 * MIB)),
        staged=pick((0, 300, pool // 2, pool // 2)), network=pick((0, 500, 64 * KIB, 64 * KIB)),
        forgetful=outcomes == 3, orphans="" if orphans == "alert" else orphans, cold=pick((True, False, False)),
        index_interval=pick((50, 1000, INDEX_INTERVAL_BYTES)),
        tiny={(module, name): pick(values) for module, name, values in _TINY if random.random() < 0.4},
    )  # fmt: skip


def with_members(settings: Settings, random: Random, steps: dict[str, int]) -> Settings:
    """The settings of a history with members, for whom less happens beside, and times are short."""
    pick = random.choice
    broker = structs.replace(
        settings.config.broker, max_sessions=100, max_group_positions=1000,
        assignment_delay=pick((0, 300_000)), reconnect_grace=pick((0, 500_000, SECOND)),
        rejoin_timeout=pick((0, SECOND, 3 * SECOND)),
    )  # fmt: skip
    weights = settings.weights | {name: weight * pick((1, 1, 2)) for name, weight in steps.items()}
    return replace(
        settings,
        config=settings.config._replace(broker=broker),
        steps=pick((30, 50, 80)),
        clients=pick((1, 1, 2)),
        weights=weights,
        members=pick(("mm", "mmm", "mmm", "mmn", "mmmm")),
    )


def with_outboxes(settings: Settings, random: Random, steps: dict[str, int]) -> Settings:
    """The settings of a history in which clients deliver rows of outboxes; few other clients send beside."""
    pick = random.choice
    broker = structs.replace(settings.config.broker, max_sessions=100, max_streams=pick((100, 100, 1)))
    weights = settings.weights | {name: weight * pick((1, 1, 2)) for name, weight in steps.items()}
    return replace(
        settings,
        config=settings.config._replace(broker=broker),
        clients=pick((1, 1, 2)),
        weights=weights,
        outboxes=pick((1, 2, 2, 3)),
    )


def with_principals(settings: Settings, random: Random, steps: dict[str, int]) -> Settings:
    """The settings of a history in which clients have rights. Producers are not forgotten: they are counted."""
    pick = random.choice
    broker = structs.replace(
        settings.config.broker, max_sessions=100, max_producers=100, max_producer_partitions=1000,
        producer_age=10_000 * SECOND,
    )  # fmt: skip
    weights = settings.weights | {name: weight * pick((1, 1, 2)) for name, weight in steps.items()}
    users = pick(("12", "112", "123", "1123"))
    return replace(
        settings,
        config=settings.config._replace(broker=broker),
        weights=weights,
        principals=tuple(f"u{user}" for user in users),
    )


def with_schedule(settings: Settings, random: Random, steps: dict[str, int]) -> Settings:
    """The settings of a history in which messages are due later. The schedule's logs have tiny segments in most."""
    pick = random.choice
    broker = structs.replace(
        settings.config.broker, max_sessions=100, max_scheduled=pick((1000, 1000, 1000, 20)),
        transaction_timeout=60 * SECOND,
    )  # fmt: skip
    weights = settings.weights | {name: weight * pick((1, 1, 2)) for name, weight in steps.items()}
    kept = TopicSettings(force_messages=pick((1, 3, 1000)), segment_bytes=pick((200, 400, 4000, 64 << 20)))
    places = structs.replace(kept, retention_age=DAY)
    tiny: dict[tuple[ModuleType, str], Any] = {
        (journal.schedule.schedule, "_TOPICS"): ((SCHEDULE_TOPIC, LOGS, kept), (PLACES_TOPIC, 1, places))
    }
    tiny |= {(module, name): pick(values) for module, name, values in _TINY_SCHEDULE if random.random() < 0.5}
    return replace(
        settings,
        config=settings.config._replace(broker=broker),
        clients=pick((1, 1, 2)),
        weights=weights,
        schedulers=pick((1, 2, 2, 3)),
        tiny=settings.tiny | tiny,
    )


def with_amqp(settings: Settings, random: Random, steps: dict[str, int]) -> Settings:
    """The settings of a history in which clients speak AMQP; few other clients send beside."""
    pick = random.choice
    broker = structs.replace(settings.config.broker, max_sessions=100)
    weights = settings.weights | {name: weight * pick((1, 1, 2)) for name, weight in steps.items()}
    tiny: dict[tuple[ModuleType, str], Any] = {
        (module, name): pick(values) for module, name, values in _TINY_DELAYS if random.random() < 0.4
    }
    service = structs.replace(settings.config.service, virtual_hosts=("shop",))
    return replace(
        settings,
        config=settings.config._replace(broker=broker, service=service),
        clients=pick((1, 1, 2)),
        weights=weights,
        amqp_clients=pick((1, 2, 2, 3)),
        amqp_host=pick((ROOT_NAME, ROOT_NAME, "shop")),
        tiny=settings.tiny | tiny,
    )


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
    """Let segments, groups, indexes and lines be as small as a history wants them."""
    interval = settings.index_interval
    values = settings.tiny | {
        (journal.formats.index, "INDEX_INTERVAL_BYTES"): interval,
        (journal.formats.index, "LONG_APPEND"): 2 * interval,
        (journal.formats.index, "MAX_GAP"): 3 * interval,
        (journal.log.segment_index, "MAX_GAP"): 3 * interval,
    }
    before = {(module, name): getattr(module, name) for module, name in values}
    least = journal.settings.RANGES["segment_bytes"]
    journal.settings.RANGES["segment_bytes"] = (100, least[1])
    try:
        for (module, name), value in values.items():
            setattr(module, name, value)
        yield
    finally:
        journal.settings.RANGES["segment_bytes"] = least
        for (module, name), value in before.items():
            setattr(module, name, value)
