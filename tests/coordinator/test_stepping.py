"""Test every step of a commit, and of its recovery, with every fault, in memory.

The log is the real one, on a file system that forgets what was not forced. A fault is the death of the coordinator
(with or without the page cache), or a participant whose request, or whose answer, is lost.
"""

import itertools

import pytest

from journal.testing import ManualClock, MemoryFilesystem
from tests.coordinator.memory import Died, Participant, Unreachable
from txbroker import errors
from txbroker.coordinator import transaction_registry as registry_module
from txbroker.coordinator.coordinator import Coordinator
from txbroker.coordinator.decision_log import DecisionLog
from txbroker.coordinator.participant_threads import ParticipantThread
from txbroker.coordinator.resource import Resource
from txbroker.coordinator.transaction_registry import TransactionRegistry
from txbroker.coordinator.two_phase import CoordinatedTransaction

NAMES = ("a", "b", "c")


class Stepped(Coordinator):
    """A coordinator over a log in memory, whose passes are called by hand."""

    def __init__(self, filesystem, participants):
        self._log = DecisionLog(filesystem, ManualClock())
        self._registry = TransactionRegistry(self._log)
        self._closed = False
        self._participant_threads = {
            name: ParticipantThread(name, one.connect, self._registry, 1.0)
            for name, one in participants.items()
        }

    def _check_open(self):
        """It is open."""


class World:
    """Participants and a coordinator that dies and comes again; counts the moments of a run."""

    def __init__(self):
        self.filesystem = MemoryFilesystem()
        self.participants = {name: Participant(name, self.at) for name in NAMES}
        self.moments = 0
        self.plan = {}
        self.coordinator = None
        self.log_decides()

    def log_decides(self):
        self.is_decided = False

    def at(self, moment):
        number, self.moments = self.moments, self.moments + 1
        fault = self.plan.get(number)
        if fault is not None:
            raise fault(moment)

    def start(self):
        self.coordinator = Stepped(self.filesystem, self.participants)

    def die(self, seed):
        """The process is gone; with a seed the machine too, and what was not forced with some luck."""
        killed = self.filesystem.kill_clone() if seed is None else self.filesystem.crash_clone(seed, 0.0)
        self.filesystem = killed
        self.coordinator = None

    def transaction(self, number):
        """One transaction, as a program does it; what the program was told: committed or rolled back."""
        resources = {}
        for name, participant in self.participants.items():
            connection = participant.connect()
            resources[name] = Resource(connection)
        tx = CoordinatedTransaction(self.coordinator, resources)
        try:
            with tx:
                for resource in resources.values():
                    resource.connection.work.append(number)
                self.at("worked")
        except Unreachable:
            return "rolled back"
        except errors.DeliveryPending:
            return "committed"
        return "committed"

    def recover(self):
        """Passes until nothing is left to do; faults in between are let through if they kill."""
        for _ in range(8):
            done = self.coordinator.resolve()
            if (
                not done.failed
                and not self.coordinator.in_doubt()
                and not any(p.prepared for p in self.participants.values())
            ):
                return
        raise AssertionError(f"it does not end: {done}")

    def check(self, told):
        """All or nothing, nothing prepared, nothing contradicted, and as the program was told."""
        contents = [
            sorted(number for work in one.committed.values() for number in work)
            for one in self.participants.values()
        ]
        assert contents[0] == contents[1] == contents[2]
        assert [one.prepared for one in self.participants.values()] == [{}, {}, {}]
        assert [one.contradictions for one in self.participants.values()] == [[], [], []]
        assert self.coordinator.heuristics() == []
        if told is not None:
            assert (1 in contents[0]) == (told == "committed")
        return 1 in contents[0]


def attempt(world):
    try:
        return world.transaction(1)
    except Died:
        return None


def moments_of_a_commit():
    world = World()
    world.start()
    assert attempt(world) == "committed"
    return world.moments


COMMIT = moments_of_a_commit()
FAULTS = (Died, Unreachable)


