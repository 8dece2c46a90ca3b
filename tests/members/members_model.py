"""Clients that are members of a group, well and badly behaved, and what must be so after each step.

The world keeps an account of its own of who has which partition, since when who was silent, and for whom what is kept;
the coordinator's tables are held against it.
"""

from __future__ import annotations

import random

from journal.records.group_entries import ClaimKind, PartitionOffset
from journal.xid import Xid
from tests.members.members_room import MembersRoom
from txbroker.members.coordinator import HEARING, LATE
from txbroker.wire import messages

STEP = 100_000
GROUP = "g"
TOPICS = ("a", "b", "pa", "pb")
GRACE, REJOIN = 2_000_000, 8_000_000
SLACK = 3 * STEP
LAST = 40
"""Seconds in which all behave, at the end."""


class ModelClient:
    """A client. ``owned`` is what it believes to have; ``told_at`` says since when it knows what it is asked for."""

    def __init__(self, world, key, name=""):
        pick = world.random.choice
        self.world, self.key, self.name = world, key, name
        self.nonce = world.random.randbytes(16)
        self.topics = pick((["a"], ["a", "b"], ["b"], [], ["a", "b"]))
        self.pattern = pick(("", "", "p*", "*")) if self.topics else pick(("p*", "*"))
        self.timeout, self.handover = pick((3, 6)) * 1_000_000, pick((1, 4)) * 1_000_000
        self.delay = pick((0, 0, 0, 500_000, 2_000_000, 1 << 60))
        self.peer = self.number = self.secret = self.asked = None
        self.owned, self.told_at = {}, {}
        self.is_dead = False
        self.stalled_until = self.connect_at = 0
        self.last_sent = self.gone_at = 0
        self.credit = self.earlier = 0
        """How long the broker has been late since it was heard of; the same before it was late the last time."""
        self.serial = 0

    def __repr__(self):
        return f"client {self.key} {self.name!r}"

    # -- what it does ---------------------------------------------------------------------------------

    def turn(self):
        now = self.world.now
        if self.is_dead or self.stalled_until > now or self.connect_at > now:
            return
        if self.peer is None:
            self.peer, self.asked = self.world.room.peer(), None
            self.attend() if self.number is not None else self.join()
        for _ in range(50):
            if self.asked is None or (told := self.peer.answer(self.asked)) is None:
                break
            self.asked = None
            self.take(told)
            if self.is_dead:
                return
        if [number for number, at in self.told_at.items() if at + self.delay <= now]:
            self.release(now)

    def join(self):
        self.number = None
        world = self.world
        self.sent()
        answer = self.peer.ask(
            messages.JoinGroup, GROUP, self.nonce, self.topics, self.pattern, self.name,
            list(self.owned.items()), self.timeout, self.handover,
        )  # fmt: skip
        if isinstance(answer, messages.Refused):
            assert answer.error == "MemberNameInUse", answer
            assert world.living_namesake(self), f"{self} was refused: {answer}"
            return self.die()
        assert not world.living_namesake(self), f"{self} has the name of another one"
        self.number, self.secret = answer.member, answer.secret
        world.joined(self)
        return self.attend()

    def attend(self):
        self.sent()
        self.asked = self.peer.tell(
            messages.Attend, GROUP, self.number, self.secret, list(self.owned.items()), list(self.told_at)
        )
        self.world.room.engine.sync()

    def take(self, told):
        if isinstance(told, messages.Refused):
            assert told.error == "UnknownMember", told
            assert self.number not in self.world.members(), f"{self} is refused: {told}"
            self.nonce, self.told_at = self.world.random.randbytes(16), {}
            self.join()
            return
        for number in told.lost:
            self.owned.pop(number, None)
            self.told_at.pop(number, None)
        for each in told.assigned:
            self.owned[each.partition] = each.generation
        for number in told.revoked:
            assert number in self.owned, f"{self} is asked for {number}, which it has not"
            self.told_at.setdefault(number, self.world.now)
        self.attend()

    def release(self, now):
        for number in [number for number, at in self.told_at.items() if at + self.delay <= now]:
            del self.told_at[number]
            self.owned.pop(number)
        self.attend()

    def sent(self):
        self.last_sent, self.credit = self.world.now, 0

    # -- what is done to it -----------------------------------------------------------------------------

    def cut(self, again_after):
        """Lose the connection."""
        if self.peer is not None:
            self.peer.leave()
            self.peer, self.asked, self.gone_at, self.credit = None, None, self.world.now, 0
        self.connect_at = self.world.now + again_after

    def die(self):
        self.is_dead = True
        self.cut(0)

    def leave(self, for_good):
        if self.peer is not None and self.number is not None:
            answer = self.peer.ask(messages.LeaveGroup, GROUP, self.number, self.secret, for_good)
            assert isinstance(answer, messages.Done), answer
            self.world.left(self, for_good)
            self.die()

    # -- what it settles ----------------------------------------------------------------------------------

    def positions(self, of):
        return [PartitionOffset(number, 0, generation) for number, generation in of]

    def is_attending(self):
        return self.asked is not None and self.peer.answer(self.asked) is None


