"""The judge finds each kind of wrong answer, and takes what is right by a standing that may have held meanwhile."""

from collections import Counter

import pytest

from tests.access_drill.acts import Act, Block, Notes, Result
from tests.access_drill.judge import Judge
from tests.access_drill.rules_model import Account, Need, Shown, Standing
from tests.access_drill.timeline import Timeline
from tests.simulation.model.access.rule_model import RuleKey

WAY = ("password", "sesame")
WRITE = RuleKey("pat", False, "topic", "red-", True)
NEED = Need("write", "topic", "red-0")
MAY = Standing({"pat": Account(frozenset({WAY}))}, {WRITE: frozenset({"write"})})
MAY_NOT = MAY._replace(rules={})
GONE = MAY._replace(accounts={})
ALL_TOPICS = ["blue-0", "blue-1", "red-0", "red-1"]


@pytest.fixture
def timeline():
    """A right is taken away from 10 to 11, and the user removed from 20 to 21."""
    times = iter([10.0, 11.0, 20.0, 21.0])
    found = Timeline(MAY, lambda: next(times))
    for standing in (MAY_NOT, GONE):
        found.begin(standing)
        found.settle()
    return found


@pytest.fixture
def judged(timeline):
    def judge(*acts, stored=(), topics=(), blocks=()):
        notes = Notes()
        notes.acts += acts
        notes.blocks += blocks
        return list(Judge(notes, timeline).judge(Counter(stored), topics))

    return judge


def act(what="send", began=1.0, ended=2.0, result=Result.DONE, needs=(NEED,), **more):
    return Act(who="pat", what=what, began=began, ended=ended, result=result, needs=list(needs), **more)


def denied(began, ended, right="write"):
    return act(began=began, ended=ended, result=Result.DENIED, right=right, kind="topic")


@pytest.mark.parametrize(("began", "ended"), [(1, 2), (9, 10.5), (10.2, 10.3), (10.9, 15)])
def test_what_was_allowed_at_some_moment_may_be_done(judged, began, ended):
    assert not judged(act(began=began, ended=ended))


@pytest.mark.parametrize(("began", "ended"), [(11.1, 12), (25, 26)])
def test_what_was_never_allowed_meanwhile_may_not(judged, began, ended):
    assert "not allowed" in " ".join(judged(act(began=began, ended=ended)))


@pytest.mark.parametrize(("began", "ended"), [(9, 10.5), (11, 12), (20.5, 22)])
def test_a_denial_is_right_where_the_right_was_missing_at_some_moment(judged, began, ended):
    assert not judged(denied(began, ended))


def test_a_denial_is_wrong_where_it_was_allowed_all_the_time_or_names_another_right(judged):
    assert "allowed all the time" in judged(denied(1, 2))[0]
    assert "does not need" in judged(denied(15, 16, right="read"))[0]


def test_a_login_is_judged_by_what_was_shown(judged):
    right, wrong = Shown(WAY), Shown(("password", "wrong"))
    assert not judged(act("log in", shown=[right], needs=()))
    assert "let in with" in judged(act("log in", shown=[wrong], needs=()))[0]
    assert "let in with" in judged(act("log in", 22, 23, shown=[right], needs=()))[0]
    assert not judged(act("log in", result=Result.OUT, shown=[wrong], needs=()))
    assert not judged(act("log in", 20.5, 23, result=Result.OUT, shown=[right], needs=()))
    assert "not let in" in judged(act("log in", result=Result.OUT, shown=[right], needs=()))[0]


def test_a_token_needs_a_key_that_is_trusted(timeline):
    timeline.eras[0].standing = Standing(
        {"pat": Account(frozenset({("token", "pat")}))}, {}, frozenset({"new"})
    )
    notes = Notes()
    notes.acts.append(act("log in", shown=[Shown(("token", "pat"), "old")], needs=()))
    assert "let in with" in next(Judge(notes, timeline).judge(Counter(), ()))


def test_a_removed_user_does_nothing_more(judged):
    assert "no such user" in judged(act("status", 22, 23, needs=()))[0]
    assert "its session went on" in judged(denied(22, 23))[0]


def test_messages_are_there_once_if_acknowledged_never_if_refused_and_nobody_makes_them_up(judged):
    sent = act(messages=["a"])
    assert not judged(sent, stored=["a"])
    assert "0 of ['a'] are stored" in judged(sent)[0]
    assert "2 times" in judged(sent, stored=["a", "a"])[0]
    refused = act(began=15, ended=16, result=Result.DENIED, right="write", kind="topic", messages=["a"])
    assert "1 of ['a']" in judged(refused, stored=["a"])[0]
    assert "nobody has sent" in judged(stored=["b"])[0]
    unknown = act(result=Result.UNKNOWN, messages=["a", "b"])
    assert not judged(unknown)
    assert not judged(unknown, stored=["a", "b"])
    assert "not all" in judged(unknown, stored=["a"])[0]


