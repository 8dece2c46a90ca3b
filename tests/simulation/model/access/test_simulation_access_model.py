"""Test the simulation's model of users, rules and quotas: each rule is broken once, and that is noticed."""

from types import SimpleNamespace

import pytest

from tests.simulation.model.access.access_model import AccessModel, Change
from tests.simulation.model.access.attempt_model import AttemptModel
from tests.simulation.model.access.need_model import NeedModel
from tests.simulation.model.access.quota_model import Opening, QuotaModel
from tests.simulation.model.access.rule_model import Access, Account, Meant, RuleKey
from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import Intent, Model
from tests.simulation.model.model_scene import begin
from tests.simulation.model.topic_model import Topic, TopicModel

ALICE = Account(frozenset(["DNS:alice"]), frozenset(["ops"]))
ON = Access(True, {"alice": ALICE})


def rule(resource="topic", pattern="", is_prefix=False, holder="alice", denies=False):
    return RuleKey(holder, denies, resource, pattern, is_prefix)


def having(*rules, access=ON):
    for key, *rights in rules:
        access = access.with_rule(key, frozenset(rights))
    return access


class TestRules:
    def may(self, access, right="read", name="ab", resource="topic", **meant):
        return access.allows("alice", right, resource, Meant(name, **meant))

    def test_nothing_is_allowed_that_no_rule_allows_and_one_that_denies_wins(self):
        assert not self.may(ON)
        allowed = having((rule(pattern="a", is_prefix=True), "read"))
        assert self.may(allowed)
        assert not self.may(allowed, "write")
        assert not self.may(allowed, name="b")
        assert not self.may(allowed, resource="group")
        assert not self.may(having((rule(pattern="ab", denies=True), "read"), access=allowed))
        assert self.may(having((rule(pattern="ab", denies=True), "write"), access=allowed))

    def test_a_rule_about_a_name_is_about_no_longer_one(self):
        assert not self.may(having((rule(pattern="a"), "read")))

    def test_whoever_may_do_anything_with_a_thing_may_describe_it_but_a_rule_denies_only_what_it_says(self):
        allowed = having((rule(pattern="ab"), "read"), (rule(pattern="ab", denies=True), "write"))
        assert self.may(allowed, "describe")
        assert not self.may(having((rule(pattern="ab", denies=True), "describe"), access=allowed), "describe")

    def test_roles_count_for_those_who_have_them(self):
        assert self.may(having((rule(pattern="ab", holder="role:ops"), "read")))
        assert not self.may(having((rule(pattern="ab", holder="role:dev"), "read")))
        assert ON.held_by("role:ops") == ON.held_by("alice") == {"alice"}
        assert ON.held_by("role:dev") == set()

    def test_all_that_begin_so_are_allowed_by_a_rule_about_all_of_them_and_denied_by_one_about_some(self):
        assert self.may(having((rule(pattern="a", is_prefix=True), "read")), is_prefix=True)
        assert not self.may(having((rule(pattern="abc", is_prefix=True), "read")), is_prefix=True)
        everything = having((rule(is_prefix=True), "read"))
        assert not self.may(
            having((rule(pattern="abc", denies=True), "read"), access=everything), is_prefix=True
        )

    def test_a_thing_that_is_not_known_needs_the_right_on_everything(self):
        assert not self.may(having((rule(pattern="a", is_prefix=True), "read")), name=None)
        everything = having((rule(is_prefix=True), "read"))
        assert self.may(everything, name=None)
        assert not self.may(having((rule(pattern="z", denies=True), "read"), access=everything), name=None)

    def test_a_thing_may_have_two_names(self):
        allowed = having((rule("transaction", "owner:bob"), "decide"))
        assert self.may(allowed, "decide", "x", "transaction", also="owner:bob")
        assert not self.may(allowed, "decide", "x", "transaction", also="owner:carol")

    def test_whoever_is_no_user_may_nothing_and_the_administrator_everything(self):
        allowed = having((rule(is_prefix=True, holder="bob"), "read"))
        assert not allowed.allows("bob", "read", "topic", Meant("a"))
        assert allowed.allows("@admin", "read", "topic", Meant("a"))
        assert Access().allows("anonymous", "read", "topic", Meant("a"))

    def test_there_is_an_administrator_only_if_it_can_log_in(self):
        able = having((rule("broker"), "administer"))
        assert able.has_administrator()
        assert not ON.has_administrator()
        assert not able.with_user("alice", Account()).has_administrator()
        assert not having((rule("broker", denies=True), "administer"), access=able).has_administrator()

    def test_a_certificate_of_two_lets_in_nobody(self):
        assert ON.user_of("DNS:alice") == "alice"
        assert ON.user_of("DNS:bob") is None
        assert ON.with_user("bob", ALICE).user_of("DNS:alice") is None


