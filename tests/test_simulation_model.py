"""The simulation's model tells the truth from every kind of lie: each rule is broken once, and noticed."""

import ast
from pathlib import Path

import pytest

from tests.simulation.group_model import GroupModel
from tests.simulation.log_model import Violation
from tests.simulation.model import DONE, OPEN, VOID, Intent, Model
from tests.simulation.topic_model import Topic, TopicModel

MODELS = sorted((Path(__file__).parent / "simulation").glob("*model.py"))


@pytest.fixture
def model():
    return Model()


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_is_small_and_knows_nothing_of_what_it_judges(path):
    source = path.read_text()
    imported = {
        node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    known = {f"tests.simulation.{other.stem}" for other in MODELS}
    assert {
        name for name in imported - known if name.partition(".")[0] in ("journal", "txbroker", "tests")
    } == set()
    assert len(source.splitlines()) < 150


def send(model, *values, partition=1, stream="s", place=0):
    """A send that has been asked for."""
    model.tick()
    intent = Intent(f"send of {values}", stream, place)
    model.put_into(intent, partition, values)
    model.ask(intent)
    return intent


def begin(model, values, *asked, serial=1, session=1):
    """A transaction of which so much has been asked."""
    model.tick()
    intent = Intent(f"transaction {serial}", f"t{serial}", number=(session, serial))
    for partition, messages in values.items():
        model.put_into(intent, partition, messages)
    for what in asked:
        model.ask(intent, what)
    model.transactions[session, serial] = intent
    return intent


def read(model, *values, partition=1, offset=0, end=None, start=0, floor=None):
    """Somebody reads these, and asked just before."""
    floor = floor or model.seen.floor(model.now, [partition])
    model.tick()
    model.saw(partition, start, len(values) + offset if end is None else end, offset, list(values), floor)


class TestLogs:
    def test_what_was_sent_may_be_there_and_must_be_once_it_is_acknowledged(self, model):
        one, two = send(model, b"a"), send(model, b"b", place=1)
        model.done(one, {1: 0})
        read(model, b"a", b"b")
        model.settle({1}, set())
        assert (one.state, two.state) == (DONE, DONE)

    def test_an_acknowledged_send_that_is_not_there_is_noticed(self, model):
        model.done(send(model, b"a"))
        with pytest.raises(Violation, match="happened: all of it is there"):
            model.settle({1}, set())

    def test_a_send_that_was_not_there_and_comes_later_is_noticed(self, model):
        sent = send(model, b"a")
        model.settle({1}, set())
        assert sent.state == VOID
        with pytest.raises(Violation, match="did not happen"):
            read(model, b"a")

    def test_a_send_that_was_refused_and_is_there_is_noticed(self, model):
        model.refused(send(model, b"a"))
        with pytest.raises(Violation, match="did not happen"):
            read(model, b"a")

    def test_a_refused_try_says_nothing_of_those_before_it(self, model):
        sent = send(model, b"a")
        model.ask(sent)
        model.refused(sent)
        assert sent.state == OPEN
        read(model, b"a")

    def test_a_send_that_is_tried_again_may_be_there_after_all(self, model):
        sent = send(model, b"a")
        model.settle({1}, set())
        model.ask(sent)
        read(model, b"a")
        assert sent.state == DONE

    def test_a_message_that_is_there_twice_is_noticed(self, model):
        send(model, b"a")
        with pytest.raises(Violation, match="only"):
            read(model, b"a", b"a")

    def test_a_message_in_another_log_is_noticed(self, model):
        send(model, b"a")
        with pytest.raises(Violation, match="what was sent to it"):
            read(model, b"a", partition=2)

    def test_a_message_that_nobody_sent_is_noticed(self, model):
        with pytest.raises(Violation, match="what was sent to it"):
            read(model, b"?")

    def test_a_message_that_changes_is_noticed(self, model):
        send(model, b"a"), send(model, b"b", place=1)
        read(model, b"a")
        with pytest.raises(Violation, match="stays at"):
            read(model, b"b")

    def test_a_message_elsewhere_than_its_answer_said_is_noticed(self, model):
        model.done(send(model, b"a"), {1: 0})
        send(model, b"b", stream="other")
        with pytest.raises(Violation, match="stays at"):
            read(model, b"b", b"a")

    @pytest.mark.parametrize(("start", "end"), [(0, 1), (1, 1)])
    def test_a_log_that_ends_earlier_than_one_knew_when_asking_is_noticed(self, model, start, end):
        send(model, b"a", b"b")
        read(model, b"a", b"b")
        with pytest.raises(Violation, match="has 0 to 2"):
            read(model, start=start, end=end)

    def test_a_log_that_starts_earlier_than_one_knew_is_noticed(self, model):
        send(model, b"a", b"b")
        read(model, b"b", offset=1, start=1)
        with pytest.raises(Violation, match="has 1 to 2"):
            read(model, b"a", b"b")

    def test_what_one_learned_after_asking_is_no_lie(self, model):
        send(model, b"a")
        early = model.seen.floor(model.now, [1])
        read(model, b"a")
        read(model, floor=early)

    def test_messages_beyond_the_end_are_noticed(self, model):
        send(model, b"a")
        with pytest.raises(Violation, match="up to 0"):
            read(model, b"a", end=0)

    def test_an_offset_that_is_left_out_is_noticed(self, model):
        send(model, b"a"), send(model, b"b", place=1)
        read(model, b"a", end=3)
        read(model, b"b", offset=2)
        with pytest.raises(Violation, match="has an offset 1"):
            model.settle({1}, set())

    def test_messages_of_one_producer_in_another_order_are_noticed(self, model):
        send(model, b"a"), send(model, b"b", place=1)
        read(model, b"b", b"a")
        with pytest.raises(Violation, match=r"has \(0, 0\) after \(1, 0\)"):
            model.settle({1}, set())

    def test_others_amid_what_was_sent_together_are_noticed(self, model):
        send(model, b"a", b"b"), send(model, b"x", stream="other")
        read(model, b"a", b"x", b"b")
        model.settle({1}, set())  # in order; but not together:
        model.seen.owners[b"x"].stream = "s"
        with pytest.raises(Violation):
            model.settle({1}, set())

    def test_half_of_a_request_is_noticed(self, model):
        send(model, b"a", b"b")
        read(model, b"a")
        with pytest.raises(Violation, match="wholly or not at all"):
            model.settle({1}, set())

    def test_of_logs_that_start_later_or_are_gone_nothing_is_demanded(self, model):
        model.done(begin(model, {1: [b"a"], 2: [b"b"], 3: [b"c"]}, "commit"))
        read(model, b"b", partition=2)
        model.seen.starts[1] = 5
        model.settle({1, 2}, set())


class TestTransactions:
    def test_a_commit_in_one_log_and_not_in_another_is_noticed(self, model):
        begin(model, {1: [b"a"], 2: [b"b"]}, "commit")
        read(model, b"a")
        with pytest.raises(Violation, match="wholly or not at all"):
            model.settle({1, 2}, set())

    def test_a_commit_that_one_answer_shows_in_part_is_noticed(self, model):
        model.done(begin(model, {1: [b"a"], 2: [b"b"]}, "commit"), {1: 0, 2: 0})
        model.one_moment({1: 1, 2: 1})
        model.one_moment({1: 0, 2: 0})
        with pytest.raises(Violation, match="everywhere at once"):
            model.one_moment({1: 1, 2: 0})

    def test_a_commit_that_was_shown_in_part_is_noticed_when_it_is_known_where_its_other_part_is(self, model):
        begin(model, {1: [b"a"], 2: [b"b"]}, "commit")
        read(model, b"a")
        model.one_moment({1: 1, 2: 0})
        read(model, b"b", partition=2)
        with pytest.raises(Violation, match="everywhere at once"):
            model.settle({1, 2}, set())

    def test_messages_of_one_that_nobody_asked_to_commit_are_noticed(self, model):
        begin(model, {1: [b"a"]}, "prepare")
        with pytest.raises(Violation, match="nobody asked"):
            read(model, b"a")

    def test_messages_of_one_that_was_rolled_back_are_noticed(self, model):
        begun = begin(model, {1: [b"a"]}, "commit", "rollback")
        model.void(begun)
        with pytest.raises(Violation, match="did not happen"):
            read(model, b"a")

    def test_two_outcomes_are_noticed(self, model):
        begun = begin(model, {1: [b"a"]}, "commit", "rollback")
        model.done(begun)
        with pytest.raises(Violation, match="happened"):
            model.void(begun)

    def test_one_of_which_a_part_was_refused_must_not_commit(self, model):
        begun = begin(model, {1: [b"a"]}, "commit")
        begun.doomed = True
        with pytest.raises(Violation, match="did not happen"):
            model.done(begun)

    def test_a_prepared_one_that_is_gone_is_noticed(self, model):
        begun = begin(model, {1: [b"a"]}, "prepare")
        model.prepared(begun, model.now)
        with pytest.raises(Violation, match="nobody asked to roll it back"):
            model.settle({1}, set())

    def test_a_prepared_one_that_is_listed_stays_and_can_end_either_way(self, model):
        for commit in (True, False):
            begun = begin(model, {1: [b"%d" % commit]}, "prepare", serial=1 + commit)
            model.prepared(begun, model.now)
            model.settle({1}, {begun.number})
            assert begun.state == OPEN
            model.ask(begun, "commit" if commit else "rollback")
            model.done(begun, {1: 0}) if commit else model.void(begun)
            model.settle({1}, set())

    def test_one_that_is_prepared_though_nobody_asked_is_noticed(self, model):
        with pytest.raises(Violation, match="nobody asked"):
            model.settle({1}, {begin(model, {1: [b"a"]}, "commit").number})

    def test_one_that_is_prepared_though_it_had_ended_before_anybody_asked_is_noticed(self, model):
        begun = begin(model, {1: [b"a"]}, "prepare", "commit")
        asked_before = model.now
        model.tick()
        model.done(begun)
        model.prepared(begun, asked_before)
        with pytest.raises(Violation, match="is done"):
            model.prepared(begun, model.tick())

    def test_one_that_is_active_or_unknown_again_after_it_was_prepared_is_noticed(self, model):
        begun = begin(model, {}, "prepare")
        asked_before = model.now
        model.tick()
        model.prepared(begun, asked_before)
        model.unprepared(begun, asked_before)
        with pytest.raises(Violation, match="was prepared"):
            model.unprepared(begun, model.tick())

    def test_an_outcome_may_be_forgotten_only_if_somebody_has_seen_it(self, model):
        begun = begin(model, {}, "commit", serial=3)
        model.forgettable[1] = 2
        with pytest.raises(Violation, match="nobody has seen it"):
            model.forgotten(begun)
        model.forgettable[1] = 3
        model.forgotten(begun)
        Model(forgetful=True).forgotten(begin(model, {}, serial=4))

    def test_a_policy_may_end_what_nobody_asked_to_end(self):
        for policy, end in (("commit", Model.done), ("rollback", Model.void)):
            model = Model(orphans=policy)
            begun = begin(model, {}, "prepare")
            model.prepared(begun, model.now)
            end(model, begun)

    def test_a_number_that_comes_again_is_noticed(self, model):
        model.fresh("session", 1)
        model.fresh("producer", 1)
        with pytest.raises(Violation, match="no session is used twice"):
            model.fresh("session", 1)


class TestTopics:
    @pytest.fixture
    def topics(self, model):
        return TopicModel(model)

    def make(self, topics, name="t", retained=False):
        topic = Topic(name, retained, Intent(f"making {name}"))
        topics.topics.append(topic)
        topics.model.ask(topic.created)
        return topic

    def delete(self, topics, topic):
        topics.model.tick()
        topic.deleted = Intent(f"deleting {topic.name}")
        topics.model.ask(topic.deleted)

    def test_one_that_was_acknowledged_and_is_not_there_is_noticed(self, topics):
        topics.made(self.make(topics), [1])
        with pytest.raises(Violation, match="happened"):
            topics.settle({})

    def test_one_that_was_deleted_and_is_there_is_noticed(self, topics):
        topic = self.make(topics)
        topics.made(topic, [1])
        self.delete(topics, topic)
        topics.model.done(topic.deleted)
        with pytest.raises(Violation, match=r"topics are \[\]"):
            topics.settle({"t": [1]})

    def test_one_that_nobody_asked_for_is_noticed(self, topics):
        with pytest.raises(Violation, match=r"topics are \[\]"):
            topics.settle({"t": [1]})

    def test_what_was_not_answered_may_be_so_or_so(self, topics):
        assert topics.settle({"t": [1]} if self.make(topics) else {}) == {1}
        self.make(topics, "u")
        assert topics.settle({"t": [1]}) == {1}
        self.delete(topics, topics.topics[0])
        assert topics.settle({"t": [1]}) == {1}
        self.delete(topics, topics.topics[0])
        assert topics.settle({}) == set()
        assert topics.topics[0].gone

    def test_partitions_that_change_or_come_again_are_noticed(self, topics):
        topics.made(self.make(topics), [1])
        with pytest.raises(Violation, match="has"):
            topics.settle({"t": [2]})
        with pytest.raises(Violation, match="used twice"):
            topics.made(self.make(topics, "u"), [1])

    def test_a_log_that_forgets_without_retention_or_is_read_after_its_deletion_is_noticed(self, topics):
        topic = self.make(topics)
        topics.made(topic, [1])
        topics.read(1, 0, 0)
        with pytest.raises(Violation, match="keeps all"):
            topics.read(1, 5, 0)
        asked_before = topics.model.now
        self.delete(topics, topic)
        topics.model.done(topic.deleted)
        topics.read(1, 0, asked_before)
        with pytest.raises(Violation, match="is deleted"):
            topics.read(1, 0, topics.model.tick())


class TestGroups:
    KEY = ("g", 1)

    @pytest.fixture
    def groups(self, model):
        return GroupModel(model)

    def move(self, groups, token, done=True):
        groups.model.tick()
        intent = Intent(f"move {token}")
        groups.move_with(intent, self.KEY, token)
        groups.model.ask(intent)
        if done:
            since = groups.model.now
            groups.model.tick()
            groups.moved(intent, {self.KEY: 0}, since)
        return intent

    def position(self, groups, token):
        groups.position(self.KEY, token, groups.model.tick())

    def test_a_position_is_that_of_the_last_move(self, groups):
        self.position(groups, None)
        self.move(groups, "a")
        self.move(groups, "b")
        self.position(groups, "b")
        for stale in (None, "a"):
            with pytest.raises(Violation, match="where the last one moved it"):
                self.position(groups, stale)

    def test_one_that_was_not_answered_may_have_moved_it_and_then_has_for_good(self, groups):
        self.move(groups, "a")
        self.move(groups, "b", done=False)
        self.position(groups, "a")
        self.position(groups, "b")
        with pytest.raises(Violation, match="where the last one moved it"):
            self.position(groups, "a")

    def test_moves_at_the_same_time_may_come_in_any_order(self, groups):
        one, two = self.move(groups, "a", done=False), self.move(groups, "b", done=False)
        for intent in (one, two):
            groups.model.tick()
            groups.model.done(intent)
        self.position(groups, "a")

    def test_a_refused_move_that_shows_is_noticed(self, groups):
        groups.model.refused(self.move(groups, "a", done=False))
        with pytest.raises(Violation, match="where the last one moved it"):
            self.position(groups, "a")

    def test_who_was_fenced_when_asking_must_not_move_it(self, groups):
        asked_before = groups.model.tick()
        groups.model.tick()
        groups.claimed(self.KEY, 7, asked_before)
        late = self.move(groups, "a", done=False)
        groups.moved(late, {self.KEY: 0}, asked_before)
        with pytest.raises(Violation, match=r"belongs to \[7\]"):
            self.move(groups, "b")

    def test_generations_only_grow(self, groups):
        groups.claimed(self.KEY, 7, groups.model.tick())
        groups.model.tick()
        with pytest.raises(Violation, match="above 7"):
            groups.claimed(self.KEY, 7, groups.model.tick())

    def test_a_deleted_group_has_no_position_and_no_claims(self, groups):
        groups.claimed(self.KEY, 7, groups.model.tick())
        self.move_as(groups, 7)
        gone = Intent("deletion")
        since = groups.model.tick()
        groups.delete_with(gone, "g")
        groups.model.ask(gone)
        groups.model.tick()
        groups.deleted(gone, "g", since)
        self.position(groups, None)
        self.move(groups, "b")
        self.position(groups, "b")

    def test_whether_a_group_that_had_no_position_was_deleted_cannot_be_seen_so_its_claims_may_stand_or_not(
        self, groups
    ):
        groups.claimed(self.KEY, 7, groups.model.tick())
        groups.model.tick()
        gone = Intent("deletion", vague=True)
        groups.delete_with(gone, "g")
        groups.model.ask(gone)
        groups.model.settle(set(), set())
        self.position(groups, None)
        self.move(groups, "a")

    def move_as(self, groups, generation):
        intent = self.move(groups, "a", done=False)
        groups.moved(intent, {self.KEY: generation}, groups.model.tick())

    def test_what_a_prepared_transaction_holds_must_not_move_and_must_be_said_to_be_held(self, groups):
        begun = begin(groups.model, {}, "prepare")
        groups.move_with(begun, self.KEY, "t")
        groups.model.prepared(begun, groups.model.tick())
        groups.model.tick()
        with pytest.raises(Violation, match="is held by"):
            self.move(groups, "a")
        groups.held(self.KEY, True, groups.model.tick())
        with pytest.raises(Violation, match="is held by"):
            groups.held(self.KEY, False, groups.model.tick())
        groups.model.ask(begun, "commit")
        groups.held(self.KEY, False, groups.model.tick())