def block(result=Result.DONE, commits=True, began=3.0, decisions=()):
    prepare = act("prepare", began, began + 1, result, needs=(), messages=[f"at {began}"], xid=f"red-{began}")
    return Block(xid=f"red-{began}", owner="pat", commits=commits, prepare=prepare, decisions=list(decisions))


def test_what_was_prepared_is_stored_as_was_decided(judged):
    for made, stored in ((block(), ["at 3.0"]), (block(commits=False), []), (block(Result.UNKNOWN), [])):
        assert not judged(made.prepare, stored=stored, blocks=[made])
    assert judged(block().prepare, blocks=[block()])
    assert judged(block(commits=False).prepare, stored=["at 3.0"], blocks=[block(commits=False)])


def test_the_owner_ends_what_it_has_prepared_whatever_was_taken_away(judged):
    def ended(result, **more):
        end = act("end own", 15, 16, result, needs=(), xid="red-3.0", **more)
        made = block(decisions=[end])
        return judged(made.prepare, end, stored=["at 3.0"], blocks=[made])

    assert not ended(Result.DONE)
    assert "does not need" in ended(Result.DENIED, right="decide", kind="transaction")[0]
    assert "could not be ended" in ended(Result.REFUSED, error="UnknownTransaction: none")[0]


def test_a_list_of_transactions_is_whole(judged):
    made = block()
    listed = act("list prepared", 5, 6, needs=(), xid="red-", found=[])
    assert "lacks red-3.0" in judged(made.prepare, listed, stored=["at 3.0"], blocks=[made])[0]
    listed.found = ["red-3.0"]
    assert not judged(made.prepare, listed, stored=["at 3.0"], blocks=[made])


def test_a_list_of_topics_has_what_may_be_described_and_says_that_there_are_others(judged):
    def listed(found, others, began=1.0, ended=2.0):
        return judged(act("list topics", began, ended, needs=(), found=found, has_others=others))

    assert not listed(["red-0", "red-1"], True)
    assert "has topic blue-0" in listed(["blue-0", "red-0", "red-1"], True)[0]
    assert "lacks topic red-1" in listed(["red-0"], True)[0]
    assert "does not say" in " ".join(listed(["red-0", "red-1"], False))
    assert not listed(ALL_TOPICS[2:], True, 9, 12)


def test_a_quota_is_judged_by_what_was_surely_and_what_was_perhaps_prepared(timeline):
    for quota, refused, wrong in ((1, False, True), (1, True, False), (2, False, False), (2, True, True)):
        account = Account(frozenset({WAY}), prepared=quota)
        timeline.eras[0].standing = MAY.with_account("pat", account)
        first, second = block(began=3.0), block(began=5.0)
        if refused:
            second.prepare.result, second.prepare.error = Result.REFUSED, "LimitExceeded: one too many"
        notes = Notes()
        notes.acts += [first.prepare, second.prepare]
        notes.blocks += [first, second]
        stored = ["at 3.0"] if refused else ["at 3.0", "at 5.0"]
        assert bool(list(Judge(notes, timeline).judge(Counter(stored), ()))) is wrong, (quota, refused)


def test_topics_are_there_if_they_were_made_and_not_if_that_was_refused(judged):
    made = act("create topic", needs=(), made="red-made-1")
    assert not judged(made, topics=["red-made-1"])
    assert "is not there" in judged(made)[0]
    refused = act(
        "create topic", 15, 16, Result.REFUSED, needs=(), made="red-made-1", error="TopicExists: it does"
    )
    assert "making it was refused" in judged(refused, topics=["red-made-1"])[-1]
    deleted = act("delete topic", needs=(), found=["red-made-1"])
    assert not judged(made, deleted)
    assert "was deleted" in judged(made, deleted, topics=["red-made-1"])[0]


def test_a_rule_that_denies_wins_and_one_about_a_part_denies_the_whole():
    deny = RuleKey("role:reds", True, "topic", "red-1", False)
    account = Account(frozenset({WAY}), frozenset({"reds"}))
    standing = MAY.with_account("pat", account).with_rights(deny, ["write"])
    names = {"red-0": True, "red-1": False, "red-10": True, "blue-0": False}
    assert {name: standing.allows("pat", Need("write", "topic", name)) for name in names} == names
    assert not standing.allows("pat", Need("write", "topic", "red-", is_prefix=True))
    assert MAY.allows("pat", Need("write", "topic", "red-", is_prefix=True))
    assert not MAY.allows("pat", Need("write", "topic", "re", is_prefix=True))
    assert MAY.allows("pat", Need("describe", "topic", "red-7"))
    assert standing.with_rights(deny, ["write"], forget=True).allows("pat", Need("write", "topic", "red-1"))


def test_clocks_of_changes_only_grow(timeline):
    assert [era.began for era in timeline.eras[1:]] == [10.0, 20.0]
    assert [each is MAY for each in timeline.between(11.5, 12)] == [False]
