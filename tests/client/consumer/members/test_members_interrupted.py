"""Test exceptions raised by signals in a member of a group of which a partition is asked back in the middle."""

import contextlib
import uuid

import pytest

import txbroker
from tests.client.consumer.members.scene import send, shares
from tests.client.test_interrupts import Interrupt, at_every_line
from tests.support.broker_process import BrokerProcess
from tests.support.interrupted import INTERRUPTED
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.blocking import driver

pytestmark = INTERRUPTED

STEPS = pytest.mark.parametrize(
    "step", [pytest.param(5, marks=pytest.mark.deep), 97], ids=["every fifth line", "some lines"]
)


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    directory = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(directory, "assignment_delay=1ms", "reconnect_grace=5s") as running:
        yield running


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0, client="one") as connection:
        yield connection


@pytest.fixture
def other(process):
    with txbroker.connect(process.address, timeout=10.0, client="two") as connection:
        yield connection


@pytest.fixture
def topic(other):
    name = f"t-{uuid.uuid4().hex[:12]}"
    other.create_topic(name, partitions=4)
    other.create_topic(f"{name}-main")
    send(other, name, 8)
    return name


def asked_back(connection, group):
    return [each.partition for each in connection.describe_group(group).partitions if each.revoking]


@STEPS
@pytest.mark.parametrize("order", ["partition", None])
def test_nothing_of_it_is_lost_or_comes_twice(broker, other, topic, step, order, monkeypatch):
    monkeypatch.setattr(driver, "LULL", 60.0)  # so that no other thread does what is to be interrupted

    def case(at):
        group, seen, told = uuid.uuid4().hex, [], []
        one = broker.consume(topic, group, order=order, on_revoked=told.append)
        while len({message.partition for message in seen}) < 3:  # of one partition nothing is handed out
            seen += one.poll(10.0)
        two = other.consume(topic, group, order=order)
        eventually(lambda: two.poll(0.0) or len(asked_back(other, group)) == 2)
        asked = set(asked_back(other, group))
        with at:
            seen += one.poll(0.0)
            one.commit()
            seen += one.poll(0.0)
            one.commit()

        def read(consumer):
            with contextlib.suppress(Interrupt):  # it came in the reading
                seen.extend(consumer.poll(0.02))

        while len(seen) < 8:
            for each in (one, two):
                read(each)
                each.commit()
        assert sorted(message.value for message in seen) == [b"%d" % number for number in range(8)], at.raised
        one.commit()
        two.commit()
        eventually(lambda: (read(one), read(two), shares(other, group, 2, 2))[-1])
        assert {index for places in told for _, index in places} == asked
        assert {each.offset for each in other.group_offsets(group)} == {2}, at.raised
        one.close()
        two.close()
        eventually(lambda: (broker.ping(), other.ping(), not broker.core.attending)[-1])
        other.delete_group(group)

    at_every_line(case, 20_000, step)


@STEPS
def test_each_message_is_sent_on_once(broker, other, topic, step, monkeypatch):
    monkeypatch.setattr(driver, "LULL", 60.0)
    done = 0

    def step_of(connection, group, wait):
        with connection.transaction() as tx:
            message = tx.receive(topic, group, wait)
            if message is not None:
                tx.send(f"{topic}-main", message.value)
            return message

    def case(at):
        nonlocal done
        group = uuid.uuid4().hex
        assert step_of(broker, group, 10.0)
        tx = broker.transaction()
        while tx.receive(topic, group, 0.0) is not None:
            pass
        assert step_of(other, group, 0.0) is None
        eventually(lambda: (step_of(other, group, 0.0), len(asked_back(other, group)) == 2)[-1])
        with at:
            tx.rollback()
            step_of(broker, group, 0.0)
            step_of(broker, group, 0.0)
        if not tx._core.is_over:
            tx.rollback()
        while [each.offset for each in other.group_offsets(group)] != [2] * 4:
            for each in (broker, other):
                with contextlib.suppress(Interrupt, errors.GenerationFenced):
                    step_of(each, group, 0.02)
        values = [message.value for message in other.read(f"{topic}-main", 0, done, 16 << 20)]
        assert sorted(values) == [b"%d" % number for number in range(8)], at.raised
        done += 8
        for connection in (broker, other):
            connection._receivers.close()
            connection._receivers._found.clear()
            connection.ping()
        eventually(lambda: not other.describe_group(group).members)
        other.delete_group(group)

    at_every_line(case, 20_000, step)
