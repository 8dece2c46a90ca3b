"""Test the simulation's model of groups: each rule is broken once, and that is noticed."""

import pytest

from tests.simulation.model.group_model import GroupModel
from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import DONE, Intent, Model
from tests.simulation.model.model_scene import begin


@pytest.fixture
def model():
    return Model()


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

    def test_the_rules_of_a_group_are_those_of_the_last_alteration_and_none_after_its_end(self, groups):
        def rules(found):
            groups.rules_read("g", found, groups.model.tick())

        def alter(token):
            intent = Intent(f"rules {token}")
            groups.model.tick()
            groups.rules["g"].append((intent, token))
            groups.model.ask(intent)
            return intent

        rules(None)
        for token in ("a", "b"):
            one = alter(token)
            groups.model.tick()
            groups.model.done(one)
        rules("b")
        for stale in (None, "a"):
            with pytest.raises(Violation, match="as the last one has said"):
                rules(stale)
        unanswered = alter("c")
        rules("b")
        rules("c")
        assert unanswered.state == DONE
        end = Intent("end", vague=True)
        groups.delete_with(end, "g")
        groups.model.tick()
        groups.model.ask(end)
        groups.deleted(end, "g", b"id", groups.model.tick())
        rules(None)
        with pytest.raises(Violation, match="as the last one has said"):
            rules("c")

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

    def test_a_group_that_is_deleted_by_who_meant_the_one_before_is_noticed(self, groups):
        for number in range(2):
            gone = Intent(f"deletion {number}")
            since = groups.model.tick()
            groups.delete_with(gone, "g")
            groups.model.ask(gone)
            if number:
                with pytest.raises(Violation, match="deleted once"):
                    groups.deleted(gone, "g", b"id", since)
            else:
                groups.deleted(gone, "g", b"id", since)

    def test_a_deleted_group_has_no_position_and_no_claims(self, groups):
        groups.claimed(self.KEY, 7, groups.model.tick())
        self.move_as(groups, 7)
        gone = Intent("deletion")
        since = groups.model.tick()
        groups.delete_with(gone, "g")
        groups.model.ask(gone)
        groups.model.tick()
        groups.deleted(gone, "g", b"id", since)
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
