"""The decision about a write, and ending its branches as decided. ``docs/spark.md`` numbers the steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final, NamedTuple

from spark.sink import branches
from spark.sink.branches import Branch, Listed, Write, branch_of
from spark.sink.register import RETENTION, TOPIC, Decision, Extent, Register, RegisterState
from txbroker import errors
from txbroker.client.blocking import Connection

log = logging.getLogger("txbroker.spark")

PATIENCE: Final = 5.0
"""Seconds to wait for attempts that Spark has given up: Spark kills them, and the broker rolls them back."""

_OTHER_ROWS = (
    "Nothing was written this time. A batch: write other rows under a higher txnVersion, or another txnAppId. A "
    "stream: begin with a new checkpoint, at the offsets after what is written"
)
_UNREACHABLE = (errors.StorageUnavailable, errors.OutcomeUnknown, errors.ConnectionClosed)


class WriteRefused(errors.RequestRefused):
    """A write was not decided, and none of its rows become visible: the message says why. It can be begun anew."""


class TaskReport(NamedTuple):
    """A task's report of its branches. ``skipped``: it found that the version was decided already.

    ``extent`` is then what it would have written, if the last version is repeated.
    """

    broker: str
    write: Write
    epoch: int
    branches: tuple[str, ...]
    extent: Extent
    skipped: bool = False


class Swept(NamedTuple):
    """The result of settling. ``active``: attempts that are not prepared, and are rolled back when they end."""

    committed: list[Branch]
    rolled_back: list[Branch]
    active: list[Branch]


def commit(
    broker: Connection,
    write: Write,
    reports: Sequence[TaskReport],
    patience: float = PATIENCE,
    in_order: bool = False,
) -> Decision | None:
    """Decide to commit the branches that the tasks have prepared, and commit them (C1 to C6); None if the version was
    decided before.

    A repetition of the last decided version must have as many rows as before, to the same topics: its tasks have
    counted them, also the tasks that found it decided. ``in_order``, of a stream: it is refused also if the decision is
    no longer kept. Raises WriteRefused if nothing was decided, a later version was before this one, or a repetition has
    other rows; OutcomeUnknown if it is not known whether it is decided; DeliveryPending if it is decided and not all
    branches could be told; HeuristicMixed if some of them had been rolled back by hand.
    """
    register = Register(broker, write.name)
    generation = register.claim(broker.core.options.client)
    state = register.read()
    extent = reduce(Extent.plus, (each.extent for each in reports), Extent())
    if state.decided > write.version:
        _sweep(broker, register, state, patience)
        if not all(each.skipped for each in reports):
            raise overtaken(write, state.decided)
        return None
    if state.decided == write.version:
        _check_repetition(write, _finish(broker, register, state, patience), extent, in_order)
        return None
    listed = branches.undecided(broker, write.name)
    _check_epochs(register, state, listed)
    winners = _winners(broker, write, reports, state, listed)
    if any(branch.write.version <= state.decided for branch in listed.prepared):
        _finish(broker, register, state, patience=0.0)  # its driver died in the middle of it
    try:
        decision = register.decide(write.version, winners, extent, generation)
    except errors.GenerationFenced as error:
        raise WriteRefused(
            f"{write} was not decided: meanwhile somebody else has claimed the register of {write.name!r}, another "
            f"driver of the same query or 'python -m spark.resolve' ({error}). Nothing of this attempt will be seen; "
            "run it again"
        ) from error
    except errors.OutcomeUnknown as error:
        raise errors.OutcomeUnknown(
            f"whether {write} is decided is not known: {error}. Its {len(winners)} branches are prepared. "
            "Repeating the same version finds it out and writes nothing twice; so does 'python -m spark.resolve'"
        ) from error
    _carry_out(broker, register, RegisterState(write.version, generation), decision, patience)
    return decision


def _check_repetition(write: Write, decision: Decision | None, extent: Extent, in_order: bool) -> None:
    """Raise WriteRefused unless the version is repeated with the decided rows; None: the decision is no longer kept."""
    if decision is not None:
        _check_same(decision, extent)
    elif in_order:
        raise _incomparable(write)


def overtaken(write: Write, decided: int) -> WriteRefused:
    """Return the error of an undecided write that was begun before a later version was decided."""
    return WriteRefused(
        f"{write} was overtaken: version {decided} was decided while it was at work, so it never will be. None of its "
        "rows will be seen. Where they are not in the later version, write them under a version that is higher still"
    )


def _check_epochs(register: Register, state: RegisterState, listed: Listed) -> None:
    """Raise RegisterDamaged if branches are of a later epoch than there has been: the register is not theirs."""
    newest = max(listed.prepared, key=lambda branch: branch.epoch, default=None)
    if newest is None or newest.epoch <= state.epoch or newest.epoch <= register.read().epoch:
        return  # the next epoch may have begun since the register was read
    raise branches.RegisterDamaged(
        f"{newest.xid} was begun in epoch {newest.epoch} of {register.name!r}, and its register is only at "
        f"{state.epoch}: the topic {TOPIC!r} or the group {register.group!r} has been deleted, or put back from a "
        "copy, so what was decided is not known. Nothing was ended. What is undecided stays so; with what else is "
        "known of the write end it by hand: 'txbroker transactions list --in-doubt'"
    )


def _winners(
    broker: Connection, write: Write, reports: Sequence[TaskReport], state: RegisterState, listed: Listed
) -> list[Branch]:
    """Return the branches to decide about; raises WriteRefused if some are missing, or of another epoch or broker."""
    for each in reports:
        if each.broker != broker.identity:
            raise WriteRefused(
                f"{write}: a task has written to another broker ({each.broker}) than the driver's "
                f"({broker.identity}) under the address {broker.address.place}. Nothing was decided; the "
                "option 'broker' must mean the same everywhere"
            )
        if each.write != write or each.epoch != state.epoch or each.skipped:
            raise WriteRefused(
                f"{write}: a task has begun {each.write} in epoch {each.epoch}, and now it is "
                f"{state.epoch}: another driver of the same query, or 'python -m spark.resolve', has ended that "
                "one. Nothing of this attempt will be seen; run it again"
            )
    winners = [branch_of(write, key) for each in reports for key in each.branches]
    missing = [branch for branch in winners if branch not in listed.prepared]
    if missing:
        raise WriteRefused(
            f"{write}: {len(missing)} of {len(winners)} prepared branches are there no more, the first being "
            f"{missing[0].xid}: a person or the orphan policy has ended them ('txbroker transactions list --forced'). "
            "Nothing was decided; run it again"
        )
    return winners


def settle(broker: Connection, name: str, patience: float = PATIENCE) -> Swept:
    """End all branches of a name, in all versions: as decided, or, if nothing is decided, by rolling back.

    A driver that works on one of them fails.
    """
    register = Register(broker, name)
    generation = register.claim(broker.core.options.client)
    state = register.read()
    _check_epochs(register, state, branches.undecided(broker, name))
    try:
        state = register.end_epoch(state, generation)
    except errors.GenerationFenced as error:
        raise WriteRefused(
            f"somebody else has claimed the register of {name!r} meanwhile ({error}); nothing was ended. Try again"
        ) from error
    return _sweep(broker, register, state, patience)


def give_up(
    broker: Connection, write: Write, reports: Iterable[TaskReport], patience: float = PATIENCE
) -> Swept:
    """Abort an attempt. If its version is decided after all (commit could not know it), finish that instead."""
    register = Register(broker, write.name)
    state = register.read()
    if all(each.epoch == state.epoch for each in reports) and state.decided < write.version:
        return settle(broker, write.name, patience)
    return _sweep(broker, register, state, patience)


def _check_same(decision: Decision, extent: Extent) -> None:
    """Raise WriteRefused if a decided version is repeated with other rows, as far as counts and topics show it.

    Those rows would be lost.
    """
    if extent.rows != decision.rows:
        raise WriteRefused(
            f"{decision.write} is written already, with {decision.rows} rows, and this time it has {extent.rows}: the "
            "source gives other rows than before, or a stream's checkpoint is older than what was written, restored "
            f"from a copy perhaps. {_OTHER_ROWS}"
        )
    if decision.topics is not None and extent.topics != set(decision.topics):
        raise WriteRefused(
            f"{decision.write} is written already, to the topics {', '.join(decision.topics)}, and this time its rows "
            f"name {', '.join(sorted(extent.topics))}: it is another write. {_OTHER_ROWS}"
        )


def _incomparable(write: Write) -> WriteRefused:
    return WriteRefused(
        f"{write} is written already, and its decision is kept no more ({TOPIC!r} keeps one for "
        f"{RETENTION.days} days), so it is unknown whether these are the same rows. {_OTHER_ROWS}"
    )


def _finish(broker: Connection, register: Register, state: RegisterState, patience: float) -> Decision | None:
    """Finish the last decision once more, whatever of it has been done; None if it is no longer kept."""
    try:
        decision = register.last_decision(state)
    except branches.RegisterDamaged as error:
        listed = branches.undecided(broker, register.name)
        if any(branch.write.version == state.decided for branch in listed.prepared):
            raise
        log.warning("nothing of %s/%d is undecided: %s", register.name, state.decided, error)
        _roll_back_dead(broker, register.name, state, set(), patience)
        return None
    log.info("%s was decided before: %d branches are committed now", decision.write, len(decision.branches))
    _carry_out(broker, register, state, decision, patience)
    return decision


def _carry_out(
    broker: Connection, register: Register, state: RegisterState, decision: Decision, patience: float
) -> None:
    """Run C5 and C6."""
    winners = decision.listed()
    try:
        refused = branches.end(broker, winners, commit=True)
        _roll_back_dead(broker, register.name, state, set(winners), patience)
    except _UNREACHABLE as error:
        raise errors.DeliveryPending(
            f"{decision.write} is decided: its {len(winners)} branches, {decision.rows} rows, will be seen, but the "
            f"broker could not be told of all now: {error}. Do not write these rows again. The next run of the same "
            "version finishes it, or 'python -m spark.resolve'"
        ) from error
    if refused:
        raise _mixed(decision, refused)


def _mixed(decision: Decision, refused: dict[Branch, errors.TxBrokerError]) -> errors.HeuristicMixed:
    first, error = next(iter(refused.items()))
    return errors.HeuristicMixed(
        f"DAMAGE: {decision.write} was decided, and {len(refused)} of its {len(decision.branches)} branches cannot be "
        f"committed; the others are. The first is {first.xid}: {error}. Their rows are missing until they are written "
        "again by hand: 'txbroker transactions show' says what is known of each. When that is done, 'txbroker "
        "transactions forget' them; until then each repetition of this version stops here",
        [str(branch.xid) for branch in refused],
    )


def _sweep(broker: Connection, register: Register, state: RegisterState, patience: float) -> Swept:
    """End branches that nothing can be decided about any more, and decided ones. Any process may do that at any
    time.
    """
    listed = branches.undecided(broker, register.name)
    _check_epochs(register, state, listed)
    winners: set[Branch] = set()
    committed = list[Branch]()
    if any(branch.write.version == state.decided for branch in listed.prepared):
        decision = register.last_decision(state)
        winners = set(decision.listed())
        committed = [branch for branch in decision.listed() if branch in listed.prepared]
        refused = branches.end(broker, committed, commit=True)
        if refused:
            raise _mixed(decision, refused)
    rolled_back, active = _roll_back_dead(broker, register.name, state, winners, patience)
    return Swept(committed, rolled_back, active)


def _roll_back_dead(
    broker: Connection, name: str, state: RegisterState, winners: set[Branch], patience: float
) -> tuple[list[Branch], list[Branch]]:
    """Roll back branches that no decision lists or ever will; wait a while for attempts that are being killed."""
    until = time.monotonic() + patience
    rolled_back = list[Branch]()
    pause = 0.02
    while True:
        listed = branches.undecided(broker, name)
        dead = [branch for branch in listed.prepared if is_dead(branch, state, winners)]
        refused = branches.end(broker, dead, commit=False)
        for branch, error in refused.items():
            log.warning("%s of a lost attempt cannot be rolled back: %s", branch.xid, error)
        rolled_back += [branch for branch in dead if branch not in refused]
        active = [branch for branch in listed.active if is_dead(branch, state, winners)]
        if not active or time.monotonic() + pause >= until:
            break
        time.sleep(pause)
        pause = min(0.5, pause * 2)
    if active:
        log.warning(
            "%d attempts of %s are still sending; they end by themselves, or 'python -m spark.resolve' shows them",
            len(active), name,
        )  # fmt: skip
    return rolled_back, active


def is_dead(branch: Branch, state: RegisterState, winners: set[Branch]) -> bool:
    """Return whether no decision lists a branch, or ever will. ``winners`` are those of the last decision."""
    if branch in winners:
        return False
    return branch.write.version <= state.decided or branch.epoch < state.epoch
