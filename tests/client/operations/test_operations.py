"""Test operations whose answer is lost: each affects what was meant when it began, or nothing."""

import pytest
from msgspec import structs

from journal.constants import SEGMENT_BYTES
from journal.records.group_entries import MAX_PAUSE, Ending, GroupSettings, RetryRules
from journal.settings import TopicSettings
from journal.transaction_states import State
from journal.xid import Xid
from tests.client.rig import Rig
from txbroker import errors
from txbroker.client.core.results import GroupDescription, GroupMember, GroupPartition
from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.client.operations.group_operations import MOVES
from txbroker.wire import messages
from txbroker.wire.messages import Refused


class Topics:
    """Has a scripted broker make topics; what it answers then may be replaced by an ``on_createtopic`` of its own."""

    def __init__(self, broker):
        self.there, self.asked = {}, []
        broker.on_createtopic = self._create
        broker.on_describetopics = self._describe

    def _create(self, session, request, data):
        self.asked.append(request)
        return getattr(self, "on_createtopic", self._made)(session, request, data)

    def _made(self, session, request, data):
        if request.name in self.there:
            return Refused(request.correlation, "TopicExists", "there")
        return messages.Topics(request.correlation, [self.make(request)])

    def make(self, request):
        parts = [messages.PartitionInfo(index, index + 5, 0, 0) for index in range(request.partitions)]
        topic = messages.TopicInfo(request.name, parts, request.settings, request.id)
        self.there[request.name] = topic
        return topic

    def _describe(self, session, request, data):
        return messages.Topics(
            request.correlation, [self.there[name] for name in request.names if name in self.there]
        )


class TestTopicsOverALostAnswer:
    def test_a_topic_created_before_the_answer_was_lost_counts_as_created(self, rig, broker):
        topics = Topics(broker)
        topics.on_createtopic = lambda session, request, data: topics.make(request) and None
        created = rig.start(rig.operations.create_topic("new", 1))
        rig.cut()
        rig.connect()
        assert created.result() == topics.there["new"]
        assert len(topics.asked) == 1, "one that is there with the right id is not asked for again"

    def test_a_topic_of_that_name_that_another_made_is_in_the_way_and_said_to_be(self, rig, broker):
        topics = Topics(broker)
        topics.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("new", 1))
        rig.cut()
        topics.make(messages.CreateTopic(0, "new", 1, TopicSettings()))
        del topics.on_createtopic
        rig.connect()
        with pytest.raises(errors.TopicExists):
            created.result()

    def test_a_topic_that_may_exist_is_had_whoever_made_it(self, rig, broker):
        topics = Topics(broker)
        topics.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("new", 1, exist_ok=True))
        rig.cut()
        topics.make(messages.CreateTopic(0, "new", 7, TopicSettings()))
        rig.connect()
        assert created.result() == topics.there["new"]

    def test_a_topic_that_is_not_there_is_asked_for_again_as_another_one(self, rig, broker):
        topics = Topics(broker)
        topics.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("new", 1))
        rig.cut()
        del topics.on_createtopic
        rig.connect()
        first, second = topics.asked
        assert created.result().id == second.id != first.id

    def test_without_a_broker_to_ask_it_is_not_known(self, broker):
        rig = Rig(broker, reconnect=False)
        broker.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("new", 1))
        rig.cut()
        with pytest.raises(errors.OutcomeUnknown, match="Describe the topic later"):
            created.result()

    def test_a_first_refusal_is_plain(self, rig, broker):
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        with pytest.raises(errors.TopicExists):
            rig.run(rig.operations.create_topic("t", 1))

    def test_a_topic_that_may_exist_is_described_as_it_is(self, rig, broker):
        [there] = rig.run(rig.operations.topics(["t"]))
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        assert rig.run(rig.operations.create_topic("t", 1, exist_ok=True, segment_bytes=1 << 20)) == there

    def test_a_topic_that_goes_between_refusal_and_description_is_created_after_all(self, rig, broker):
        made = messages.TopicInfo("new", [messages.PartitionInfo(0, 9, 0, 0)], TopicSettings(), b"n" * 16)
        answers = [messages.Topics(0, [made]), Refused(0, "TopicExists", "there")]
        broker.on_createtopic = lambda session, request, data: structs.replace(
            answers.pop(), correlation=request.correlation
        )
        assert rig.run(rig.operations.create_topic("new", 1, exist_ok=True)) == made
        assert answers == []

    def test_a_topic_gone_when_the_deletion_is_repeated_counts_as_deleted(self, rig, broker):
        broker.on_deletetopic = lambda session, request, data: None
        deleted = rig.start(rig.operations.delete_topic("t"))
        rig.cut()
        broker.on_deletetopic = lambda session, request, data: Refused(
            request.correlation, "UnknownTopic", "no"
        )
        rig.connect()
        assert deleted.done
        assert deleted.error is None

    def test_a_deletion_is_repeated_with_the_id_that_the_topic_had_when_it_began(self, rig, broker):
        topics = Topics(broker)
        one = topics.make(messages.CreateTopic(0, "new", 1, TopicSettings()))
        asked = []
        broker.on_deletetopic = lambda session, request, data: asked.append(request)
        deleted = rig.start(rig.operations.delete_topic("new"))
        rig.cut()
        topics.make(messages.CreateTopic(0, "new", 1, TopicSettings()))
        rig.connect()
        assert [request.id for request in asked] == [one.id, one.id]
        assert not deleted.done

    def test_a_topic_can_be_named_by_its_id_alone_of_several_of_its_name(self, rig, broker):
        asked = []
        broker.on_deletetopic = lambda session, request, data: (
            asked.append(request) or messages.Done(request.correlation)
        )
        rig.run(rig.operations.delete_topic("t", b"x" * 16))
        assert [request.id for request in asked] == [b"x" * 16]


