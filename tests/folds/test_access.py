"""Test what the fold of users and rules states of them, for people and for comparisons."""

from msgspec.structs import replace

from journal.folds.access import AccessFold
from journal.parties import Actor
from journal.records.access_entries import Effect, Resource, Right, Rule
from journal.records.access_records import RuleSet
from tests.support.builders import reread

ANN = Actor("ann", "ops")


def facts_of(*rules):
    fold = AccessFold()
    for lsn, rule in enumerate(rules, 7):
        fold.apply(lsn, RuleSet(rule, ANN, 1), b"")
    return {fact.what: said for fact, said in fold.facts()}


def test_a_rule_is_named_without_its_rights_which_are_what_is_stated_of_it():
    topics = Rule("role:loaders", Effect.ALLOW, Resource.TOPIC, "orders-", True, [Right.WRITE, Right.READ])
    broker = Rule("alice", Effect.DENY, Resource.BROKER, "", False, [Right.DESCRIBE])
    facts = facts_of(topics, broker)
    assert facts["rule allow role:loaders topic orders-*"] == ["read", "write"]
    assert facts["rule deny alice broker"] == ["describe"]


def test_a_rule_with_rights_is_written_as_people_write_it():
    assert (
        str(Rule("alice", Effect.ALLOW, Resource.TOPIC, "orders", True, [Right.READ, Right.WRITE]))
        == "allow alice read,write topic orders*"
    )


def test_the_rules_of_a_holder_are_found_without_looking_at_those_of_others_also_after_a_checkpoint():
    fold = AccessFold()
    mine = [Rule("ann", effect, Resource.TOPIC, "t", True, [Right.READ]) for effect in Effect]
    others = [Rule("role:ann", Effect.ALLOW, Resource.TOPIC, "t", True, [Right.READ])]
    for lsn, rule in enumerate([mine[0], *others, mine[1]], 1):
        fold.apply(lsn, RuleSet(rule, ANN, 1), b"")
    again = AccessFold()
    again.restore(reread(AccessFold, fold.snapshot()))
    for each in (fold, again):
        assert list(each.rules_of("ann")) == mine
        assert list(each.rules_of("role:ann")) == others
        assert not list(each.rules_of("bob"))
        for rule in mine:
            each.apply(each.changed + 1, RuleSet(replace(rule, rights=[]), ANN, 1), b"")
        assert not list(each.rules_of("ann"))
        assert list(each.rules.values()) == others
