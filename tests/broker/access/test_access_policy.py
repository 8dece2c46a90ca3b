"""Test what rules say: literal and prefix, allow and deny, roles, the broker's own topics, names of transactions.

A model judges beside it, written apart: over small worlds of names and rules, every question is asked of both.
"""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.folds.access import AccessFold
from journal.parties import Actor
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.records.access_records import RuleSet
from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
)
from journal.settings import TopicSettings
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.xid import Xid
from tests.support.broker_room import Room, frames, refused
from txbroker.broker.access.access_policy import AccessPolicy, decided, denied
from txbroker.broker.sessions.things import Thing, resource_name, xid_thing
from txbroker.wire import messages
from txbroker.wire.secret import Secret

RIGHTS = [Right.READ, Right.WRITE, Right.DESCRIBE]


def rule(who, rights, resource=Resource.TOPIC, pattern="", prefix=False, effect=Effect.ALLOW):
    return Rule(who, effect, resource, pattern, prefix, rights)


def put(fold, made):
    fold.apply(fold.changed + 1, RuleSet(made, Actor("admin", "ops"), 0), b"")


def model(rules, right, name, is_prefix=False):
    """Whether a right on a topic of that name, or on all that begin so, is there: by looking at each name there is."""
    alphabet = ["", "a", "b", "ab", "aa", "abb", "txbroker.a"]
    own = name.startswith("txbroker.")
    names = (
        {name} if not is_prefix else {name + tail for tail in alphabet if not tail.startswith("txbroker.")}
    )
    if is_prefix:
        names |= {
            each.pattern
            for each in rules
            if (each.pattern.startswith(name) and not each.pattern.startswith("txbroker."))
            or (each.pattern.startswith(name) and own)
        }

    def meant(each, this):
        return this.startswith(each.pattern) if each.is_prefix else this == each.pattern

    for this in names:
        given = False
        for each in rules:
            if not meant(each, this):
                continue
            if each.effect is Effect.DENY and right in each.rights:
                return False
            hidden = (
                this.startswith("txbroker.") and each.is_prefix and not each.pattern.startswith("txbroker.")
            )
            if (
                each.effect is Effect.ALLOW
                and not hidden
                and (right in each.rights or right is Right.DESCRIBE)
            ):
                given = True
        if not given:
            return False
    return True


RULES = st.builds(
    rule,
    st.just("a"),
    st.lists(st.sampled_from(RIGHTS), min_size=1, max_size=2, unique=True),
    st.just(Resource.TOPIC),
    st.sampled_from(["", "a", "ab", "b", "txbroker.", "txbroker.a"]),
    st.booleans(),
    st.sampled_from(Effect),
)


@given(
    st.lists(RULES, max_size=5),
    st.sampled_from(RIGHTS),
    st.sampled_from(["a", "ab", "abb", "b", "c", "txbroker.a"]),
)
def test_a_name_is_judged_as_the_model_does(rules, right, name):
    assert decided(rules, right, Resource.TOPIC, Thing(name, name)) is model(rules, right, name)


@given(st.lists(RULES, max_size=5), st.sampled_from(RIGHTS), st.sampled_from(["a", "ab", "b"]))
def test_all_names_that_begin_alike_are_allowed_only_if_each_is(rules, right, name):
    if decided(rules, right, Resource.TOPIC, Thing(name, name, is_prefix=True)):
        assert model(rules, right, name, is_prefix=True)


def test_what_no_rule_allows_is_denied_and_one_that_denies_wins():
    thing = Thing("orders", "orders")
    assert not decided([], Right.READ, Resource.TOPIC, thing)
    allows = rule("a", [Right.READ], pattern="ord", prefix=True)
    assert decided([allows], Right.READ, Resource.TOPIC, thing)
    denies = rule("a", [Right.READ], pattern="orders", effect=Effect.DENY)
    for rules in itertools.permutations([allows, denies]):
        assert not decided(list(rules), Right.READ, Resource.TOPIC, thing)


def test_the_brokers_own_topics_are_meant_only_by_a_rule_that_says_so():
    thing = Thing("txbroker.outcomes", "")
    assert not decided([rule("a", [Right.READ], prefix=True)], Right.READ, Resource.TOPIC, thing)
    assert decided(
        [rule("a", [Right.READ], pattern="txbroker.", prefix=True)], Right.READ, Resource.TOPIC, thing
    )