class TestAltering:
    def test_only_what_was_named_is_changed_in_the_brokers_units(self, rig, broker):
        there = Topics(broker).make(messages.CreateTopic(0, "t", 1, TopicSettings()))
        asked = []
        broker.on_altertopic = lambda session, request, data: (
            asked.append(request) or messages.Topics(request.correlation, [there])
        )
        assert rig.run(rig.operations.alter_topic("t", retention_age=3, retention_bytes=None)) == there
        [request] = asked
        assert (request.id, request.changes, request.partitions) == (
            there.id,
            {"retention_age": 3_000_000, "retention_bytes": None},
            0,
        )

    def test_a_number_of_partitions_is_asked_for_together_with_settings(self, rig, broker):
        there = Topics(broker).make(messages.CreateTopic(0, "t", 1, TopicSettings()))
        asked = []
        broker.on_altertopic = lambda session, request, data: (
            asked.append(request) or messages.Topics(request.correlation, [there])
        )
        rig.run(rig.operations.alter_topic("t", partitions=12, force_messages=7))
        rig.run(rig.operations.alter_topic("t", partitions=12))
        assert [(request.changes, request.partitions) for request in asked] == [
            ({"force_messages": 7}, 12),
            ({}, 12),
        ]

    @pytest.mark.parametrize("partitions", [0, -1])
    def test_no_partitions_at_all_are_refused_before_anything_is_sent(self, rig, broker, partitions):
        with pytest.raises(errors.WrongValue, match="partitions"):
            rig.run(rig.operations.alter_topic("t", partitions=partitions))

    def test_a_setting_that_is_none_is_refused_before_anything_is_sent(self, rig, broker):
        with pytest.raises(errors.InvalidSetting, match="colour"):
            rig.run(rig.operations.alter_topic("t", colour=3))


class TestPurging:
    @pytest.fixture
    def purges(self, broker):
        asked = []
        broker.on_purge = lambda session, request, data: (
            asked.append(request.starts) or messages.Done(request.correlation)
        )
        return asked

    @pytest.fixture
    def topics(self, broker):
        return Topics(broker)

    def test_more_partitions_than_a_request_takes_are_purged_in_several(self, rig, topics, purges):
        topics.make(messages.CreateTopic(0, "t", messages.MAX_PURGED + 1, TopicSettings()))
        assert rig.run(rig.operations.purge("t", 7)) == dict.fromkeys(range(messages.MAX_PURGED + 1), 7)
        assert [len(starts) for starts in purges] == [messages.MAX_PURGED, 1]
        assert purges[1] == [(messages.MAX_PURGED + 5, 7)]

    def test_only_the_partitions_that_were_named_are_purged(self, rig, topics, purges):
        topics.make(messages.CreateTopic(0, "t", 4, TopicSettings()))
        assert rig.run(rig.operations.purge("t", {2: 3, 0: 4})) == {0: 4, 2: 3}
        assert purges == [[(7, 3), (5, 4)]]
        with pytest.raises(errors.UnknownPartition):
            rig.run(rig.operations.purge("t", {4: 3}))
        assert len(purges) == 1

    def test_a_topic_made_anew_under_the_name_is_not_purged(self, rig, topics, purges):
        topics.make(messages.CreateTopic(0, "t", 1, TopicSettings()))
        with pytest.raises(errors.UnknownTopic, match="was made since"):
            rig.run(rig.operations.purge("t", 3, topic_id=b"x" * 16))
        assert purges == []

    def test_a_purge_whose_answer_was_lost_is_sent_again(self, rig, broker, topics, purges):
        topics.make(messages.CreateTopic(0, "t", 1, TopicSettings()))
        answered = broker.on_purge
        broker.on_purge = lambda session, request, data: purges.append(request.starts)
        purged = rig.start(rig.operations.purge("t", 3))
        rig.cut()
        broker.on_purge = answered
        rig.connect()
        assert (purged.result(), purges) == ({0: 3}, [[(5, 3)], [(5, 3)]])


