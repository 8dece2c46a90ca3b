"""The metrics of a broker: the figures of ``txbroker status`` as Prometheus names them, latencies, topics and groups.

Each figure has one owner, the status; the table here says how it is shown. They are made in steps, between which the
reactor serves others: topics and groups may be many.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import journal
from journal.formats.filenames import is_internal
from journal.formats.version import FORMAT, PROGRAM
from journal.records.queue_entries import QUEUE_GROUP
from txbroker.monitoring.exposition import COUNTER, HISTOGRAM, Metric

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker

MICROSECONDS: Final = 1e-6


class Shown(NamedTuple):
    """How a figure of the status is shown: as which metric, and in which unit of that metric it comes."""

    metric: Metric
    unit: float = 1.0


def _gauge(name: str, told: str, unit: float = 1.0) -> Shown:
    return Shown(Metric(f"txbroker_{name}", told), unit)


def _counter(name: str, told: str) -> Shown:
    return Shown(Metric(f"txbroker_{name}_total", told, COUNTER))


STATUS: Final[Mapping[str, Shown | None]] = {
    "start": _gauge("starts", "How many times the data directory has been started."),
    "topics": _gauge("topics", "Topics."),
    "partitions": _gauge("partitions", "Partitions."),
    "last_lsn": _gauge("journal_last_lsn", "LSN of the last accepted record."),
    "forced_lsn": _gauge("journal_forced_lsn", "LSN up to which all is on disk."),
    "pending_bytes": _gauge("journal_pending_bytes", "Bytes that are accepted and not forced yet."),
    "unflushed_bytes": _gauge(
        "unflushed_bytes", "Message bytes in the journal that are not in segments yet."
    ),
    "pool_bytes_used": _gauge("pool_used_bytes", "Memory of the pool that is in use."),
    "pool_bytes_kept": _gauge("pool_kept_bytes", "Memory of the pool that is free, and not given back yet."),
    "pool_bytes_fragmented": _gauge("pool_fragmented_bytes", "Free parts of pages that are in use."),
    "pool_chunks": _gauge("pool_chunks", "Maps of memory that the pool has from the system."),
    "pool_buffers_lost": _counter(
        "pool_buffers_lost", "Buffers that were never released: a fault of the broker."
    ),
    "checkpoint_lsn": _gauge(
        "checkpoint_lsn", "LSN of the newest checkpoint; the next start replays from there."
    ),
    "pins": _gauge("pins", "Clients for which no file is removed."),
    "segments_compacted": _counter("segments_compacted", "Segments of queues that were compacted."),
    "bytes_compacted": _counter("bytes_compacted", "Bytes by which these have shrunk."),
    "transactions_active": _gauge("transactions_active", "Transactions that are undecided and not prepared."),
    "transactions_in_doubt": _gauge("transactions_in_doubt", "Transactions that are prepared and undecided."),
    "transactions_restored": _gauge(
        "transactions_restored",
        "Prepared transactions that were in the backup that is restored.",
    ),
    "restored_as_copy": _gauge(
        "restored_as_copy",
        "1 if the data were restored as a copy, which decides nothing for its original; else 0.",
    ),
    "oldest_in_doubt_age": _gauge(
        "oldest_in_doubt_age_seconds",
        "Time since the oldest of them was prepared; 0 if there is none.",
        MICROSECONDS,
    ),
    "transactions_orphaned": _gauge(
        "transactions_orphaned", "Transactions prepared for longer than orphan_age."
    ),
    "orphans_ended": _counter("orphans_ended", "Prepared transactions that the orphan policy has ended."),
    "outcomes_forced": _gauge("outcomes_forced", "Forced outcomes that nobody has forgotten yet."),
    "outcomes_contradicted": _gauge(
        "outcomes_contradicted", "Forced outcomes whose coordinators decided the other way: damage."
    ),
    "slow_forces": _counter("slow_forces", "Forces of the journal that took a second or more."),
    "longest_force": _gauge(
        "longest_slow_force_seconds", "The longest of them; 0 if none did.", MICROSECONDS
    ),
    "disk_full": _gauge("disk_full", "1 while new work is refused because the disk is full."),
    "disk_bytes_free": _gauge("disk_free_bytes", "Free space of the disk that the data are on."),
    "disk_bytes_needed": _gauge("disk_needed_bytes", "What must stay free on it."),
    "version": None,
    "format": None,
    "build": None,
    "uptime": _gauge("uptime_seconds", "Time since this start.", MICROSECONDS),
    "sessions": _gauge("sessions", "Sessions: connections whose clients have logged in."),
    "access_enabled": _gauge("access_enabled", "Whether everybody has to log in."),
    "users": _gauge("users", "Users that may log in."),
    "logins": _counter("logins", "Logins with a password, a certificate or a token."),
    "logins_refused": _counter("logins_refused", "Logins that were refused."),
    "access_denied": _counter("access_denied", "Requests refused because a right is missing (AccessDenied)."),
    "producers": _gauge("producers", "Producers that are remembered."),
    "streams": _gauge("streams", "Streams of outboxes."),
    "scheduled_waiting": _gauge("scheduled_messages", "Messages for later that wait to be due."),
    "scheduled_held": _gauge(
        "scheduled_held_messages", "Those of them that a prepared transaction takes back if it is committed."
    ),
    "scheduled_bytes": _gauge("scheduled_bytes", "Bytes of the files in which they wait."),
    "scheduled_placed": _counter(
        "scheduled_placed", "Messages that went to their partitions when they were due."
    ),
    "scheduled_gone": _counter("scheduled_gone", "Messages that were due and whose topic was gone."),
    "scheduled_next_in": None,
    "schedule_holds": _gauge(
        "schedule_holds", "1 while what is due by the wall clock is held: it has jumped."
    ),
    "queues": _gauge("queues", "Queues."),
    "exchanges": _gauge("exchanges", "Exchanges, also those that are always there."),
    "queue_messages": _gauge("queues_messages", "Messages of all queues that are not acknowledged."),
    "queue_unacknowledged": _gauge("queues_unacknowledged_messages", "Those of them that sessions have."),
    "queue_consumers": _gauge("queues_consumers", "Consumers of queues."),
    "queue_unrouted": _counter("queue_unrouted", "Messages that found no queue and were dropped."),
    "queue_expired": _counter("queue_expired", "Messages of queues that have expired."),
    "queue_dropped": _counter("queue_dropped", "Messages that were more than their queue may have."),
    "queue_timed_out": _counter(
        "queue_timed_out", "Deliveries of queues that were not acknowledged in time, and were taken back."
    ),
    "queue_circles": _counter(
        "queue_circles", "Dead letters that were dropped because they went in a circle."
    ),
    "queue_dead_letters_refused": _counter(
        "queue_dead_letters_refused", "Dead letters that were dropped because a queue had no room for them."
    ),
    "groups": _gauge("groups", "Consumer groups."),
    "members": _gauge("members", "Members of all groups."),
    "dead_letters_waiting": _gauge(
        "dead_letters_waiting", "Messages that groups have given up and that are not in their topics yet."
    ),
    "dead_letters_moved": _counter(
        "dead_letters_moved", "Messages that were moved to topics of dead letters."
    ),
    "messages_in": _counter("messages_received", "Messages that were sent outside of transactions."),
    "bytes_in": _counter("received_bytes", "Their bytes."),
    "repeated_sends": _counter("repeated_sends", "Sends that were answered as the first time."),
    "fetches": _counter("fetches", "Fetches that were answered."),
    "fetches_waiting": _gauge("fetches_waiting", "Fetches that wait for messages."),
    "bytes_out": _counter("delivered_bytes", "Bytes that were given to readers."),
    "requests_parked": _gauge(
        "requests_parked", "Requests that wait for memory, the journal or a large commit."
    ),
    "bytes_parked": _gauge("parked_bytes", "Their bytes."),
    "scrubbed_bytes": _counter("scrubbed_bytes", "Bytes that the scrubber has read again."),
    "scrub_passes": _counter("scrub_passes", "Passes that the scrubber has finished."),
    "scrub_age": _gauge(
        "scrub_age_seconds", "Time since the last of them ended; missing before the first.", MICROSECONDS
    ),
    "scrub_findings": _gauge("scrub_findings", "Damaged places that the scrubber has found."),
}
"""Every figure of ``txbroker status``; None for what is a label of ``txbroker_info``, or is no use to a monitor."""

INFO: Final = Metric("txbroker_info", "1, with the version that runs, its build, and the format of the data.")
READY: Final = Metric("txbroker_ready", "1 if clients should come, 0 while it recovers, stops or has failed.")
FORCES: Final = Metric("txbroker_force_seconds", "Writing and forcing a group of the journal.", HISTOGRAM)
REQUESTS: Final = Metric(
    "txbroker_request_seconds",
    "From accepting a request to its answer, by kind; twenty times a second one of a kind is measured.",
    HISTOGRAM,
)
AGES: Final = Metric(
    "txbroker_delivery_age_seconds",
    "Of every eighth answered fetch: how long ago the first of its messages was appended.",
    HISTOGRAM,
)
LATENESS: Final = Metric(
    "txbroker_scheduled_lateness_seconds",
    "From when a message for later was due until it was placed.",
    HISTOGRAM,
)
QUOTAS: Final = Metric(
    "txbroker_quota_exceeded_total",
    "By quota: requests refused, waits, and transactions prepared for too long.",
    COUNTER,
)
TOPIC_MESSAGES: Final = Metric("txbroker_topic_messages_total", "Messages that a topic ever got.", COUNTER)
TOPIC_BYTES: Final = Metric("txbroker_topic_bytes", "Bytes that a topic has on disk and in memory.")
QUEUE_READY: Final = Metric("txbroker_queue_ready_messages", "Messages of a queue that can be got.")
QUEUE_UNACKNOWLEDGED: Final = Metric(
    "txbroker_queue_unacknowledged_messages", "Messages of a queue that sessions have."
)
GROUP_LAG: Final = Metric("txbroker_group_lag_messages", "Messages behind the end, of a group in a topic.")
OMITTED: Final = Metric(
    "txbroker_series_omitted",
    "Topics, queues, and pairs of group and topic, without series: more than metrics_series.",
)

IN_A_STEP: Final = 64
"""Partitions that are added up before others are served: some 30 µs."""


def families(broker: Broker, others: Mapping[Metric, float], most: int) -> Iterator[str]:
    """Yield the text of all metrics, a few lines at a time, and "" where others may be served in between.

    ``others`` are gauges of those who know the broker. ``most`` bounds the series of topics, queues and groups, 0 for
    none.
    """
    yield INFO.head() + INFO.series(
        1, {"version": PROGRAM, "format": str(FORMAT), "build": journal.BUILD.value}
    )
    status = broker.describing.status()
    for name, shown in STATUS.items():
        value = status[name]
        if shown is not None and isinstance(value, int | float) and not (name == "scrub_age" and value < 0):
            yield shown.metric.only(value * shown.unit)
    for metric, value in others.items():
        yield metric.only(value)
    yield from QUOTAS.all(({"quota": name}, count) for name, count in broker.quotas.exceeded.items())
    latencies = broker.latencies
    yield FORCES.histogram([({}, latencies.forces)])
    yield REQUESTS.histogram(({"request": name}, found) for name, found in latencies.requests.items())
    yield AGES.histogram([({}, latencies.ages)])
    yield LATENESS.histogram([({}, latencies.lateness)])
    if most:
        omitted = 0
        for named in (_of_topics, _of_queues, _of_groups):
            omitted += yield from named(broker, most // 3)
        yield OMITTED.only(omitted)


Lines = Generator[str, None, int]
"""Such text; it returns of how many there is none, because they are more than the bound."""
Series = list[tuple[Mapping[str, str], float]]


def _of_topics(broker: Broker, most: int) -> Lines:
    catalog = broker.engine.catalog
    topics = sorted(name for name in catalog.topics if not is_internal(name))
    messages, sizes = Series(), Series()
    for name in topics[:most]:
        if (topic := catalog.topics.get(name)) is not None:  # it may have been deleted since
            count = size = 0
            for index, store in enumerate(topic.partitions):
                count += store.high_watermark
                size += store.total_bytes
                if index % IN_A_STEP == IN_A_STEP - 1:
                    yield ""
            messages.append(({"topic": name}, count))
            sizes.append(({"topic": name}, size))
        yield ""
    yield from TOPIC_MESSAGES.all(messages)
    yield from TOPIC_BYTES.all(sizes)
    return max(len(topics) - most, 0)


def _of_queues(broker: Broker, most: int) -> Lines:
    queues = sorted(broker.queues.listing.names())
    ready, unacknowledged = Series(), Series()
    for name in queues[:most]:
        if (counts := broker.queues.listing.counts(name)) is not None:
            ready.append(({"queue": name}, counts[0]))
            unacknowledged.append(({"queue": name}, counts[1]))
        yield ""
    yield from QUEUE_READY.all(ready)
    yield from QUEUE_UNACKNOWLEDGED.all(unacknowledged)
    return max(len(queues) - most, 0)


def _of_groups(broker: Broker, most: int) -> Lines:
    lags, omitted = Series(), 0
    for group in sorted(broker.groups.groups.keys() - {QUEUE_GROUP}):
        behind = dict[str, int]()
        yield from _lags(broker, group, behind)
        room = most - len(lags)
        lags += [({"group": group, "topic": name}, lag) for name, lag in list(behind.items())[:room]]
        omitted += max(len(behind) - room, 0)
        yield ""
    yield from GROUP_LAG.all(lags)
    return omitted


def _lags(broker: Broker, name: str, found: dict[str, int]) -> Iterator[str]:
    """Add up the lags of a group by topic, in steps."""
    group = broker.groups.groups.get(name)
    if group is None:
        return
    for index, (number, position) in enumerate(list(group.positions.items())):
        store = broker.engine.catalog.stores.get(number)
        if store is not None:
            found[store.topic] = found.get(store.topic, 0) + max(store.high_watermark - position[0], 0)
        if index % IN_A_STEP == IN_A_STEP - 1:
            yield ""
