"""The result of a drill as data: for the table, for ``report.json``, and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from txbroker.drill.broker.victim import Disturbance, Start
from txbroker.drill.clients.coordinator import SENDER as COORDINATOR
from txbroker.drill.clients.ledger import Acknowledged, Ended, Line
from txbroker.drill.judgement.expectation import Expectation, Operation
from txbroker.drill.judgement.judge_schedule import is_committed, taken_back
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.plan import DEAD_LETTERS

REPORT_FILE: Final = "report.json"
BINS: Final = 240
"""The number of columns in the plot of the throughput."""


TOLD_OF_WORKERS: Final = (Wrong.HANDLED_TWICE, Wrong.NEVER_HANDLED, Wrong.CLAIM)
"""Those that it lists even then if there are workers."""

TOLD_OF_SCHEDULE: Final = (Wrong.EARLY,)
"""Those that it lists even then if there are schedulers."""

TOLD_OF_QUEUES: Final = (Wrong.ACKNOWLEDGED_AND_BACK, Wrong.HALF_DONE)
"""Those that it lists even then if there are clients that use queues."""

ALWAYS_TOLD: Final = (Wrong.LOST, Wrong.DUPLICATED, Wrong.HALF_VISIBLE, Wrong.OUT_OF_ORDER, Wrong.CHANGED)
"""The kinds of violations that the table lists even when there are none."""


class Counts(msgspec.Struct, kw_only=True):
    """Counts of messages, unless a name says otherwise.

    ``unknown_*``: sends whose answer was lost for good, by their outcome. ``in_doubt_*``: transactions that outlived
    their client or its connection while they were prepared.
    """

    acknowledged: int = 0
    acknowledged_sends: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    transactions_two_phase: int = 0
    held: int = 0
    unknown_stored: int = 0
    unknown_not_stored: int = 0
    answers_lost: int = 0
    """Transactions whose end had to be asked for."""
    unanswered_whole: int = 0
    """Transactions that nobody knows the end of, whose client died: there."""
    unanswered_absent: int = 0
    in_doubt_committed_as_decided: int = 0
    in_doubt_rolled_back_as_decided: int = 0
    in_doubt_committed_by_coordinator: int = 0
    in_doubt_rolled_back_by_coordinator: int = 0
    relayed: int = 0
    tasks: int = 0
    """Messages for the workers. ``tasks_handled`` had their effect; ``tasks_poison`` are dead letters as they are to
    be, ``tasks_lost_with_workers`` because too many workers were lost with them."""
    tasks_handled: int = 0
    tasks_poison: int = 0
    tasks_lost_with_workers: int = 0
    handler_calls: int = 0
    handler_failures: int = 0
    """Calls of workers' handlers, and those of them that failed on purpose."""
    later: int = 0
    """Messages for later that the broker has kept, ``taken_back`` of them never came. ``came`` did."""
    came: int = 0
    taken_back: int = 0
    published: int = 0
    """Messages that were published to queues, as was said. ``delivered`` were taken by clients, who have ``settled``
    some, alone or with a transaction; ``dead_letters`` are those of queues. ``queued`` were left at the end.
    """
    delivered: int = 0
    settled: int = 0
    settled_with_transactions: int = 0
    dead_letters: int = 0
    queued: int = 0
    claims: int = 0
    """Claims of partitions under which workers handled something."""
    read_live: int = 0
    old_messages: int = 0


class Report(msgspec.Struct, kw_only=True):
    """The report of the whole drill. Times in seconds; those of ``timeline`` count from the beginning of the load."""

    name: str
    seed: int
    command: str
    seconds: float
    kills_asked: int
    kills: int
    power_cuts: bool = False
    pauses: int
    stops: int
    client_deaths: int
    client_pauses: int = 0
    workers: int = 0
    schedulers: int = 0
    queuers: int = 0
    amqp: int = 0
    restarts: int
    recovery: list[float]
    disturbances: list[Disturbance]
    starts: list[Start]
    counts: Counts
    violations: list[Violation]
    throughput: list[tuple[float, float]] = []
    """(second, acknowledged messages per second)."""

    @property
    def sound(self) -> bool:
        """Return whether nothing was wrong."""
        return not self.violations

    @property
    def death(self) -> str:
        """Return how the broker was killed."""
        return "SIGKILL, what is unforced is lost" if self.power_cuts else "SIGKILL"

    def number_of(self, wrong: Wrong) -> int:
        """Return how many violations of a kind there are."""
        return sum(violation.wrong is wrong for violation in self.violations)

    def write(self, folder: Path) -> Path:
        """Write the report into the folder; return its path."""
        path = folder / REPORT_FILE
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        return path


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all values do not exceed; 0 for no values."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)] if ordered else 0.0