class TestGroupsOverALostAnswer:
    def lose_once(self, rig, broker, kind, operation, answer):
        """Start an operation, lose the answer to this kind of request, and have it answered so the second time."""
        asked = []

        def before(request, data):
            if type(request) is not kind:
                return None
            asked.append(request)
            return broker.SWALLOW if len(asked) == 1 else answer(request)

        broker.before = before
        promise = rig.start(operation)
        rig.cut()
        rig.connect()
        return promise, asked

    def test_a_group_gone_when_the_deletion_is_repeated_counts_as_deleted(self, rig, broker):
        broker.on_deletegroup = lambda session, request, data: None
        deleted, asked = self.lose_once(
            rig, broker, messages.DeleteGroup, rig.operations.delete_group("g"),
            lambda request: Refused(request.correlation, "UnknownGroup", "no"),
        )  # fmt: skip
        assert deleted.result() is None
        assert [request.id for request in asked] == [b"g" * 16] * 2

    def test_a_group_that_is_not_there_to_begin_with_is_an_error(self, rig, broker):
        broker.on_fetchoffsets = lambda session, request, data: messages.GroupOffsets(
            request.correlation, [], b""
        )
        with pytest.raises(errors.UnknownGroup):
            rig.run(rig.operations.delete_group("g"))

    def move(self, rig, broker, error, stands):
        def answer(request):
            broker.offsets[1] = stands
            return Refused(request.correlation, error, "moved")

        broker.offsets[1] = 3
        return self.lose_once(
            rig, broker, messages.CommitOffsets, rig.operations.set_offsets("g", "t", {0: 5}), answer
        )

    @pytest.mark.parametrize("error", ["PositionMoved", "GenerationFenced", "OffsetPending", "GroupInUse"])
    def test_a_group_that_stands_where_it_was_to_go_has_been_moved(self, rig, broker, error):
        moved, asked = self.move(rig, broker, error, 5)
        assert moved.result() is None
        assert [request.expected for request in asked] == [[3], [3]]

    @pytest.mark.parametrize("error", ["PositionMoved", "GenerationFenced", "OffsetPending", "GroupInUse"])
    def test_a_group_that_somebody_moved_on_meanwhile_leaves_it_open_and_is_not_moved_back(
        self, rig, broker, error
    ):
        moved, _ = self.move(rig, broker, error, 7)
        with pytest.raises(errors.OutcomeUnknown, match=r"Look at its positions with group_offsets\(\)"):
            moved.result()
        assert broker.offsets[1] == 7

    def test_a_group_that_was_moved_at_the_same_time_is_an_error_at_first(self, rig, broker):
        broker.on_commitoffsets = lambda session, request, data: Refused(
            request.correlation, "PositionMoved", "moved"
        )
        with pytest.raises(errors.PositionMoved):
            rig.run(rig.operations.set_offsets("g", "t", {0: 5}))

    def refuse(self, broker, times):
        """Have this many moves be refused because a partition has changed hands; return what is asked."""
        asked = []

        def answer(session, request, data):
            asked.append(request)
            if len(asked) <= times:
                return Refused(request.correlation, "GenerationFenced", "claimed")
            return messages.Done(request.correlation)

        broker.on_commitoffsets = answer
        return asked

    def test_a_group_whose_partitions_change_hands_is_stopped_and_moved_all_the_same(self, rig, broker):
        asked = self.refuse(broker, 3)
        rig.run(rig.operations.set_offsets("g", "t", {0: 5}, stop=True))
        assert [request.stop for request in asked] == [True] * 4

    def test_one_whose_partitions_do_so_without_end_is_given_up(self, rig, broker):
        asked = self.refuse(broker, 1000)
        with pytest.raises(errors.GenerationFenced):
            rig.run(rig.operations.set_offsets("g", "t", {0: 5}, stop=True))
        assert len(asked) == MOVES

    def test_one_that_is_not_to_be_stopped_is_not_moved_again(self, rig, broker):
        asked = self.refuse(broker, 1)
        with pytest.raises(errors.GenerationFenced):
            rig.run(rig.operations.set_offsets("g", "t", {0: 5}))
        assert [request.stop for request in asked] == [False]

    def test_a_group_is_deleted_with_its_members_only_if_that_is_said(self, rig, broker):
        asked = []
        broker.on_deletegroup = lambda session, request, data: (
            asked.append(request.stop) or messages.Done(request.correlation)
        )
        rig.run(rig.operations.delete_group("g", stop=True))
        rig.run(rig.operations.delete_group("g"))
        assert asked == [True, False]

    def test_a_group_that_a_repeated_request_makes_is_another_one(self, rig, broker):
        core = rig.core
        request = messages.ClaimPartitions(core.correlation(), "g", "m", [1])

        async def claim():
            return await core.request(request, messages.Claimed)

        claimed, asked = self.lose_once(rig, broker, messages.ClaimPartitions, claim(), lambda request: None)
        assert claimed.result().claims == [(1, 2)], "the first one was carried out, too"
        assert asked[0] == request
        assert structs.replace(asked[1], id=request.id) == request
        assert asked[1].id != request.id


