"""Test exceptions raised in blocks of the blocking client as by a signal's handler: one at each line."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import gc
import itertools
import math
import signal
import sqlite3
import time

import pytest

import txbroker
from tests.client import test_interrupts as client
from tests.databases.deaths.interrupts import AtLine
from tests.databases.orders import make_tables
from tests.databases.topic_content import values
from tests.support.interrupted import INTERRUPTED
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.databases import open_blocks, resolver_thread

pytestmark = INTERRUPTED

MOST = 8000


class Shop:
    """Orders with their messages, and what was told of each."""

    def __init__(self, path, broker, topic):
        self.path, self.broker, self.topic = path, broker, topic
        self.source = ""
        """A topic of which each block takes a message in."""
        self.taken: dict[int, int] = {}
        self.database = sqlite3.connect(path, timeout=5.0)
        self.numbers = itertools.count()
        self.known: dict[int, State] = {}
        self.tx = None

    def work(self, tx):
        number = next(self.numbers)
        self.known[number] = State.PREPARED
        self.database.execute("INSERT INTO orders VALUES (?)", (number,))
        tx.send(self.topic, b"%d" % number)
        if self.source:
            self.taken[number] = tx.receive(self.source, self.source, timeout=10.0).offset
        return number

    def told(self, number, tx):
        """A block is over: what it says of itself."""
        self.known[number] = tx.outcome

    def ready(self):
        """For the next block: the connection is open, and no position is held (who has SQLite's lock cannot wait)."""
        if self.source:
            eventually(lambda: not self.broker.transactions([State.PREPARED]))
        try:
            self.database.in_transaction  # noqa: B018 - raises if it is closed
            self.database.execute("SELECT 1")
        except sqlite3.ProgrammingError:
            self.database = sqlite3.connect(self.path, timeout=5.0)

    def rows(self):
        found = self.database.execute("SELECT number FROM orders ORDER BY number").fetchall()
        self.database.rollback()
        return [number for (number,) in found]

    def check(self):
        """Rows and messages are the same, as each block has said, and nothing is left anywhere."""
        self.ready()
        eventually(lambda: not self.broker.transactions([State.PREPARED]))
        rows = self.rows()
        assert sorted(int(value) for value in values(self.broker, self.topic)) == rows
        for number, outcome in self.known.items():
            if outcome is not State.PREPARED:
                assert (number in rows) == (outcome is State.COMMITTED), number
        assert not self.broker.transactions()
        serials = self.broker._serials
        assert set(serials._open) == set(serials._left)  # those of which the resolver has decided
        noted = [entry.progress for entry in open_blocks._in_block.values() if entry.progress is not None]
        # Other tests may have left some, whose databases nobody has checked since.
        assert not [progress for progress in noted if progress.side.connection is self.broker]


@pytest.fixture(autouse=True)
def reported():
    """What is left of interrupted calls is reported while this module's filters hold, not at the end of the run."""
    yield
    gc.collect()


@pytest.fixture
def broker(shared_broker):
    with txbroker.connect(shared_broker.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def shop(sqlite, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        make_tables(database)
    made = Shop(sqlite, broker, topic)
    yield made
    made.database.close()


def at_every_line(case, step=1, first=1, after=0):
    """Run a case with an exception at each line, or at each so-manieth, until it comes to none."""
    for line in range(first, MOST, step):
        trap = AtLine(line, line // step % 2, after)
        began = time.monotonic()
        case(trap)
        assert time.monotonic() - began < 10.0, f"it waited for what never came, interrupted at {trap.raised}"
        if not trap.raised:
            assert line > 20
            return
    raise AssertionError("it never comes to an end")


def in_one_with(shop, at):
    """The same ``with`` again, whose variable has the interrupted block yet."""
    number = None
    for again in (False, True):
        trap = contextlib.nullcontext() if again else at
        if again:
            shop.ready()
        with trap, txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
            number = shop.work(tx)
        if number is not None:
            shop.told(number, tx)
        number = None
    assert tx.outcome is State.COMMITTED, at.raised


def in_functions(shop, at):
    """A function for each: nobody has the interrupted block."""

    def block():
        with txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
            shop.work(tx)
        return tx

    with at:
        block()
    shop.ready()
    assert block().outcome is State.COMMITTED, at.raised


def rolled_back_by_hand(shop, at):
    """The interrupted block is held; whoever has caught the interrupt rolls the connection back."""
    with at, txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
        shop.work(tx)
    shop.ready()
    shop.database.rollback()
    with txbroker.atomic(shop.database, shop.broker, mode="two-phase") as another:
        shop.work(another)
    assert another.outcome is State.COMMITTED, (at.raised, tx)


@pytest.mark.parametrize("way", [in_one_with, in_functions, rolled_back_by_hand])
def test_after_an_interrupted_block_rows_and_messages_agree_and_the_next_one_goes_on(shop, way):
    at_every_line(lambda at: way(shop, at))
    shop.check()


WAYS = [in_one_with, in_functions, rolled_back_by_hand]


@pytest.mark.sampled(test=2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("second", "step"),
    [pytest.param(range(1, 60), 7, marks=pytest.mark.deep), ((1, 2, 3, 5, 8, 13, 21, 34), 41)],
)
def test_a_second_interrupt_does_not_keep_the_first_from_being_healed(shop, way, second, step):
    """The second one comes 1, 2, ... lines after the first, amid the clean-up."""
    for after in second:
        at_every_line(lambda at: way(shop, at), step, 1 + after % step, after)
    shop.check()


def test_what_an_interrupted_block_has_received_comes_again_and_nothing_else_does(
    shop, broker, topic, monkeypatch
):
    monkeypatch.setattr(resolver_thread, "GRACE", 0.02)  # until then a held position is not looked at
    shop.source = f"{topic}-source"
    broker.create_topic(shop.source)
    with broker.transaction() as tx:
        tx.send_many(shop.source, [b""] * 4000, partitions=[0] * 4000)
    for way in WAYS[:2]:
        at_every_line(lambda at: way(shop, at), step=5)  # noqa: B023 - it is called at once
    shop.check()
    offsets = [shop.taken[number] for number in shop.rows()]
    assert offsets == list(range(len(offsets)))


def test_an_interrupted_block_of_a_connection_that_nobody_has_any_more_keeps_no_lock(shop):
    """It is let go of before the next block of this thread begins, though its frame and variable hold each other."""

    def block():
        database = sqlite3.connect(shop.path, timeout=1.0)
        with txbroker.atomic(database, shop.broker, mode="two-phase") as tx:
            number = next(shop.numbers)
            database.execute("INSERT INTO orders VALUES (?)", (number,))
            tx.send(shop.topic, b"%d" % number)
        return tx

    def case(at):
        with at:
            block()
        assert block().outcome is State.COMMITTED, at.raised

    gc.disable()
    try:
        at_every_line(case, step=7)
    finally:
        gc.enable()
    shop.check()


def test_a_block_whose_end_never_began_keeps_no_lock_though_only_its_own_frame_has_it(shop):
    """As one that an interrupt took away at the entry of ``__exit__``."""

    def lost():
        database = sqlite3.connect(shop.path, timeout=1.0)
        tx = txbroker.atomic(database, shop.broker, mode="two-phase").__enter__()
        database.execute("INSERT INTO orders VALUES (1000)")
        tx.send(shop.topic, b"never")

    gc.disable()
    try:
        lost()
        with txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
            shop.work(tx)
        assert tx.outcome is State.COMMITTED
    finally:
        gc.enable()
    shop.check()


SLOWLY = (
    "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$; "
    "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION slowly()"
)


class Soft(Exception):
    """What the soft time limit of a task queue raises: psycopg does not clean up behind it, as it does for Ctrl-C."""


@pytest.fixture
def alarm():
    """Raises Soft in so many seconds."""

    def interrupt(number, frame):
        raise Soft

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_statement_of_postgresql_that_is_interrupted_takes_both_back(
    postgresql, rows, broker, topic, alarm
):
    """Its connection is busy with the statement, and takes no ROLLBACK: it is closed."""
    with contextlib.closing(postgresql.connect()) as database:
        with pytest.raises(Soft), txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            alarm(0.1)
            database.execute("SELECT pg_sleep(60)")
        assert tx.outcome is State.ROLLED_BACK
        assert database.closed
    assert rows.execute("SELECT * FROM orders").fetchall() == []
    assert values(broker, topic) == []


def test_a_commit_of_postgresql_that_is_interrupted_is_decided_there_and_its_connection_closed(
    postgresql, rows, broker, topic, alarm
):
    rows.execute(SLOWLY)
    rows.commit()
    with contextlib.closing(postgresql.connect()) as database:
        with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            alarm(0.3)
        assert tx.outcome is State.PREPARED
        assert database.closed
    assert broker.wait_outcome(tx.xid, 20.0) is State.COMMITTED
    assert rows.execute("SELECT * FROM orders").fetchall() == [(1,)]
    assert values(broker, topic) == [b"1"]


def test_a_left_block_of_postgresql_is_rolled_back_by_the_next_one_and_what_was_begun_since_is_not(
    postgresql, rows, broker, topic
):
    """A block that nobody holds is what an interrupt at the entry of ``__exit__`` leaves."""
    with contextlib.closing(postgresql.connect()) as database:
        for number, rolls_back in ((1, False), (2, True)):
            left = txbroker.atomic(database, broker, mode="two-phase").__enter__()
            database.execute("INSERT INTO orders VALUES (%s)", (number,))
            left.send(topic, b"never")
            if rolls_back:
                database.rollback()
                database.execute("INSERT INTO orders VALUES (%s)", (number + 10,))
            del left
            with txbroker.atomic(database, broker, mode="two-phase") as tx:
                database.execute("INSERT INTO orders VALUES (%s)", (number + 20,))
                tx.send(topic, b"%d" % number)
    assert rows.execute("SELECT number FROM orders ORDER BY number").fetchall() == [(12,), (21,), (22,)]
    assert values(broker, topic) == [b"1", b"2"]
    assert not broker.transactions()


def test_a_block_inside_of_another_is_refused_though_it_was_entered_by_a_function(shop):
    with contextlib.ExitStack() as stack:
        tx = stack.enter_context(txbroker.atomic(shop.database, shop.broker, mode="two-phase"))
        shop.work(tx)
        with pytest.raises(errors.Misuse, match="in a block already"):
            stack.enter_context(txbroker.atomic(shop.database, shop.broker, mode="two-phase"))
    assert tx.outcome is State.COMMITTED
    shop.check()


def test_a_block_that_has_lost_its_transaction_to_an_inner_one_says_so(shop):
    with (
        pytest.raises(errors.Misuse, match="ended inside of it"),
        txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx,
    ):
        shop.work(tx)
        shop.database.rollback()
        with txbroker.atomic(shop.database, shop.broker, mode="two-phase") as inner:
            shop.work(inner)
    assert (tx.outcome, inner.outcome) == (State.ROLLED_BACK, State.COMMITTED)
    shop.check()


def test_an_interrupt_in_the_client_leaves_both_or_neither_and_keeps_no_commit_back(shop):
    """At lines of the client below a block, while the resolver's thread uses the connection, too."""

    def case(at):
        shop.ready()
        with at, txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
            number = shop.work(tx)
        if not at.raised:
            shop.told(number, tx)
        eventually(lambda: shop.broker._driver.held_until == math.inf, seconds=2.0)

    with txbroker.atomic(shop.database, shop.broker, mode="two-phase") as tx:
        shop.work(tx)  # so that the way to the topic is known
    for line in range(1, MOST, 3):
        at = client.AtLine(line)
        case(at)
        if not at.raised:
            assert line > 100
            break
    shop.check()