def rows_of(report: Report) -> list[tuple[str, str]]:
    """Return the rows of the summary: what and how many."""
    counts, seconds = report.counts, report.recovery
    as_decided = counts.in_doubt_committed_as_decided + counts.in_doubt_rolled_back_as_decided
    by_coordinator = counts.in_doubt_committed_by_coordinator + counts.in_doubt_rolled_back_by_coordinator
    return [
        (f"kills of the broker ({report.death})", f"{report.kills:,}"),
        ("pauses (SIGSTOP), stops (SIGTERM)", f"{report.pauses:,}, {report.stops:,}"),
        ("clients killed", f"{report.client_deaths:,}"),
        ("restarts", f"{report.restarts:,}"),
        (
            "start to first accepted request, p50 / p99 / max",
            " / ".join(f"{value:.2f}" for value in _spread(seconds)) + " s",
        ),
        ("messages acknowledged", f"{counts.acknowledged:,}"),
        ("messages held, read back and compared", f"{counts.held:,}"),
        (
            "transactions committed, rolled back",
            f"{counts.transactions_committed:,}, {counts.transactions_rolled_back:,}",
        ),
        ("  of all transactions in two phases", f"{counts.transactions_two_phase:,}"),
        ("  their answer lost, found out by asking", f"{counts.answers_lost:,}"),
        (
            "left in doubt by dead clients, and ended",
            f"{as_decided + by_coordinator:,}",
        ),
        (
            "  as the client had decided: committed, rolled back",
            f"{counts.in_doubt_committed_as_decided:,}, {counts.in_doubt_rolled_back_as_decided:,}",
        ),
        (
            "  as the coordinator decided: committed, rolled back",
            f"{counts.in_doubt_committed_by_coordinator:,}, {counts.in_doubt_rolled_back_by_coordinator:,}",
        ),
        (
            "sends with unknown outcome: stored, not stored",
            f"{counts.unknown_stored:,}, {counts.unknown_not_stored:,}",
        ),
        ("messages relayed with their offsets, exactly once", f"{counts.relayed:,}"),
        *_rows_of_roles(report),
        ("messages that a reader saw meanwhile", f"{counts.read_live:,}"),
        ("messages that were there before the drill", f"{counts.old_messages:,}"),
        *_rows_of_violations(report),
    ]


def _rows_of_violations(report: Report) -> list[tuple[str, str]]:
    told = ALWAYS_TOLD + TOLD_OF_WORKERS * bool(report.workers)
    told += TOLD_OF_SCHEDULE * bool(report.schedulers) + TOLD_OF_QUEUES * bool(report.queuers + report.amqp)
    others = [wrong for wrong in Wrong if wrong not in told and report.number_of(wrong)]
    return [(wrong.value.upper(), f"{report.number_of(wrong):,}") for wrong in (*told, *others)]


def _rows_of_roles(report: Report) -> list[tuple[str, str]]:
    work = _rows_of_work(report) if report.workers else []
    work += _rows_of_schedule(report) if report.schedulers else []
    return work + (_rows_of_queues(report) if report.queuers + report.amqp else [])


def _rows_of_work(report: Report) -> list[tuple[str, str]]:
    counts = report.counts
    return [
        ("workers, paused (SIGSTOP)", f"{report.workers:,}, {report.client_pauses:,}"),
        ("messages for workers", f"{counts.tasks:,}"),
        ("  handled, exactly once", f"{counts.tasks_handled:,}"),
        (
            "  dead letters: poison, lost with too many workers",
            f"{counts.tasks_poison:,}, {counts.tasks_lost_with_workers:,}",
        ),
        (
            "  calls of handlers, of these failed on purpose",
            f"{counts.handler_calls:,}, {counts.handler_failures:,}",
        ),
        ("  claims of partitions that they were handled under", f"{counts.claims:,}"),
    ]


def _rows_of_schedule(report: Report) -> list[tuple[str, str]]:
    counts = report.counts
    return [
        ("messages for later, kept by the broker", f"{counts.later:,}"),
        ("  came, none before its time", f"{counts.came:,}"),
        ("  were taken back, alone or with a transaction", f"{counts.taken_back:,}"),
    ]


def _rows_of_queues(report: Report) -> list[tuple[str, str]]:
    counts = report.counts
    return [
        ("messages published to queues", f"{counts.published:,}"),
        ("  deliveries to clients", f"{counts.delivered:,}"),
        (
            "  settled alone, acknowledged with a transaction",
            f"{counts.settled:,}, {counts.settled_with_transactions:,}",
        ),
        ("  dead letters, left in the queues", f"{counts.dead_letters:,}, {counts.queued:,}"),
    ]


def _spread(seconds: Sequence[float]) -> tuple[float, float, float]:
    return percentile(seconds, 0.5), percentile(seconds, 0.99), max(seconds, default=0.0)


