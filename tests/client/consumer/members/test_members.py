"""Test that consumers of a group share its partitions: they join, hand over, are lost, and are told so."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

import txbroker
from tests.client.consumer.members.scene import hear_of_loss, owners, read_until, send, shares
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.asyncio import connect as asyncio_connect

pytestmark = pytest.mark.slow


def test_members_share_the_partitions_and_nothing_is_handed_out_twice(broker, connections, topic):
    one = connections("one").consume(topic, topic)
    send(broker, topic, 40)
    seen = []
    read_until([one], seen, 40)
    assert shares(broker, topic, 4)
    two = connections("two").consume(topic, topic)
    send(broker, topic, 40, 40)
    read_until([one, two], seen, 80)
    three = connections("three").consume(topic, topic)
    for first in range(80, 160, 20):
        send(broker, topic, 20, first)
        read_until([one, two, three], seen, first + 20)
    read_while = time.monotonic() + 5
    while not shares(broker, topic, 1, 1, 2) and time.monotonic() < read_while:
        read_until([one, two, three], seen, 0)
        for consumer in (one, two, three):
            assert consumer.poll(0.02) == []
    assert shares(broker, topic, 1, 1, 2)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(160)]


def test_a_partition_that_stays_keeps_its_generation(broker, connections, topic):
    one = connections("one").consume(topic, topic)
    one.poll(0.2)
    before = {at.partition: at.generation for at in broker.group_offsets(topic)}
    two = connections("two").consume(topic, topic)
    eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(broker, topic, 2, 2))[-1])
    after = {at.partition: at.generation for at in broker.group_offsets(topic)}
    kept = owners(broker, topic)["one"]
    assert all(after[each] == before[each] for each in kept)
    assert all(after[each] > before[each] for each in set(range(4)) - set(kept))


def test_one_that_leaves_gives_its_partitions_at_once(broker, connections, topic):
    one, two = connections("one").consume(topic, topic), connections("two").consume(topic, topic)
    eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(broker, topic, 2, 2))[-1])
    two.close()
    eventually(lambda: (one.poll(0.01), shares(broker, topic, 4))[-1], 2.0)


def test_a_connection_that_is_closed_leaves_before_it_returns(broker, connections, topic):
    connection = connections("one")
    connection.consume(topic, topic).poll(0.1)
    connection.transaction().receive(topic, f"{topic}-tx", 0.1)
    assert owners(broker, topic) == {"one": [0, 1, 2, 3]}
    connection.close()
    assert owners(broker, topic) == owners(broker, f"{topic}-tx") == {}


class TestHandover:
    """A partition is asked back while messages of it are under way."""

    def members(self, broker, connections, topic, **choices):
        """One that has been handed a message of each partition, and another that waits for its share."""
        one = connections("one").consume(topic, topic, **choices)
        send(broker, topic, 20)
        taken = []
        while len({message.partition for message in taken}) < 4:
            taken.append(next(iter(one)))
        two = connections("two").consume(topic, topic)
        assert two.poll(0.2) == []
        return one, two, taken

    def test_it_moves_once_they_are_committed_and_nothing_more_of_it_comes(self, broker, connections, topic):
        one, two, taken = self.members(broker, connections, topic)
        asked = [each.partition for each in broker.describe_group(topic).partitions if each.revoking]
        assert len(asked) == 2
        rest = list(one.poll(0.2))
        assert not {message.partition for message in rest} & set(asked)
        assert two.poll(0.2) == []
        one.commit()
        eventually(lambda: (one.poll(0.01), shares(broker, topic, 2, 2))[-1])
        seen = [message.value for message in [*taken, *rest]]
        read_until([one, two], seen, 20)
        assert len(set(seen)) == 20

    def test_it_moves_after_max_handover_and_a_commit_of_it_is_refused(self, broker, connections, topic):
        one, two, _ = self.members(broker, connections, topic, max_handover=0.3)
        before = [at.offset for at in broker.group_offsets(topic)]
        hear_of_loss(broker, topic, one)
        theirs = owners(broker, topic)["two"]
        eventually(lambda: two.poll(0.1))
        with pytest.raises(errors.GenerationFenced, match="went to others"):
            one.commit()
        after = [at.offset for at in broker.group_offsets(topic)]
        assert [after[each] for each in theirs] == [before[each] for each in theirs]
        one.commit()

    def test_each_message_of_it_is_refused_too(self, broker, connections, topic):
        one, _, taken = self.members(broker, connections, topic, max_handover=0.3)
        hear_of_loss(broker, topic, one)
        theirs = owners(broker, topic)["two"]
        [message, *_] = [each for each in taken if each.partition in theirs]
        for _ in range(2):
            with pytest.raises(errors.GenerationFenced):
                one.done(message)
            with pytest.raises(errors.GenerationFenced):
                one.commit(message)
            with pytest.raises(errors.GenerationFenced):
                one.commit({(topic, message.partition): 1})
        tx = one._connection.transaction()
        with pytest.raises(errors.GenerationFenced):
            tx.done(message)
        tx.rollback()

    def test_a_transaction_with_what_was_lost_is_refused_as_a_whole(self, broker, connections, topic):
        one, _, _ = self.members(broker, connections, topic, max_handover=0.3)
        hear_of_loss(broker, topic, one)
        tx = one._connection.transaction()
        with pytest.raises(errors.GenerationFenced, match="roll it back"):
            tx.commit_offsets(one)
        with pytest.raises((errors.GenerationFenced, errors.TransactionRolledBack)):
            tx.commit()
        assert [at.offset for at in broker.group_offsets(topic)] == [0] * 4

    def test_on_revoked_may_commit_before_it_moves(self, broker, connections, topic):
        calls = []

        def on_revoked(places):
            calls.append(places)
            one.commit()

        one, two, taken = self.members(broker, connections, topic, on_revoked=on_revoked)
        threading.Event().wait(0.3)
        assert not calls, "it is called by the thread that reads"
        rest = one.poll(0.1)
        [places] = calls
        assert len(places) == 2
        eventually(lambda: shares(broker, topic, 2, 2), 2.0)
        seen = [message.value for message in [*taken, *rest]]
        read_until([one, two], seen, 20)
        assert len(set(seen)) == 20
        assert {topic} == {name for name, _ in places}
        assert sorted(index for _, index in places) == owners(broker, topic)["two"]

    def test_a_callback_that_fails_is_called_again(self, broker, connections, topic):
        calls = []

        def on_revoked(places):
            calls.append(places)
            if len(calls) == 1:
                raise ValueError("not yet")
            one.commit()

        one, _, _ = self.members(broker, connections, topic, on_revoked=on_revoked)
        with pytest.raises(ValueError, match="not yet"):
            one.poll(0.1)
        assert not shares(broker, topic, 2, 2)
        one.poll(0.1)
        assert calls[0] == calls[1]
        eventually(lambda: shares(broker, topic, 2, 2), 2.0)

    def test_reading_inside_of_it_is_misuse(self, broker, connections, topic):
        one, _, _ = self.members(broker, connections, topic, on_revoked=lambda places: one.poll())
        with pytest.raises(errors.Misuse, match="must return first"):
            one.poll(0.1)

    def test_on_lost_tells_what_is_anothers(self, broker, connections, topic):
        lost, revoked = [], []
        choices = {"max_handover": 0.3, "on_lost": lost.append, "on_revoked": revoked.append}
        one, _, _ = self.members(broker, connections, topic, **choices)
        hear_of_loss(broker, topic, one)
        eventually(lambda: (one.poll(0.01), lost)[-1])
        assert [sorted(index for _, index in places) for places in lost] == [owners(broker, topic)["two"]]
        assert not revoked


class TestReceivers:
    """Members that receive in transactions."""

    def test_they_share_and_each_message_is_received_once(self, broker, connections, topic):
        one, two = connections("one"), connections("two")
        send(broker, topic, 40)
        seen, end = [], time.monotonic() + 20
        while len(seen) < 40 and time.monotonic() < end:
            for connection in (one, two):
                with connection.transaction() as tx:
                    found = [tx.receive(topic, topic, 0.02) for _ in range(2)]
                seen += [message.value for message in found if message is not None]
        assert sorted(seen, key=int) == [b"%d" % number for number in range(40)]
        assert shares(broker, topic, 2, 2)

    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_what_is_asked_back_moves_when_the_transaction_ends(self, broker, connections, topic, ends):
        one, two = connections("one"), connections("two")
        send(broker, topic, 8)
        tx = one.transaction()
        mine = [tx.receive(topic, topic, 5.0) for _ in range(8)]
        other = two.transaction()
        assert other.receive(topic, topic, 0.3) is None
        getattr(tx, ends)()
        tx = one.transaction()
        seen = []
        while (message := tx.receive(topic, topic, 0.3)) is not None:
            seen.append(message)
        while (message := other.receive(topic, topic, 0.3)) is not None:
            seen.append(message)
        tx.commit()
        other.commit()
        assert shares(broker, topic, 2, 2)
        wanted = [] if ends == "commit" else sorted(message.value for message in mine)
        assert sorted(message.value for message in seen) == wanted

    def test_a_lost_one_is_refused_and_goes_on_with_what_it_has(self, broker, connections, topic):
        one, two = connections("one"), connections("two")
        send(broker, topic, 8)
        tx = one.transaction()
        assert all(tx.receive(topic, topic, 5.0, max_handover=0.2) for _ in range(8))
        other = two.transaction()
        seen = []
        while len(seen) < 4:
            message = other.receive(topic, topic, 5.0)
            seen.append(message.value)
        other.commit()
        with pytest.raises((errors.GenerationFenced, errors.TransactionRolledBack)):
            tx.commit()
        tx.rollback()
        with one.transaction() as tx:
            while message := tx.receive(topic, topic, 0.3):
                seen.append(message.value)
        assert sorted(seen) == [b"%d" % number for number in range(8)]
        assert shares(broker, topic, 2, 2)

    def test_a_consumers_callbacks_are_not_for_them(self, broker, topic):
        with pytest.raises(errors.Misuse, match="on_revoked"):
            broker.transaction().receive(topic, topic, 0.1, on_revoked=print)


def test_a_busy_member_keeps_its_partitions(broker, connections, topic):
    one = connections("one").consume(topic, topic, session_timeout=1.0)
    send(broker, topic, 4)
    assert one.poll(5.0)
    threading.Event().wait(2.5)
    assert shares(broker, topic, 4)
    one.commit()


STOPPED = """
import sys, txbroker
def lost(places):
    print("lost", len(places), flush=True)
