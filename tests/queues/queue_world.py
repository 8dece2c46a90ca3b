"""A broker with queues and the model beside it: each request is carried out by both, and each answer compared.

What was accepted and not forced when the power goes is there or not, as a prefix of its records: after the next start
the model goes on with what it was after one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from twisted.logger import LogLevel, globalLogPublisher

from journal.formats import frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.queue_entries import QUEUE_GROUP
from journal.testing import ManualClock, MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction_states import State
from tests.queues.model.message_model import return_some, time_passes
from tests.queues.model.queue_model import Answer, Copy, Model, Queue, Ticket
from tests.queues.notes import Notes
from tests.queues.observation import Observation, different, expected
from tests.queues.queue_room import Client, Limits, QueueRoom, messages, xid_of
from tests.simulation.model.log_model import Violation, require

SECOND = 1_000_000
ROUNDS = 100


@dataclass
class Asked:
    """A request that may not have been answered yet, and what its answer must be: None for none."""

    client: Client
    correlation: int
    text: str
    answer: Answer | Ticket | None
    records: int

    @property
    def wanted(self) -> Answer | None:
        """What it is to be answered by now."""
        return self.answer.answer if isinstance(self.answer, Ticket) else self.answer

    @property
    def after(self) -> int:
        """How many records were made before its answer."""
        return self.answer.records if isinstance(self.answer, Ticket) else self.records


class World:
    """Both. ``clients`` are the connections that there are, by name."""

    def __init__(self, limits: Limits, random: Random, trace: list[str] | None = None) -> None:
        self.limits, self.trace, self.counts = limits, trace, Counter[str]()
        self.random_bytes = random.randbytes
        self.inbox: list[Any] = []
        self.asked: dict[tuple[Client, int], Asked] = {}
        self.clients: dict[str, Client] = {}
        self.former: dict[str, Any] = {}
        """What each client shows when it comes again, by its name without the number of its session."""
        self._names = 0
        self.notes, self.bugs = Notes(), list[str]()
        self.clock = ManualClock(monotonic=SECOND)
        self.room = self._room(MemoryFilesystem())
        self._take_over(Model())

    def _room(self, disk: MemoryFilesystem) -> QueueRoom:
        return QueueRoom(self.limits, disk, self.clock, self.random_bytes)

    def _take_over(self, model: Model) -> None:
        """Go on with a model; nothing is unforced."""
        self.model = model
        model.on_record = lambda: self.kept.append(model.kept())
        model.return_some = partial(return_some, model)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.kept = [self.model.kept()]
        """The models that the next start may find, of which the last is the newest."""
        self.model.records = 0
        for asked in self.asked.values():
            asked.records = 0

    @property
    def now(self) -> int:
        """Journal time."""
        return self.room.engine.now()

    def say(self, line: str) -> None:
        if self.trace is not None:
            self.trace.append(line)

    def count(self, what: str) -> None:
        self.counts[what] += 1

    # -- requests ----------------------------------------------------------------------------------

    def connect(self, name: str) -> Client:
        """Let a client come, or come again. Nothing may be unforced."""
        self._names += 1
        client = Client(self.room, f"{name}.{self._names}", self.inbox, self.former.get(name))
        self.inbox.clear()
        self.room.engine.sync()
        self.clients[name], self.former[name] = client, client.former
        self.say(f"{client.name} comes")
        return client

    def ask(
        self,
        client: Client,
        answer: Answer | Ticket | None,
        kind: Any,
        *fields: Any,
        data: bytes = b"",
        **named: Any,
    ) -> None:
        """Send a request that must be answered so. The model has carried it out already."""
        text = f"{client.name}: {kind.__name__}{fields} {named or ''}"
        self.say(f"{text} -> {answer}")
        self.count(kind.__name__)
        asked = Asked(client, client._correlation + 1, text, answer, self.model.records)
        self.asked[client, asked.correlation] = asked
        client.tell(kind, *fields, data=data, **named)

    def forget(self, client: Client) -> None:
        """A client has gone: nobody hears its answers."""
        self.asked = {key: asked for key, asked in self.asked.items() if key[0] is not client}

    # -- the force ---------------------------------------------------------------------------------

    def sync(self) -> None:
        """Force all, and what follows from it; compare all answers."""
        self.room.engine.sync()
        self._move_all_letters()
        self.model.forced(self.now)
        self._compare(is_whole=True)
        self._begin_anew()
        if self.model.ended:
            while self.model.ended:
                return_some(self.model, self.now)
            self.room.timers.advance(0.001)
            self.sync()

    def at_rest(self) -> bool:
        """Whether all is forced."""
        return len(self.kept) == 1 and not any(
            not isinstance(asked.answer, Ticket) for asked in self.asked.values()
        )

    def _compare(self, is_whole: bool) -> int:
        """Compare what came with what was to come; return how many records are forced at least."""
        least = 0
        for client, answer, data in self.inbox:
            if client not in self.clients.values():
                continue
            asked = self.asked.pop((client, answer.correlation), None)
            require(asked, "an answer to something that was asked", answer)
            assert asked is not None
            self.say(f"    {client.name} is told: {answer}")
            require(asked.wanted is not None, f"no answer to {asked.text} yet", answer)
            told(asked, answer, data)
            least = max(least, asked.after)
            self.count(f"{type(answer).__name__} {getattr(answer, 'error', '')}".strip())
        self.inbox.clear()
        if is_whole:
            self._check_health()
            for asked in self.asked.values():
                require(asked.wanted is None, f"{asked.wanted} to {asked.text}", "no answer")
            self.asked = {key: asked for key, asked in self.asked.items() if isinstance(asked.answer, Ticket)}
        return least

    def _check_health(self) -> None:
        require(not self.bugs, "no error is logged", "\n".join(self.bugs))
        require(not self.room.engine.failed, "the engine works", self.room.engine.failed)
        for client in self.clients.values():
            require(not client.closed, f"{client.name} goes on", client.closed)

    # -- time --------------------------------------------------------------------------------------

    def pass_time(self, seconds: int) -> None:
        """Let time pass, with nothing unforced."""
        for _ in range(seconds):
            self.clock.advance(SECOND)
            self.room.timers.advance(1)
            time_passes(self.model, self.now)
            self.sync()

    # -- ends and starts ---------------------------------------------------------------------------

    def arm(self, random: Random) -> None:
        """Let the power be cut at one of the next operations."""
        self.room.plan.on_operation = cut_power_at(
            random.choice((1, 2, 3, random.randint(1, 10), random.randint(1, 40)))
        )

    def stop(self) -> None:
        """Stop, and start again."""
        self.sync()
        self.room.engine.close()
        self.count("stops")
        self._start(self.room.disk, 0)

    def crash(self, random: Random) -> None:
        """The power goes now, or the process is killed."""
        self.model.forced(self.now)  # perhaps: what follows from the force may be there, too
        least = self._compare(is_whole=False)
        if random.random() < 0.3:
            self.count("kills")
            disk = self.room.disk.kill_clone()
        else:
            self.count("power cuts")
            disk = self.room.disk.crash_clone(random.randrange(1 << 30), random.choice((None, 0.0, 0.5, 1.0)))
        self.say(f"the broker dies; {least} of {len(self.kept) - 1} records are forced at least")
        cut = random.randint(1, 40) if random.random() < 0.2 else 0
        self._start(disk, least, cut, random)

    def _start(self, disk: MemoryFilesystem, least: int, cut: int = 0, random: Random | None = None) -> None:
        self.clients.clear()
        self.asked.clear()
        self.inbox.clear()
        if cut:
            assert random is not None
            disk = self._fail_to_start(disk, cut, random)
        self.room = self._room(disk)
        self.count("starts")
        found = self.look()
        candidates = self.kept[least:]
        fitting = [model for model in candidates if expected(model, self.now) == found]
        if not fitting:
            whys = [different(expected(model, self.now), found) for model in candidates]
            raise Violation("expected: one of these\nfound:    " + "\n      or: ".join(dict.fromkeys(whys)))
        model = fitting[-1]
        if len(self.kept) > 1:
            survives = "all" if model is self.kept[-1] else "none" if model is self.kept[0] else "a part"
            self.count(f"{survives} of what was unforced survives")
        self._take_over(model)
        letters = sum(copy.dead for queue in model.queues.values() for copy in queue.copies.values())
        if letters:
            self._move_letters()

    def _fail_to_start(self, disk: MemoryFilesystem, cut: int, random: Random) -> MemoryFilesystem:
        try:
            QueueRoom(self.limits, disk, self.clock, self.random_bytes, cut_power_at(cut))
        except PowerCut:
            self.count("power cuts in a start")
        return disk.crash_clone(random.randrange(1 << 30))

    def _move_letters(self) -> None:
        """Let the dead letters be moved that the start has found, in whatever order; look what there is then."""
        model, was = self.model, {queue.name: queue.end for queue in self.model.queues.values()}
        for queue in list(model.queues.values()):
            for offset in [offset for offset, copy in sorted(queue.copies.items()) if copy.dead]:
                model.move_letter((queue.partition, offset))
        self._move_all_letters()
        model.forced(self.now)
        for queue in model.queues.values():
            for copy in queue.copies.values():
                copy.seen = 2
        found = self.look(was)
        for queue in model.queues.values():
            _adopt_order(queue, was[queue.name], found)
        self._require_same(found)
        self._begin_anew()
        self.count("dead letters found by a start")

    def _move_all_letters(self) -> None:
        """Try to move dead letters, as the service does each second: while a large commit is applied, none is moved."""
        letters = self.room.broker.dead_letters
        for _ in range(ROUNDS):
            if not len(letters):
                return
            letters.try_again()
            self.room.engine.sync()
        raise Violation(f"expected: all dead letters are moved\nfound:    {letters.obstacles}")

    def _require_same(self, found: Observation) -> None:
        wanted = expected(self.model, self.now)
        require(wanted == found, "what the model has", different(wanted, found))

    def check(self) -> None:
        """Compare all that there is, but for what cannot be seen without taking it. Nothing is unforced."""
        auditor = Client(self.room, "auditor", [])
        found = _lists(self, auditor)
        auditor.leave()
        wanted = expected(self.model, self.now)
        for queue in wanted.queues.values():
            queue.ready_messages = queue.returned = None
        require(wanted == found, "what the model has", different(wanted, found))

    def look(self, came: Mapping[str, int] | None = None) -> Observation:
        """Look at all that there is after a start: nobody has anything. All is given back.

        ``came`` says for each queue from which offset on messages have come since.
        """
        auditor = Client(self.room, "auditor", [])
        found = _lists(self, auditor)
        for name, queue in found.queues.items():
            taken = auditor.ask(messages.TakeMessages, queue.partition, 4096, 1 << 30)
            given = given_of(taken, auditor.data[auditor.answers.index(taken)])
            told = [each[4] for each in given]
            wanted = [came is None or each[0] < came[name] for each in given]
            require(
                told == wanted, f"what was in {name!r} at the start may have been delivered before", taken
            )
            queue.ready_messages = [each[:4] for each in given]
            kept = self.room.broker.groups.groups[QUEUE_GROUP].settlements.get(queue.partition)
            details = [] if kept is None else kept.unfinished.values()
            queue.returned = sorted((each.offset, each.attempts, each.due) for each in details)
            if given:
                auditor.ask(messages.GiveBack, queue.partition, *set_in_bytes([each[0] for each in given]))
        auditor.leave()
        self._check_health()
        return found

    # -- the log -----------------------------------------------------------------------------------

    def __enter__(self) -> World:
        globalLogPublisher.addObserver(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        globalLogPublisher.removeObserver(self._note)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("log_level") in (LogLevel.error, LogLevel.critical):
            failure = event.get("log_failure")
            self.bugs.append(failure.getTraceback() if failure else str(event.get("log_format")) + str(event))


def _adopt_order(queue: Queue, first: int, found: Observation) -> None:
    """Take the order of the dead letters that a start has moved from what is found."""
    there = found.queues[queue.name].ready_messages or []
    offsets = list(range(first, queue.end))
    if len(offsets) < 2:
        return
    left: list[Copy] = [queue.copies[offset] for offset in offsets]
    for offset, value, key, _ in there:
        if offset in offsets:
            same = [copy for copy in left if (copy.message.value, copy.message.key) == (value, key)]
            if not same:
                return
            left.remove(same[0])
            queue.copies[offset] = same[0]


def _lists(world: World, auditor: Client) -> Observation:
    queues = auditor.ask(messages.ListQueues).queues
    exchanges = auditor.ask(messages.ListExchanges, bindings=True).exchanges
    prepared = auditor.ask(messages.ListTransactions, [State.PREPARED]).transactions
    xids = sorted({xid for model in world.kept for xid in model.outcomes})
    committed = [xid for xid in xids if _is_committed(auditor.ask(messages.AskOutcome, xid=xid_of(xid)))]
    stores = world.room.engine.catalog.stores
    ends = {each.partition: stores[each.partition].end_offset for each in queues}
    return Observation.told(queues, exchanges, prepared, committed, ends)


def _is_committed(answer: Any) -> bool:
    return isinstance(answer, messages.Outcome) and answer.state is State.COMMITTED


def told(asked: Asked, answer: Any, data: bytes) -> None:
    """Compare an answer with what it must be."""
    kind, *wanted = asked.wanted or ("nothing",)
    if kind == "Done" and wanted and getattr(answer, "error", "") in wanted:
        return
    require(type(answer).__name__ == kind, f"{asked.wanted} to {asked.text}", answer)
    match kind:
        case "Refused":
            require(answer.error in wanted[0], f"{asked.wanted} to {asked.text}", answer)
        case "Sent":
            require([answer.base_offset] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "QueueDeclared":
            require([answer.partition, answer.ready] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Counted":
            require([answer.messages] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "ExchangeDeclared":
            require([answer.number] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Committed":
            found = {each.partition: (each.base_offset, each.count) for each in answer.placements}
            require([found] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Taken":
            _taken(asked, wanted[0], answer, data)


def _taken(asked: Asked, wanted: Sequence[Any], answer: Any, data: bytes) -> None:
    given = given_of(answer, data)
    same = [tuple(each[:4]) for each in wanted] == [each[:4] for each in given]
    require(same, f"{wanted} to {asked.text}", given)
    for want, each in zip(wanted, given, strict=True):
        may_be = {0: (False,), 1: (False, True), 2: (True,)}[want.seen]
        require(each[4] in may_be, f"{want} is told to have been delivered: {may_be}", answer)


def given_of(answer: Any, data: bytes) -> list[tuple[int, bytes, str, int, bool]]:
    """Return the messages of an answer: offset, value, key, attempts, and whether they may have been delivered
    before.
    """
    found = [each for piece, _ in frame.decode_pieces(data, 0) for each in piece]
    offsets = [offset for first, count in answer.runs for offset in range(first, first + count)]
    require([each.offset for each in found] == offsets, "the frames that the answer tells of", answer)
    again = {o for first, count in answer.redelivered for o in range(first, first + count)}
    attempts = dict(answer.attempts)
    require(attempts.keys() | again <= set(offsets), "told of what is given", answer)
    return [
        (
            each.offset,
            each.value or b"",
            (each.key or b"").decode(),
            attempts.get(each.offset, 0),
            each.offset in again,
        )
        for each in found
    ]


def offsets_in_bytes(offsets: Sequence[int], base: int) -> bytes:
    """Return a set of offsets relative to a base; nothing for none."""
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return encode_offsets(found, base) if offsets else b""


def set_in_bytes(offsets: Sequence[int]) -> tuple[bytes, int]:
    """Return a set of offsets relative to its lowest, and that."""
    return offsets_in_bytes(offsets, min(offsets)), min(offsets)