class World:
    """A room with clients. ``steps`` is what was done."""

    def __init__(self, seed, steps):
        self.random = random.Random(seed)
        self.wanted = steps
        self.seed, self.steps = seed, []
        self.room = MembersRoom(
            reconnect_grace=GRACE, rejoin_timeout=REJOIN, max_sessions=100_000, assignment_delay=500_000
        )
        self.clients = []
        self.keys = {}
        """The client of each member's number."""
        self.owners = {}
        """The client that had a partition in a generation, by both."""
        self.current = {}
        self.kept = {}
        """(until, name) of partitions that nobody else may have."""
        self.prepared = {}
        self.known, self.had = {}, {}
        """Members that are there by the world's account, and their clients; what they had at the last check."""
        self.pool = []
        self.next_xid = 0
        self.late_at = -LAST * 1_000_000
        self.started()
        for topic in TOPICS[:2]:
            self.room.topic(topic, self.random.randint(1, 4))

    def started(self):
        self.coordinator = self.room.broker.coordinator
        self.coordinator._run_blocking = lambda *of: self.pool.append(of)
        self.coordinator._guarded = lambda group, do: do()

    @property
    def now(self):
        return self.room.engine.now()

    @property
    def table(self):
        return self.coordinator.tables.get(GROUP)

    def members(self):
        return self.table.members if self.table is not None else {}

    def claims(self):
        return self.room.broker.groups.find(GROUP).claims

    def living(self):
        return [client for client in self.clients if not client.is_dead]

    def living_namesake(self, client):
        """Return whether a member of that name has a connection, in the world's own account."""
        return any(
            other.name == client.name and other.peer is not None and other.number in self.known
            for other in self.clients if other is not client and client.name
        )  # fmt: skip

    # -- one run ------------------------------------------------------------------------------------------

    def run(self):
        try:
            for _ in range(self.wanted):
                name, weight = self.random.choice(ACTIONS)
                self.steps.append(name)
                getattr(self, name)()
                self.check()
                for _ in range(weight):
                    self.tick()
            self.steps.append("all behave")
            self.behave()
        except BaseException as error:
            error.add_note(f"seed {self.seed}, {self.wanted} steps: {' '.join(self.steps)}")
            raise

    def tick(self, of_pool=0.7):
        room = self.room
        room.clock.advance(STEP)
        room.timers.advance(STEP / 1e6)
        room.engine.sync()
        while self.pool and self.random.random() < of_pool:
            do, done, _ = self.pool.pop(0)
            done(do())
            room.timers.advance(0)
            room.engine.sync()
        self.check()
        for client in self.random.sample(self.clients, len(self.clients)):
            client.turn()
            self.check()

    def behave(self):
        for client in self.clients:
            client.delay = client.stalled_until = client.connect_at = 0
        for _ in range(LAST * 10):
            self.tick(of_pool=1)
        self.check_end()

    # -- actions ------------------------------------------------------------------------------------------

    def pick(self):
        living = self.living()
        return self.random.choice(living) if living else None

    def begin(self, name=""):
        if len(self.living()) < 6:
            self.clients = self.living() + [each for each in self.clients if each.is_dead][-6:]
            self.clients.append(client := ModelClient(self, len(self.keys) + len(self.clients), name))
            client.turn()

    def begin_static(self):
        self.begin(self.random.choice(("w1", "w2", "w3")))

    def _with_some(self, do):
        if client := self.pick():
            self.steps[-1] += f"({client.key})"
            do(client)

    def leave(self):
        self._with_some(lambda client: client.leave(self.random.random() < 0.5))

    def die(self):
        self._with_some(ModelClient.die)

    def cut(self):
        again = self.random.choice((0, 0, 1_000_000, 3_000_000, 9_000_000))
        self._with_some(lambda client: client.cut(again))

    def stall(self):
        seconds = self.random.choice((1, 2, 4, 8))

        def do(client):
            client.stalled_until = self.now + seconds * 1_000_000

        self._with_some(do)

    def move(self):
        """Let a client go on over another connection while the first one is there."""

        def do(client):
            if client.peer is not None and client.number is not None and client.stalled_until <= self.now:
                old, asked = client.peer, client.asked
                client.peer = self.room.peer()
                client.attend()
                if asked is not None:
                    assert old.answer(asked) is not None, f"{client} waits on its old connection"
                old.leave()

        self._with_some(do)

    def settle(self):
        self._settle(lambda client, of: client.peer.ask(
            messages.CommitOffsets, GROUP, client.positions(of)
        ))  # fmt: skip

    def prepare(self):
        def do(client, of):
            self.next_xid += 1
            client.serial += 1
            xid = Xid(1, self.next_xid.to_bytes(4), b"")
            positions = [messages.GroupPositions(GROUP, b"g" * 16, client.positions(of))]
            answer = client.peer.ask(messages.Prepare, self.next_xid, xid, None, 0, [], positions)
            if isinstance(answer, messages.Done):
                self.prepared[xid] = {number for number, _ in of}
            return answer

        self._settle(do)

    def _settle(self, do):
        """Commit what a client believes to have: it goes if these are the claims' generations, and not else."""

        def settle(client):
            if client.peer is None or client.number is None or not client.owned:
                return
            of = self.random.sample(sorted(client.owned.items()), self.random.randint(1, len(client.owned)))
            of = [each for each in of if each[0] in self.room.engine.catalog.stores]
            if not of:
                return
            is_current = all(
                self.current.get(number) == generation and self.owners[number, generation] is client
                for number, generation in of
            )
            held = set().union(*self.prepared.values()) & {number for number, _ in of}
            answer = do(client, of)
            if not is_current:
                assert getattr(answer, "error", "") == "GenerationFenced", f"{client} with {of}: {answer}"
            elif held:
                assert isinstance(answer, messages.Done) or answer.error == "OffsetPending", answer
            else:
                assert isinstance(answer, messages.Done), f"{client} with {of}: {answer}"

        self._with_some(settle)

    def decide(self):
        if self.prepared:
            xid = self.random.choice(list(self.prepared))
            kind = self.random.choice((messages.Commit, messages.Rollback))
            answer = self.room.peer().ask(kind, xid=xid)
            assert not isinstance(answer, messages.Refused), answer
            del self.prepared[xid]

    def make_topic(self):
        free = [name for name in TOPICS if name not in self.room.engine.catalog.topics]
        if free:
            self.room.topic(self.random.choice(free), self.random.randint(1, 5))

    def delete_topic(self):
        there = [name for name in TOPICS if name in self.room.engine.catalog.topics]
        if there:
            name = self.random.choice(there)
            self.room.peer().ask(messages.DeleteTopic, name, self.room.topic_id(name))
            stores = self.room.engine.catalog.stores
            self.kept = {number: kept for number, kept in self.kept.items() if number in stores}

    def delete_group(self):
        if GROUP in self.room.broker.groups.groups:
            had = bool(self.known)
            answer = self.room.peer().ask(messages.DeleteGroup, GROUP, self.room.group_id())
            if isinstance(answer, messages.Done):
                assert not had
                self.kept.clear()
            else:
                assert had or self.prepared, answer

    def stop(self):
        """Move the group, or delete it, with its members: nobody is one then, and no claim is what anybody shows."""
        group, stores = self.room.broker.groups.groups.get(GROUP), sorted(self.room.engine.catalog.stores)
        if group is None:
            return
        peer, some = self.room.peer(), self.random.sample(stores, self.random.randint(0, len(stores)))
        if some:
            offsets = [PartitionOffset(number, 0, group.generation(number)) for number in some]
            expected = [group.position(number) for number in some]
            answer = peer.ask(messages.CommitOffsets, GROUP, offsets, expected=expected, stop=True)
        else:
            answer = peer.ask(messages.DeleteGroup, GROUP, group.id, True)
        if isinstance(answer, messages.Refused):
            assert answer.error == "OffsetPending", answer
            assert self.prepared
            return
        self.known.clear()
        self.kept.clear()
        claims = self.claims()
        for client in self.clients:
            for number, generation in client.owned.items():
                assert number not in claims or claims[number].generation > generation, (
                    f"{client} is not stopped"
                )

    def be_late(self):
        """Let the broker stand still."""
        late = self.random.choice((1, 5, 20)) * 1_000_000
        self.room.clock.advance(late)
        for client in {*self.clients, *self.known.values()}:
            client.earlier = client.credit
            client.credit += late + HEARING
        self.late_at = self.now
        if self.random.random() < 0.5 and (client := self.pick()):
            client.turn()  # its request is read before the timers
        self.room.timers.advance(late / 1e6)
        self.room.engine.sync()

    def crash(self):
        """Let the broker end, maybe in the midst of something that is not forced."""
        room = self.room
        if self.random.random() < 0.5:
            room.clock.advance(STEP)
            room.timers.advance(STEP / 1e6)
        room.engine.close()
        for call in room.timers.getDelayedCalls():
            call.cancel()
        self.pool.clear()
        room.start()
        self.started()
        for client in self.clients:
            client.peer = client.asked = None
            client.connect_at = self.now + self.random.choice((0, 100_000, 500_000, 3_000_000))
        self.known = {}
        self.current = {number: claim.generation for number, claim in self.claims().items()}
        self.kept = {
            number: (self.now + REJOIN, claim.member)
            if claim.kind is ClaimKind.STATIC_MEMBER
            else (self.now + GRACE, "")
            for number, claim in self.claims().items()
        }

    # -- the world's account -------------------------------------------------------------------------------

    def joined(self, client):
        self.keys[client.number] = client
        for number, other in list(self.known.items()):
            if client.name and other.name == client.name and number != client.number:
                self._went(number, other)
        self.known[client.number] = client

    def left(self, client, for_good):
        self._went(client.number, client, for_good)

    def _went(self, number, client, for_good=False):
        """Note that a member is not there any more."""
        if self.known.pop(number, None) is None:
            return
        for partition, generation in self.current.items():
            is_its = self.owners.get((partition, generation)) is client and partition in self.had.get(
                number, ()
            )
            if client.name and not for_good and is_its:
                self.kept[partition] = self.now + REJOIN, client.name

    # -- what must be so -----------------------------------------------------------------------------------

    def check(self):
        now = self.now
        self._check_losses(now)
        claims = self.claims()
        members = self.members()
        for number, member in members.items():
            for partition, generation in member.owned.items():
                self._check_owner(partition, generation, self.keys[number])
                assert claims[partition].generation == generation, (
                    f"{partition} is claimed by {claims[partition]}"
                )
                assert self.table.owners[partition] is member, f"{partition} has two owners"
            assert set(member.asked) <= set(member.owned)
        for partition, claim in claims.items():
            before = self.current.get(partition)
            if before is not None and before != claim.generation:
                assert claim.generation > before, f"{partition} goes back"
                self._check_move(partition, before, now)
            if before != claim.generation:
                self._check_kept(partition, claim, now)
        self.current = {partition: claim.generation for partition, claim in claims.items()}
        if self.table is not None:
            for partition in self.table.owners:
                self.kept.pop(partition, None)
        self.had = {number: set(member.owned) for number, member in members.items()}
        believed = [each for client in self.clients for each in client.owned.items()]
        assert len(believed) == len(set(believed)), "two clients believe to have the same"

    def _check_owner(self, partition, generation, client):
        first = self.owners.setdefault((partition, generation), client)
        assert first is client, f"{partition} was {first}'s in generation {generation}, and is {client}'s"

    def _check_losses(self, now):
        members = self.members()
        for number, client in list(self.known.items()):
            silent = now - (client.gone_at if client.peer is None else client.last_sent)
            limit = GRACE if client.peer is None else client.timeout
            if number not in members:
                assert silent >= limit - SLACK, f"{client} is lost after {silent} µs"
                was_late = now - self.late_at < HEARING - SLACK and silent > limit + client.earlier + LATE
                assert not was_late, f"{client} is lost before it could be heard"
                self._went(number, client)
            else:
                most = limit + client.credit + SLACK
                assert silent <= most, f"{client} is not lost after {silent} µs"

    def _check_move(self, partition, before, now):
        client = self.owners.get((partition, before))
        if client is None or client.number not in self.known or partition not in client.owned:
            return
        if client.owned[partition] != before or not client.is_attending():
            return
        told = client.told_at.get(partition, now)
        assert now - told >= client.handover - SLACK, f"{partition} was taken from {client}"

    def _check_kept(self, partition, claim, now):
        until, name = self.kept.get(partition, (0, ""))
        if until > now:
            assert name, f"{partition} is claimed while it is kept"
            assert name == claim.member, f"{partition} is claimed while it is kept for {name!r}"

    def check_end(self):
        clients = self.living()
        if not clients:
            return
        table = self.table
        owners = {}
        for client in clients:
            member = table.members[client.number]
            assert client.owned == member.owned, f"{client} has {client.owned}, the table {member.owned}"
            assert client.is_attending(), f"{client} is stuck"
            assert not client.told_at
            for partition in client.owned:
                assert partition not in owners
                owners[partition] = client
        assert len(table.members) == len(clients)
        assert (table.kept, table.to_place, table.refused) == ({}, {}, {})
        self._check_even(clients, owners)

    def _check_even(self, clients, owners):
        for name, topic in self.room.engine.catalog.topics.items():
            readers = [client for client in clients if _reads(client, name)]
            numbers = [store.number for store in topic.partitions]
            if not readers or name not in TOPICS:
                assert not set(numbers) & set(owners)
                continue
            assert set(numbers) <= set(owners), f"partitions of {name} have no owner: {numbers}, {owners}"
            counts = [sum(owners[number] is client for number in numbers) for client in readers]
            assert sum(counts) == len(numbers)
            assert max(counts) - min(counts) <= 1, f"{name} is shared out {counts}"
        same = {}
        for client in clients:
            same.setdefault(tuple(name for name in TOPICS if _reads(client, name)), []).append(client)
        if len(same) == 1:
            counts = [len(client.owned) for client in clients]
            assert max(counts) - min(counts) <= 1, f"it is shared out {counts}"


def _reads(client, topic):
    return topic in client.topics or client.pattern == "*" or (client.pattern == "p*" and topic[0] == "p")


ACTIONS = (
    *[("begin", 3)] * 6,
    *[("begin_static", 3)] * 5,
    *[("leave", 3)] * 3,
    *[("die", 3)] * 2,
    *[("cut", 3)] * 4,
    *[("stall", 3)] * 4,
    *[("move", 2)] * 2,
    *[("settle", 1)] * 5,
    *[("prepare", 1)] * 3,
    *[("decide", 1)] * 3,
    *[("make_topic", 3)] * 3,
    *[("delete_topic", 2)] * 2,
    *[("delete_group", 1)] * 2,
    *[("stop", 2)] * 2,
    *[("be_late", 2)] * 2,
    *[("crash", 5)] * 2,
)
"""What is done, and for how many steps of time all goes on then."""