def test_owners_are_meant_only_by_a_rule_that_says_so():
    """Seen to fail: a rule about ids that begin with o was one about everybody's transactions."""
    thing = Thing("pay-77", "pay-77", also="owner:vera")

    def may(*given):
        rules = [rule("a", [Right.DECIDE], Resource.TRANSACTION, *each) for each in given]
        return decided(rules, Right.DECIDE, Resource.TRANSACTION, thing)

    everything = ("", True)
    assert may(everything)
    for pattern in ("owner:vera", "owner:v", "owner:"):
        assert may((pattern, True))
        assert not may(everything, (pattern, True, Effect.DENY))
    for pattern in ("o", "own", "owner", "owner:x"):
        assert not may((pattern, True))
        assert may(everything, (pattern, True, Effect.DENY))
    assert not may(("pay-77", False), ("owner:vera", False, Effect.DENY))


def test_a_thing_that_is_not_known_needs_the_right_on_everything():
    unknown = Thing(None, "the topic of partition 7")
    assert not decided(
        [rule("a", [Right.READ], pattern="o", prefix=True)], Right.READ, Resource.TOPIC, unknown
    )
    everything = rule("a", [Right.READ], prefix=True)
    assert decided([everything], Right.READ, Resource.TOPIC, unknown)
    denies = rule("a", [Right.READ], pattern="x", effect=Effect.DENY)
    assert not decided([everything, denies], Right.READ, Resource.TOPIC, unknown)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (b"abc-1", "abc-1"),
        (b"a.b_c", "a.b_c"),
        (b"a~b", "a%7Eb"),
        (b"a:b/c", "a%3Ab%2Fc"),
        (b"\x00\xff", "%00%FF"),
    ],
)
def test_a_transaction_is_named_by_its_global_id_byte_by_byte(given, name):
    assert resource_name(given) == name
    assert xid_thing(Xid(1, given, b"branch")).name == name


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_what_begins_alike_is_named_alike(one, more):
    assert resource_name(one + more).startswith(resource_name(one))
    assert resource_name(one + more) == resource_name(one) + resource_name(more)


class TestPrincipals:
    @pytest.fixture
    def access(self):
        fold = AccessFold()
        fold.is_on = True
        return fold

    def rights(self, access, principal="a"):
        return AccessPolicy(
            SimpleNamespace(),
            access,
            SimpleNamespace(streams={}),
            SimpleNamespace(),
            lambda *_: None,
            SimpleNamespace(),
        ).rights_of(principal)

    def add(self, access, *rules):
        for each in rules:
            put(access, each)

    def test_roles_count_for_those_who_have_them(self, access):
        access.users |= {"a": User("a", roles=["ops"]), "b": User("b")}
        self.add(access, rule("role:ops", [Right.READ], pattern="t"))
        thing = Thing("t", "t")
        assert self.rights(access, "a").allows(Right.READ, Resource.TOPIC, thing)
        assert not self.rights(access, "b").allows(Right.READ, Resource.TOPIC, thing)

    def test_rules_about_somebody_who_is_no_user_allow_nothing(self, access):
        self.add(access, rule("a", [Right.READ], prefix=True))
        assert not self.rights(access).allows(Right.READ, Resource.TOPIC, Thing("t", "t"))

    def test_everybody_may_do_everything_where_nobody_has_to_log_in_and_the_administrator_always(
        self, access
    ):
        assert self.rights(access, "@admin") is None
        access.is_on = False
        assert self.rights(access) is None

    def test_nobody_may_do_everything_before_the_switch_is_confirmed_after_a_repair(self, access):
        access.is_on = access.is_confirmed = False
        assert self.rights(access, "@admin") is None
        assert not self.rights(access).allows(Right.READ, Resource.TOPIC, Thing("t", "t"))


