"""Test the simulation's model of members: each rule is broken once, and that is noticed."""

import pytest

from tests.simulation.model.log_model import Violation
from tests.simulation.model.member_model import MemberModel
from tests.simulation.model.model import Intent, Model
from tests.simulation.model.model_scene import begin

KEY = ("m", 1)


@pytest.fixture
def members():
    return MemberModel(Model())


def assigned(members, generation, member, since=None):
    since = members.model.tick() if since is None else since
    members.model.tick()
    members.assigned(KEY, generation, member, since)


def finish(members, *offsets, generation=1, what="commit"):
    """A transaction that finishes these offsets, and has been asked for."""
    serial = len(members.works) + 1
    intent = begin(members.model, {}, serial=serial)
    members.work_with(intent, KEY, generation, list(offsets))
    members.model.tick()
    members.model.ask(intent, what)
    return intent


def done(members, intent):
    members.model.tick()
    members.model.done(intent)
    members.model.tick()


def read(members, *, finished=(), waiting=(), retained=False):
    members.read(KEY, range(4), finished, waiting, retained, members.model.tick())


class TestClaims:
    def test_a_generation_of_a_partition_is_one_members(self, members):
        assigned(members, 1, "one")
        assigned(members, 1, "one")
        with pytest.raises(Violation, match=r"generation 1 of .* is one's"):
            assigned(members, 1, "two")

    def test_generations_grow(self, members):
        assigned(members, 2, "one")
        assigned(members, 3, "two")
        with pytest.raises(Violation, match="is claimed with 3 or more"):
            assigned(members, 2, "one")

    def test_an_answer_that_was_on_its_way_may_tell_of_an_older_one(self, members):
        since = members.model.tick()
        assigned(members, 3, "two")
        assigned(members, 2, "one", since)

    def test_what_was_refused_as_old_is_never_said_to_be_the_last_one_again(self, members):
        members.fenced(KEY, 2, members.model.tick())
        members.model.tick()
        members.stands(KEY, 3, members.model.tick())
        with pytest.raises(Violation, match="is claimed with 3 or more"):
            members.stands(KEY, 2, members.model.tick())

    def test_what_was_told_is_not_lost(self, members):
        assigned(members, 2, "one")
        with pytest.raises(Violation, match="is claimed with 2 or more"):
            members.stands(KEY, 0, members.model.tick())


class TestWork:
    def test_an_older_generation_finishes_nothing_that_is_asked_for_after_a_newer_one_is_known(self, members):
        early = finish(members, 0, generation=1)
        assigned(members, 2, "two")
        members.model.tick()
        members.accepted(early)
        with pytest.raises(Violation, match="is claimed with 2 or more"):
            members.accepted(finish(members, 1, generation=1))
        members.accepted(finish(members, 1, generation=2))

    @pytest.mark.parametrize("what", ["commit", "prepare"])
    def test_in_the_end_too(self, members, what):
        assigned(members, 2, "two")
        members.model.tick()
        intent = finish(members, 0, generation=1, what=what)
        members.settle()
        if what == "commit":
            members.model.done(intent)
        else:
            members.model.prepared(intent, members.model.now - 1)
        with pytest.raises(Violation, match="is claimed with 2 or more"):
            members.settle()

    def test_a_message_has_one_effect(self, members):
        for intent in (finish(members, 0, 1), finish(members, 2)):
            done(members, intent)
        members.settle()
        done(members, finish(members, 1))
        with pytest.raises(Violation, match=r"offset 1 of .* is finished once"):
            members.settle()

    def test_what_is_finished_is_not_handed_out_again(self, members):
        intent = finish(members, 1)
        read(members)
        done(members, intent)
        read(members, finished={1})
        with pytest.raises(Violation, match=r"offset 1 of .* is finished by"):
            read(members)

    def test_what_waits_is_not_handed_out(self, members):
        done(members, finish(members, 1))
        read(members, waiting={1})

    def test_nothing_is_finished_that_nobody_has_asked_to_finish(self, members):
        with pytest.raises(Violation, match="somebody has asked to finish offset 2"):
            read(members, finished={2})
        members.model.void(finish(members, 2))
        with pytest.raises(Violation, match="somebody has asked to finish offset 2"):
            read(members, finished={2})
        read(members, finished={2}, retained=True)

    def test_a_position_is_the_lowest_offset_that_is_not_finished(self, members):
        def position(offset, retained=False):
            members.begins(KEY, offset, retained, members.model.tick())

        position(0)
        with pytest.raises(Violation, match="somebody has asked to finish offset 0"):
            position(1)
        position(1, retained=True)
        done(members, finish(members, 0))
        position(1)
        with pytest.raises(Violation, match=r"offset 0 of .* is finished by"):
            position(0)

    def test_what_nobody_has_finished_is_left(self, members):
        done(members, finish(members, 0))
        lost, refused = Intent("lost", vague=True), Intent("refused", vague=True)
        for intent, offset in ((lost, 1), (refused, 2)):
            members.work_with(intent, KEY, 1, [offset])
            members.model.ask(intent)
        members.model.refused(refused)
        finish(members, 3)
        assert members.unfinished(KEY, range(5)) == [2, 3, 4]
