"""Test sessions, dispatch, requests that wait, and bugs in handlers."""

import pytest
from crc32c import crc32c

from journal.errors import CorruptJournal
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.parties import Owner
from journal.records.group_entries import PartitionOffset
from journal.settings import TopicSettings
from journal.transaction_states import State, Totals
from journal.vfs.filesystem import write_fully
from journal.xid import Xid
from tests.support.broker_room import NOTHING, Peer, Room, frames, refused
from txbroker.broker.sessions.session import SessionState
from txbroker.broker.sessions.settings import OrphanAction
from txbroker.wire import codec, messages


@pytest.fixture
def room():
    return Room()


class TestHello:
    def test_a_hello_is_answered_with_version_and_mechanisms_and_a_login_with_session_number(self, room):
        peer = room.peer(hello=False)
        offered = peer.ask(messages.Hello, messages.MAGIC, [1, 3, 7], "billing")
        assert (offered.version, offered.server) == (3, "txbroker")
        assert offered.mechanisms[-1] == "ANONYMOUS"
        assert (peer.session.number, room.broker.sessions) == (0, {})
        welcome = peer.ask(messages.Login, "ANONYMOUS")
        assert (welcome.session, welcome.principal) == (peer.session.number, "anonymous")
        assert welcome.max_request == room.settings.max_request
        assert peer.session.owner == Owner("anonymous", "billing", "10.0.0.1:5")

    def test_session_numbers_are_never_used_twice_not_even_over_restarts(self, room):
        numbers = [room.peer().session.number, room.peer().session.number]
        room.restart()
        numbers.append(room.peer().session.number)
        assert numbers == sorted(set(numbers))
        assert [number >> 32 for number in numbers] == [1, 1, 2]

    def test_versions_without_one_in_common_are_refused_with_both_and_the_connection_closed(self, room):
        peer = room.peer(hello=False)
        answer = peer.ask(messages.Hello, messages.MAGIC, [1, 8, 9])
        said = refused(answer, "VersionRefused")
        assert "1, 8, 9" in said
        assert str(messages.VERSIONS) in said
        assert peer.closed == [said]
        assert peer.session.state is SessionState.CLOSED

    @pytest.mark.parametrize(
        ("magic", "client", "error"),
        [
            ("HTTP", "", "PeerViolation"),
            (messages.MAGIC, "x" * 256, "InvalidName"),
            (messages.MAGIC, "x" * 1_000_000, "InvalidName"),
            (messages.MAGIC, "a\nb", "InvalidName"),
        ],
    )
    def test_a_hello_that_is_not_one_is_refused_and_closed(self, room, magic, client, error):
        peer = room.peer(hello=False)
        refused(peer.ask(messages.Hello, magic, list(messages.VERSIONS), client), error)
        assert len(peer.closed) == 1

    def test_anything_else_first_is_refused_closed_and_not_carried_out(self, room):
        peer = room.peer(hello=False)
        answer = peer.ask(messages.CreateTopic, "t", 1, messages.TopicSettings())
        assert "awaiting hello" in refused(answer, "PeerViolation")
        assert room.engine.catalog.topics == {}
        assert peer.ask(messages.Ping) is None
        assert len(peer.closed) == 1

    def test_a_second_hello_ends_the_session_and_its_active_transactions(self, room):
        [partition] = room.topic()
        peer = room.peer()
        peer.tell(messages.Add, 1, partition, data=frames(b"a"))
        refused(peer.ask(messages.Hello, messages.MAGIC, list(messages.VERSIONS)), "PeerViolation")
        assert room.engine.transactions.live == {}
        assert peer.session.number not in room.broker.sessions

    def test_a_client_that_connects_again_ends_the_session_that_it_had_and_what_is_late_there(self, room):
        [partition] = room.topic()
        old, other = room.peer(), room.peer()
        old.tell(messages.Add, 1, partition, data=frames(b"a"))
        new = old.again()
        assert len(old.closed) == 1
        assert new.ask(messages.AskOutcome, old.session.number, 1).state is State.ROLLED_BACK
        assert old.ask(messages.DeleteTopic, "orders", room.topic_id()) is None
        assert "orders" in room.engine.catalog.topics
        assert isinstance(other.send(partition, b"b"), messages.Sent), "no other session is touched"

    def test_what_waits_of_a_session_that_is_taken_over_is_dropped(self, room):
        [partition] = room.topic()
        old = room.peer()
        room.broker.parked_requests.park(
            old.session, messages.Send(7, partition), memoryview(frames(b"late"))
        )
        new = old.again()
        room.engine.on_idle()
        room.engine.sync()
        assert (old.answers, room.broker.parked_requests.bytes, len(room.broker.parked_requests.line)) == (
            [],
            0,
            0,
        )
        assert new.send(partition, b"first").base_offset == 0

    def test_more_sessions_than_allowed_are_refused_until_one_ends(self):
        room = Room(max_sessions=1)
        first = room.peer()
        second = room.peer(hello=False)
        second.ask(messages.Hello, messages.MAGIC, list(messages.VERSIONS))
        refused(second.ask(messages.Login, "ANONYMOUS"), "LimitExceeded")
        assert len(second.closed) == 1
        first.leave()
        assert room.peer().session.state is SessionState.OPEN

    def test_a_ping_is_answered_at_once(self, room):
        peer = room.peer()
        assert peer.answer(peer.tell(messages.Ping)) == messages.Done(3)


