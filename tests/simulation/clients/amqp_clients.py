"""The clients that speak AMQP 0-9-1 to the broker's real listener: they publish, consume, acknowledge and return.

Each has one connection with one channel, which has confirms or transactions, and consumers of all queues. What they
may expect is what docs/amqp.md promises them: what is confirmed or committed is there, what is acknowledged never comes
again once that is on the disk, what comes a second time says so, and what is rejected is a dead letter once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.model.copy_model import Copy, Holder
from tests.simulation.model.intent_model import DONE, OPEN, Intent
from tests.simulation.model.log_model import require
from tests.simulation.world.wire import Connection
from tests.support.amqp_hearing import Heard, Hearing, consume, declare, declare_exchange, published
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.framing import PROTOCOL_HEADER, method_frame
from txbroker.amqp.reply_codes import Reply

if TYPE_CHECKING:
    from tests.simulation.world.world import World

QUEUES: Final = ("a", "b")
DEAD: Final = "dead"
"""The queue to which goes what is rejected in the first of them."""
ARGUMENTS: Final = {
    "a": {"x-dead-letter-exchange": "direct", "x-dead-letter-routing-key": DEAD},
    "b": {},
    DEAD: {},
}
"""All queues, and the arguments with which they are declared."""
ROUTES: Final = {"a": ("a",), "b": ("b",), "ab": ("a", "b")}
"""The queues that the bindings of both exchanges lead to, by routing key."""
DIRECT, LATER = "direct", "later"
DELAYS: Final = (0, 0, 1, 700, 700, 1_500, 5_000, 60_000, 7_200_000)
"""ms for which messages wait at the delayed exchange."""
LONGEST: Final = DELAYS[-1] * 1_000
CHANNEL: Final = 1
NAME: Final = "amqp client"
"""How the names begin that these clients tell the broker."""
_CLOSES: Final = (b"\0\x0a\0\x32", b"\0\x14\0\x28")
"""How ``connection.close`` and ``channel.close`` begin; no body has these bytes. What the broker has said before, and
has not been heard, is not looked at: it may have delivered all that again by the time.
"""
_ENDS: Final = (Reply.RESOURCE_ERROR, Reply.CONNECTION_FORCED)
"""Why a connection or a channel may be closed though no call has failed: no room, or the broker stops."""


@dataclass(eq=False)
class Held:
    """A delivery that a client has not acknowledged. ``consumer`` is the tag of its consumer, "" if it was got."""

    copy: Copy
    consumer: str


@dataclass(eq=False)
class Draft:
    """The transaction of a channel since its last commit."""

    intent: Intent
    acknowledged: dict[int, Held] = field(default_factory=dict)


class AmqpClient:
    """One client. ``held`` are its deliveries by their tags."""

    former = None
    """Nothing is shown by who comes again: AMQP has no such thing."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.model = world, world.model
        self.name = f"{NAME} {number}"
        self.connection: Connection | None = None
        self.ready = False
        """Whether its channel is open, and has been told what is to be."""
        self._is_open = False
        self.transacts = False
        self.prefetch, self.is_shared = 0, False
        """How many deliveries may be out, of each consumer or of the whole channel."""
        self.held: dict[int, Held] = {}
        self._connections = number
        self._hearing = Hearing()
        self._stream = ""
        self._begun = 0
        self._tag = 0
        self._unconfirmed: dict[int, Intent] = {}
        self._draft: Draft | None = None
        self._ending: deque[tuple[type, Draft]] = deque()
        self._getting: deque[str] = deque()
        self._recovering = 0
        self._unsure: dict[int, Copy] = {}
        """What came behind a ``basic.recover`` and before its answer: it may have been returned by that, or not."""
        self._said: list[Intent] = []
        """What was said of deliveries outside of transactions, that is not known to be on the disk."""
        self._hears: dict[type, Callable[[Heard], None]] = {
            c.ConnectionStart: self._log_in, c.ConnectionTune: self._open, c.ConnectionOpenOk: self._begin,
            c.ConnectionClose: self._closed, c.ChannelClose: self._closed,
            m.BasicAck: self._confirmed, m.BasicNack: self._not_taken, m.BasicDeliver: self._delivered,
            m.BasicGetOk: self._got, m.BasicGetEmpty: self._got_nothing, m.BasicConsumeOk: self._consumes,
            m.BasicRecoverOk: self._recovered, m.TxCommitOk: self._committed, m.TxRollbackOk: self._rolled_back,
        }  # fmt: skip

    # -- the connection --------------------------------------------------------------------------------

    def connect(self, former: object = None) -> None:
        """Connect. The others of its connections have confirms, or transactions, by turns."""
        self._connections += 1
        self.transacts, self.prefetch = self._connections % 2 == 0, (0, 1, 3, 10)[self._connections // 2 % 4]
        self.is_shared = self._connections // 8 % 2 == 1
        self.connection = self.world.connect_amqp()
        self.ready = self._is_open = False
        self._hearing, self._stream = Hearing(), f"{self.name} from {self.model.now} on"
        self.held, self._unconfirmed, self._draft = {}, {}, None
        self._said, self._begun, self._tag = [], 0, 0
        self._recovering, self._unsure = 0, {}
        self._ending.clear()
        self._getting.clear()
        self.connection.to_broker += PROTOCOL_HEADER

    def lost(self, kept: int) -> None:
        """The connection breaks; of what was sent the first ``kept`` bytes still arrive."""
        if self.connection is not None:
            self.connection.leave(kept)
            self.connection = None
            self.ready = False

    def take(self, size: int) -> bool:
        """Read what has come; says whether there was anything. Once there is an end, only that is looked at."""
        connection = self.connection
        if connection is None:
            return False
        is_ended = any(each in connection.to_client for each in _CLOSES)
        data = connection.take(1 << 30 if is_ended else size)
        for heard in self._hearing.feed(data) if data else ():
            if not is_ended or isinstance(heard.method, (c.ConnectionClose, c.ChannelClose)):
                self._hear(heard)
        if connection.broker_gone and not connection.to_client:
            self.connection, self.ready = None, False
        return bool(data)

    def goes_on(self, connection: Connection) -> bool:
        """Return whether this is its connection still, and the broker has ended neither that nor the channel. A commit
        that is refused ends the channel, which is said behind the answers to what was asked before.
        """
        is_ended = connection.is_closing or any(each in connection.to_client for each in _CLOSES)
        may_be_refused = any(kind is m.TxCommitOk for kind, _ in self._ending)
        return self.connection is connection and not is_ended and not may_be_refused

    def _hear(self, heard: Heard) -> None:
        self.model.tick()
        kind = type(heard.method)
        self.world.count(kind.__name__)
        self.world.say(f"    {self.name} is told: {heard.method} {heard.body[:20]!r}")
        hear = self._hears.get(kind)
        if hear is not None:
            hear(heard)

    def _say(self, *methods: Method, on: int = CHANNEL) -> None:
        assert self.connection is not None
        for each in methods:
            self.world.count(type(each).__name__)
            self.world.say(f"{self.name}: {each}")
            self.connection.to_broker += method_frame(on, each)

    def _log_in(self, heard: Heard) -> None:
        self._say(c.ConnectionStartOk({"product": self.name}, "PLAIN", b"\0guest\0guest", "en_US"), on=0)

    def _open(self, heard: Heard) -> None:
        self._say(c.ConnectionTuneOk(2047, 131_072, 0), c.ConnectionOpen(self.world.host.name), on=0)

    def _begin(self, heard: Heard) -> None:
        """Declare all that there is, and consume it; that it was declared before changes nothing."""
        self._is_open = True
        self._say(c.ChannelOpen(), m.TxSelect() if self.transacts else m.ConfirmSelect(False))
        self._say(*(declare(name, arguments) for name, arguments in ARGUMENTS.items()))
        self._say(
            declare_exchange(DIRECT),
            declare_exchange(LATER, "x-delayed-message", {"x-delayed-type": "direct"}),
        )
        for key, queues in ROUTES.items():
            self._say(*(m.QueueBind(0, one, of, key, False, {}) for one in queues for of in (DIRECT, LATER)))
        self._say(m.QueueBind(0, DEAD, DIRECT, DEAD, False, {}), m.BasicQos(0, self.prefetch, self.is_shared))
        self._say(*(consume(each, each) for each in ARGUMENTS))

    def _consumes(self, heard: Heard) -> None:
        self.ready = self.ready or heard.method.consumer_tag == DEAD

    def _closed(self, heard: Heard) -> None:
        """The broker has ended the channel or the connection: that is its right only if something is short, or if it
        has waited too long for the login, or for the rest of a message.
        """
        told = heard.method
        is_cut = self.connection is not None and self.connection.is_cut
        is_slow = told.reply_code == Reply.NOT_ALLOWED and (is_cut or not self._is_open)
        require(told.reply_code in _ENDS or is_slow or self.world.plan.struck, f"{self.name} goes on", told)
        self.world.count(f"AMQP ended: {Reply(told.reply_code).name}")
        self.lost(0)

    # -- publishing --------------------------------------------------------------------------------------

    def publish(self, random: Random) -> None:
        """Publish some messages, in one read or several."""
        for _ in range(random.choice((1, 1, 2, 5))):
            self._publish_one(random)

    def _publish_one(self, random: Random) -> None:
        assert self.connection is not None
        exchange = random.choice(("", DIRECT, LATER, LATER))
        key = random.choice(QUEUES if exchange == "" else list(ROUTES))
        number = self.world.name_intent()
        body = b"%d by amqp" % number + b"v" * random.choice((0, 0, 10, 300, 3000))
        delay = random.choice(DELAYS) if exchange == LATER else None
        if self.transacts:
            intent = self._own().intent
        else:
            self._begun += 1
            intent = Intent(f"publish {number}", self._stream, self._begun)
            self._tag += 1
            self._unconfirmed[self._tag] = intent
        waits = None if delay is None else delay * 1_000
        self.world.queues.publish(intent, ROUTES[key], body, (exchange, key), waits)
        properties = props.NONE if delay is None else props.made_of({}, {"x-delay": delay})
        self.world.count("BasicPublish")
        self.world.say(f"{self.name}: {body[:20]!r} to {exchange!r} {key!r} {delay}")
        self.connection.to_broker += published(CHANNEL, key, body, exchange, properties)
        if not self.transacts:
            self.model.ask(intent)

    def _confirmed(self, heard: Heard) -> None:
        for intent in self._named(heard.method):
            self.model.done(intent)
            self.world.count("confirms")

    def _not_taken(self, heard: Heard) -> None:
        for intent in self._named(heard.method):
            self.model.refused(intent)

    def _named(self, method: Any) -> list[Intent]:
        tag = method.delivery_tag
        tags = [each for each in self._unconfirmed if each <= tag] if method.multiple else [tag]
        require(all(each in self._unconfirmed for each in tags), f"{self.name} is told each tag once", method)
        return [self._unconfirmed.pop(each) for each in tags]

    # -- what is delivered ---------------------------------------------------------------------------------

    def _delivered(self, heard: Heard) -> None:
        told = heard.method
        self._take(told.consumer_tag, told.consumer_tag, heard)
        tags = [each.consumer for each in self.held.values() if each.consumer]
        count = len(tags) if self.is_shared else tags.count(told.consumer_tag)
        require(not self.prefetch or count <= self.prefetch, f"{self.prefetch} deliveries at most", count)

    def _got(self, heard: Heard) -> None:
        self._take(self._getting.popleft(), "", heard)

    def _got_nothing(self, heard: Heard) -> None:
        self._getting.popleft()

    def _take(self, queue: str, consumer: str, heard: Heard) -> None:
        told, queues = heard.method, self.world.queues
        copy = queues.copy(queue, heard.body)
        waited = heard.headers.get("x-delay")
        said = (told.exchange, told.routing_key, waited)
        own = [each.copy for each in self.held.values()]
        assert self.connection is not None
        queues.delivered(copy, Holder(self, self.connection), told.redelivered, said, own)
        deaths = [(each["queue"], each["reason"], each["count"]) for each in heard.headers.get("x-death", ())]
        died = [(QUEUES[0], "rejected", 1)] if queue == DEAD else []
        require(deaths == died, f"{copy.intent.name} tells of {died}", deaths)
        require(told.delivery_tag not in self.held, "a tag of its own", told)
        if self._recovering:
            copy.holder = None
            self._unsure[told.delivery_tag] = copy
        else:
            self.held[told.delivery_tag] = Held(copy, consumer)
        self.world.count("redeliveries" if told.redelivered else "first deliveries")
        self.world.count(
            "deliveries of what waited" if waited is not None and waited < 0 else "other deliveries"
        )

    def get(self, random: Random) -> None:
        """Get a message of a queue, if there is one."""
        queue = random.choice(list(ARGUMENTS))
        self._getting.append(queue)
        self._say(m.BasicGet(0, queue, False))

    # -- what becomes of it --------------------------------------------------------------------------------

    def acknowledge(self, random: Random) -> None:
        """Acknowledge one, or all up to one."""
        if self.held:
            tag, multiple = random.choice(list(self.held)), random.random() < 0.4
            self._say(m.BasicAck(tag, multiple))
            self._finish([each for each in self.held if each <= tag] if multiple else [tag])

    def acknowledge_all(self) -> None:
        """Acknowledge all, outside of a transaction or in one that ends so."""
        if self.held:
            self._say(m.BasicAck(0, True))
            self._finish(list(self.held))
        if self.transacts:
            self.commit()

    def reject(self, random: Random) -> None:
        """Have one dropped, or become a dead letter; in a transaction that is not part of it, and is not done there."""
        if self.held and not self.transacts:
            tag = random.choice(list(self.held))
            copy = self.held[tag].copy
            self._say(m.BasicReject(tag, False))
            self._finish([tag])
            if copy.queue == QUEUES[0]:
                self.world.queues.dies(copy, DEAD, (DIRECT, DEAD))

    def give_back(self, random: Random) -> None:
        """Have one, several or all delivered again."""
        if not self.held or self.transacts:
            return
        tag, multiple = random.choice(list(self.held)), random.random() < 0.3
        if random.random() < 0.2:
            self._say(m.BasicRecover(True))
            self._recovering += 1
            tags = list(self.held)
        else:
            self._say(m.BasicNack(tag, multiple, True))
            tags = [each for each in self.held if each <= tag] if multiple else [tag]
        for each in tags:
            self.held.pop(each).copy.holder = None

    def _recovered(self, heard: Heard) -> None:
        self._recovering -= 1

    def _finish(self, tags: list[int]) -> None:
        for tag in [each for each in self._unsure if each < max(tags)]:
            perhaps = Intent(f"{self.name} acknowledges {tag}, perhaps", vague=True)
            self._unsure.pop(tag).finishers.append(perhaps)
            self.model.ask(perhaps)
        if self.transacts:
            draft = self._own()
            for tag in tags:
                held = draft.acknowledged[tag] = self.held.pop(tag)
                held.copy.finishers.append(draft.intent)
            return
        for tag in tags:
            intent = Intent(f"{self.name} acknowledges {tag}", vague=True)
            self.held.pop(tag).copy.finishers.append(intent)
            self.model.ask(intent)
            self._said.append(intent)

    def at_rest(self) -> None:
        """All that was sent is done, and on the disk: what was acknowledged, too."""
        connection = self.connection
        if connection is not None and not connection.is_closing and not connection.to_broker:
            for intent in self._said:
                if intent.state == OPEN:
                    self.model.done(intent)
                    self.world.count("acknowledgements known to be forced")
            self._said = []

    # -- transactions --------------------------------------------------------------------------------------

    def _own(self) -> Draft:
        if self._draft is None:
            self._begun += 1
            name = f"transaction {self.world.name_intent()} of {self.name}"
            self._draft = Draft(Intent(name, self._stream, self._begun, vague=True))
        return self._draft

    def commit(self) -> None:
        """Commit what was published and acknowledged: all of it happens, or nothing."""
        if self.transacts:
            draft, self._draft = self._own(), None
            draft.intent.vague = (
                not draft.intent.values
            )  # else its messages will show whether it has happened
            self._say(m.TxCommit())
            self.model.ask(draft.intent)
            self._ending.append((m.TxCommitOk, draft))

    def roll_back(self) -> None:
        """Forget what was published, and go on with what was acknowledged as if it had not been."""
        if self.transacts:
            draft, self._draft = self._own(), None
            self._say(m.TxRollback())
            self._ending.append((m.TxRollbackOk, draft))
            for tag, held in draft.acknowledged.items():
                held.copy.finishers.remove(draft.intent)
                self.held[tag] = held

    def _ended(self, heard: Heard) -> Draft:
        kind, draft = self._ending.popleft()
        require(isinstance(heard.method, kind), f"{kind.__name__} comes", heard.method)
        return draft

    def _committed(self, heard: Heard) -> None:
        draft = self._ended(heard)
        require(draft.intent.state in (OPEN, DONE), f"{draft.intent.name} happens", draft.intent.state)
        self.model.done(draft.intent)
        self.world.count("AMQP commits with " + self._what(draft))

    def _rolled_back(self, heard: Heard) -> None:
        self._ended(heard)

    @staticmethod
    def _what(draft: Draft) -> str:
        if draft.acknowledged and draft.intent.values:
            return "both"
        return "acknowledgements" if draft.acknowledged else "messages"

    # -- acts ------------------------------------------------------------------------------------------------

    def play(self, random: Random) -> None:
        """One act."""
        deeds: tuple[tuple[int, Callable[[Random], object]], ...] = (
            (8, self.publish), (6, self.acknowledge), (2, self.give_back), (1, self.reject), (2, self.get),
            (4 * self.transacts, lambda _: self.commit()), (self.transacts, lambda _: self.roll_back()),
        )  # fmt: skip
        [deed] = random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        deed(random)

    def check_cancelled(self) -> None:
        """All has come to rest: nothing that was asked for has no answer, if the broker could answer."""
        if self.ready and self.connection is not None and not self.connection.is_closing:
            left = [len(self._unconfirmed), len(self._ending), len(self._getting)]
            require(not any(left), f"{self.name} is told of all that it asked for", left)
