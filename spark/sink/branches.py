"""Branches: the prepared transactions of a write, their names, and their ends.

``docs/spark.md`` has the protocol, and the argument why each row is written once.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from journal.formats.spark_decision import FORMAT_ID, named_by, xid_of
from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.core.core import Core
from txbroker.client.core.promise import start
from txbroker.client.operations.transaction_operations import end_prepared
from txbroker.wire.messages import TransactionInfo

MAX_NAME: Final = 43
"""The longest name, so that name, slash and a version of 20 digits fit into the 64 bytes of a global id."""

AT_ONCE: Final = 500
"""How many decisions are sent to the broker at a time."""

_DIGITS: Final = 6
_TO_TOPIC = re.compile(rf"(.+)\.[A-Za-z0-9_-]{{{_DIGITS}}}")
_NAME = re.compile(r"[A-Za-z0-9_.:-]+")
_UNDECIDED = (State.ACTIVE, State.ROLLBACK_ONLY, State.PREPARED)


class RegisterDamaged(errors.TxBrokerError):
    """The decision about a write cannot be read any more, and nothing is guessed. Nothing was changed."""


class Write(NamedTuple):
    """A write, which happens once: a stream's query and batch, or an application, for a topic, and its version."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"

    def check(self, most: int = MAX_NAME) -> Write:
        """Return it if it fits into an xid, its name of at most ``most`` characters; raises InvalidName."""
        if len(self.name) > most or not _NAME.fullmatch(self.name) or not 0 <= self.version < 1 << 63:
            raise errors.InvalidName(
                f"a write named {self.name[:80]!r} in version {self.version}: names are 1 to {most} characters of "
                "A-Z, a-z, 0-9, _, ., : and -, versions whole numbers from 0 on, for they stand in the xids of what is "
                "prepared; nothing was written"
            )
        return self


def of_application(application: str, topic: str, version: int) -> Write:
    """Return the write of ``txnAppId`` and ``txnVersion`` to a topic ("": the rows name theirs); raises InvalidName.

    As in Delta Lake they are for one target: with another topic they are another write. A topic's name may be longer
    than an xid has room for, so six characters of a digest of it follow the application's name.
    """
    write = Write(application, version).check(MAX_NAME - _DIGITS - 1)
    if not topic:
        return write
    digest = base64.urlsafe_b64encode(hashlib.sha256(topic.encode()).digest())
    return Write(f"{application}.{digest[:_DIGITS].decode()}", version)


def application_of(name: str) -> str | None:
    """Return the application of a write to one topic, by the write's name; None if it cannot be such a write."""
    found = _TO_TOPIC.fullmatch(name)
    return None if found is None else found[1]


class Branch(NamedTuple):
    """One prepared transaction: the ``number``-th of a Spark partition's task, begun in an epoch of the register.

    ``random`` distinguishes the branches of several attempts of one task: an xid names one attempt.
    """

    write: Write
    epoch: int
    partition: int
    number: int
    random: str

    @classmethod
    def new(cls, write: Write, epoch: int, partition: int, number: int) -> Branch:
        """Return a branch with a new name."""
        return cls(write, epoch, partition, number, secrets.token_hex(4))

    @property
    def key(self) -> str:
        """Return what distinguishes it from the other branches of its write: its branch qualifier."""
        return f"{self.epoch}.{self.partition}.{self.number}.{self.random}"

    @property
    def xid(self) -> Xid:
        """Return its name at the broker."""
        return xid_of(*self.write, self.key)

    @classmethod
    def of(cls, xid: Xid | None) -> Branch | None:
        """Return the branch with this xid, None if the xid is not a branch's."""
        found = named_by(xid)
        return None if found is None else cls(Write(found.name, found.version), *found[2:])


def branch_of(write: Write, key: str) -> Branch:
    """Return the branch of a write with this key, as a decision lists it; raises RegisterDamaged."""
    found = Branch.of(xid_of(*write, key))
    if found is None:
        raise RegisterDamaged(f"a decision about {write} lists {key!r}, which names no branch")
    return found


class Listed(NamedTuple):
    """Branches that are undecided now. ``active`` ones are not prepared: they end with their session."""

    prepared: dict[Branch, TransactionInfo]
    active: dict[Branch, TransactionInfo]


def undecided(broker: Connection, name: str = "") -> Listed:
    """Return all branches of the write with this name, in any version; of all writes if it is empty."""
    prefix = f"{name}/".encode() if name else b""
    listed = Listed({}, {})
    for info in broker.transactions(_UNDECIDED, format_id=FORMAT_ID, global_prefix=prefix):
        branch = Branch.of(info.xid)
        if branch is not None:
            (listed.prepared if info.state is State.PREPARED else listed.active)[branch] = info
    return listed


def end(
    broker: Connection, branches: Iterable[Branch], *, commit: bool
) -> dict[Branch, errors.TxBrokerError]:
    """Commit branches, or roll them back, in their order and without waiting in between; return the refusals.

    A branch that has ended in this way before is no refusal. Raises if the broker cannot be reached.
    """
    refused: dict[Branch, errors.TxBrokerError] = {}
    waiting = list(branches)
    while waiting:
        some, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        refused |= broker.run(_end(broker.core, some, commit))
    return refused


async def _end(core: Core, branches: Sequence[Branch], commit: bool) -> dict[Branch, errors.TxBrokerError]:
    promises = {branch: start(end_prepared(core, branch.xid, commit)) for branch in branches}
    refused: dict[Branch, errors.TxBrokerError] = {}
    for branch, promise in promises.items():
        try:
            # Unknown: it ended long ago. An outcome that somebody forced is kept, so it ended as decided.
            with suppress(errors.UnknownTransaction, errors.OutcomeForgotten):
                await promise
        except (errors.RequestRefused, errors.CorruptData) as error:
            refused[branch] = error
    return refused