class TestAnswers:
    def test_nothing_that_depends_on_state_is_answered_before_the_force(self, room):
        peer, other = room.peer(), room.peer()
        made = peer.tell(messages.CreateTopic, "t", 1, messages.TopicSettings())
        listed = other.tell(messages.DescribeTopics)
        again = other.tell(messages.CreateTopic, "t", 1, messages.TopicSettings())
        assert (peer.answers, other.answers) == ([], [])
        room.engine.sync()
        assert peer.answer(made).topics == other.answer(listed).topics
        refused(other.answer(again), "TopicExists")

    def test_what_was_not_forced_is_not_answered_after_a_failure(self, room):
        peer = room.peer()
        peer.tell(messages.CreateTopic, "t", 1, messages.TopicSettings())
        room.engine.fail("a test")
        peer.tell(messages.OpenProducer)
        assert peer.answers == []

    def test_every_request_has_a_meaning(self, room):
        kinds = set(messages.AnyRequest.__args__)
        assert kinds == {kind for kind in room.broker._handlers if kind in kinds}

    def test_an_answer_too_large_for_the_protocol_is_refused_instead(self, room, monkeypatch):
        room.topic("small", 10)
        room.topic("large", 1_000)
        monkeypatch.setattr("txbroker.broker.broker.MAX_ANSWER_HEAD", 10_000)
        monkeypatch.setattr("txbroker.wire.refusals.MAX_ANSWER_HEAD", 10_000)
        peer = room.peer()
        assert len(peer.ask(messages.DescribeTopics, ["small"]).topics[0].partitions) == 10
        assert "ask for fewer" in refused(peer.ask(messages.DescribeTopics, ["large"]), "LimitExceeded")

    def test_the_largest_description_of_partitions_there_may_be_fits_into_an_answer(self, room):
        widest = messages.PartitionInfo(9_999, 1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 31)
        size = len(
            codec.encode(
                messages.Topics(1, [messages.TopicInfo("t", [widest] * 1_000, TopicSettings(), b"")])
            )
        )
        assert size * 100 < messages.MAX_ANSWER_HEAD


class TestBugs:
    def test_a_bug_in_judging_costs_that_peer_its_connection_and_nobody_else(self, room, caplog):
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        peer.tell(messages.Add, 1, partition, data=frames(b"a"))

        def broken(*_):
            raise ZeroDivisionError("a bug")

        room.broker._handlers[messages.OpenProducer] = broken
        with flushed_errors(ZeroDivisionError):
            assert peer.ask(messages.OpenProducer) is None
        assert len(peer.closed) == 1
        assert room.engine.transactions.live == {}
        assert isinstance(other.send(partition, b"b"), messages.Sent)
        assert not room.engine.failed

    def test_a_bug_in_a_fold_stops_the_process(self, room):
        [partition] = room.topic()
        failures = []
        room.broker.on_failure = lambda doing, error: failures.append((doing, repr(error)))
        room.broker.groups.apply = None
        peer = room.peer()
        with flushed_errors(TypeError):
            peer.tell(messages.ClaimPartitions, "g", "m", [partition])
        assert peer.answers == []
        assert "ClaimPartitions of 10.0.0.1:5" in failures[0][0]
        assert room.engine.failed

    def test_an_error_with_a_name_in_a_fold_stops_it_too_and_is_no_refusal(self, room):
        [partition] = room.topic()
        failures = []
        room.broker.on_failure = lambda doing, error: failures.append(doing)

        def damaged(*_):
            raise CorruptJournal("a record is missing; nothing was changed", "", 0)

        room.broker.groups.apply = damaged
        peer = room.peer()
        with flushed_errors(CorruptJournal):
            peer.tell(messages.ClaimPartitions, "g", "m", [partition])
        assert (peer.answers, len(failures)) == ([], 1)
        peer.tell(messages.CommitOffsets, "g", [PartitionOffset(partition, 0)])
        assert len(failures) == 1, "from then on all is refused"
        assert room.engine.take() is None, "the record never gets to the disk, where each start would meet it"

    def test_sessions_end_quietly_after_a_failure(self, room):
        [partition] = room.topic()
        peer = room.peer()
        peer.tell(messages.Add, 1, partition, data=frames(b"a"))
        room.engine.fail("the disk is gone")
        peer.leave()


