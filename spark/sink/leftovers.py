"""Undecided branches of Spark's writes at a broker, by the writes' names, and registers that are no longer used."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from journal.formats.spark_decision import GROUPS
from spark.sink import branches
from spark.sink.branches import Branch, Listed
from spark.sink.register import Register, RegisterState
from txbroker import errors
from txbroker.client.blocking import Connection

NAMELESS: Final = "batch-"
"""The beginning of the names of batch writes without a name; the time of their beginning follows."""

_NAMELESS = re.compile(rf"{NAMELESS}([0-9a-f]{{11}})[0-9a-f]{{8}}")


class Left(NamedTuple):
    """The undecided branches of one name. ``age``: seconds since its youngest was prepared, None while one still sends.

    ``to_commit`` and ``to_roll_back`` are what ending it would do; ``problem`` is the reason why it cannot be ended.
    """

    name: str
    to_commit: int
    to_roll_back: int
    sending: int
    messages: int
    age: float | None
    problem: str = ""

    def is_of(self, given: str) -> bool:
        """Return whether it is the write of that name, or of that application, to any topic."""
        return is_of(self.name, given)


def is_of(name: str, given: str) -> bool:
    """Return whether that is the name of a write, or its application's."""
    return given in (name, branches.application_of(name))


def nameless(now: float, random: str) -> str:
    """Return the name of a batch write that has none: begun ``now`` (seconds since 1970), and random."""
    return f"{NAMELESS}{round(now * 1000):011x}{random}"


def begun_at(name: str) -> float | None:
    """Return when a nameless write was begun, in seconds since 1970; None for a name that a program has given."""
    found = _NAMELESS.fullmatch(name)
    return int(found[1], 16) / 1000 if found else None


def look(broker: Connection) -> list[Left]:
    """Return the undecided branches of all names, sorted; changes nothing."""
    listed = branches.undecided(broker)
    names = sorted({branch.write.name for each in listed for branch in each})
    return [_look(broker, name, listed) for name in names]


def _look(broker: Connection, name: str, listed: Listed) -> Left:
    prepared = [branch for branch in listed.prepared if branch.write.name == name]
    active = [branch for branch in listed.active if branch.write.name == name]
    infos = [listed.prepared[branch] for branch in prepared]
    ages = [(info.prepared_age or 0) / 1e6 for info in infos]
    problem, winners = "", set[Branch]()
    try:
        register = Register(broker, name)
        state = register.read()
        if any(branch.write.version == state.decided for branch in prepared):
            winners = set(register.last_decision(state).listed())
    except branches.RegisterDamaged as error:
        problem = str(error)
    commit = sum(branch in winners for branch in prepared)
    age = None if active or not ages else min(ages)
    messages = sum(info.messages for info in infos)
    return Left(name, commit, len(prepared) - commit, len(active), messages, age, problem)


class Used(NamedTuple):
    """A register: the last decided version (-1: none), the epoch, and when it was used last.

    ``at``: seconds since 1970, 0 if it has no time. ``problem`` is the reason why it cannot be read.
    """

    name: str
    version: int
    epoch: int
    at: int
    problem: str = ""


def registers(broker: Connection) -> list[Used]:
    """Return all registers, by name."""
    return [_used(broker, name) for name in sorted(_names(broker))]


def _used(broker: Connection, name: str) -> Used:
    try:
        return _told(name, Register(broker, name).read())
    except branches.RegisterDamaged as error:
        return Used(name, 0, 0, 0, str(error))


def _told(name: str, state: RegisterState) -> Used:
    return Used(name, state.decided, state.epoch, state.at)


def left_registers(broker: Connection, names: set[str], before: float) -> list[str]:
    """Return names without branches, begun before that time, whose registers will not be used again."""
    groups = [name for name in _names(broker) if name not in names]
    return [name for name in groups if (begun_at(name) or before) < before]


def _names(broker: Connection) -> list[str]:
    return [info.name.removeprefix(GROUPS) for info in broker.groups() if info.name.startswith(GROUPS)]


def expire(broker: Connection, used: Used) -> bool:
    """Delete a register if it has not been used since, and no branch of its name is undecided; return whether that was
    so.

    The epoch is ended first, so nothing that was begun before can be decided and its decision lost with the register.
    """
    register = Register(broker, used.name)
    generation = register.claim(broker.core.options.client)
    state = register.read()
    if _told(used.name, state) != used:
        return False
    try:
        register.end_epoch(state, generation)
    except errors.GenerationFenced:
        return False
    if any(branches.undecided(broker, used.name)):
        return False
    register.delete()
    return True