class TestRequests:
    """A broker whose policy is that of its rules, with a session of a user."""

    @pytest.fixture
    def room(self):
        room = Room()
        fold = room.broker.access
        [self.partition] = room.topic("orders")
        [self.other] = room.topic("bills")
        fold.users["a"] = User("a")
        for each in (
            rule("a", [Right.WRITE, Right.READ], pattern="orders"),
            rule("a", [Right.READ], Resource.GROUP, "g"),
        ):
            put(fold, each)
        fold.is_on = True
        return room

    def peer(self, room):
        room.broker.access.is_on = False
        peer = room.peer()
        room.broker.access.is_on = True
        peer.session.begin(peer.session.number, "a", None)
        peer.session.rights = room.broker.policy.rights_of("a")
        return peer

    def test_what_was_allowed_once_is_allowed_again_and_nothing_else_is(self, room):
        peer = self.peer(room)
        for _ in range(2):
            assert isinstance(peer.ask(messages.Send, self.partition, data=frames(b"a")), messages.Sent)
            refused(peer.ask(messages.Send, self.other, data=frames(b"a")), "AccessDenied")
            assert isinstance(peer.ask(messages.Fetch, [(self.partition, 0, 0)]), messages.Fetched)
            refused(peer.ask(messages.Fetch, [(self.partition, 0, 0), (self.other, 0, 0)]), "AccessDenied")
            reader = messages.Reader("other", 0, [0])
            refused(peer.ask(messages.Fetch, [(self.partition, 0, 0)], readers=[reader]), "AccessDenied")
        assert room.broker.access_policy.denied == 6

    def test_a_partition_that_does_not_exist_is_refused_as_one_that_does(self, room):
        peer = self.peer(room)
        said = [peer.ask(messages.Send, number, data=frames(b"a")) for number in (self.other, 999)]
        assert said[0].error == said[1].error == "AccessDenied"
        assert said[0].message.replace(str(self.other), "N") == said[1].message.replace("999", "N")

    def test_what_is_noted_of_what_was_allowed_is_bounded_by_what_there_is(self, room):
        everything = rule("a", [Right.WRITE, Right.READ], prefix=True)
        put(room.broker.access, everything)
        peer = self.peer(room)
        for number in range(1000, 1100):
            refused(peer.ask(messages.Send, number, data=frames(b"a")), "UnknownPartition")
            peer.ask(messages.Fetch, [(number, 0, 0)])
        assert peer.session.rights._written == peer.session.rights._read == set()

    @pytest.mark.parametrize("totals", [Totals(0, 0, 0), Totals(1, 1, 7)])
    def test_a_transaction_of_which_nothing_arrived_is_its_owners_too(self, room, totals):
        """Seen to fail: such an outcome had no owner, so that its own client was refused. Found by the simulation."""
        peer = self.peer(room)
        told = [peer.ask(messages.Commit, peer.session.number, 1, None, totals) for _ in range(2)]
        assert [getattr(each, "error", "") for each in told] in (
            ["", ""],
            ["ContentMismatch", "TransactionRolledBack"],
        )
        assert isinstance(peer.ask(messages.AskOutcome, peer.session.number, 1), messages.Outcome)

    def test_an_empty_transaction_is_not_anothers(self, room):
        peer = self.peer(room)
        assert isinstance(peer.ask(messages.Commit, 0, 1, None, Totals(0, 0, 0)), messages.Committed)
        room.broker.access.users["b"] = User("b")
        other = self.peer(room)
        other.session.begin(other.session.number, "b", None)
        other.session.rights = room.broker.policy.rights_of("b")
        refused(other.ask(messages.AskOutcome, peer.session.number, 1), "AccessDenied")

    def test_a_timed_request_is_judged_as_the_one_in_it(self, room):
        """Seen to fail: the broker broke, for it looked for the partition in the timed one. Found by the simulation."""
        peer = self.peer(room)
        for _ in range(2):
            timed = peer.ask(messages.Timed, messages.Send(0, self.partition), data=frames(b"a"))
            assert isinstance(timed, messages.TimedAnswer)
            refused(peer.ask(messages.Timed, messages.Send(0, self.other), data=frames(b"a")), "AccessDenied")
        number = peer.session.number
        for request in (
            messages.Commit(0, number, 1, None, Totals(0, 0, 0)),
            messages.Rollback(0, number, 2),
        ):
            assert isinstance(peer.ask(messages.Timed, request), messages.TimedAnswer)
        assert isinstance(peer.ask(messages.Send, self.partition, data=frames(b"a")), messages.Sent)

    def test_what_was_prepared_without_a_principal_is_not_everybodys(self, room):
        """As by a program that has the journal to itself, before a broker served its directory."""
        xid, store = Xid(1, b"embedded", b""), room.engine.transactions
        number = TransactionNumber(1, 1)
        store.add(number, self.partition, frames(b"a"), 1, xid)
        store.prepare(number, xid, store.live[number].totals)
        room.engine.sync()
        peer = self.peer(room)
        for which in ((0, 0, xid), (1, 1, None)):
            for request in (messages.Commit, messages.Rollback, messages.AskOutcome):
                refused(peer.ask(request, *which), "AccessDenied")
        room.engine.transactions.commit(number, Cause.CLIENT)
        room.engine.sync()
        refused(peer.ask(messages.AskOutcome, 1, 1), "AccessDenied")