class TestRetryPolicies:
    POLICY = RetryPolicy(attempts=3, pause=0.25, longest=60, ending="stop")
    RULES = RetryRules(3, 250_000, 60_000_000, Ending.STOP)

    @pytest.fixture
    def asked(self, broker):
        asked = []
        broker.on_altergroup = lambda session, request, data: (
            asked.append(request) or messages.Done(request.correlation)
        )
        return asked

    @pytest.mark.parametrize(("policy", "rules"), [(POLICY, RULES), (None, None)])
    def test_a_group_gets_a_policy_whatever_it_had_before(self, rig, asked, policy, rules):
        rig.run(rig.operations.alter_group("g", retry=policy))
        [request] = asked
        assert (request.group, request.settings.retry, request.changed) == ("g", rules, ["retry"])
        assert request.whether is messages.Whether.ALWAYS

    def test_the_endings_of_programs_are_those_of_the_broker(self, rig, asked):
        for ending in ("dead_letter", "drop", "stop"):
            rig.run(rig.operations.alter_group("g", retry=RetryPolicy(ending=ending)))
        assert [each.settings.retry.ending for each in asked] == list(Ending)

    def test_a_policy_may_have_the_least_and_the_most_of_everything(self, rig, asked):
        year = 366 * 86_400
        rig.run(rig.operations.alter_group("g", retry=RetryPolicy(1, 0, 0)))
        rig.run(rig.operations.alter_group("g", retry=RetryPolicy(1000, year, year)))
        assert [structs.astuple(each.settings.retry)[:3] for each in asked] == [
            (1, 0, 0),
            (1000, MAX_PAUSE, MAX_PAUSE),
        ]

    def test_an_alteration_whose_answer_was_lost_is_repeated_as_one_that_makes_another_group(
        self, rig, broker
    ):
        asked = []
        broker.on_altergroup = lambda session, request, data: asked.append(request)
        altered = rig.start(rig.operations.alter_group("g", retry=self.POLICY))
        rig.cut()
        broker.on_altergroup = lambda session, request, data: (
            asked.append(request) or messages.Done(request.correlation)
        )
        rig.connect()
        assert altered.result() is None
        first, second = asked
        assert structs.replace(second, id=first.id) == first
        assert second.id != first.id

    def test_a_description_has_the_settings_of_the_group(self, rig, broker):
        rules = [GroupSettings(self.RULES), GroupSettings(expiry=90_500_000)]
        broker.on_describegroup = lambda session, request, data: messages.GroupMembers(
            request.correlation, "", [], [], b"g" * 16, rules.pop(0)
        )
        described = [rig.run(rig.operations.describe_group("g")) for _ in range(2)]
        assert [(each.retry, each.expiry) for each in described] == [(self.POLICY, None), (None, 90.5)]

    @pytest.mark.parametrize(
        ("expiry", "told"), [(None, None), (0, 0), (60, 60_000_000), (0.5 + 3600, 3_600_500_000)]
    )
    def test_a_time_of_expiry_is_changed_alone(self, rig, asked, expiry, told):
        rig.run(rig.operations.alter_group("g", expiry=expiry))
        [request] = asked
        assert (request.changed, request.settings) == (["expiry"], GroupSettings(expiry=told))

    def test_all_dead_letters_may_go_to_one_topic(self, rig, asked):
        rig.run(rig.operations.alter_group("g", retry=RetryPolicy(dead_letter_topic="failed.dead")))
        [request] = asked
        assert request.settings.retry.target == "failed.dead"


