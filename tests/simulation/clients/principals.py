"""Clients that are principals: they come in by their certificates, and may do what rules say and nothing else.

What they are told is judged before what it means: whether the request may have been carried out, or refused, in one of
the states in which users and rules may have been since it was sent.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from journal.transaction_states import State
from tests.simulation.clients.transactions import Begun, TransactionalClient
from tests.simulation.model.access.quota_model import Opening
from tests.simulation.model.access.rule_model import ANONYMOUS, Access, Meant
from tests.simulation.model.log_model import require
from tests.simulation.model.model import NEVER, Intent
from txbroker.login.facts import ConnectionFacts
from txbroker.wire import messages as commands

if TYPE_CHECKING:
    from tests.simulation.world.wire import Connection
    from tests.simulation.world.world import World

_DECIDING = {commands.Prepare: "prepare", commands.Commit: "commit", commands.Rollback: "rollback"}
_QUOTAS = {
    commands.Prepare: (commands.Done, "prepared"),
    commands.CreateTopic: (commands.Topics, "topics"),
    commands.OpenProducer: (commands.ProducerOpened, "producers"),
}  # fmt: skip
"""Requests that a quota may refuse, with the answer to one that it did not, and the quota's name."""


class PrincipalClient(TransactionalClient):
    """A client with the certificate of a user, which it may have or not, and mostly comes in by."""

    topic_names = ("a", "aa", "ab", "abc", "b", "ba")

    def __init__(self, world: World, number: int, user: str) -> None:
        super().__init__(world, number)
        self.certificate = f"DNS:{user}"
        self.facts = ConnectionFacts(address=f"10.0.1.{number}", secure=True, peer_names=(self.certificate,))
        self.principal = ""
        self.login = (0, 0)
        """When the login of the session was sent, and when it was answered."""
        self._random = Random(self.name)
        self._former = ("", "")
        """Mechanism and principal of the session that it had before."""
        self._own: Connection | None = None
        self._rivals: list[Connection] = []
        """The connection over which it has tried to log in last, and those that there were before it."""
        self._openings: dict[int, Opening] = {}
        """The producers that it has asked for on this connection, by the numbers of its requests."""
        self._after: commands.FormerSession | None = None
        self._mistaken: set[Intent] = set()
        """Transactions that cannot happen only because their totals were wrong."""

    # -- the login --------------------------------------------------------------------------------

    def connect(self, after: commands.FormerSession | None = None) -> None:
        """Connect, as before if the former session is shown."""
        if after is not None and self._former[0]:
            self.mechanism = self._former[0]
        else:
            without = 0.05 if self.world.access.last.is_on else 0.5
            self.mechanism = "ANONYMOUS" if self._random.random() < without else "EXTERNAL"
        self._rivals = list(self.world.connections)
        self._openings.clear()
        super().connect(after)
        assert self.connection is not None
        self._own, self.connection.certificate = self.connection, self._shown

    @property
    def _shown(self) -> str:
        """By what it comes in, as the model knows it."""
        return self.certificate if self.mechanism == "EXTERNAL" else ""

    def _welcomed(self, answer: Any, data: bytes, since: int) -> None:
        super()._welcomed(answer, data, since)
        if isinstance(answer, commands.Refused):
            self._refused_login(answer, since)
            return
        access, shown = self.world.access, self.former
        assert shown is not None
        access.came_in(answer.session, answer.principal, self._shown, since)
        if self.producer is not None and answer.principal != self._former[1]:
            self.producer.foreign = True
        self.principal, self._former = answer.principal, (self.mechanism, answer.principal)
        self.login = since, self.model.now
        self.world.count(f"sessions of {'nobody' if self.principal == ANONYMOUS else 'principals'}")
        if not self._goes_on:
            self.world.quotas.made("sessions", self.principal, self._surely_open(since), since)

    @property
    def _goes_on(self) -> bool:
        """Whether the session that it has shown may have been open."""
        request_after = self._after
        return request_after is not None and request_after.session >> 32 == self.world.engine.start_number

    def _surely_open(self, since: int) -> int:
        """How many other sessions of the same principal were open when it came in."""
        others = [
            each for each in self.world.principals if each is not self and each.principal == self.principal
        ]
        return sum(
            each.ready
            and each.login[1] < since
            and each.connection is not None
            and not each.connection.is_closing
            for each in others
        )

    def _refused_login(self, answer: Any, since: int) -> None:
        if answer.error == "LimitExceeded":
            require(answer.texts.get("quota") == "sessions", "sessions are limited by quotas alone", answer)
            who = answer.texts["principal"]
            came = dict.fromkeys([*self._rivals, *self.world.connections])
            ways = {
                certificate for each in self.world.access.changes for certificate in each.after.ways_of(who)
            }
            most = sum(each is not self._own and each.certificate in ways for each in came)
            self.world.quotas.refused("sessions", who, answer.numbers["limit"], most, since)
            self.world.count("quotas of sessions")
            return
        require(answer.error == "AuthenticationFailed", "a login fails for a reason", answer)
        before = self._former[1] if self._after is not None else ""
        self.world.access.stayed_outside(self._shown, before, since)
        self.world.count("logins refused")
        self.former, self._former = None, ("", "")

    def told_goodbye(self, answer: Any) -> None:
        """Hear why the session ends."""
        if isinstance(answer, commands.GoingAway) and "stopping" not in answer.reason and self.session:
            self.world.count("sessions ended by changes of access")
            self.world.access.sent_away(self.principal, self.login)

    # -- what it may do -----------------------------------------------------------------------------

    def judge(self, request: Any, answer: Any, since: int) -> None:
        """Whether it may have been carried out, or refused."""
        if isinstance(request, commands.Hello | commands.Login):
            return
        world, kind = self.world, type(request).__name__
        world.access.answered(self.principal, self.login, since)
        needs = world.needs.of(kind, request, self.principal, since)
        if isinstance(answer, commands.Refused) and answer.error == "AccessDenied":
            world.count(f"denied {kind}")
            world.access.denied(self.principal, kind, needs, since)
            self._take_back(request)
        else:
            world.access.allowed(self.principal, kind, needs, since)
            self._judge_quota(request, answer, since)
        if isinstance(request, commands.OpenProducer):
            self._was_opened(request.correlation, answer)

    def ask(self, kind: Any, *fields: Any, **named: Any) -> None:
        """Send a request; note whether it is to prepare or end a transaction."""
        super().ask(kind, *fields, **named)
        request = self._pending[self._correlation][0]
        if kind is commands.Login:
            self._after = request.after
        elif kind is commands.OpenProducer:
            opening = self._openings[request.correlation] = Opening(
                request.name, self.principal, self.model.now
            )
            self.world.quotas.openings.append(opening)
        elif kind in _DECIDING and (begun := self._meant(request)) is not None:
            self.world.attempts.asked(begun, _DECIDING[kind])

    def _meant(self, request: Any) -> Intent | None:
        """The transaction that a request is to prepare or end."""
        number = getattr(request, "session", 0) or self.session, request.serial
        if not request.serial:
            name = request.xid.global_id.decode()
            number = next(each for each, known in self.world.needs.names.items() if known == name)
        return self.model.transactions.get(number)

    def _take_back(self, request: Any) -> None:
        """A request has surely had no effect."""
        what, begun = _DECIDING.get(type(request)), None
        if what is not None and (begun := self._meant(request)) is not None:
            self.world.attempts.refused(begun, what)
        if begun is not None and begun in self._mistaken and what == "prepare":
            self._mistaken.discard(begun)
            begun.doomed = False

    def _refused(self, begun: Begun, answer: Any, since: int) -> None:
        if answer.error != "AccessDenied":
            super()._refused(begun, answer, since)

    # -- what it has --------------------------------------------------------------------------------

    def _judge_quota(self, request: Any, answer: Any, since: int) -> None:
        if type(request) not in _QUOTAS:
            return
        made, name = _QUOTAS[type(request)]
        quotas, texts = self.world.quotas, getattr(answer, "texts", {})
        if isinstance(answer, made) and self._is_new(request, answer):
            least, _ = self._had(request, since)
            quotas.made(name, self.principal, least, since)
        elif texts.get("quota"):
            require(
                texts == {"quota": name, "principal": self.principal}, f"the quota {name} is named", answer
            )
            _, most = self._had(request, since)
            quotas.refused(name, self.principal, answer.numbers["limit"], most, since)
            self.world.count(f"quotas of {name}")
            if isinstance(request, commands.Prepare) and not (request.runs or request.positions):
                self._take_back(request)

    def _is_new(self, request: Any, answer: Any) -> bool:
        """Whether the request has made what it asked for, and not another one before it."""
        if isinstance(request, commands.Prepare):
            begun = self._meant(request)
            assert begun is not None
            return self.world.attempts.is_only(begun, "prepare")
        return not isinstance(request, commands.OpenProducer) or answer.epoch == 0

    def _had(self, request: Any, since: int) -> tuple[int, int]:
        """How much it had of what it asked for, at least and at most."""
        quotas = self.world.quotas
        if isinstance(request, commands.Prepare):
            begun = self._meant(request)
            assert begun is not None
            return quotas.prepared(self.principal, since, begun)
        if isinstance(request, commands.OpenProducer):
            return quotas.producers(self.principal, since, self._openings[request.correlation])
        topic = next((each for each in self.world.topics.topics if each.id == request.id), None)
        return quotas.made_topics(self.principal, since, topic)

    def make_topic(self, random: Random, name: str) -> None:
        """A topic that is its own."""
        super().make_topic(random, name)
        self.world.quotas.makers[self.world.topics.topics[-1]] = self.principal

    def _was_opened(self, number: int, answer: Any) -> None:
        opening = self._openings.pop(number)
        if isinstance(answer, commands.ProducerOpened):
            opening.answered = self.model.now
        else:
            self.world.quotas.openings.remove(opening)

    # -- its acts -------------------------------------------------------------------------------------

    def global_id(self, name: int) -> bytes:
        """Part of the xid of a transaction of this name: rules are about those that begin with x, or with y."""
        return b"%s%d" % (b"xy"[name % 2 :][:1], name)

    def _new(self) -> Begun:
        begun = super()._new()
        assert begun.number is not None
        self.world.needs.names[begun.number] = begun.xid.global_id.decode()
        return begun

    def prepare(self, random: Random, begun: Begun) -> None:
        """The first phase."""
        was_doomed = begun.doomed
        super().prepare(random, begun)
        if begun.doomed and not was_doomed:
            self._mistaken.add(begun)

    def send_timed(self, random: Random) -> None:
        """A message, and where its time went."""
        partition = self.world.some_partition(random)
        if partition is None:
            return
        values, data = self.world.messages(random)
        self._sends += 1
        intent = Intent(f"timed send {self.world.name_intent()} to {partition}", self._stream, self._sends)
        self.model.put_into(intent, partition, values)

        def then(answer: Any, data: bytes, since: int) -> None:
            self._sent(intent, partition, None, getattr(answer, "answer", answer), data, since)

        self.ask(commands.Timed, commands.Send(0, partition), data=data, then=then)
        self.model.ask(intent)

    def list_prepared(self, random: Random) -> None:
        """All that is prepared, or what begins so, or one's own: whole, or refused."""
        prefix, own = random.choice((b"", b"x", b"y", b"x1")), random.random() < 0.3
        names, owners = self.world.needs.names, self.world.access.principals
        asked_for = {
            number: begun for number, begun in self.model.transactions.items()
            if names[number].startswith(prefix.decode()) and (not own or owners[number[0]] == self.principal)
            and begun.prepared_at <= self.model.now
        }  # fmt: skip

        def then(answer: Any, data: bytes, since: int) -> None:
            if isinstance(answer, commands.Transactions):
                self.world.count("lists of prepared transactions")
                left = {
                    each for each, begun in asked_for.items()
                    if begun.ended_at == NEVER and not begun.asked & {"commit", "rollback"} and not self.model.orphans
                }  # fmt: skip
                listed = {(each.session, each.serial) for each in answer.transactions}
                require(left <= listed, f"the list of prepared transactions has {left}", listed)

        self.ask(
            commands.ListTransactions, [State.PREPARED], (0, 0), 1000, None, prefix, False, own, then=then
        )

    def list_topics(self, random: Random) -> None:
        """All topics that it may describe."""
        there = {
            topic.name for topic in self.world.topics.topics if topic.partitions and topic.deleted is None
        }

        def then(answer: Any, data: bytes, since: int) -> None:
            possible = self.world.access.during(since)
            found = {each.name for each in answer.topics}
            hidden = {each for each in found if not any(self._describes(access, each) for access in possible)}
            require(not hidden, f"{self.principal} may not describe {hidden}", found)
            stays = {each.name for each in self.world.topics.topics if each.deleted is None} & there
            shown = {each for each in stays if all(self._describes(access, each) for access in possible)}
            require(shown <= found, f"{self.principal} may describe {shown}", found)
            self.world.count("lists of topics")

        self.ask(commands.DescribeTopics, then=then)

    def _describes(self, access: Access, name: str) -> bool:
        return access.allows(self.principal, "describe", "topic", Meant(name))

    def pry(self, random: Random) -> None:
        """Ask for what only an administrator may do."""
        self.ask(
            *random.choice(
                (
                    (commands.ListUsers,),
                    (commands.ListRules,),
                    (commands.RemoveUser, "nobody"),
                    (commands.ListSessions,),
                )
            )
        )