@pytest.mark.parametrize(
    ("resource", "shown", "what"),
    [
        (Resource.TOPIC, "the topic of partition 1", "topic of partition 1"),
        (Resource.TOPIC, "topic", "topic topic"),
        (Resource.TRANSACTION, "transaction 7-1", "transaction 7-1"),
        (Resource.TRANSACTION, "1:x:", "transaction 1:x:"),
        (Resource.BROKER, "", "broker"),
    ],
)
def test_a_refusal_says_on_what_with_no_word_twice(resource, shown, what):
    error = denied("a", Right.DESCRIBE, resource, shown)
    assert error.resource == what
    assert f"a has not the right to describe {what}; nothing was done" in str(error)


SECRET_TEXT = b"the merger is on friday"


class TestGroups:
    """A right on a group is none on the topics that it reads: "secret" is read by others, "mine" and what begins so by
    this user, whose group "mine-g" is.

    Seen to fail: with a right on the group alone a message of "secret" was read as a dead letter, and errors and lists
    told names and ends of topics.
    """

    @pytest.fixture
    def room(self):
        room = Room()
        [self.secret] = room.topic("secret")
        [self.mine] = room.topic("mine")
        [self.box] = room.topic("mine-box.dead")
        for number in (self.secret, self.mine):
            room.peer().send(number, SECRET_TEXT)
        fold = room.broker.access
        fold.users["a"] = User("a")
        put(fold, rule("a", [Right.READ, Right.ALTER], Resource.GROUP, "mine-", prefix=True))
        put(fold, rule("a", [Right.READ, Right.WRITE], pattern="mine"))
        put(fold, rule("a", [Right.READ, Right.WRITE], pattern="mine-box.dead"))
        fold.is_on = True
        return room

    def peer(self, room):
        room.broker.access.is_on = False
        peer = room.peer()
        room.broker.access.is_on = True
        peer.session.begin(peer.session.number, "a", None)
        peer.session.rights = room.broker.policy.rights_of("a")
        return peer

    def anybody(self, room):
        peer = self.peer(room)
        peer.session.rights = None
        return peer

    def allow(self, room, peer, *rights, pattern, prefix=False, effect=Effect.ALLOW):
        put(room.broker.access, rule("a", list(rights), pattern=pattern, prefix=prefix, effect=effect))
        peer.session.rights = room.broker.policy.rights_of("a")

    def dead(self, number, offset=0):
        return Settled(number, 0, 0, retried=[Retried(offset, dead=True)])

    def in_box(self, room):
        room.engine.sync()
        peer = self.anybody(room)
        peer.ask(messages.Fetch, [(self.box, 0, 0)])
        return peer.data[-1]

    def test_nobody_reads_a_topic_through_dead_letters(self, room):
        peer = self.peer(room)
        retries = GroupSettings(RetryRules(1, 0, 0, Ending.DEAD_LETTER, "mine-box.dead"))
        assert isinstance(peer.ask(messages.AlterGroup, "mine-g", retries, ["retry"]), messages.Done)
        refused(peer.ask(messages.CommitOffsets, "mine-g", [PartitionOffset(self.secret, 0)]), "AccessDenied")
        refused(
            peer.ask(messages.CommitOffsets, "mine-g", [], settled=[self.dead(self.secret)]), "AccessDenied"
        )
        assert SECRET_TEXT not in self.in_box(room)
        done = peer.ask(messages.CommitOffsets, "mine-g", [], settled=[self.dead(self.mine)])
        assert isinstance(done, messages.Done), done
        assert SECRET_TEXT in self.in_box(room)

    def test_nobody_redirects_the_dead_letters_of_a_topic_that_he_may_not_read(self, room):
        self.anybody(room).ask(messages.CommitOffsets, "mine-g", [PartitionOffset(self.secret, 0)])
        peer = self.peer(room)
        retries = GroupSettings(RetryRules(1, 0, 0, Ending.DEAD_LETTER, "mine-box.dead"))
        refused(peer.ask(messages.AlterGroup, "mine-g", retries, ["retry"]), "AccessDenied")
        self.allow(room, peer, Right.READ, pattern="secret")
        assert isinstance(peer.ask(messages.AlterGroup, "mine-g", retries, ["retry"]), messages.Done)

    def requests(self, number):
        moved, settled = [PartitionOffset(number, 0)], [Settled(number, 0, 0, retried=[Retried(0)])]
        xid = Xid(1, b"x", b"")
        return {
            "move": (messages.CommitOffsets, "mine-g", moved),
            "settle": (messages.CommitOffsets, "mine-g", [], bytes(16), None, settled),
            "move in a transaction": (messages.AddOffsets, 1, "mine-g", moved),
            "settle in a transaction": (messages.AddOffsets, 1, "mine-g", [], None, 0, bytes(16), settled),
            "commit": (
                messages.Commit, 0, 2, None, None, 0, False, "", "", [],
                [GroupPositions("mine-g", bytes(16), moved)],
            ),
            "prepare": (messages.Prepare, 3, xid, None, 0, [], [GroupPositions("mine-g", bytes(16), moved)]),
            "claim": (messages.ClaimPartitions, "mine-g", "m", [number]),
            "where it stands": (messages.FetchOffsets, "mine-g", [number]),
            "what waits": (messages.ListParked, "mine-g", number),
            "release": (messages.ReleaseParked, "mine-g", bytes(16), number, [0]),
        }  # fmt: skip

    @pytest.mark.parametrize("which", [
        "move", "settle", "move in a transaction", "settle in a transaction", "commit", "prepare", "claim",
        "where it stands", "what waits", "release",
    ])  # fmt: skip
    def test_a_position_needs_a_right_on_its_topic_too(self, room, which):
        peer = self.peer(room)
        put(room.broker.access, rule("a", [Right.PREPARE], Resource.TRANSACTION, "x"))
        peer.session.rights = room.broker.policy.rights_of("a")
        said = [peer.ask(*self.requests(number)[which]) for number in (self.secret, 999)]
        assert said[0].error == said[1].error == "AccessDenied"
        assert said[0].message.replace(str(self.secret), "N") == said[1].message.replace("999", "N")
        told = peer.ask(*self.requests(self.mine)[which])
        assert getattr(told, "error", "") != "AccessDenied", told

    def test_giving_up_needs_a_right_on_the_topic_of_dead_letters_and_to_make_it(self, room):
        peer = self.peer(room)
        for more in ((), (Right.WRITE,), (Right.CREATE, Right.WRITE)):
            if more:
                self.allow(room, peer, *more, pattern="mine.dead")
            told = peer.ask(messages.CommitOffsets, "mine-g", [], settled=[self.dead(self.mine)])
            assert getattr(told, "error", "") == ("" if Right.CREATE in more else "AccessDenied"), told
            room.engine.sync()
            assert ("mine.dead" in room.engine.catalog.topics) is (Right.CREATE in more)

    def test_releasing_to_dead_letters_needs_the_same(self, room):
        peer = self.peer(room)
        parked = [Settled(self.mine, 0, 0, retried=[Retried(0, after=10**9)])]
        assert isinstance(peer.ask(messages.CommitOffsets, "mine-g", [], settled=parked), messages.Done)
        ask = (messages.ReleaseParked, "mine-g", room.group_id("mine-g"), self.mine, [0])
        refused(peer.ask(*ask, messages.Release.DEAD_LETTER), "AccessDenied")
        assert isinstance(peer.ask(*ask, messages.Release.RETRY), messages.Done)
        self.allow(room, peer, Right.WRITE, Right.CREATE, pattern="mine.dead")
        assert isinstance(peer.ask(*ask, messages.Release.DEAD_LETTER), messages.Done)

    def test_naming_a_topic_of_dead_letters_needs_to_write_to_it_and_to_make_it(self, room):
        peer = self.peer(room)
        for name, error in (("secret.dead", "AccessDenied"), ("mine-new.dead", "AccessDenied")):
            if name == "mine-new.dead":
                self.allow(room, peer, Right.WRITE, pattern=name)
            retries = GroupSettings(RetryRules(1, 0, 0, Ending.DEAD_LETTER, name))
            refused(peer.ask(messages.AlterGroup, "mine-g", retries, ["retry"]), error)
        self.allow(room, peer, Right.WRITE, Right.CREATE, pattern="mine-new.dead")
        assert isinstance(peer.ask(messages.AlterGroup, "mine-g", retries, ["retry"]), messages.Done)

    def test_lists_of_positions_leave_out_topics_that_may_not_be_described_and_say_so(self, room):
        anybody, peer = self.anybody(room), self.peer(room)
        moved = [PartitionOffset(number, 0) for number in (self.secret, self.mine)]
        anybody.ask(messages.CommitOffsets, "mine-g", moved)
        for asks, count, is_filtered in ((peer, 1, True), (anybody, 2, False)):
            [group] = asks.ask(messages.ListGroups).groups
            described = asks.ask(messages.DescribeGroup, "mine-g")
            offsets = asks.ask(messages.FetchOffsets, "mine-g")
            for found in (group.positions, described.partitions, offsets.offsets):
                assert len(found) == count
            assert described.is_filtered is offsets.is_filtered is is_filtered
        assert not peer.ask(messages.FetchOffsets, "mine-g", []).is_filtered

    def join(self, peer, nonce=bytes(16), owned=(), **reads):
        return peer.ask(messages.JoinGroup, "mine-g", nonce, owned=list(owned), **reads)

    def test_a_member_is_given_nothing_that_may_not_be_read_any_more(self, room):
        peer = self.peer(room)
        refused(self.join(peer, pattern="m*"), "AccessDenied")
        self.allow(room, peer, Right.READ, pattern="m", prefix=True)
        joined = self.join(peer, pattern="m*")
        attend = (messages.Attend, "mine-g", joined.member, joined.secret)
        begin = (messages.BeginMessages, "mine-g", joined.member, joined.secret, [])
        [assigned] = peer.ask(*attend).assigned
        assert assigned.topic == "mine"
        assert isinstance(peer.ask(*begin), messages.Done)
        self.allow(room, peer, Right.READ, pattern="merger", effect=Effect.DENY)
        anybody = self.anybody(room)
        anybody.ask(messages.CreateTopic, "merger", 1, TopicSettings(), bytes(16))
        refused(peer.ask(*attend, [(assigned.partition, assigned.generation)]), "AccessDenied")
        refused(peer.ask(*begin), "AccessDenied")
        wrong = (messages.Attend, "mine-g", joined.member, Secret(bytes(16)))
        refused(peer.ask(*wrong), "UnknownMember")

    def test_what_members_read_is_left_out_too(self, room):
        anybody = self.anybody(room)
        self.join(anybody, topics=["mine", "secret"])
        [member] = self.peer(room).ask(messages.DescribeGroup, "mine-g").members
        assert member.topics == ["mine"]
        [member] = anybody.ask(messages.DescribeGroup, "mine-g").members
        assert member.topics == ["mine", "secret"]

    def test_a_member_takes_back_only_what_it_reads(self, room):
        """Otherwise it would be told of a topic by showing a generation, which can be guessed."""
        anybody, peer = self.anybody(room), self.peer(room)
        joined = self.join(anybody, topics=["secret"])
        [assigned] = anybody.ask(messages.Attend, "mine-g", joined.member, joined.secret).assigned
        anybody.ask(messages.LeaveGroup, "mine-g", joined.member, joined.secret)
        shown = [(assigned.partition, assigned.generation)]
        joined = self.join(peer, b"n" * 16, shown, topics=["mine"])
        told = peer.ask(messages.Attend, "mine-g", joined.member, joined.secret, shown)
        assert told is None or [each.topic for each in told.assigned] in ([], ["mine"])
        [member] = [
            each.member
            for each in anybody.ask(messages.DescribeGroup, "mine-g").partitions
            if each.topic == "secret"
        ]
        assert member == 0
