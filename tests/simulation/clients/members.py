"""Clients that are members of a group: they join, attend, release, leave, die, stall, and come back."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.clients.consumers import OUTPUT
from tests.simulation.clients.workers import WorkingClient
from tests.simulation.model.log_model import require
from txbroker.wire import messages
from txbroker.wire.secret import Secret

if TYPE_CHECKING:
    from tests.simulation.world.wire import Connection
    from tests.simulation.world.world import World

INPUTS = "abc"
"""The topics that members read, as far as they exist."""

NEVER_RELEASED = 60
"""Turns after which a member looks whether a partition is still asked for, and releases it only if not."""

_WISHES = ((["a", "b"], ""), (["a", "b", "c"], ""), (["c"], "[ab]"), ([], "[abc]"))
"""Topics by name, and by pattern."""


class MemberClient(WorkingClient):
    """A client that is a member; after each death it begins another life, as a new process would.

    :meth:`play` takes one turn. All else that clients do, it does too.
    """

    def __init__(self, world: World, number: int, group: str) -> None:
        super().__init__(world, number)
        self.group = group
        self.lives = self.patience = 0
        self.is_dead = True
        self.stalled = self.deaf = 0
        """For so many turns nothing is done, or all but attending."""
        self.is_asleep = False
        self.is_calm = False
        """Whether only members do something, and time passes evenly."""
        self._abandoned: list[Connection] = []

    def begin_life(self, random: Random, static: bool = True) -> None:
        """Be somebody who has never been a member."""
        self.lives += 1
        self.is_dead = False
        self.stalled = self.deaf = 0
        self.identity = f"{self.name} in life {self.lives}"
        self.nonce = self.world.name_id()
        self.static = random.choice(("", "w1", "w2")) if static else ""
        self.topics, self.pattern = random.choice(_WISHES)
        self.wishes = {*self.topics, *(name for name in INPUTS if name in self.pattern)}
        self.session_timeout = random.choice((1_000_000, 2_000_000))
        self.max_handover = random.choice((300_000, 2_000_000))
        self.patience = random.choice((0, 0, 4, NEVER_RELEASED))
        """For so many turns nothing is released."""
        self._forget_membership()

    def _forget_membership(self) -> None:
        self.member, self.secret = 0, Secret(b"")
        self.owned.clear()
        self.revoked.clear()
        self.forget_work()
        self.asked = 0
        """How many requests to join or to attend are unanswered."""

    def connect(self, after: messages.FormerSession | None = None) -> None:
        """Connect, always with the former session: so nothing that was sent in it comes later."""
        self.asked = 0
        self.forget_work()
        super().connect(self.former)

    # -- one turn -----------------------------------------------------------------------------------------

    def play(self, random: Random) -> None:
        """Do what a member does next."""
        if self.is_dead or self.stalled:
            self.stalled = max(0, self.stalled - 1)
            return
        if self.connection is None:
            self.connect()
        elif self.ready and not self.member:
            if not self.asked or random.random() < 0.1:  # or once more, as if the answer were lost
                self._join()
        elif self.ready:
            self._release(random)
            if self.deaf:
                self.deaf -= 1
            elif not self.asked:
                self._attend()
            self._look_for_topics(random)
            if random.random() < 0.9:
                self._begin(random)
            self.work(random)

    def _look_for_topics(self, random: Random) -> None:
        """Learn of topics that somebody else has made, and make those that are missing."""
        topics = self.world.topics
        if any(number not in topics.homes for number in self.owned):
            self.learn_topics()
        there = {topic.name for topic in topics.topics if not topic.gone}
        missing = OUTPUT if OUTPUT not in there else "" if there.intersection(INPUTS) else INPUTS[0]
        if missing and random.random() < 0.3:
            self.make_topic(random, missing)

    def learn_topics(self) -> None:
        """Ask which topics there are, with which partitions."""
        self.ask(messages.DescribeTopics, then=self._topics)

    def _topics(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Topics):
            known = {topic.id: topic for topic in self.world.topics.topics}
            for info in answer.topics:
                if info.id in known:
                    self.world.topics.made(known[info.id], [each.number for each in info.partitions])

    # -- membership ---------------------------------------------------------------------------------------

    def _join(self) -> None:
        self.asked += 1
        self.ask(
            messages.JoinGroup, self.group, self.nonce, self.topics, self.pattern, self.static,
            list(self.owned.items()), self.session_timeout, self.max_handover, id=self.world.name_id(),
            then=self._if_alive(self._joined),
        )  # fmt: skip

    def _if_alive(self, then: Any) -> Any:
        """Return what takes an answer only in the life in which it was asked for."""
        life = self.lives
        return lambda *answer: then(*answer) if self.lives == life else None

    def _joined(self, answer: Any, data: bytes, since: int) -> None:
        self.asked = max(0, self.asked - 1)
        if isinstance(answer, messages.Joined):
            if (answer.member, self.nonce) not in self.model.numbers["membership"]:
                self.model.fresh("member", answer.member)
                self.model.numbers["membership"].add((answer.member, self.nonce))
            self.member, self.secret = answer.member, answer.secret
        elif answer.error == "MemberNameInUse":
            self.world.count("members' names in use")
            self.static = ""
        else:
            self.world.storage_error(answer.error, answer.message)

    def _attend(self) -> None:
        self.asked += 1
        self.ask(
            messages.Attend, self.group, self.member, self.secret, list(self.owned.items()), list(self.revoked),
            then=self._if_alive(self._attended),
        )  # fmt: skip

    def _attended(self, answer: Any, data: bytes, since: int) -> None:
        self.asked = max(0, self.asked - 1)
        if isinstance(answer, messages.Refused):
            require(answer.error == "UnknownMember", "a member may attend, or is not known", answer)
            self.world.count("members lost")
            self.member, self.nonce = 0, self.world.name_id()
            self.revoked.clear()
            return
        for number in answer.lost:
            self.owned.pop(number, None)
            self.revoked.pop(number, None)
        for each in answer.assigned:
            require(each.topic in self.wishes, f"{self.identity} gets what it reads", each)
            self.world.members.assigned(self._key(each.partition), each.generation, self.identity, since)
            if self.owned.get(each.partition) != each.generation:
                self.owned[each.partition] = each.generation
                self.revoked.pop(each.partition, None)
                self._again(each.partition)
                self.world.count("members' partitions")
        for number in answer.revoked:
            if number in self.owned:
                self.revoked.setdefault(number, self.patience)
                self.world.count("members asked back")

    def _begin(self, random: Random) -> None:
        """Say what it handles, of what it has read and not finished, and perhaps of what it has given back since."""
        begun = []
        for number, free in self.free.items():
            if free and number in self.owned:
                offsets, together = free[: random.choice((1, 1, 3))], random.random() < 0.3
                begun.append(
                    messages.BegunMessages(
                        number, self.owned[number], [(each, 0) for each in offsets], together
                    )
                )
                for each in () if together else offsets:
                    self.world.members.begins_with(self._key(number), each, self.member)
                    self.world.topics.handles(number)
        self.ask(messages.BeginMessages, self.group, self.member, self.secret, begun, then=self._was_told)

    def _was_told(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, messages.Refused):
            require(
                answer.error == "UnknownMember", "a member may say what it handles, or is not known", answer
            )

    def _release(self, random: Random) -> None:
        """Release what was asked back long enough ago; what is under way there mostly comes to its end before."""
        over = []
        for number, turns in self.revoked.items():
            if turns:
                self.revoked[number] = turns - 1
                if turns == 1 and self.patience == NEVER_RELEASED:
                    self.ask(messages.DescribeGroup, self.group, then=self._if_alive(self._described))
            elif (number, self.owned[number]) not in self.busy or random.random() < 0.2:
                over.append(number)
        for number in over:
            del self.revoked[number], self.owned[number]
            self.world.count("members released")
        if over:
            self._attend()

    def _described(self, answer: Any, data: bytes, since: int) -> None:
        """If all has been quiet for longer than ``max_handover``, nothing may be asked back so long ago."""
        if isinstance(answer, messages.GroupMembers) and self.is_calm:
            asked = {(each.topic, each.index) for each in answer.partitions if each.revoking}
            topics = {
                topic.name: topic.partitions or [] for topic in self.world.topics.topics if not topic.gone
            }
            late = [
                (name, index)
                for name, index in sorted(asked)
                if self.revoked.get(topics[name][index], 1) == 0
            ]
            require(not late, f"what {self.identity} does not release is taken from it", late)

    # -- what happens to it -----------------------------------------------------------------------------

    def die(self, random: Random) -> None:
        """The process ends; what it had sent comes later, if at all."""
        if self.connection is not None:
            self.lost(random.choice((0, len(self.connection.to_broker))))
        self.is_dead = True

    def stall(self, random: Random) -> None:
        """Do nothing for some time, or all but attending."""
        turns = random.choice((10, 30, 50))
        if random.random() < 0.5:
            self.stalled = turns
        else:
            self.deaf = turns

    def leave_group(self, random: Random) -> None:
        """Say that it leaves, and be somebody else."""
        if self.ready and self.member:
            self.ask(messages.LeaveGroup, self.group, self.member, self.secret, random.random() < 0.5)
            self.begin_life(random)

    def change_connection(self) -> None:
        """Go on over another connection while the first one is there."""
        if self.ready and self.connection is not None:
            self._abandoned.append(self.connection)
            self.connect()

    def take(self, size: int) -> bool:
        """Read what has come; what comes over connections that it has given up is lost."""
        self._abandoned = [each for each in self._abandoned if each.take(1 << 30) or not each.broker_gone]
        return not self.is_asleep and super().take(size)

    def be_calm(self) -> None:
        """Begin to do only what a member does."""
        self.is_calm = True
        self.least = self.most = 20
        self.stalled = self.deaf = 0
        self.revoked = dict.fromkeys(self.revoked, self.patience)