with txbroker.connect(sys.argv[1], client="stopped") as broker:
    consumer = broker.consume(sys.argv[2], sys.argv[2], session_timeout=1.0, on_lost=lost)
    message = next(iter(consumer))
    print("has one", flush=True)
    sys.stdin.readline()
    try:
        consumer.commit()
    except txbroker.errors.GenerationFenced:
        print("fenced", flush=True)
    consumer.poll(1.0)
"""


def test_a_process_that_was_stopped_for_too_long_is_fenced_and_told(broker, process, connections, topic):
    send(broker, topic, 4)
    worker = subprocess.Popen(
        [sys.executable, "-c", STOPPED, process.address, topic], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    with worker:
        assert worker.stdout.readline() == "has one\n"
        worker.send_signal(signal.SIGSTOP)
        other, seen = connections("other").consume(topic, topic), []
        begun = time.monotonic()
        read_until([other], seen, 4)
        assert time.monotonic() - begun < 4.0
        worker.send_signal(signal.SIGCONT)
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "fenced\n"
        assert worker.stdout.readline().startswith(
            "lost "
        )  # what was asked back before may have been given back


def test_a_killed_one_is_missed_after_the_grace(broker, process, connections, topic):
    send(broker, topic, 4)
    worker = subprocess.Popen(
        [sys.executable, "-c", STOPPED, process.address, topic], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    with worker:
        assert worker.stdout.readline() == "has one\n"
        worker.kill()
        other, seen, begun = connections("other").consume(topic, topic), [], time.monotonic()
        read_until([other], seen, 4)
        assert time.monotonic() - begun < 2.0


def test_a_static_member_is_one_process_and_keeps_its_partitions_when_it_comes_again(
    broker, connections, topic
):
    connection = connections("one")
    one = connection.consume(topic, topic, member="worker-1")
    one.poll(0.1)
    with pytest.raises(errors.MemberNameInUse, match="worker-1"):
        connections("two").consume(topic, topic, member="worker-1").poll(1.0)
    two = connections("three").consume(topic, topic)
    eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(broker, topic, 2, 2))[-1])
    had = owners(broker, topic)["one"]
    connection.close()
    assert owners(broker, topic) == {"three": sorted(set(range(4)) - set(had))}
    again = connections("again").consume(topic, topic, member="worker-1")
    again.poll(0.1)
    eventually(lambda: owners(broker, topic).get("again") == had)


def test_a_pattern_reads_later_topics_too(broker, connections, topic):
    consumer = connections("one").consume(pattern=f"{topic}*", group=topic)
    send(broker, topic, 4)
    seen = []
    read_until([consumer], seen, 4)
    broker.create_topic(f"{topic}-later")
    broker.send(f"{topic}-later", b"later")
    read_until([consumer], seen, 5)
    assert seen[-1] == b"later"


def test_consumers_that_name_partitions_and_members_do_not_mix(broker, connections, topic):
    connections("one").consume(topic, topic).poll(0.1)
    with pytest.raises(errors.GroupKindConflict):
        connections("two").consume(topic, topic, partitions=[0]).poll(1.0)
    group = f"{topic}-2"
    broker.consume(topic, group, partitions=[0]).poll(0.1)
    member = connections("three").consume(topic, group)
    for _ in range(2):
        with pytest.raises(errors.GroupKindConflict, match="claimed by consumers that name them"):
            member.poll(1.0)
    broker.delete_group(group)
    send(broker, topic, 4)
    assert member.poll(5.0)


def test_without_follow_it_ends_where_its_partitions_ended(broker, connections, topic):
    send(broker, topic, 20)
    with connections("one").consume(topic, topic, follow=False) as consumer:
        assert len(list(consumer)) == 20
    with connections("one").consume(topic, f"{topic}-late", start="latest", follow=False) as consumer:
        assert list(consumer) == []


def test_a_topic_that_is_not_there_is_named(broker, topic):
    with pytest.raises(errors.UnknownTopic, match="no-such"):
        broker.consume([topic, "no-such"], topic).poll(1.0)


@pytest.mark.parametrize(
    "choices", [{"pattern": "a*"}, {"member": "m"}, {"on_revoked": print}, {"on_lost": print}]
)
@pytest.mark.parametrize("group", [{}, {"group": "g", "partitions": [0]}, {"group": "g", "claim": False}])
def test_a_members_options_are_for_members(broker, topic, choices, group):
    with pytest.raises(errors.Misuse, match="for members"):
        broker.consume(topic, **choices, **group)


def test_members_join_again_after_a_restart_of_the_broker_with_their_claims(tmp_path):
    with (
        BrokerProcess(tmp_path / "data", "assignment_delay=50ms", "reconnect_grace=60s") as process,
        txbroker.connect(process.address, client="one") as first,
        txbroker.connect(process.address) as other,
    ):
        first.create_topic("t", partitions=4)
        one, two = first.consume("t", "g"), other.consume("t", "g")
        eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(first, "g", 2, 2))[-1])
        before = {at.partition: at.generation for at in first.group_offsets("g")}
        send(first, "t", 8)
        seen = [message.value for message in one.poll(5.0)]
        process.kill()
        process.start()
        read_until([one, two], seen, 8)
        eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(first, "g", 2, 2))[-1])
        assert {at.partition: at.generation for at in first.group_offsets("g")} == before
        assert len(set(seen)) == 8


def test_on_asyncio_a_callback_may_be_a_coroutine_function(process, broker, topic):
    calls = []

    async def main():
        async with (
            await asyncio_connect(process.address, client="one") as first,
            await asyncio_connect(process.address, client="two") as second,
        ):

            async def on_revoked(places):
                calls.append(places)
                await one.commit()

            one = first.consume(topic, topic, on_revoked=on_revoked)
            taken = set()
            while len(taken) < 4:
                taken.add((await anext(one)).partition)
            two = second.consume(topic, topic)
            assert await two.poll(0.3) == []
            for partition in range(4):
                await first.send(topic, b"more", partition=partition)
            return await two.poll(10.0)

    send(broker, topic, 20)
    found = asyncio.run(main())
    [places] = calls
    assert (topic, found[0].partition) in places
    assert len(places) == 2