@pytest.fixture
def access():
    made = AccessModel(Model())
    change(made, ON)
    return made


def change(access, after, refusal="", ends=(), done=True):
    access.model.tick()
    access.ask(Change("a change", after, refusal, set(ends).__contains__))
    access.model.tick()
    if done:
        access.done()
        access.model.tick()


class TestChanges:
    def test_one_that_was_answered_is_there_and_the_last_one_may_be(self, access):
        after = ON.with_user("bob", Account())
        change(access, after, done=False)
        access.found(after)
        change(access, ON, done=False)
        access.found(after)
        change(access, ON)
        with pytest.raises(Violation, match="users and rules are"):
            access.found(after)

    def test_one_that_is_refused_for_a_reason_is_not_there(self, access):
        change(access, ON, refusal="UserExists", done=False)
        access.refused("UserExists")
        change(access, ON, done=False)
        access.refused("DiskFull")
        change(access, ON, done=False)
        with pytest.raises(Violation, match="it happens"):
            access.refused("UserExists")

    def test_one_that_must_be_refused_is(self, access):
        with pytest.raises(Violation, match="refused with UserExists"):
            change(access, ON, refusal="UserExists")

    def test_who_reads_all_reads_a_state_that_was_possible(self, access):
        before = access.model.now
        access.model.tick()
        change(access, Access())
        access.read(ON, before)
        access.read(Access(), before)
        with pytest.raises(Violation, match="one of"):
            access.read(ON, access.model.tick())


class TestSessions:
    def test_who_is_a_user_comes_in_and_nobody_else(self, access):
        now = access.model.tick()
        access.came_in(1, "alice", "DNS:alice", now)
        assert access.principals == {1: "alice"}
        for principal, certificate in (("bob", "DNS:alice"), ("alice", "DNS:bob"), ("anonymous", "")):
            with pytest.raises(Violation):
                access.came_in(2, principal, certificate, now)

    def test_who_is_no_user_stays_outside_and_a_user_does_not(self, access):
        now = access.model.tick()
        access.stayed_outside("DNS:bob", "", now)
        access.stayed_outside("", "", now)
        access.stayed_outside("DNS:alice", "bob", now)
        for before in ("", "alice"):
            with pytest.raises(Violation, match="was refused"):
                access.stayed_outside("DNS:alice", before, now)

    def test_where_nobody_has_to_log_in_nobody_is_kept_outside(self):
        access = AccessModel(Model())
        now = access.model.tick()
        access.came_in(1, "anonymous", "", now)
        with pytest.raises(Violation, match="nobody has to log in"):
            access.stayed_outside("", "", now)

    def test_a_session_does_not_go_on_behind_a_change_that_ends_it(self, access):
        login = access.model.tick(), access.model.tick()
        asked = access.model.tick()
        change(access, ON, ends=["alice"])
        access.answered("alice", login, asked)
        access.answered("bob", login, access.model.tick())
        access.answered("alice", (access.model.tick(), access.model.tick()), access.model.tick())
        with pytest.raises(Violation, match="ended with"):
            access.answered("alice", login, access.model.tick())

    def test_a_session_ends_only_because_of_a_change(self, access):
        login = access.model.tick(), access.model.tick()
        change(access, ON, ends=["alice"], done=False)
        access.sent_away("alice", login)
        with pytest.raises(Violation, match="nothing ends"):
            access.sent_away("bob", login)


