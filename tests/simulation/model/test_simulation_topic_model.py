"""Test the simulation's model of topics: each rule is broken once, and that is noticed."""

import pytest

from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import Intent, Model
from tests.simulation.model.topic_model import Topic, TopicModel


@pytest.fixture
def model():
    return Model()


class TestTopics:
    @pytest.fixture
    def topics(self, model):
        return TopicModel(model)

    def make(self, topics, name="t", retained=False, partitions=1):
        topic = Topic(name, retained, Intent(f"making {name}"), partitions)
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

    def test_dead_letters_are_there_only_of_topics_whose_messages_were_handled(self, topics):
        topics.made(self.make(topics), [1])
        topics.made(self.make(topics, "u"), [2])
        assert topics.dead == set()
        topics.handles(1)
        assert topics.dead == {"t.dead"}
        assert topics.most_dead_partitions() == 1

    def test_what_was_not_answered_may_be_so_or_so(self, topics):
        assert topics.settle({"t": [1]} if self.make(topics) else {}) == {1}
        self.make(topics, "u")
        assert topics.settle({"t": [1]}) == {1}
        self.delete(topics, topics.topics[0])
        assert topics.settle({"t": [1]}) == {1}
        self.delete(topics, topics.topics[0])
        assert topics.settle({}) == set()
        assert topics.topics[0].gone

    def test_one_that_is_deleted_by_who_meant_the_one_before_is_noticed(self, topics):
        topic = self.make(topics)
        topics.made(topic, [1])
        self.delete(topics, topic)
        topics.deleted_again(topic)
        topics.model.done(topic.deleted)
        with pytest.raises(Violation, match="deleted once"):
            topics.deleted_again(topic)

    def test_one_with_another_id_is_noticed(self, topics):
        self.make(topics).id = b"one"
        topics.named("t", b"one")
        with pytest.raises(Violation, match="the id of topic t"):
            topics.named("t", b"other")

    def test_partitions_that_change_or_come_again_are_noticed(self, topics):
        topics.made(self.make(topics), [1])
        with pytest.raises(Violation, match="has"):
            topics.settle({"t": [2]})
        with pytest.raises(Violation, match="used twice"):
            topics.made(self.make(topics, "u"), [1])

    def test_a_topic_that_grew_may_be_told_of_late_but_never_has_fewer_other_or_unasked_partitions(
        self, topics
    ):
        topic = self.make(topics, partitions=2)
        topics.made(topic, [1, 2])
        topic.most = 4
        topics.made(topic, [1, 2, 4])
        topics.made(topic, [1, 2])  # an answer from before
        assert topic.partitions == [1, 2, 4]
        assert topics.homes[4] is topic
        for numbers, said in (([1, 2], "t has"), ([1, 2, 5], "t has"), ([2, 1, 4], "t has"), ([], "t has")):
            with pytest.raises(Violation, match=said):
                topics.settle({"t": numbers})
        with pytest.raises(Violation, match="at most 4"):
            topics.settle({"t": [1, 2, 4, 5, 6]})
        with pytest.raises(Violation, match="used twice"):
            topics.settle({"t": [1, 2, 4, 2]})
        assert topics.settle({"t": [1, 2, 4, 5]}) == {1, 2, 4, 5}

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
