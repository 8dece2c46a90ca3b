"""Fail every call that a broker's engine makes on files once, in every way: what was acknowledged stays.

One fixed piece of work (topics, sends, transactions of one and two phases, group positions, flushes, checkpoints,
rolls, retention, recycling, reads, a clean stop, a kill, two starts) is done once to count its calls and to see the
state after each step. Then it is done again for every single call and error. It must end after the last acknowledged
step or after the one that failed: nothing else was ever decided.

Seen to fail: with a failed force that does not poison the journal, with a failed flush that does not fail the engine,
with a failed group that does not; all of it together also with unproven groups not written again at the start.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from journal.errors import JournalPoisoned, TxBrokerError
from journal.testing import CHANGES, Fault, FaultPlan, MemoryFilesystem, Operation
from tests.engine.fault_sweep_scene import STEPS, Scene


@dataclass
class Clean:
    """The work without a fault: the state after each step, and how many calls of each kind there were."""

    states: list[Any] = field(default_factory=list)
    calls: dict[Operation, int] = field(default_factory=dict)


@cache
def clean() -> Clean:
    scene, found = Scene(), Clean()
    found.states.append(scene.state())
    twin = Scene()
    for name in STEPS:
        STEPS[name](twin)
        STEPS[name](scene)
        found.states.append(scene.state())
    found.calls = dict(twin.plan.counts)  # those of the work alone: looking at the state reads too
    return found


FAILURES = (OSError, TxBrokerError)


def check_named(error: BaseException) -> None:
    """The error says which file it is about."""
    if isinstance(error, OSError):
        assert error.filename is not None, repr(error)
    else:
        assert any(part in str(error) for part in ("journal/", "partitions/", "checkpoints/", "staged/"))


def check_end(inner: MemoryFilesystem, allowed: list[Any]) -> None:
    """Start on what is left: one of the states, and everything goes on from there."""
    after = Scene(inner)
    found = after.state()
    assert found in allowed
    for number in after.engine.catalog.stores:
        after.send(number, b"goes on")
    after.checkpoint()
    again = Scene(after.inner.crash_clone(0, survive=0))
    assert again.state() == after.state()


def run(*faults: Fault) -> None:
    """Do the work until a call fails for good; judge what is left."""
    inner = MemoryFilesystem()
    plan = FaultPlan(faults)
    done = 0
    scene = None
    unseen = [fault for fault in faults if fault.error is not None]
    try:
        scene = Scene(inner, plan)
        for name in STEPS:
            if not carry_out(scene, name):
                break
            done += 1
            if any(has_struck(fault) for fault in unseen):
                check_tolerated(scene, unseen, clean().states[done])
                unseen = []
    except FAILURES as error:
        check_named(error)
    allowed = clean().states[done : done + 2]
    disk = inner if scene is None else scene.inner
    check_end(disk.kill_clone(), allowed)
    check_end(disk.crash_clone(0, survive=0), allowed)
    check_end(disk.kill_clone().crash_clone(done), allowed)


def has_struck(fault: Fault) -> bool:
    return fault.seen >= fault.nth


def check_tolerated(scene: Scene, faults: list[Fault], state: Any) -> None:
    """A step succeeded though a call in it failed: then that call must not have mattered, not even in a power cut."""
    for fault in faults:
        if has_struck(fault) and fault.kind in CHANGES:
            assert fault.error in (errno.ENOSPC, errno.EDQUOT), f"{fault} went unnoticed"
    check_end(scene.inner.crash_clone(0, survive=0), [state])
    check_end(scene.inner.kill_clone(), [state])


def carry_out(scene: Scene, name: str) -> bool:
    """Do a step; False if the process would have to stop. A step that was refused is done again."""
    for _ in range(2):
        try:
            STEPS[name](scene)
        except FAILURES as error:
            check_named(error)
            if scene.engine.failed or "start" in name:
                stopped_for_good(scene)
                return False
            if not may_fail_alone(name):
                raise AssertionError(f"{name} failed, but not the engine") from error
        else:
            return True
    raise AssertionError(f"{name} failed twice, the engine did not: {scene.plan.faults}")


def may_fail_alone(name: str) -> bool:
    """Whether a step reads before it decides: its failure changes nothing, and it can be tried again."""
    return "read" in name or "commit" in name


def stopped_for_good(scene: Scene) -> None:
    if scene.engine.failed:
        for attempt in (lambda: scene.send(1, b"after the failure"), scene.engine.sync):
            with pytest.raises(JournalPoisoned):
                attempt()


def sweep(kind: Operation, error: int, short: int | None, every: int, first: int) -> None:
    for nth in range(1 + first, clean().calls[kind] + 1, every):
        run(Fault(kind, nth, "*", error, short))


ERRORS: dict[Operation, tuple[tuple[int, int | None], ...]] = {
    Operation.WRITE: (
        (errno.EIO, None),
        (errno.EIO, 4096),
        (errno.ENOSPC, None),
        (errno.ENOSPC, 100),
        (errno.EDQUOT, None),
    ),
    Operation.FORCE: ((errno.EIO, None), (errno.ENOSPC, None)),
    Operation.CREATE: ((errno.ENOSPC, None), (errno.EIO, None)),
    Operation.TRUNCATE: ((errno.EIO, None), (errno.ENOSPC, None)),
    Operation.RENAME: ((errno.EIO, None), (errno.ENOSPC, None)),
    Operation.UNLINK: ((errno.EIO, None),),
    Operation.MAKE_DIRECTORY: ((errno.ENOSPC, None), (errno.EIO, None)),
    Operation.REMOVE_DIRECTORY: ((errno.EIO, None),),
    Operation.FORCE_DIRECTORY: ((errno.EIO, None),),
    Operation.LIST_DIRECTORY: ((errno.EIO, None),),
    Operation.OPEN: ((errno.EIO, None), (errno.EMFILE, None)),
    Operation.READ: ((errno.EIO, None),),
    Operation.LOCK: ((errno.EIO, None),),
    Operation.FREE_BYTES: ((errno.EIO, None),),
}
WAYS = [(kind, error, short) for kind, errors in ERRORS.items() for error, short in errors]


def named(way: tuple[Operation, int, int | None]) -> str:
    kind, error, short = way
    return f"{kind.value}-{errno.errorcode[error]}" + (f"-after-{short}" if short else "")


def test_the_work_makes_calls_of_every_kind():
    assert set(clean().calls) - {Operation.READ_NOW} == set(ERRORS)
    assert sum(clean().calls.values()) > 500


def test_every_step_can_be_told_by_the_state_or_changes_nothing():
    states = clean().states
    changes = sum(one != other for one, other in pairwise(states))
    assert changes > 20


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_a_call_here_and_there_fails(way):
    sweep(*way, every=13, first=5)


@pytest.mark.slow
@pytest.mark.sampled(test=4)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_whatever_single_call_fails_all_that_was_acknowledged_is_there(way, part):
    sweep(*way, every=4, first=part)


@pytest.mark.slow
@pytest.mark.sampled(test=2)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", [Operation.WRITE, Operation.FORCE])
def test_two_calls_in_a_row_fail(kind, part):
    """A force that fails, and whatever the handling of it writes or forces then."""
    for nth in range(1 + part, clean().calls[kind] + 1, 4):
        run(Fault(kind, nth, times=2))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 513, 4097])
def test_writes_that_are_short_each_time_are_gone_on_with(length):
    faults = [Fault(Operation.WRITE, nth, error=None, short=length) for nth in range(1, 4000, 2)]
    run(*faults)
    assert faults[0].seen > clean().calls[Operation.WRITE]


WRITING = [
    Operation.WRITE,
    Operation.CREATE,
    Operation.TRUNCATE,
    Operation.RENAME,
    Operation.UNLINK,
    Operation.MAKE_DIRECTORY,
    Operation.REMOVE_DIRECTORY,
]


@pytest.mark.slow
@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("part", range(4))
def test_from_any_moment_on_the_file_system_is_read_only(part):
    """As after `mount -o remount,ro`, which the kernel does by itself when the disk fails."""
    for nth in range(1 + part, clean().calls[Operation.WRITE] + 1, 4):
        faults = [Fault(kind, 1 << 40, error=errno.EROFS, times=1 << 40) for kind in WRITING]
        faults[0].nth = nth
        plan_together(faults)
        run(*faults)


@pytest.mark.slow
@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("part", range(4))
def test_from_any_moment_on_the_disk_is_full(part):
    for nth in range(1 + part, clean().calls[Operation.WRITE] + 1, 4):
        faults = [
            Fault(kind, 1 << 40, error=errno.ENOSPC, times=1 << 40)
            for kind in (Operation.WRITE, Operation.CREATE, Operation.MAKE_DIRECTORY)
        ]
        faults[0].nth = nth
        plan_together(faults)
        run(*faults)


def plan_together(faults: list[Fault]) -> None:
    """Once the first has struck, the others strike too."""
    first = faults[0]

    class Together(Fault):
        def strikes(self, kind: Operation, path: str) -> bool:
            self.nth = 1 if first.seen >= first.nth else 1 << 40
            self.seen = 0
            return super().strikes(kind, path)

    faults[1:] = [
        Together(fault.kind, error=fault.error, times=1 << 40, path=fault.path) for fault in faults[1:]
    ]