class TestRequests:
    @pytest.fixture
    def needs(self, access):
        return NeedModel(access.model, TopicModel(access.model), access.principals)

    def judge(self, access, needs, kind, since, principal="alice", **fields):
        return needs.of(kind, SimpleNamespace(**fields), principal, since)

    def test_one_is_carried_out_or_refused_as_a_possible_state_says(self, access, needs):
        since = access.model.tick()
        wanted = self.judge(access, needs, "CreateTopic", since, name="a")
        access.denied("alice", "CreateTopic", wanted, since)
        with pytest.raises(Violation, match="it was carried out"):
            access.allowed("alice", "CreateTopic", wanted, since)
        change(access, having((rule(is_prefix=True), "create")))
        access.allowed("alice", "CreateTopic", wanted, since)
        access.denied("alice", "CreateTopic", wanted, since)
        with pytest.raises(Violation, match="it was refused"):
            access.denied("alice", "CreateTopic", wanted, access.model.tick())

    def test_a_partition_is_its_topic_and_whatever_it_was_once_that_may_be_deleted(self, access, needs):
        topic = Topic("a", False, Intent("made"), 1)
        needs._topics.homes[7] = topic
        change(access, having((rule(pattern="a"), "write")))
        since = access.model.tick()
        for _ in range(2):
            access.allowed("alice", "Send", self.judge(access, needs, "Send", since, partition=7), since)
            with pytest.raises(Violation):
                access.denied("alice", "Send", self.judge(access, needs, "Send", since, partition=7), since)
        topic.deleted = Intent("deleted")
        access.denied("alice", "Send", self.judge(access, needs, "Send", since, partition=7), since)

    def test_what_is_prepared_is_its_principals_and_another_needs_a_right(self, access, needs):
        begun = begin(access.model, {}, "prepare", session=5, serial=2)
        access.principals[5], needs.names[5, 2] = "alice", "x1"
        access.model.prepared(begun, access.model.now)
        since = access.model.tick()
        fields = {"session": 5, "serial": 2, "xid": None, "operator": False}
        own = self.judge(access, needs, "Commit", since, **fields)
        access.allowed("alice", "Commit", own, since)
        with pytest.raises(Violation, match="it was refused"):
            access.denied("alice", "Commit", own, since)
        change(access, access.last.with_user("bob", Account()))
        since = access.model.tick()
        others = self.judge(access, needs, "Commit", since, "bob", **fields)
        access.denied("bob", "Commit", others, since)
        with pytest.raises(Violation, match="it was carried out"):
            access.allowed("bob", "Commit", others, since)
        change(
            access, having((rule("transaction", "owner:alice", holder="bob"), "decide"), access=access.last)
        )
        access.allowed("bob", "Commit", others, access.model.tick())

    def test_who_was_refused_has_not_asked_unless_somebody_else_has(self, access):
        attempts, begun = AttemptModel(access.model), begin(access.model, {}, "commit")
        for _ in range(2):
            attempts.asked(begun, "commit")
        attempts.refused(begun, "commit")
        assert begun.asked == {"commit"}
        assert attempts.is_only(begun, "commit")
        attempts.refused(begun, "commit")
        assert begun.asked == set()
        with pytest.raises(Violation, match="nobody asked"):
            access.model.done(begun)


class TestQuotas:
    @pytest.fixture
    def quotas(self, access):
        change(access, ON.with_user("alice", Account(quotas={"prepared": 1})))
        return QuotaModel(access, TopicModel(access.model))

    def test_no_more_is_made_than_a_quota_has_allowed(self, access, quotas):
        since = access.model.tick()
        quotas.made("prepared", "alice", 0, since)
        quotas.made("topics", "alice", 100, since)
        quotas.made("prepared", "bob", 100, since)
        with pytest.raises(Violation, match="at most"):
            quotas.made("prepared", "alice", 1, since)
        change(access, ON)
        quotas.made("prepared", "alice", 1, since)

    def test_nothing_is_refused_below_a_quota_or_for_another(self, access, quotas):
        since = access.model.tick()
        quotas.refused("prepared", "alice", 1, 1, since)
        for limit, most in ((1, 0), (2, 2)):
            with pytest.raises(Violation):
                quotas.refused("prepared", "alice", limit, most, since)

    def test_what_is_prepared_is_counted_until_somebody_ends_it(self, access, quotas):
        begun = begin(access.model, {}, "prepare", session=5)
        access.principals[5] = "alice"
        access.model.prepared(begun, access.model.now)
        since = access.model.tick()
        assert quotas.prepared("alice", since, Intent("another")) == (1, 1)
        assert quotas.prepared("bob", since, Intent("another")) == (0, 0)
        assert quotas.prepared("alice", since, begun) == (0, 0)
        access.model.ask(begun)
        assert quotas.prepared("alice", since, Intent("another")) == (0, 1)
        access.model.done(begun)
        access.model.tick()
        assert quotas.prepared("alice", access.model.tick(), Intent("another")) == (0, 0)

    def test_topics_are_counted_until_they_are_gone(self, access, quotas):
        made, deleted = Intent("made"), Intent("deleted")
        topic = Topic("a", False, made, 1)
        quotas.topics.topics.append(topic)
        quotas.makers[topic] = "alice"
        access.model.ask(made)
        assert quotas.made_topics("alice", access.model.tick(), None) == (0, 1)
        access.model.done(made)
        access.model.tick()
        assert quotas.made_topics("alice", access.model.tick(), None) == (1, 1)
        topic.deleted = deleted
        access.model.ask(deleted)
        assert quotas.made_topics("alice", access.model.tick(), None) == (0, 1)
        access.model.done(deleted)
        access.model.tick()
        assert quotas.made_topics("alice", access.model.tick(), None) == (0, 0)

    def test_a_producer_with_a_name_is_counted_once_and_surely_only_if_nobody_else_has_opened_it(
        self, quotas
    ):
        quotas.openings += [Opening(name, "alice", 1, 2) for name in ("", "", "n", "n", "m")]
        quotas.openings.append(Opening("m", "bob", 1))
        assert quotas.producers("alice", 3, Opening("", "alice", 3)) == (3, 4)
        assert quotas.producers("bob", 3, quotas.openings[-1]) == (0, 0)