class TestForgettingOverALostAnswer:
    def test_it_names_number_and_xid_and_what_is_not_there_the_second_time_is_forgotten(self, rig, broker):
        xid = Xid(1, b"g", b"b")
        info = messages.TransactionInfo(9, 3, State.COMMITTED, xid, "me", 0, 0, 0, [], [])
        broker.on_showtransaction = lambda session, request, data: messages.TransactionShown(
            request.correlation, info, []
        )
        asked = []
        broker.on_forget = lambda session, request, data: asked.append(request)
        forgotten = rig.start(rig.operations.forget_transaction(xid, "ann", "seen to"))
        rig.cut()
        broker.on_forget = lambda session, request, data: (
            asked.append(request) or Refused(request.correlation, "UnknownTransaction", "no")
        )
        rig.connect()
        assert forgotten.result() is None
        assert [(each.session, each.serial, each.xid) for each in asked] == [(9, 3, xid)] * 2


class TestTopicsThatMayBeThere:
    def test_one_that_is_as_wanted_is_described_without_a_word(self, rig, broker, caplog):
        [there] = rig.run(rig.operations.topics(["t"]))
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        assert (
            rig.run(rig.operations.create_topic("t", 1, exist_ok=True, segment_bytes=SEGMENT_BYTES)) == there
        )
        assert rig.run(rig.operations.create_topic("t", None, exist_ok=True)) == there
        assert not caplog.records

    def test_in_what_a_topic_that_is_there_is_not_as_wanted_is_warned_of(self, rig, broker, caplog):
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        rig.run(
            rig.operations.create_topic("t2", 3, exist_ok=True, segment_bytes=1 << 20, retention_age=3600)
        )
        [record] = caplog.records
        assert (record.name, record.levelname) == ("txbroker.client", "WARNING")
        assert record.getMessage() == (
            "topic t2 exists already and is not changed: it has 2 partitions, not 3; "
            "its segment_bytes is 256MiB, not 1MiB; its retention_age is None, not 1h"
        )


class TestDescriptionOfAGroup:
    def describe(self, rig, broker, *told):
        broker.on_describegroup = lambda session, request, data: messages.GroupMembers(
            request.correlation, *told
        )
        return rig.run(rig.operations.describe_group("g"))

    def test_it_has_the_members_and_the_partitions_by_topic_and_index(self, rig, broker):
        members = [messages.MemberInfo(7, "me", "worker-1", "host:1", 1_500_000, ["t"], "p*")]
        parts = [
            messages.MemberPartition("t", 1, None, None, 9, 7, True, "1-2 (xid 1:x:y)"),
            messages.MemberPartition("t", 0, 5, 2, 8, kept=2_500_000, kept_for="worker-2", waiting=3_500_000),
            messages.MemberPartition("a", 3, 5, 0, 8),
        ]
        assert self.describe(rig, broker, "members", members, parts, b"i") == GroupDescription(
            "g",
            "members",
            [GroupMember(7, "me", "worker-1", "host:1", 1.5, ["t"], "p*")],
            [
                GroupPartition("a", 3, 5, 0, 8, None, False, "", 0.0, ""),
                GroupPartition("t", 0, 5, 2, 8, None, False, "", 2.5, "worker-2", 3.5),
                GroupPartition("t", 1, None, None, 9, 7, True, "1-2 (xid 1:x:y)", 0.0, ""),
            ],
            b"i",
        )

    def test_a_group_of_which_the_broker_knows_nothing_is_an_error(self, rig, broker):
        with pytest.raises(errors.UnknownGroup, match="no group 'g'"):
            self.describe(rig, broker, "", [], [], b"")

    @pytest.mark.parametrize("known", ["id", "members", "partitions"])
    def test_one_of_which_it_knows_anything_is_there(self, rig, broker, known):
        told = {
            "id": ("", [], [], b"i"),
            "members": ("members", [messages.MemberInfo(7, "me", "", "", 0, [], "*")], [], b""),
            "partitions": ("", [], [messages.MemberPartition("t", 0, None, None, 0)], b""),
        }[known]
        assert self.describe(rig, broker, *told).name == "g"
