"""A broker with queues and the model beside it: each request is carried out by both, and each answer compared.

What was accepted and not forced when the power goes is there or not, as a prefix of its records: after the next start
the model goes on with what it was after one of them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from random import Random
from typing import Any

from twisted.logger import LogLevel, globalLogPublisher

from journal.formats import frame
from journal.records.queue_entries import QUEUE_GROUP
from journal.testing import ManualClock, MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction_states import State
from tests.queues.model.contents_model import SURELY
from tests.queues.model.message_model import cancel, give_back, note_use, return_some, time_passes
from tests.queues.model.queue_model import Answer, Model, Ticket
from tests.queues.model.routing_model import Message
from tests.queues.model.topology_model import expire_queue, is_needed
from tests.queues.notes import Notes
from tests.queues.observation import Observation, different, expected
from tests.queues.queue_room import MOMENT, SINGLE_GROUP, Client, Limits, QueueRoom, messages, xid_of
from tests.queues.told_answers import Asked, Delivered, given_of, message_of, set_in_bytes, told
from tests.simulation.model.log_model import Violation, require

SECOND = 1_000_000
ROUNDS = 100


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
        self.model.wall_offset = self.clock.wall() - self.now

    def _room(self, disk: MemoryFilesystem) -> QueueRoom:
        return QueueRoom(self.limits, disk, self.clock, self.random_bytes)

    def _take_over(self, model: Model) -> None:
        """Go on with a model; nothing is unforced."""
        self.model = model
        model.on_record = lambda: self.kept.append(model.kept())
        model.is_forced = lambda: self.room.engine.forced_lsn + 1 == self.room.engine.next_lsn
        model.told = self._told
        model.return_some, model.note = partial(return_some, model), self.count
        model.topology.on_alternate = lambda: self.count("alternate ways")
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
        self._settle()
        self.model.forced(self.now, self.logged, is_at_rest=True)
        self._compare(is_whole=True)
        self._begin_anew()

    def sync_small_groups(self) -> None:
        """Force all if it is forced in several groups: what waits for the first of them does not see the others."""
        if self.limits.group_records < SINGLE_GROUP and not self.model.is_forced():
            self.sync()

    def let_looks_be_made(self) -> None:
        """Force all if somebody waits no longer than for that: whether one who has asked before a transaction ends gets
        what comes with its end is not promised.
        """
        if self.model.until_forced:
            self.sync()

    def _settle(self) -> None:
        """Let the broker do all that it does by itself at this moment."""
        engine, broker = self.room.engine, self.room.broker
        for _ in range(ROUNDS):
            before = engine.next_lsn
            engine.sync()
            self.room.timers.advance(0)
            broker.dead_letters.try_again()  # as the service does each second
            engine.sync()
            if any(each.next_in() in (0, 1) for each in broker.passes):
                self.room.timers.advance(MOMENT)
            elif engine.next_lsn == before:
                return
        raise Violation(f"expected: the broker comes to rest\nfound:    {broker.dead_letters.obstacles}")

    def _told(self, ticket: Ticket) -> tuple[int, int] | None:
        """Return the first message of an answer that has come and was not compared yet."""
        for client, answer, _ in self.inbox:
            asked = self.asked.get((client, answer.correlation))
            if asked is not None and asked.answer is ticket and getattr(answer, "runs", None):
                return answer.partition, answer.runs[0][0]
        return None

    def logged(self, partition: int, offset: int) -> Message | None:
        """Return the message, without headers of its own, that the log of a queue has there."""
        store = self.room.engine.catalog.stores.get(partition)
        if store is None or not store.start_offset <= offset < store.high_watermark:
            return None
        with closing(store.plan_read(offset, 1, offset + 1)) as plan:
            found = plan.run_now() or plan.run()
        [each] = [one for piece, _ in frame.decode_pieces(found.data, offset) for one in piece]
        return message_of(each)

    def at_rest(self) -> bool:
        """Whether all is forced."""
        return (
            len(self.kept) == 1
            and not self.model.until_forced
            and not any(not isinstance(asked.answer, Ticket) for asked in self.asked.values())
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
        self.say(f"{seconds} seconds pass from {self.now / SECOND} on")
        for _ in range(seconds):
            self.let_order_not_count()
            self.tick()
            self.ring()

    def let_order_not_count(self) -> None:
        """Cancel what waits for messages that come back within a second because they are late, if there are several or
        if the wait ends within that second, too: the order of these is not promised.
        """
        then = self.now + SECOND
        self._let_one_be_late(then)
        for queue in self.model.queues.values():
            late = sum(len(level.late(then)) for level in queue.levels)
            for ticket in list(self.model.waiting.get(queue.partition, ())) if late else ():
                if late > 1 or ticket.deadline <= then:
                    self.cancel(next(each for each in self.asked.values() if each.answer is ticket))
        self.sync()

    def _let_one_be_late(self, then: int) -> None:
        """Let only one session be late, with messages of one priority, if messages may expire; others give theirs back
        before.

        Which of them come back first, and whether some expire before the others are there, is not promised.
        """
        clients = {client.name: client for client in self.clients.values()}
        levels = self.model.levels if self.limits.expires else ()
        late = [
            (session, level, offsets)
            for level in levels
            for session, offsets in level.late(then).items()
            if session in clients
        ]
        for session, level, offsets in late[1:]:
            self.say(f"{session} gives back {offsets} of {level.partition}, which would be late")
            give_back(self.model, session, level.partition, offsets, False, self.now)
            clients[session].tell(messages.GiveBack, level.partition, *set_in_bytes(offsets), False)
            self.sync()

    def cancel(self, asked: Asked) -> None:
        """Let a client wait no longer."""
        assert isinstance(asked.answer, Ticket)
        cancel(self.model, asked.answer)
        self.say(f"{asked.client.name} cancels {asked.text}")
        asked.client.tell(messages.Cancel, asked.correlation)
        asked.client._correlation -= 1  # it has none of its own

    def tick(self) -> None:
        """Let a second pass, in which no timer runs."""
        self.clock.advance(SECOND)
        self.room.timers.rightNow += 1
        note_use(self.model, self.now)

    def ring(self) -> None:
        """Let the timers run that are due by now."""
        self.room.timers.advance(0)
        time_passes(self.model, self.now)
        self.sync()
        self._expire_queues()

    def _expire_queues(self) -> None:
        """Let queues go that nobody has used, or be hidden if a transaction needs them: none too early, and each two
        seconds after its time at last. What is hidden goes as soon as no transaction needs it.
        """
        self.room.broker.queues.expire(self.now)
        hidden = self.room.broker.queues.declarations.fold.hidden
        for queue in list(self.model.queues.values()):
            is_needed_still, unused = is_needed(self.model, queue), self.now - queue.used_at
            limit = self.now if queue.rules.expires is None else queue.rules.expires
            is_over = queue.is_hidden or (queue.rules.expires is not None and unused >= limit)
            must = queue.is_hidden or (is_over and unused >= limit + 2 * SECOND)
            is_there, is_hidden = queue.partition in self.room.engine.catalog.stores, queue.name in hidden
            may_be = {(True, False)} if not must else set()
            may_be |= {(True, True) if is_needed_still else (False, False)} if is_over else set()
            text = f"queue {queue.name!r}, unused for {unused} of {queue.rules.expires}, is there, and hidden: {may_be}"
            require((is_there, is_hidden) in may_be, text, (is_there, is_hidden))
            if not is_there:
                self.say(f"queue {queue.name!r} expires")
                self.count("queues that expire")
                self.count("hidden queues that go" if queue.is_hidden else "queues that go at once")
                expire_queue(self.model, queue)
            elif is_hidden and not queue.is_hidden:
                self.say(f"queue {queue.name!r} is hidden")
                self.count("queues that are hidden")
                queue.is_hidden = True
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
        # Perhaps: what follows from the force may be there, too, also where it is not shown.
        self.model.forced(self.now, self.logged)
        self.model.forced(self.now)
        least = self._compare(is_whole=False)
        if random.random() < 0.3:
            self.count("kills")
            disk = self.room.disk.kill_clone()
        else:
            self.count("power cuts")
            disk = self.room.disk.crash_clone(random.randrange(1 << 30), random.choice((None, 0.0, 0.5, 1.0)))
        self.say(f"the broker dies; {least} of {len(self.kept) - 1} records are forced at least")
        cut = random.randint(1, 40) if random.random() < 0.2 else 0
        if random.random() < 0.3:
            self.clock.advance(random.choice((1, 3)) * SECOND)
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
        for model in candidates:
            self._come_to_rest(model)
        fitting = [model for model in candidates if expected(model, self.now) == found]
        if not fitting:
            whys = [different(expected(model, self.now), found) for model in candidates]
            raise Violation("expected: one of these\nfound:    " + "\n      or: ".join(dict.fromkeys(whys)))
        if len(self.kept) > 1:
            last = fitting[-1]
            survives = "all" if last is self.kept[-1] else "none" if last is self.kept[0] else "a part"
            self.count(f"{survives} of what was unforced survives")
        # Of several the one that lost most: what it has done since the start it has done as the logs say.
        self._take_over(fitting[0])

    def _come_to_rest(self, model: Model) -> None:
        """Let a model do what a broker does by itself after a start, and what follows when all is looked at once."""
        model.wall_offset = self.clock.wall() - self.now
        dead = [(level.partition, offset) for level in model.levels for offset in sorted(level.copies)]
        model.letters = [place for place in dead if (copy := model.copy_at(place)) and copy.dead]
        if model.letters:
            self.count("dead letters found by a start")
        before = -1
        while before != model.records:
            before = model.records
            model.forced(self.now, self.logged, is_at_rest=True)
            model.end_expired(self.now)
        for queue in model.queues.values():
            queue.used_at = self.now
            for copy in queue.copies:
                copy.seen = SURELY

    def _fail_to_start(self, disk: MemoryFilesystem, cut: int, random: Random) -> MemoryFilesystem:
        try:
            QueueRoom(self.limits, disk, self.clock, self.random_bytes, cut_power_at(cut))
        except PowerCut:
            self.count("power cuts in a start")
        return disk.crash_clone(random.randrange(1 << 30))

    def check(self) -> None:
        """Compare all that there is, but for what cannot be seen without taking it. Nothing is unforced."""
        auditor = Client(self.room, "auditor", [])
        found = _lists(self, auditor)
        auditor.leave()
        wanted = expected(self.model, self.now)
        for queue in wanted.queues.values():
            queue.ready_messages = queue.returned = None
        require(wanted == found, "what the model has", different(wanted, found))

    def look(self) -> Observation:
        """Look at all that there is after a start, once the broker has done what it does then: nobody has anything.

        All is given back.
        """
        stores = self.room.engine.catalog.stores
        there = {number: store.end_offset for number, store in stores.items()}
        for passes in self.room.broker.passes:
            passes.wake()
        self._settle()
        auditor = Client(self.room, "auditor", [])
        for queue in auditor.ask(messages.ListQueues).queues:
            given = self._look_into(auditor, queue.partition)
            told_again = [each.again for each in given]
            wanted = [each.offset < there[each.partition] for each in given]
            require(
                told_again == wanted,
                f"what was in {queue.name!r} at the start may have been delivered",
                given,
            )
        self._settle()
        found = _lists(self, auditor)
        group = self.room.broker.groups.groups.get(QUEUE_GROUP)
        settlements = {} if group is None else group.settlements
        for queue in found.queues.values():
            given = self._look_into(auditor, queue.partition)
            queue.ready_messages = [
                (each.partition, each.offset, each.attempts, each.message, each.appended) for each in given
            ]
            kept = [settlements.get(queue.partition + level) for level in range(len(queue.ends))]
            queue.returned = [
                (queue.partition + level, *each)
                for level, one in enumerate(kept)
                if one is not None
                for each in sorted((each.offset, each.attempts, each.due) for each in one.unfinished.values())
            ]
        auditor.leave()
        self._check_health()
        return found

    def _look_into(self, auditor: Client, partition: int) -> list[Delivered]:
        """Take all of a queue that can be got, and give it back."""
        given = list[Delivered]()
        while True:
            taken = auditor.ask(messages.TakeMessages, partition, 4096, 1 << 30)
            some = given_of(taken, auditor.data[auditor.answers.index(taken)])
            if not some:
                break
            given += some
        for number in dict.fromkeys(each.partition for each in given):
            offsets = [each.offset for each in given if each.partition == number]
            auditor.ask(messages.GiveBack, number, *set_in_bytes(offsets))
        return given

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


def _lists(world: World, auditor: Client) -> Observation:
    queues = auditor.ask(messages.ListQueues).queues
    exchanges = auditor.ask(messages.ListExchanges, bindings=True).exchanges
    prepared = auditor.ask(messages.ListTransactions, [State.PREPARED]).transactions
    xids = sorted({xid for model in world.kept for xid in model.outcomes})
    committed = [xid for xid in xids if _is_committed(auditor.ask(messages.AskOutcome, xid=xid_of(xid)))]
    stores = world.room.engine.catalog.stores
    ends = {number: store.end_offset for number, store in stores.items()}
    fold = world.room.broker.queues._fold
    waiting = {each.name: fold.waiting_queue(each) for each in fold.delayed.values()}
    rooms = {name: ends[queue.partition] for name, queue in waiting.items() if queue is not None}
    return Observation.told(queues, exchanges, prepared, committed, ends, fold.next_exchange, rooms)


def _is_committed(answer: Any) -> bool:
    return isinstance(answer, messages.Outcome) and answer.state is State.COMMITTED