class flushed_errors:
    """Assert that exactly one failure of that kind is logged."""

    def __init__(self, kind):
        self.kind = kind
        self.found = []

    def __enter__(self):
        from twisted.logger import globalLogPublisher

        globalLogPublisher.addObserver(self.observe)

    def observe(self, event):
        if "log_failure" in event:
            self.found.append(event["log_failure"].type)

    def __exit__(self, *_):
        from twisted.logger import globalLogPublisher

        globalLogPublisher.removeObserver(self.observe)
        assert self.found == [self.kind]


class TestTime:
    def test_an_active_transaction_is_rolled_back_in_time_and_a_prepared_one_is_not(self):
        room = Room(transaction_timeout=1_000_000)
        [partition] = room.topic()
        peer = room.peer()
        peer.tell(messages.Add, 1, partition, data=frames(b"a"))
        room.clock.advance(999_999)
        room.broker.expire_transactions(room.engine.now())
        assert len(room.engine.transactions.live) == 1
        room.clock.advance(1)
        room.broker.expire_transactions(room.engine.now())
        assert peer.ask(messages.AskOutcome, serial=1).state is State.ROLLED_BACK

    def test_an_orphan_that_is_damaged_keeps_no_other_from_being_ended(self):
        room = Room(orphan_age=1_000_000, orphan_action=OrphanAction.COMMIT)
        [partition] = room.topic()
        for name in (b"damaged", b"sound"):
            peer, run = room.peer(), frames(name)
            peer.tell(messages.Add, 1, partition, data=run)
            peer.ask(messages.Prepare, 1, Xid(1, name, b""), Totals(1, 1, crc32c(run)))
        for _ in range(2):  # the second one stages what is below the first
            room.peer().send(partition, b"fill")
            room.engine.housekeeping.checkpoint_inline()
        room.restart()
        path = "staged/" + room.filesystem.list_directory("staged")[0]
        file = room.filesystem.open(path)
        write_fully(file, STAGED_HEADER_BYTES + 36, [bytes(8)])
        room.clock.advance(5_000_000)
        for _ in range(2):
            room.broker.expire_transactions(room.engine.now())
        [left] = room.engine.transactions.live.values()
        assert left.xid == Xid(1, b"damaged", b"")
        [info] = room.peer().ask(messages.ListTransactions, [State.PREPARED]).transactions
        assert (info.policy.action, info.policy.done) == ("commit", True)
        assert path in info.policy.obstacle
        shown = room.peer().ask(messages.ShowTransaction, xid=left.xid)
        assert (shown.parts, shown.contents) == ([], [(partition, 1, len(frames(b"damaged")))])
        assert path in shown.obstacle

    def test_idle_producers_are_forgotten_in_time(self):
        room = Room(producer_age=1_000_000)
        peer = room.peer()
        opened = peer.ask(messages.OpenProducer, "p")
        room.clock.advance(1_000_001)
        room.broker.sending.room.expire(room.engine.now())
        assert room.broker.producers.producers == {}
        assert peer.ask(messages.OpenProducer, "p").producer_id == opened.producer_id + 1

    def test_status_tells_what_is_there(self, room):
        [partition] = room.topic()
        peer = room.peer()
        peer.send(partition, b"a", b"b")
        values = peer.ask(messages.AskStatus).values
        assert values["messages_in"] == 2
        assert values["topics"] == values["partitions"] == 1
        assert values["sessions"] == 2
        assert values["forced_lsn"] == values["last_lsn"]


def test_a_closed_session_gets_nothing_carried_out(room):
    [partition] = room.topic()
    peer = room.peer()
    peer.leave()
    room.broker.received(peer.session, messages.Send(9, partition), memoryview(frames(b"a")))
    room.engine.sync()
    assert room.engine.catalog.stores[partition].end_offset == 0
    peer.leave()
    assert NOTHING == b""
    assert isinstance(peer, Peer)
