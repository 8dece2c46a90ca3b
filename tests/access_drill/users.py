"""The users: each a thread that does one thing after another, drawn at random, and notes what it was told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import txbroker
from journal.errors import AuthenticationFailed, OutcomeUnknown, StorageUnavailable, TxBrokerError
from journal.xid import Xid
from tests.access_drill.acts import Act, Block, Result
from tests.access_drill.rules_model import Need, Shown
from tests.access_drill.scene import GROUPS, PATIENCE, ROLES, STRANGER, TOPICS, WAYS, Scene, token_of
from txbroker.client.blocking.transaction import Transaction
from txbroker.errors import AccessDenied, ConnectionClosed

PAUSE = 0.02
"""Seconds after an act, at most: load, but not so much that nobody else gets a turn."""
OUTSIDE = 0.2
"""Seconds after a login that was refused."""


class Waiting:
    """A block of this user that is prepared, and when it ends it."""

    def __init__(
        self, block: Block, transaction: Transaction, connection: txbroker.Connection, due: float
    ) -> None:
        self.block, self.transaction, self.connection, self.due = block, transaction, connection, due


class User(threading.Thread):
    """One user at work until the drill is over. ``failure`` is what no user should meet."""

    def __init__(self, who: str, scene: Scene, seed: int) -> None:
        super().__init__(name=who, daemon=True)
        self.who, self._scene = who, scene
        self._random = Random(f"{seed}/{who}")
        self._connection: txbroker.Connection | None = None
        self._act = Act(who=who, what="log in")
        self._counted = 0
        self._waiting: list[Waiting] = []
        self._color = "red" if ROLES[who] == "reds" else "blue"
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work until the drill is over."""
        try:
            while not self._scene.over.is_set():
                with self._scene.gate.passed():
                    self._do_something()
                pause = OUTSIDE if self._connection is None else self._random.random() * PAUSE
                self._scene.over.wait(pause)
        except Exception as error:  # noqa: BLE001 (it is told in the verdict)
            self.failure = error
        finally:
            self.leave()

    def _do_something(self) -> None:
        if self._connection is None:
            if self._random.random() < 0.05:
                self._log_in_wrongly()
            else:
                self._log_in()
            return
        due = [each for each in self._waiting if each.due < self._scene.clock()]
        if due:
            self._end_own(due[0])
            return
        names = list(DEEDS)
        name = self._random.choices(names, [DEEDS[each][0] for each in names])[0]
        DEEDS[name][1](self)

    # -- how an act is noted ------------------------------------------------------------------------

    def _try(self, act: Act, work: Callable[[], object]) -> Act:
        """Do it, note how it ended, and give up a connection on which nothing is answered."""
        act.began, self._act = self._scene.clock(), act
        try:
            work()
        except AccessDenied as error:
            act.result, act.right, act.kind = Result.DENIED, error.right, error.resource.split(" ")[0]
        except AuthenticationFailed as error:
            act.result, act.error = Result.OUT, str(error)
        except (OutcomeUnknown, StorageUnavailable, ConnectionClosed) as error:
            act.result, act.error = Result.UNKNOWN, f"{type(error).__name__}: {error}"
            self.leave()
        except TxBrokerError as error:
            act.result, act.error = Result.REFUSED, f"{type(error).__name__}: {error}"
        else:
            act.result = Result.DONE
        act.ended = self._scene.clock()
        self._scene.notes.acts.append(act)
        return act

    def leave(self) -> None:
        """Give up the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(TxBrokerError):
                connection.close(0.2)

    def _text(self) -> str:
        self._counted += 1
        return f"{self.who}/{self._counted}"

    def _topic(self) -> str:
        return self._random.choice(TOPICS)

    @property
    def _broker(self) -> txbroker.Connection:
        assert self._connection is not None
        return self._connection

    # -- coming in ----------------------------------------------------------------------------------

    def _log_in(self) -> None:
        act = Act(who=self.who, what="log in", shown=[])
        found: list[txbroker.Connection] = []
        self._try(act, lambda: found.append(self._scene.connect(self.who, act.shown)))
        self._connection = found[0] if found else None

    def _log_in_wrongly(self) -> None:
        """With a wrong password, as nobody, with a certificate that nobody has, or with a token that is not good."""
        scene, random = self._scene, self._random
        # A wrong login makes the next ones of the same user wait, so there are few of those.
        who = self.who if random.random() < 0.2 else f"eve-{random.randrange(40)}"
        act = Act(who=who, what="log in wrongly")
        signer = scene.signer
        choices: dict[str, Any] = {"token": token_of(signer, who, 60)}
        match random.choice(("password", "certificate", "ended", "forged", "nobody's")):
            case "password":
                act.shown, choices = [Shown(("password", "wrong"))], {"user": who, "password": "wrong"}
            case "certificate":
                act.shown, choices = [Shown(("certificate", "DNS:eve.example"))], {}
            case "ended":
                act.shown, choices = [Shown(("token", who), "ended")], {"token": token_of(signer, who, -5)}
            case "forged":
                forged = token_of((signer[0], scene.forger), who, 60)
                act.shown, choices = [Shown(("token", who), "forged")], {"token": forged}
            case _:
                act.shown, choices = [Shown(("token", "eve"))], {"token": token_of(signer, "eve", 60)}
        address = scene.address("eve" if choices else STRANGER)
        self._try(act, lambda: txbroker.connect(address, timeout=PATIENCE, **choices).close(0.2))

    # -- messages and topics ------------------------------------------------------------------------

    def _send(self) -> None:
        topic, text = self._topic(), self._text()
        needs = [Need("write", "topic", topic), _seen(topic)]
        act = Act(who=self.who, what="send", needs=needs, messages=[text])
        self._try(act, lambda: self._broker.send(topic, text.encode()))

    def _read(self) -> None:
        topic = self._topic()
        act = Act(who=self.who, what="read", needs=[Need("read", "topic", topic), _seen(topic)])
        self._try(act, lambda: self._broker.read(topic, 0, 0, 1000))

    def _create_topic(self) -> None:
        self._counted += 1
        name = f"{self._color}-made-{self.who}-{self._counted}"
        act = Act(who=self.who, what="create topic", needs=[Need("create", "topic", name)], made=name)
        if self._try(act, lambda: self._broker.create_topic(name)).result is not Result.DENIED:
            self._scene.made.append(name)

    def _delete_topic(self) -> None:
        if not self._scene.made:
            return
        name = self._random.choice(self._scene.made)
        needs = [Need("delete", "topic", name), _seen(name)]
        act = Act(who=self.who, what="delete topic", needs=needs, found=[name])
        self._try(act, lambda: self._broker.delete_topic(name))

    def _alter_topic(self) -> None:
        topic = self._topic()
        act = Act(who=self.who, what="alter topic", needs=[Need("alter", "topic", topic), _seen(topic)])
        self._try(
            act,
            lambda: self._broker.alter_topic(topic, max_message_bytes=self._random.randint(10_000, 90_000)),
        )

    def _list_topics(self) -> None:
        act = Act(who=self.who, what="list topics")

        def work() -> None:
            listed = self._broker.topics()
            act.found, act.has_others = [each.name for each in listed], listed.is_filtered

        self._try(act, work)

    # -- groups, producers, the broker --------------------------------------------------------------

    def _move_group(self) -> None:
        group, topic = self._random.choice(GROUPS), self._topic()
        needs = [
            Need("read", "group", group),
            Need("describe", "group", group),
            Need("read", "topic", topic),
            Need("describe", "topic", topic),
            _seen(topic),
        ]
        act = Act(who=self.who, what="move group", needs=needs)
        self._try(act, lambda: self._broker.set_offsets(group, topic, {0: 0}))

    def _describe_group(self) -> None:
        group = self._random.choice(GROUPS)
        act = Act(who=self.who, what="look at group", needs=[Need("describe", "group", group)])
        self._try(act, lambda: self._broker.group_offsets(group))

    def _open_producer(self) -> None:
        name = f"{self._color}-producer-{self.who}"
        topic, text = self._topic(), self._text()
        needs = [Need("write", "producer", name), Need("write", "topic", topic), _seen(topic)]
        act = Act(who=self.who, what="open producer", needs=needs, messages=[text], shown=[])

        def work() -> None:
            connection = self._scene.connect(self.who, act.shown, producer=name)
            try:
                connection.send(topic, text.encode())
            finally:
                connection.close(0.2)

        self._try(act, work)

    def _status(self) -> None:
        act = Act(who=self.who, what="status", needs=[Need("describe", "broker")])
        self._try(act, lambda: self._broker.status())

    def _administer(self) -> None:
        act = Act(who=self.who, what="administer", needs=[Need("administer", "broker")])
        self._try(act, lambda: self._broker.rules())

    # -- transactions -------------------------------------------------------------------------------

    def _commit_at_once(self) -> None:
        one, other = self._random.sample(TOPICS, 2)
        texts = [self._text(), self._text()]
        needs = [Need("write", "topic", topic) for topic in (one, other)] + [_seen(one), _seen(other)]

        def work() -> None:
            with self._broker.transaction() as transaction:
                transaction.send(one, texts[0].encode())
                transaction.send(other, texts[1].encode())

        self._try(Act(who=self.who, what="commit at once", needs=needs, messages=texts), work)

    def _prepare(self) -> None:
        one, other = self._random.sample(TOPICS, 2)
        texts, commits = [self._text(), self._text()], self._random.random() < 0.8
        name = f"{self._color}-{self.who}-{self._counted}"
        needs = [
            Need("prepare", "transaction", name),
            Need("write", "topic", one),
            Need("write", "topic", other),
        ]
        act = Act(
            who=self.who, what="prepare", needs=[*needs, _seen(one), _seen(other)], messages=texts, xid=name
        )
        connection = self._broker
        transaction = connection.transaction(Xid(1, name.encode(), b""))

        def work() -> None:
            try:
                transaction.send(one, texts[0].encode())
                transaction.send(other, texts[1].encode())
                transaction.prepare()
            except OutcomeUnknown:
                raise
            except TxBrokerError:
                with suppress(TxBrokerError):
                    transaction.rollback()
                raise

        block = Block(xid=name, owner=self.who, commits=commits, prepare=act)
        self._scene.notes.blocks.append(block)
        if self._try(act, work).result in (Result.DONE, Result.UNKNOWN):
            due = self._scene.clock() + self._random.choice((0.0, 0.1, 0.5, 2.0))
            self._waiting.append(Waiting(block, transaction, connection, due))

    def _end_own(self, waiting: Waiting) -> None:
        """End an own block: over the connection that prepared it, or another one; it needs no right."""
        block, broker = waiting.block, self._broker
        act = Act(who=self.who, what="end own", xid=block.xid)
        block.decisions.append(act)

        def work() -> None:
            if broker is not waiting.connection or block.prepare.result is Result.UNKNOWN:
                broker.end_prepared(Xid(1, block.xid.encode(), b""), block.commits)
            elif block.commits:
                waiting.transaction.commit()
            else:
                waiting.transaction.rollback()

        if self._try(act, work).result is Result.UNKNOWN:
            waiting.due = self._scene.clock() + 0.2
        else:
            self._waiting.remove(waiting)

    def _end_anothers(self) -> None:
        others = [each for each in self._scene.notes.blocks[-60:] if each.owner != self.who]
        if not others:
            return
        block = self._random.choice(others)
        need = Need("decide", "transaction", block.xid, also=f"owner:{block.owner}")
        act = Act(who=self.who, what="end another's", needs=[need], xid=block.xid)
        block.decisions.append(act)
        self._try(act, lambda: self._broker.end_prepared(Xid(1, block.xid.encode(), b""), block.commits))

    def _list_prepared(self) -> None:
        prefix = self._random.choice(("red-", "blue-", ""))
        need = Need("describe", "transaction", prefix, is_prefix=True)
        act = Act(who=self.who, what="list prepared", needs=[need], xid=prefix)

        def work() -> None:
            listed = self._broker.transactions(global_prefix=prefix.encode())
            act.found = [each.xid.global_id.decode() for each in listed if each.xid is not None]

        self._try(act, work)


def _seen(topic: str) -> Need:
    """What a client asks for before it first uses a topic, and then remembers."""
    return Need("describe", "topic", topic, hard=False)


DEEDS: dict[str, tuple[int, Callable[[User], object]]] = {
    "send": (10, User._send),
    "read": (6, User._read),
    "create topic": (1, User._create_topic),
    "delete topic": (1, User._delete_topic),
    "alter topic": (1, User._alter_topic),
    "list topics": (2, User._list_topics),
    "move group": (2, User._move_group),
    "look at group": (2, User._describe_group),
    "open producer": (1, User._open_producer),
    "status": (1, User._status),
    "administer": (1, User._administer),
    "commit at once": (5, User._commit_at_once),
    "prepare": (5, User._prepare),
    "end another's": (3, User._end_anothers),
    "list prepared": (3, User._list_prepared),
    "leave": (1, User.leave),
}
"""What users do, each with its weight."""


def users(scene: Scene, seed: int) -> list[User]:
    """Return all users, not started yet."""
    return [User(who, scene, seed) for who in WAYS]
