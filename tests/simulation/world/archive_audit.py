"""The audit of the outcome archive: every transaction that ended has one entry, which says what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from journal.formats import frame
from journal.records import outcome_entry
from journal.records.outcome_entry import NEVER_PLACED, OUTCOMES_TOPIC, ArchivedOutcome
from journal.transaction_states import State
from tests.simulation.clients.amqp_clients import NAME as AMQP
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, NEVER, VOID, Model
from txbroker.broker.queues.delaying import MOVER as DELAYER
from txbroker.groups.dead_letters import MOVER
from txbroker.wire import messages as commands

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.clients.outboxes import Row
    from tests.simulation.clients.transactions import Begun
    from tests.simulation.world.audit import Auditor


class ArchiveAudit:
    """What anybody has read of it: none of that ever changes."""

    def __init__(self, model: Model, deliveries: Mapping[tuple[int, int], Row]) -> None:
        self.model, self.deliveries = model, deliveries
        self.payloads: list[bytes] = []
        self.entries: dict[tuple[int, int], ArchivedOutcome] = {}

    def read(self, auditor: Auditor) -> None:
        """Read all of it over the wire, and take in what is new."""
        topics, _, _ = auditor.wait(commands.DescribeTopics, [OUTCOMES_TOPIC])
        [topic] = topics.topics
        [partition] = topic.partitions
        found: list[bytes] = []
        while len(found) < partition.high_watermark:
            position = (partition.number, len(found), 0)
            _, data, _ = auditor.wait(commands.Fetch, [position], 1 << 20, 0)
            messages = frame.decode_run(data, len(found))
            offsets = [each.offset for each in messages]
            require(
                offsets == list(range(len(found), len(found) + len(offsets))) and offsets, "dense", offsets
            )
            found += [each.value or b"" for each in messages]
        require(found[: len(self.payloads)] == self.payloads, "what the archive had stays", len(found))
        for payload in found[len(self.payloads) :]:
            self._take(outcome_entry.unpack(payload))
        self.payloads = found

    def _take(self, entry: ArchivedOutcome) -> None:
        number = (entry.session, entry.serial)
        if number in self.deliveries:
            self._take_delivery(number, entry)
            return
        if entry.owner in (MOVER, DELAYER):
            return  # what the broker moves by itself is judged where it comes
        if entry.owner is not None and entry.owner.client.startswith(AMQP):
            self._take_spoken(entry)
            return
        begun: Begun = self.model.transactions.get(number)  # type: ignore[assignment]
        require(begun is not None, "entries of transactions that were begun", entry)
        require(number not in self.entries, f"{begun.name} has one entry", entry)
        self.entries[number] = entry
        if entry.state is not State.COMMITTED:
            placed = [part for part in entry.parts if part.base_offset != NEVER_PLACED]
            require(entry.state is State.ROLLED_BACK and not placed, f"{begun.name} is nowhere", placed)
            self.model.void(begun)
            return
        self.model.done(begun, {part.number: part.base_offset for part in entry.parts})
        wanted = {partition: len(values) for partition, values in begun.values.items()}
        require({part.number: part.count for part in entry.parts} == wanted, f"parts of {wanted}", entry)
        totals = begun.all
        said = (entry.messages, entry.requests, entry.checksum)
        require(said == (totals.messages, totals.requests, totals.checksum), f"{begun.name}: {totals}", said)

    def _take_delivery(self, number: tuple[int, int], entry: ArchivedOutcome) -> None:
        """A row was delivered: each is once, by whichever of the transactions that tried."""
        row = self.deliveries[number]
        require(number not in self.entries and entry.state is State.COMMITTED, f"{row.intent.name}", entry)
        again = [each for each in self.entries if self.deliveries.get(each) is row]
        require(not again, f"{row.intent.name} is delivered once", (again, number))
        self.entries[number] = entry
        self.model.done(row.intent, {part.number: part.base_offset for part in entry.parts})

    def _take_spoken(self, entry: ArchivedOutcome) -> None:
        """A channel's transaction, whose number its client does not know: its messages are those of one intent. What
        nobody has read before it was removed, by a compaction or with the start of its log, proves nothing.
        """
        require(entry.state is State.COMMITTED, "channels commit in one phase", entry)
        seen = self.model.seen
        owners: dict[Any, None] = {}
        for part in entry.parts:
            if part.number not in seen.logs:
                continue  # what waits at an exchange, in a queue that nobody sees
            log, gaps = seen.logs[part.number], self.model.gaps.offsets[part.number]
            offsets = range(part.base_offset, part.base_offset + part.count)
            start = seen.starts[part.number]
            unknown = [offset not in log and (offset in gaps or offset < start) for offset in offsets]
            if all(unknown):
                continue
            values = [log.get(offset) for offset in offsets]
            found = [seen.owners[each] for each in values if each is not None]
            owners |= dict.fromkeys(found)
            sent = [each for owner in found[:1] for each in owner.values[part.number]]
            shown = [None if gone else each for each, gone in zip(sent, unknown, strict=False)]
            require(len(sent) == part.count and values == shown, f"{part} is what was sent", values)
        require(len(owners) < 2, "the messages of one transaction", [each.name for each in owners])

    def settle(self) -> None:
        """Nothing is under way, and all was read: whatever surely ended by a record has its entry."""
        for number, intent in self.model.transactions.items():
            if intent.state == DONE or (intent.state == VOID and intent.prepared_at < NEVER):
                require(number in self.entries, f"{intent.name}, which ended, has an entry", "none")
