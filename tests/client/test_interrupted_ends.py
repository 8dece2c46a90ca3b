"""Test exceptions raised by signals where blocks and flushes end, in commits of positions and in claims of
partitions.
"""

import contextlib
import uuid

import pytest

import txbroker
from tests.client.test_interrupts import Interrupt, at_every_line
from tests.support.broker_process import BrokerProcess
from tests.support.interrupted import INTERRUPTED
from txbroker import errors
from txbroker.client.transactions.decision import Stage

pytestmark = INTERRUPTED

STEPS = pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.deep), 29], ids=["every line", "some lines"]
)


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
def topic(other):
    name = f"t-{uuid.uuid4().hex[:12]}"
    for each in (name, f"{name}-main"):
        other.create_topic(each)
    return name


def all_of(connection, name):
    return [message.value for message in connection.read(name, 0, 0, 16 << 20)]


@STEPS
def test_an_interrupted_commit_of_positions_can_be_made_again_and_the_consumer_goes_on(
    broker, other, topic, step
):
    consumer, expected = broker.consume(topic, group=topic), 0

    def case(at):
        nonlocal expected
        other.send(topic, b"")
        (message,) = consumer.poll(10.0)
        assert message.offset == expected, at.raised
        expected += 1
        with at:
            consumer.commit()
        (before,) = other.group_offsets(topic) or [None]
        if not at.raised:
            assert before.offset == expected
        consumer.commit()
        assert other.group_offsets(topic)[0].offset == expected, at.raised

    at_every_line(case, step=step)


@STEPS
def test_an_interrupted_claim_is_made_again_by_whoever_reads_on(broker, other, topic, step):
    expected = 0

    def case(at):
        nonlocal expected
        other.send(topic, b"")
        messages = []
        with broker.consume(topic, group=topic) as consumer:
            with at:
                messages = consumer.poll(10.0)
            messages = messages or consumer.poll(10.0)
            assert [message.offset for message in messages] == [expected], at.raised
            consumer.commit(messages[0])
        expected += 1

    at_every_line(case, step=step)
    assert other.group_offsets(topic)[0].offset == expected


@STEPS
def test_after_an_interrupted_flush_the_next_one_waits_for_the_same(broker, other, topic, step):
    sent = []

    def case(at):
        values = [b"%d" % (len(sent) + number) for number in range(3)]
        sent.extend(values)
        for value in values:
            broker.send_async(topic, value)
        with at:
            broker.flush(10.0)
        broker.flush(10.0)
        broker.ping()  # behind the answer to what was sent again though it was known to be stored
        assert broker._producer.buffered == 0, at.raised
        assert other.topics([topic])[0].partitions[0].high_watermark == len(sent), at.raised

    at_every_line(case, step=step)
    assert all_of(other, topic) == sent


@STEPS
def test_a_failure_that_an_interrupted_flush_has_not_told_is_told_by_the_next(process, other, topic, step):
    def case(at):
        gone, told = f"{topic}-gone", None
        other.create_topic(gone)
        with txbroker.connect(process.address, timeout=10.0) as connection:
            connection.send(gone, b"")
            other.delete_topic(gone)
            connection.send_async(gone, b"refused")
            try:
                with at:
                    connection.flush(10.0)
            except errors.UnknownPartition as error:
                told = error
            if told is None:
                with pytest.raises((errors.UnknownPartition, errors.OutcomeUnknown)):  # sent, and sent again
                    connection.flush(10.0)
            assert at.raised or told
            connection.flush(10.0)

    at_every_line(case, step=step)


@STEPS
@pytest.mark.parametrize("way", ["by its end", "by an exception", "prepared"])
def test_a_block_that_was_interrupted_anywhere_has_ended_and_the_next_one_goes_on(
    broker, other, topic, step, way
):
    """The same ``with`` again, that of a loop for instance: if it was left at its very end, it is let go of there."""
    told = {}

    def case(at):
        prepared = set()
        for trap in (at, pytest.raises(Interrupt) if way == "by an exception" else contextlib.nullcontext()):
            xid = broker.xid(1, uuid.uuid4().hex, "b") if way == "prepared" else None
            made, value = broker.transaction(xid), uuid.uuid4().bytes
            told[value] = made
            with trap, made as tx:
                tx.send(topic, value)
                tx.send(f"{topic}-main", value)
                if way == "by an exception":
                    raise Interrupt
                if way == "prepared":
                    tx.prepare()
                    prepared.add(xid)
        broker.ping()  # behind what was posted
        for left in other.transactions():
            assert left.xid in prepared, f"{left} is left, interrupted at {at.raised}"
            other.tpc_rollback(left.xid)
        assert made.stage is (Stage.ROLLED_BACK if way == "by an exception" else Stage.COMMITTED)

    at_every_line(case, 6000, step)
    committed = all_of(other, topic)
    assert all_of(other, f"{topic}-main") == committed
    for value, made in told.items():
        if made.stage in (Stage.COMMITTED, Stage.ROLLED_BACK):
            assert (value in committed) == (made.stage is Stage.COMMITTED and made.number is not None), made


@STEPS
def test_what_an_interrupted_block_received_is_sent_on_once(broker, other, topic, step):
    sent = []

    def case(at):
        sent.append(uuid.uuid4().bytes)
        other.send(topic, sent[-1])
        for trap in (
            at,
            contextlib.suppress(Interrupt),
        ):  # which may come in the reading, and is raised by the next
            with trap, broker.transaction() as tx:
                message = tx.receive(topic, topic, 10.0 if trap is at else 0.0)
                if message is not None:
                    tx.send(f"{topic}-main", message.value)
        broker.ping()

    at_every_line(case, 6000, step)
    while other.group_offsets(topic)[0].offset < len(sent):
        with broker.transaction() as tx:
            tx.send(f"{topic}-main", tx.receive(topic, topic, 10.0).value)
    assert all_of(other, f"{topic}-main") == sent
