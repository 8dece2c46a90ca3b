"""Test exceptions raised in the blocking client as by a signal's handler: one at each line, in turn."""

import ast
import functools
import gc
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import txbroker
from journal.transaction_states import State
from tests.support.broker_process import BrokerProcess
from tests.support.interrupted import INTERRUPTED
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.transactions.decision import Stage

pytestmark = INTERRUPTED

CLIENT = str(Path(txbroker.__file__).parent / "client") + os.sep
POINTS = ("line", "call")  # CPython looks for signals where functions begin, too
TRACED = (CLIENT, threading.__file__)


class Interrupt(Exception):
    """What a signal's handler raises."""


@functools.cache
def lines_of(path, kind):
    """The lines at which statements of a kind begin; of those that raise, only those that raise again."""
    nodes = [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, kind)]
    return {node.lineno for node in nodes if not (isinstance(node, ast.Raise) and node.exc is not None)}


class AtLine:
    """Raises at the so-manieth line of the client that this thread comes to; ``raised`` says where it did.

    A tracer sees the line of a ``with`` again on its way out, before the lock is released, and that of a ``try``, which
    does nothing and may belong to neither block. An ``except`` only looks at a class, and a bare ``raise`` goes on with
    an exception. CPython looks for signals behind calls and at jumps back only, so no exception can come there.
    """

    def __init__(self, line: int) -> None:
        self.left = line
        self.raised = ""
        self._inside = set()

    def _is_passed_over(self, frame) -> bool:
        path = frame.f_code.co_filename
        if frame.f_lineno not in lines_of(path, ast.With):
            return frame.f_lineno in lines_of(path, (ast.Try, ast.ExceptHandler, ast.Raise))
        self._inside.symmetric_difference_update({(frame, frame.f_lineno)})
        return (frame, frame.f_lineno) not in self._inside

    def _trace(self, frame, what, argument):
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if what in POINTS and self.left and not self._is_passed_over(frame):
            self.left -= 1
            if not self.left:
                self.raised = f"{frame.f_code.co_filename.removeprefix(CLIENT)}:{frame.f_lineno}"
                raise Interrupt(self.raised)
        return self._trace

    def __enter__(self):
        self._before = sys.gettrace()
        # Kept here, because CPython 3.11 goes on with a tracer that is gone: it allocates memory before it tells one of
        # a call, so that finalizers of the client may run, and an exception raised in one of them ends the tracing.
        self._tracer = self._trace
        sys.settrace(self._tracer)
        return self

    def __exit__(self, kind, error, trace):
        sys.settrace(self._before)
        self._inside.clear()  # frames, with what was in their hands
        while error is not None and not isinstance(error, Interrupt):
            error = error.__context__  # threading itself fails with another one when it is interrupted
        return error is not None


def at_every_line(case, most=5000, step=1, first=1):
    """Run a case with the exception at the first line, at the second, and so on, until it comes to none.

    With a ``step`` at each so-manieth line only, from the ``first`` on.
    """
    for line in range(first, most, step):
        at = AtLine(line)
        began = time.monotonic()
        case(at)
        assert time.monotonic() - began < 9.0, (
            f"it waited for what never came, interrupted at {at.raised or line}"
        )
        if not at.raised:
            assert line > 20
            return
    raise AssertionError("it never comes to an end")