def count(expectation: Expectation) -> Counts:
    """Count what was acknowledged, and the outcomes of what was not."""
    found = Counts()
    found.taken_back = len(taken_back(expectation)[0])
    for operation in expectation.operations.values():
        found.held += len(operation.found)
        if operation.began.call:
            continue  # counted with the others of the workers
        if operation.began.due:
            _count_schedule(operation, found)
        elif operation.began.published:
            _count_published(operation, found)
        elif operation.began.together:
            _count_transaction(operation, found)
        else:
            there = operation.numbers_found
            found.acknowledged_sends += len(operation.acknowledged)
            unsure = set(range(len(operation.began.places))) - set(operation.acknowledged) - operation.refused
            found.unknown_stored += len(unsure & there)
            found.unknown_not_stored += len(unsure - there)
    _count_work(expectation, found)
    _count_queues(expectation, found)
    found.acknowledged += found.acknowledged_sends
    found.read_live = sum(saw.count for _, saw in expectation.saw)
    return found


def _count_work(expectation: Expectation, found: Counts) -> None:
    operations, letters = expectation.operations.values(), expectation.letters
    for operation in operations:
        if operation.began.call:
            found.handler_calls += 1
            found.handler_failures += operation.began.call.fails
            found.tasks_handled += bool(operation.found)
        elif operation.began.keys:
            found.tasks += len(operation.found)
    calls = (operation.began.call for operation in operations)
    found.claims = len({(call.place, call.generation) for call in calls if call})
    found.tasks_poison = sum(letter.operation.is_poison(letter.number) for letter in letters)
    found.tasks_lost_with_workers = len(letters) - found.tasks_poison
    found.held += len(letters)


def _count_schedule(operation: Operation, found: Counts) -> None:
    committed = operation.began.together and is_committed(operation)
    found.later += len(operation.began.places) if committed else len(operation.scheduled)
    found.came += len(operation.found)
    if operation.began.together:
        found.transactions_two_phase += bool(operation.began.xid)
        found.answers_lost += operation.answer_lost
        found.transactions_committed += committed is True
        found.transactions_rolled_back += committed is False
    found.acknowledged += len(operation.scheduled)


def _count_published(operation: Operation, found: Counts) -> None:
    if not operation.began.together:
        found.acknowledged_sends += len(operation.acknowledged)
        found.published += len(operation.acknowledged)
        return
    found.transactions_two_phase += bool(operation.began.xid)
    found.answers_lost += operation.answer_lost
    if operation.ends:
        committed = operation.ends[-1][1].committed
        found.transactions_committed += committed
        found.transactions_rolled_back += not committed
        found.published += committed * len(operation.began.published)
        found.acknowledged += committed * len(operation.began.published)
        found.settled_with_transactions += committed * len(operation.began.acknowledges)
    _count_in_doubt(operation, found)


def _count_queues(expectation: Expectation, found: Counts) -> None:
    settlings, queued = expectation.settlings.values(), expectation.queued
    found.delivered = sum(len(took.messages) for _, took in expectation.took)
    found.settled = sum(each.entry.count for each in settlings if each.is_done)
    found.dead_letters = sum(each.queue == DEAD_LETTERS for each in queued)
    found.queued = len(queued) - found.dead_letters
    found.held += len(queued)


def _count_transaction(operation: Operation, found: Counts) -> None:
    found.transactions_two_phase += bool(operation.began.xid)
    found.answers_lost += operation.answer_lost
    said = [ended.committed for _, ended in operation.ends]
    if said:
        found.transactions_committed += said[-1]
        found.transactions_rolled_back += not said[-1]
        found.acknowledged += said[-1] * len(operation.began.places)
    else:
        found.unanswered_whole += operation.is_whole
        found.unanswered_absent += not operation.found
    if operation.is_whole:
        found.relayed += sum(end - start for _, start, end in operation.began.moves)
    _count_in_doubt(operation, found)


def _count_in_doubt(operation: Operation, found: Counts) -> None:
    said = [ended.committed for _, ended in operation.ends]
    if any(line.sender == COORDINATOR for line, _ in operation.ends):
        how = "as_decided" if _decided_by_client(operation) else "by_coordinator"
        what = f"in_doubt_{'committed' if said[-1] else 'rolled_back'}_{how}"
        setattr(found, what, getattr(found, what) + 1)


def _decided_by_client(operation: Operation) -> bool:
    return any(line.sender != COORDINATOR for line, _ in [*operation.decisions, *operation.ends])


def throughput(
    lines: Iterable[Line], sizes: dict[tuple[str, int], int], begin: float, end: float
) -> list[tuple[float, float]]:
    """Acknowledged messages per second over the load, in :data:`BINS` columns; ``sizes`` are of transactions."""
    width = max(end - begin, 1e-9) / BINS
    bins = [0] * BINS
    for line in lines:
        entry = line.entry
        if isinstance(entry, Acknowledged):
            messages = len(entry.offsets)
        elif isinstance(entry, Ended) and entry.committed:
            messages = sizes.get((entry.sender or line.sender, entry.operation), 0)
        else:
            continue
        if begin <= entry.at < end:
            bins[min(int((entry.at - begin) / width), BINS - 1)] += messages
    return [(round(number * width, 3), round(messages / width, 1)) for number, messages in enumerate(bins)]
