"""Kill the broker while it commits very many prepared transactions: none is lost, halved or doubled."""

from collections import Counter

import pytest
from crc32c import crc32c

from journal.settings import TopicSettings
from journal.transaction_states import State, Totals
from journal.xid import Xid
from tests.support.broker_process import BrokerProcess
from tests.support.peer import Peer, frames
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    Add,
    AskOutcome,
    Commit,
    Committed,
    CreateTopic,
    Done,
    ListTransactions,
    Prepare,
)

pytestmark = pytest.mark.slow

COUNT = 20_000
TOGETHER = 250
"""Transactions whose requests go out in one write."""
OUTSTANDING = 4 * TOGETHER
"""Commits that wait for their answers at most: so there are always some left when the broker is killed."""


def content(serial, partitions):
    """What it adds to which partitions: every third is for two of them, and so takes the long way."""
    places = [serial % len(partitions), (serial + 1) % len(partitions)][: 2 if serial % 3 == 0 else 1]
    return [(partitions[place], b"%d" % serial) for place in places]


def adds_and_prepare(serial, partitions):
    adds = [(partition, frames(value)) for partition, value in content(serial, partitions)]
    run = b"".join(each for _, each in adds)
    prepare = Prepare(
        serial, serial, Xid(1, b"%d" % serial, b"kill"), Totals(len(adds), len(adds), crc32c(run))
    )
    return b"".join(encode(Add(0, serial, partition), each) for partition, each in adds) + encode(prepare)


def exchange(peer, serials, request):
    """The answers to a request for each of these serials, by serial."""
    found = {}
    for first in range(0, len(serials), TOGETHER):
        some = serials[first : first + TOGETHER]
        peer.socket.sendall(b"".join(map(request, some)))
        for _ in some:
            answer, _ = peer.read()
            found[answer.correlation] = answer
    return found


def commit_until_killed(peer, broker, serials):
    """Commit one after the other, and kill the broker when half are answered; return which were, then or since."""
    answered, sent = [], 0
    while len(answered) < COUNT // 2:
        while sent - len(answered) <= OUTSTANDING - TOGETHER:
            some = serials[sent : sent + TOGETHER]
            peer.socket.sendall(b"".join(encode(Commit(serial, 0, serial)) for serial in some))
            sent += TOGETHER
        answer, _ = peer.read()
        assert isinstance(answer, Committed), answer
        answered.append(answer.correlation)
    broker.kill()
    while (last := peer.read()) is not None:
        answered.append(last[0].correlation)
    return answered


def in_doubt(peer):
    """The numbers of all that are prepared."""
    numbers, more = [], True
    while more:
        page = peer.ask(ListTransactions, [State.PREPARED], numbers[-1] if numbers else (0, 0))
        numbers += [(each.session, each.serial) for each in page.transactions]
        more = page.more
    return numbers


def logs_of(peer, partitions):
    """How often each value is in each log."""
    return Counter((partition, value) for partition in partitions for value in peer.values(partition))


@pytest.mark.parametrize("settings", [(), ("checkpoint_bytes=1MiB",)], ids=["replayed", "from checkpoints"])
def test_after_a_kill_amid_commits_each_is_in_its_logs_once_or_still_prepared_and_in_none(tmp_path, settings):
    serials = range(1, COUNT + 1)
    with BrokerProcess(tmp_path / "data", *settings) as broker:
        with Peer(broker.port) as peer:
            partitions = peer.ask(CreateTopic, "t", 3, TopicSettings()).topics[0].partitions
            partitions = [each.number for each in partitions]
            prepared = exchange(peer, serials, lambda serial: adds_and_prepare(serial, partitions))
            assert set(map(type, prepared.values())) == {Done}
            [session] = {session for session, _ in in_doubt(peer)}
            answered = commit_until_killed(peer, broker, serials)
        broker.start()
        with Peer(broker.port) as peer:
            outcomes = exchange(peer, serials, lambda serial: encode(AskOutcome(serial, session, serial)))
            committed = {serial for serial in serials if outcomes[serial].state is State.COMMITTED}
            undecided = {serial for serial in serials if outcomes[serial].state is State.PREPARED}
            assert len(committed) + len(undecided) == COUNT
            assert committed >= set(answered)
            assert len(undecided) > COUNT // 3
            assert sorted(in_doubt(peer)) == [(session, serial) for serial in sorted(undecided)]
            assert f"in_doubt={len(undecided)}" in broker.ready_line
            expected = Counter(each for serial in sorted(committed) for each in content(serial, partitions))
            assert logs_of(peer, partitions) == expected
            ended = exchange(peer, sorted(undecided), lambda serial: encode(Commit(serial, session, serial)))
            assert set(map(type, ended.values())) == {Committed}
            assert in_doubt(peer) == []
            assert logs_of(peer, partitions) == Counter(
                each for serial in serials for each in content(serial, partitions)
            )