@pytest.fixture(autouse=True)
def reported():
    """What is left of interrupted calls is reported while this module's filters hold, not at the end of the run."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def other(process):
    with txbroker.connect(process.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    broker.create_topic(f"{name}-main")
    return name


def test_an_interrupted_receive_hands_out_nothing(broker, other, topic):
    expected = 0

    def case(at):
        nonlocal expected
        other.send(topic, b"")
        tx = broker.transaction()
        message = None
        with at:
            message = tx.receive(topic, group=topic, timeout=10.0)
        try:
            if message is None:
                message = tx.receive(topic, group=topic, timeout=10.0)
            assert message is not None, at.raised
            assert message.offset == expected, at.raised
            tx.commit()
        except errors.TransactionRolledBack:  # the connection was lost with what was being taken in
            tx.rollback()
            with broker.transaction() as again:
                message = again.receive(topic, group=topic, timeout=10.0)
                assert message.offset == expected, at.raised
        expected += 1

    at_every_line(case)
    assert broker.group_offsets(topic)[0].offset == expected


@pytest.mark.parametrize(
    ("order", "before"), [("partition", [1]), ("key", [1, 3, 5, 6]), (None, [1, 3, 4, 5, 6])]
)
def test_an_interrupted_consumer_loses_nothing_of_what_it_has_left_out(broker, other, topic, order, before):
    """While an undecided transaction holds message 2, and when that has ended."""
    for number, key in enumerate((b"a", b"b", b"a", None, b"a", None, b"b")):
        other.send(topic, b"%d" % number, key=key)
    every = [1, 2, 3, 4, 5, 6]

    def case(at):
        group = uuid.uuid4().hex
        messages = hold_the_third(other, topic, group)
        consumer, found = broker.consume(topic, group, claim=False, order=order), []

        def read(wanted):
            while sorted(found) != wanted:
                some = consumer.poll(8.0)
                assert some, (found, at.raised)
                found.extend(message.offset for message in some)

        with at:
            read(before)
        read(before)
        other.tpc_rollback(messages)
        with at:
            read(every)
        read(every)
        consumer.commit()
        assert [each.offset for each in other.group_offsets(group)] == [7]
        consumer.close()

    at_every_line(case, most=20_000, step=17)


def hold_the_third(connection, topic, group):
    """Prepare a transaction that finishes message 2, when 0 is finished; return its xid."""
    consumer = connection.consume(topic, group, claim=False)
    messages = [next(consumer) for _ in range(3)]
    consumer.done(messages[0])
    xid = connection.xid(1, uuid.uuid4().hex, "x")
    tx = connection.transaction(xid)
    tx.done(messages[2], consumer)
    tx.prepare()
    consumer.close()
    return xid


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("order", ["partition", "key", None])
def test_an_interrupted_retry_loses_neither_its_message_nor_others(broker, other, topic, order):
    for number, key in enumerate((b"a", b"b", b"a", None, b"a", None)):
        other.send(topic, b"%d" % number, key=key)

    def case(at):
        group = uuid.uuid4().hex
        consumer = broker.consume(topic, group, claim=False, order=order)
        found = {next(consumer).offset, (second := next(consumer)).offset}
        with at:
            consumer.retry(second, after=0)
        broker.ping()
        found.discard(1)
        if at.raised:
            consumer.retry(second, after=0)  # an attempt is counted once, however often it is said
        while found != set(range(6)):
            some = consumer.poll(8.0)
            assert some, (found, at.raised)
            found.update(message.offset for message in some)
        consumer.commit()
        assert [each.offset for each in other.group_offsets(group)] == [6]
        consumer.close()

    at_every_line(case, step=7)


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("way", ["poll", "poll some", "next"])
def test_an_interrupted_consumer_hands_out_nothing(broker, other, topic, way):
    got = []
    consumer = broker.consume(topic, group=topic)

    def one():
        if way == "next":
            return [next(consumer)]
        return consumer.poll(10.0, None if way == "poll" else 2)

    def case(at):
        for _ in range(3 if way == "poll some" else 1):
            other.send_async(topic, b"")
        other.flush()
        messages = []
        with at:
            messages = one()
        broker.ping()  # so that none is interrupted while it connects again after the one before
        got.extend(message.offset for message in messages)

    at_every_line(case)
    other.send(topic, b"")
    end = other.topics([topic])[0].partitions[0].high_watermark
    while len(got) < end:
        with AtLine(0):  # a reading that the last case has interrupted tells it once
            got.extend(message.offset for message in one())
    assert got == list(range(end))


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("way", ["poll", "next", "done"])
def test_an_interrupted_consumer_finishes_later_what_its_program_had_and_nothing_else(
    broker, other, topic, way
):
    got = []
    consumer = broker.consume(topic, group=topic, commit_interval=0.02, auto_done=way != "done")

    def position():
        return sum(each.offset or 0 for each in other.group_offsets(topic))

    def case(at):
        other.send(topic, b"")
        messages = []
        if way == "done":
            messages = [next(consumer)]
        with at:
            if way == "done":
                consumer.done(messages[0])
            else:
                messages = [next(consumer)] if way == "next" else consumer.poll(10.0)
        broker.ping()
        got.extend(message.offset for message in messages)
        if way == "done":
            consumer.done(messages[0])
        assert position() <= len(got), at.raised

    at_every_line(case, step=7)
    other.send(topic, b"")
    end = other.topics([topic])[0].partitions[0].high_watermark
    while len(got) < end:
        with AtLine(0):
            some = consumer.poll(10.0)
            got.extend(message.offset for message in some)
            if way == "done":
                consumer.done(some)
    assert got == list(range(end))
    with AtLine(0):
        consumer.poll(0.0)
    eventually(lambda: position() == end)
    consumer.close()


def test_an_interrupted_search_leaves_the_connection_as_it_was(broker, other, topic):
    for number in range(2):
        other.send(topic, b"", key=b"k", id=f"id-{number}")

    def case(at):
        with at:
            assert [message.offset for message in broker.find(topic, key=b"k")] == [0, 1]
        assert [message.offset for message in broker.find(topic, id="id-1")] == [1], at.raised

    at_every_line(case, step=3)


def test_an_interrupted_send_is_in_the_log_once_or_not_at_all_and_later_ones_follow(broker, other, topic):
    answered = []

    def case(at):
        number = len(answered)
        with at:
            broker.send(topic, b"%d" % number)
        answered.append(not at.raised)
        broker.ping()
        broker.flush(10.0)
        assert broker._producer.buffered == 0, at.raised
        broker.send(topic, b"after %d" % number)

    at_every_line(case)
    values = [message.value for message in other.read(topic, 0, 0, 16 << 20)]
    assert len(set(values)) == len(values)
    for number, was_answered in enumerate(answered):
        assert b"after %d" % number in values
        assert not was_answered or b"%d" % number in values


@pytest.mark.parametrize(
    "options",
    [{"linger": 0.001}, {"linger": 5.0, "max_buffered": 100}, {"batch_bytes": 100}],
    ids=["lingering", "full", "small batches"],
)
def test_interrupted_asynchronous_sends_are_in_the_log_as_far_as_they_were_taken(
    process, other, topic, options
):
    taken, tried = [], []

    with txbroker.connect(process.address, timeout=10.0, **options) as connection:

        def case(at):
            values = [b"%d" % (len(tried) + number) for number in range(4)]
            tried.extend(values)
            with at:
                for value in values:
                    connection.send_async(topic, value)
                    taken.append(value)
            connection.ping()
            connection.flush(10.0)
            assert connection._producer.buffered == 0, at.raised

        at_every_line(case)
    values = [message.value for message in other.read(topic, 0, 0, 16 << 20)]
    assert values == sorted(set(values), key=int)
    assert set(taken) <= set(values) <= set(tried)


def test_after_an_interrupted_send_a_transaction_is_rolled_back_or_goes_on_without_that_message(
    broker, other, topic
):
    committed = []

    def case(at):
        tx = broker.transaction()
        interrupted, kept = uuid.uuid4().bytes, uuid.uuid4().bytes
        with at:
            tx.send(topic, interrupted)
        try:
            tx.send(topic, kept)
            tx.commit()
        except errors.TransactionRolledBack:
            tx.rollback()
        else:
            committed.extend([kept] if at.raised else [interrupted, kept])
        broker.ping()

    at_every_line(case)
    assert [message.value for message in other.read(topic, 0, 0, 16 << 20)] == committed


def test_an_interrupted_commit_tells_how_it_ended_when_it_is_asked_again(broker, other, topic):
    committed = []

    def case(at):
        tx = broker.transaction()
        value = uuid.uuid4().bytes
        tx.send(topic, value)
        with at:
            tx.commit()
        try:
            tx.commit()
        except (errors.TransactionRolledBack, errors.ContentMismatch):  # torn while it was sent: rolled back
            broker.ping()
            return
        assert tx.stage is Stage.COMMITTED, at.raised
        committed.append(value)
        broker.ping()

    at_every_line(case)
    assert [message.value for message in other.read(topic, 0, 0, 16 << 20)] == committed


def test_leaving_its_block_rolls_back_a_transaction_whose_prepare_was_interrupted(broker, other, topic):
    """One that the program was told to be prepared stays so, whatever its block raises."""

    def case(at):
        xid = broker.xid(1, uuid.uuid4().hex, "b")
        with pytest.raises(Interrupt), broker.transaction(xid) as tx:  # noqa: PT012 - the block is what raises
            tx.send(topic, b"")
            with at:
                tx.prepare()
            raise Interrupt
        broker.ping()  # behind the roll-back
        prepared = [each.xid for each in other.transactions([State.PREPARED])]
        assert prepared == ([] if at.raised else [xid]), at.raised
        if prepared:
            other.tpc_rollback(xid)

    at_every_line(case)


class Left:
    """What this process has open: descriptors and threads, but for those that were there at the beginning."""

    def __enter__(self):
        gc.collect()
        gc.freeze()  # to look at what comes from now on takes 1 ms, at all of a test run 60
        self._before = self._now()
        return self

    def __exit__(self, *_):
        gc.unfreeze()

    def _now(self):
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def check(self, at):
        """Nothing; a thread that has been told to end may take a moment."""
        gc.collect()  # of what came to be in a call that was interrupted
        until = time.monotonic() + 5.0
        while self._now() != self._before and time.monotonic() < until:
            threading.Event().wait(0.001)
        assert self._now() == self._before, at.raised


CHOICES = pytest.mark.parametrize(
    "choices",
    [{}, pytest.param({"reports": "of-clients"}, marks=pytest.mark.deep)],
    ids=["plain", "with reports"],
)


@pytest.fixture
def of_clients(other):
    other.create_topic("of-clients", exist_ok=True)


@CHOICES
@pytest.mark.usefixtures("of_clients")
def test_an_interrupted_connect_leaves_nothing(process, other, choices):
    def case(at):
        connection = None
        with at:
            connection = txbroker.connect(process.address, timeout=5.0, **choices)
        if connection is not None:
            connection.close()
        connection = None
        left.check(at)

    with Left() as left:
        at_every_line(case)
    assert_that_the_broker_has(other, 1)


@CHOICES
@pytest.mark.usefixtures("of_clients")
def test_an_interrupted_close_leaves_nothing(process, other, topic, choices):
    def case(at):
        connection = txbroker.connect(process.address, timeout=5.0, **choices)
        connection.consume(topic, max_wait=0.0).poll(0.0)
        connection.send_async(topic, b"")  # a thread sees to it
        with at:
            connection.close(1.0)
        if connection.core.fatal is None:
            assert at.raised, "the exception came before anything of close was done"
            connection.close(1.0)
        del connection
        left.check(at)

    with Left() as left:
        at_every_line(case)
    assert_that_the_broker_has(other, 2)  # with that of the topic's maker


def assert_that_the_broker_has(other, sessions):
    """So many, once it has noticed who is gone."""
    until = time.monotonic() + 10.0
    while other.status()["sessions"] != sessions and time.monotonic() < until:
        pass
    assert other.status()["sessions"] == sessions


def test_an_interrupted_wait_keeps_no_other_thread_waiting(process):
    """The thread that was interrupted does not come back."""

    def case(at):
        connection = txbroker.connect(process.address, timeout=5.0)
        with at:
            connection.ping()
        raised = []
        pinging = threading.Thread(target=lambda: raised.append(failure_of(connection.ping)), daemon=True)
        pinging.start()
        pinging.join(5.0)
        assert raised == [None], at.raised
        connection.close()

    at_every_line(case)


def failure_of(call):
    """What a call raises."""
    try:
        call()
    except errors.TxBrokerError as error:
        return error
    return None


def test_an_interrupt_ends_no_other_threads_transaction(broker, other, topic):
    """With real signals, at moments that differ from run to run."""
    rounds, interrupted, failures = 150, 0, []
    together = threading.Barrier(2, timeout=60.0)  # whoever fails breaks it for both

    def works():
        try:
            for number in range(rounds):
                with broker.transaction() as tx:
                    tx.send(topic, b"%d" % number)
                    broker.ping()
                    together.wait()
                    together.wait()
                    tx.send(topic, b"and %d" % number)
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)
            together.abort()

    def interrupt(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=works, daemon=True)
    thread.start()
    try:
        for number in range(rounds):
            together.wait()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.00002 * (number % 100))
                    with broker.transaction() as tx:
                        tx.receive(topic, group=topic, timeout=1.0)
                        tx.send(f"{topic}-main", b"")
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                interrupted += 1
            together.wait()
        thread.join(60.0)
    except threading.BrokenBarrierError:
        assert failures, "the other thread neither failed nor went on"
        raise failures[0] from None
    finally:
        signal.signal(signal.SIGALRM, before)
    assert failures == []
    assert not thread.is_alive()
    assert interrupted > rounds // 4
    assert len(other.read(topic, 0, 0, 16 << 20)) == 2 * rounds
