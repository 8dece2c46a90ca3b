"""Test the simulation's model: each rule is broken once, and that is noticed."""

import ast
from pathlib import Path

import pytest

from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import DONE, OPEN, VOID, Model
from tests.simulation.model.model_scene import begin, read, send
from tests.support.repository import ROOT

MODELS = sorted(p for p in Path(__file__).parent.rglob("*model.py") if not p.stem.startswith("test_"))


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
    known = {".".join(other.relative_to(ROOT).with_suffix("").parts) for other in MODELS}
    assert {
        name for name in imported - known if name.partition(".")[0] in ("journal", "txbroker", "tests")
    } == set()
    assert len(source.splitlines()) < 150


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
        with pytest.raises(Violation, match="has ended"):
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

    def test_one_that_is_prepared_though_it_was_said_that_it_has_ended_is_noticed(self, model):
        begun = begin(model, {1: [b"a"]}, "prepare", "commit", serial=3)
        model.forgettable[1] = 3
        model.forgotten(begun)
        model.tick()
        with pytest.raises(Violation, match="has ended"):
            model.settle({1}, {begun.number})
        model.done(begun, {1: 0})

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