def run(first, second, third, seed):
    """A fault at one moment of the commit, others at moments of what comes after it."""
    world = World()
    world.plan = {moment: fault for moment, fault in (first, second, third) if fault is not None}
    world.start()
    told = attempt(world)
    died = told is None
    while True:
        if died:
            world.die(seed)
            world.start()
        try:
            world.recover()
            break
        except Died:
            died = True
    return world, world.check(told)


def test_there_are_as_many_moments_as_the_protocol_has():
    """Before and after each of three prepares and three commits, and the end of the work."""
    assert COMMIT == 13


@pytest.mark.parametrize("seed", [None, 1], ids=["killed", "power cut"])
def test_one_fault_at_any_moment_ends_with_all_or_nothing(seed):
    ends = [
        run((moment, fault), (0, None), (0, None), seed)[1] for moment in range(COMMIT) for fault in FAULTS
    ]
    assert set(ends) == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1], ids=["killed", "power cut"])
def test_two_faults_at_any_moments_of_commit_and_recovery_end_with_all_or_nothing(seed):
    for moment, later in itertools.product(range(COMMIT), range(1, 12)):
        for first, second in itertools.product(FAULTS, FAULTS):
            run((moment, first), (moment + later, second), (0, None), seed)


@pytest.mark.slow
def test_three_faults_end_with_all_or_nothing():
    for moment, later, last in itertools.product(range(0, COMMIT, 2), range(1, 8, 2), range(1, 8, 2)):
        for kinds in itertools.product(FAULTS, FAULTS, FAULTS):
            faults = zip((moment, moment + later, moment + later + last), kinds, strict=True)
            run(*faults, None)


def test_transactions_after_a_recovery_have_other_names():
    world = World()
    world.plan = {COMMIT - 2: Died}
    world.start()
    assert attempt(world) is None
    world.die(1)
    world.start()
    world.plan = {}
    assert attempt(world) == "committed"
    world.recover()
    assert [len(one.committed) for one in world.participants.values()] == [2, 2, 2]


# -- a pass of a participant thread beside a transaction ------------------------------------------------------


PROGRAM = ("enter", "prepare", "decide", "tell")
PASS = ("view", "list", "judge")


def interleavings():
    total = len(PROGRAM) + len(PASS)
    for places in itertools.combinations(range(total), len(PROGRAM)):
        mine, theirs = iter(PROGRAM), iter(PASS)
        yield [
            ("program", next(mine)) if place in places else ("pass", next(theirs)) for place in range(total)
        ]


class Pass:
    """The pass of a participant thread over one participant, step by step."""

    def __init__(self, world):
        self.world = world
        self.resource = Resource(world.participants["a"].connect())

    def view(self):
        self.before = self.world.coordinator._registry.view()

    def list(self):
        self.listed = self.resource.listed("a", self.world.coordinator.identity)

    def judge(self):
        registry = self.world.coordinator._registry
        for gid in registry.to_tell("a"):
            self.resource.end(registry_module.Branch(gid, "a"), True, "", gid in self.listed)
        for gid in self.listed:
            if registry.is_undecided(gid, self.before):
                self.resource.end(registry_module.Branch(gid, "a"), False, "", True)


class PassWithoutView(Pass):
    """What must not be: it judges a list by what is known afterwards only."""

    def judge(self):
        self.before = registry_module.View(frozenset(), 1 << 60)
        super().judge()


def interleave(schedule, kind):
    world = World()
    world.start()
    resources = {name: Resource(one.connect()) for name, one in world.participants.items()}
    tx = CoordinatedTransaction(world.coordinator, resources)
    other = kind(world)
    for who, step in schedule:
        getattr(tx if who == "program" else other, step)()
        if step == "enter":
            for resource in resources.values():
                resource.connection.work.append(1)
    return world


def test_a_pass_beside_a_commit_never_rolls_it_back_in_any_order():
    for schedule in interleavings():
        world = interleave(schedule, Pass)
        world.recover()
        assert world.check("committed"), schedule


def test_a_pass_that_judges_an_old_list_by_new_knowledge_would_contradict_a_commit():
    """The view is for something: without it there are orders in which a committed branch is told to roll back."""
    worlds = [interleave(schedule, PassWithoutView) for schedule in interleavings()]
    assert any(one.contradictions for world in worlds for one in world.participants.values())
