"""Test the audit: what is said of which record, that each line comes once whenever the broker dies, and what strangers
can make it say.

Seen to fail: with lines told when a record is accepted, without the replay, without reading the end of the file, with
lines of replayed records told again, without the walk below the checkpoint, and without the bounds on encounters.
"""

import base64
import json
import re

import pytest

from journal.formats import frame
from journal.records.access_entries import Effect, Resource, Right, Rule, TokenSubject, User
from journal.records.group_entries import Ending, GroupSettings, RetryRules
from journal.records.queue_entries import (
    Binding,
    ExchangeKind,
    ExchangeSettings,
    QueueSettings,
    address_of,
)
from journal.records.record import WallClockTold
from journal.settings import TopicSettings
from journal.xid import Xid
from tests.support.audit_room import AuditRoom
from tests.support.broker_room import frames
from txbroker.broker.access import audit
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import AccessDenied
from txbroker.wire import messages as m

XID = Xid(1, b"order-1", b"b")
ALICE = User(
    "alice", verifier_of("very secret", 4_096), ["CN=alice"], [TokenSubject("https://i", "a")], ["ops"]
)
RULE = Rule("alice", Effect.ALLOW, Resource.TOPIC, "orders", True, [Right.READ])


@pytest.fixture
def room(tmp_path):
    made = AuditRoom(tmp_path / "audit.json")
    yield made
    made.file.close()


def administrator(room):
    peer = room.peer("10.0.0.9:7")
    peer.session.begin(peer.session.number, "@admin", None)
    return peer


def topic(room, peer, name):
    made = peer.ask(m.CreateTopic, name, 1, TopicSettings(), name.encode().ljust(16, b"-"))
    assert isinstance(made, m.Topics), made


def test_each_administrative_record_is_a_line_with_who_when_and_from_where(room):
    peer = administrator(room)
    peer.ask(m.AlterUser, ALICE, [], m.Existing.NO)
    peer.ask(m.AlterRule, RULE)
    topic(room, peer, "orders")
    room.write()
    peer.ask(m.AlterTopic, "orders", b"orders".ljust(16, b"-"), {"retention_bytes": 1 << 20}, 3)
    peer.ask(
        m.AlterGroup,
        "g",
        GroupSettings(RetryRules(3, 0, 0, Ending.DROP)),
        ["retry"],
        m.Whether.ALWAYS,
        b"i" * 16,
    )
    peer.ask(m.DeleteGroup, "g", b"i" * 16, False)
    peer.send(1, b"a", b"b")
    peer.ask(m.Purge, [(1, 1)])
    peer.ask(m.DeleteTopic, "orders", b"orders".ljust(16, b"-"))
    peer.ask(m.RemoveUser, "alice")
    room.write()
    told = room.told()
    assert [line["what"] for line in told] == [
        "access.set", "user.set", "rule.set", "topic.created", "topic.altered", "group.altered", "group.deleted",
        "topic.purged", "topic.deleted", "user.removed",
    ]  # fmt: skip
    lsns = [line["lsn"] for line in told]
    assert lsns == sorted(set(lsns))
    for line in told:
        assert (line["principal"], line["by"], line["address"]) == (
            "@admin",
            "tester@10.0.0.9:7",
            "10.0.0.9:7",
        )
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", line["time"])
    assert told[1]["user"] == "alice"
    assert told[1]["has_password"]
    assert told[2]["rule"] == "allow alice read topic orders*"
    assert told[4]["added"] == 2


def test_who_has_let_go_what_a_jump_of_the_clock_has_held_is_told_and_the_jump_is_not(room):
    peer = administrator(room)
    room.engine.accept(WallClockTold(room.clock.wall(), room.engine.now(), holds=True))
    peer.ask(m.ReleaseScheduled)
    peer.ask(m.ReleaseScheduled)  # nothing is held any more
    room.write()
    [line] = room.told("schedule.released")
    assert (line["principal"], line["by"]) == ("@admin", "tester@10.0.0.9:7")


def test_queues_exchanges_and_bindings_are_told_live_and_by_the_next_start(room):
    peer = administrator(room)
    queue = peer.ask(m.DeclareQueue, "tasks", QueueSettings())
    exchange = peer.ask(m.DeclareExchange, "orders", ExchangeSettings(ExchangeKind.HEADERS))
    binding = Binding("orders", "", "tasks", arguments=(("kind", b"new"), ("x-match", b"any")))
    room.write()
    peer.ask(m.Bind, binding)
    peer.ask(m.Bind, Binding("amq.topic", "a.#", "orders", to_exchange=True))
    peer.ask(m.Send, address_of(1, mandatory=True), data=frame.encode(b"task", 1, b"tasks"))
    peer.ask(m.Unbind, binding)
    peer.ask(m.DeleteExchange, "orders", exchange.number)
    peer.ask(m.DeleteQueue, "tasks", queue.partition)
    room.engine.sync()
    room.die(survive=1.0)  # the last lines come after it
    room.write()
    told = room.told()
    assert [line["what"] for line in told] == [
        "queue.declared", "exchange.declared", "binding.made", "binding.made", "binding.ended", "exchange.deleted",
        "queue.deleted",
    ]  # fmt: skip
    assert {(line["principal"], line["address"]) for line in told} == {("@admin", "10.0.0.9:7")}
    assert told[0]["queue"] == "tasks"
    assert told[0]["topic"] == told[6]["topic"] == "txbroker.queue.1"
    assert (told[1]["exchange"], told[1]["kind"]) == ("orders", "headers")
    assert (told[2]["queue"], told[2]["arguments"]) == ("tasks", ["kind", "x-match"])
    assert (told[3]["exchange"], told[3]["key"], told[3]["to_exchange"]) == ("amq.topic", "a.#", "orders")


def test_transient_queues_are_told_once_without_an_lsn_and_none_is_kept(room):
    peer = administrator(room)
    for name in ("a", "b"):
        made = peer.ask(m.DeclareQueue, name, QueueSettings(durable=False))
        peer.ask(m.Bind, Binding("amq.fanout", "", name))
        peer.ask(m.DeleteQueue, name, made.partition)
    peer.ask(m.DeclareQueue, "lasting", QueueSettings())
    room.write()
    kinds = ("queue.declared", "binding.made", "queue.deleted")
    told = [line for line in room.lines() if line["what"] in kinds]
    assert [line["what"] for line in told] == [*kinds, *kinds, "queue.declared"]
    assert ["lsn" in line for line in told] == [False] * 6 + [True]
    assert (told[0]["queue"], told[0]["by"]) == ("a", told[-1]["by"])
    assert not room.records._replayed
    room.die(survive=1.0)
    room.write()
    assert [line for line in room.lines() if line["what"] in kinds] == told


def test_no_secret_is_in_any_line(room):
    administrator(room).ask(m.AlterUser, ALICE, [], m.Existing.NO)
    room.write()
    text = room.path.read_bytes()
    verifier = ALICE.scram
    for secret in (
        verifier.salt,
        verifier.stored_key,
        verifier.server_key,
        room.broker.access.key,
        b"very secret",
    ):
        for form in (secret, secret.hex().encode(), json.dumps(secret.decode("latin-1")).encode()[1:-1]):
            assert form not in text
    assert base64.b64encode(verifier.stored_key) not in text


def prepared(room, serial=1, xid=XID):
    owner = room.peer("10.0.0.5:1")
    partition = next(iter(room.engine.catalog.stores))
    data = frames(b"1")
    done = owner.ask(m.Prepare, serial, xid, None, 0, [(partition, len(data))], [], data=data)
    assert isinstance(done, m.Done), done
    return owner


@pytest.mark.parametrize("decision", [m.Commit, m.Rollback])
def test_a_forced_decision_is_told_with_xid_owner_and_why_and_so_is_its_end(room, decision):
    peer = administrator(room)
    topic(room, peer, "orders")
    prepared(room)
    if decision is m.Commit:
        peer.ask(m.Commit, 0, 0, XID, operator=True, by="ann", why="the coordinator burnt down")
    else:
        peer.ask(m.Rollback, 0, 0, XID, operator=True, by="ann", why="the coordinator burnt down")
    room.write()
    [line] = room.told("transaction.forced")
    assert (line["by"], line["principal"], line["why"]) == ("ann", "@admin", "the coordinator burnt down")
    assert (line["xid"], line["client"], line["owner_address"]) == (str(XID), "tester", "10.0.0.5:1")
    assert line["outcome"] == ("committed" if decision is m.Commit else "rolled_back")
    assert "address" not in line, "what an operator says of itself is no address"
    number = room.engine.transactions.outcomes.heuristic
    session, serial = next(iter(number))
    room.peer().ask(m.Rollback, 0, 0, XID)
    done = peer.ask(m.Forget, session, serial, XID, "ann", "seen to")
    assert isinstance(done, m.Done), done
    room.write()
    [told] = room.told("transaction.coordinator_told")
    assert told["decided"] == "rolled_back"
    [gone] = room.told("transaction.forgotten")
    assert (gone["by"], gone["why"], gone["transactions"]) == ("ann", "seen to", [line["transaction"]])


def test_what_clients_decide_by_themselves_is_not_told(room):
    topic(room, administrator(room), "orders")
    owner = prepared(room)
    owner.ask(m.Commit, 0, 0, XID)
    room.write()
    assert room.told("transaction.forced") == []


def test_a_line_comes_after_the_force_and_not_before(room):
    room.write()
    before = len(room.lines())
    peer = administrator(room)
    peer.tell(m.CreateTopic, "t", 1, TopicSettings(), b"t" * 16)
    room.audit.settle()
    assert len(room.lines()) == before
    room.write()
    assert room.lines()[-1]["what"] == "topic.created"


def test_what_is_accepted_during_a_force_waits_for_the_next_one(room):
    peer, engine = administrator(room), room.engine
    peer.tell(m.CreateTopic, "a", 1, TopicSettings(), b"a" * 16)
    group = engine.take()
    peer.tell(m.CreateTopic, "b", 1, TopicSettings(), b"b" * 16)
    engine.write(group)
    engine.publish(group)
    room.audit.settle()
    assert [line["topic"] for line in room.told()] == ["a"]
    room.write()
    assert [line["topic"] for line in room.told()] == ["a", "b"]


# -- the broker dies ------------------------------------------------------------------------------


def test_a_record_that_was_not_forced_is_not_told_after_a_crash(room):
    administrator(room).tell(m.CreateTopic, "t", 1, TopicSettings(), b"t" * 16)
    room.die(survive=0.0)
    room.write()
    assert room.told() == []


@pytest.mark.parametrize("part", [0, 1, 20, -1, None])
def test_a_line_that_a_crash_has_prevented_or_torn_comes_after_the_start_once(room, part):
    peer = administrator(room)
    topic(room, peer, "a")
    room.write()
    whole = room.path.read_bytes()
    topic(room, peer, "b")
    room.audit.settle()
    line = room.path.read_bytes()[len(whole) :]
    assert line.endswith(b"\n")
    room.path.write_bytes(whole + (line if part is None else line[:part]))
    room.die()
    room.write()
    told = room.told()
    assert [each["topic"] for each in told] == ["a", "b"]
    assert room.told("torn") == [{"what": "torn"}] * (part in (1, 20))
    room.die()
    room.write()
    assert room.told() == told


def test_nothing_is_told_twice_over_many_crashes_and_checkpoints(room):
    names = []
    for number in range(12):
        topic(room, administrator(room), f"t{number}")
        names.append(f"t{number}")
        if number % 2:
            room.audit.settle()
        if number % 3 == 0:
            room.checkpoint()
            room.records.look()
        if number % 4 == 0:
            room.audit.settle()
        room.die()
    room.write()
    assert [line["topic"] for line in room.told()] == names


def test_what_a_checkpoint_has_gone_past_is_read_from_the_journal(room):
    topic(room, administrator(room), "a")
    room.write()
    told = room.path.read_bytes()
    topic(room, administrator(room), "b")
    room.checkpoint()
    room.file.close()
    room.path.write_bytes(told)
    room.die()
    topic(room, administrator(room), "c")
    room.write()
    lines = room.told()
    assert [line["topic"] for line in lines] == ["a", "b", "c"]
    assert lines[1]["time"] is not None
    assert room.told("audit.gap", "audit.begun") == [room.lines()[0]]


def test_what_the_journal_does_not_have_any_more_is_named_in_a_line(room):
    topic(room, administrator(room), "a")
    room.write()
    told = room.path.read_bytes()
    for number in range(6):
        topic(room, administrator(room), f"lost{number}")
        room.checkpoint()
        room.file.close()
        room.restart()
    room.file.close()
    room.path.write_bytes(told)
    room.die()
    room.write()
    [gap] = room.told("audit.gap")
    assert gap["from_lsn"] == json.loads(told.splitlines()[-1])["lsn"] + 1
    told_lsns = [line["lsn"] for line in room.told()]
    assert all(lsn > gap["to_lsn"] for lsn in told_lsns[1:])
    assert told_lsns == sorted(set(told_lsns))


def test_each_checkpoint_is_followed_by_a_line_that_says_up_to_where_all_is_told(room):
    room.write()
    room.records.look()
    room.write()
    before = len(room.lines())
    room.records.look()
    room.write()
    assert len(room.lines()) == before
    topic(room, administrator(room), "a")
    room.checkpoint()
    room.records.look()
    room.write()
    line = room.lines()[-1]
    assert (line["what"], line["through"]) == ("audit.through", room.engine.forced_lsn)


def test_a_start_of_older_data_is_told_and_so_is_what_comes_then(room):
    copy = room.filesystem.kill_clone()
    for number in range(3):
        topic(room, administrator(room), f"t{number}")
        room.write()
        room.die()
    room.filesystem = copy.crash_clone(1, 1.0)
    room.file.close()
    room.start()
    topic(room, administrator(room), "other")
    room.write()
    assert [line["what"] for line in room.lines()[-3:]] == [
        "audit.older_data",
        "broker.started",
        "topic.created",
    ]
    told = len(room.lines())
    room.die()
    room.write()
    assert [line["what"] for line in room.lines()[told:]] == ["broker.started"]


def test_an_audit_that_is_switched_on_later_begins_with_what_the_journal_has(room):
    topic(room, administrator(room), "a")
    room.write()
    room.path.unlink()
    room.die()
    room.write()
    assert room.lines()[0]["what"] == "audit.begun"
    assert [line["topic"] for line in room.told()] == ["a"]


@pytest.mark.parametrize("name", ["audit.json.1", "audit.json-20260101"])
def test_a_file_that_was_moved_before_a_crash_says_where_to_go_on(room, name):
    topic(room, administrator(room), "a")
    room.write()
    moved = room.path.with_name(name)
    room.path.rename(moved)
    topic(room, administrator(room), "b")
    room.die()
    room.write()
    assert [line["topic"] for line in room.told()] == ["b"]
    assert [line["topic"] for line in room.lines(moved) if line["what"] == "topic.created"] == ["a"]


def test_a_record_that_no_line_can_be_made_of_stops_nothing(room, monkeypatch):
    monkeypatch.setattr(audit, "_told", lambda record, engine: 1 / 0)
    topic(room, administrator(room), "a")
    room.write()
    assert room.records.failures == 1
    assert room.told()[-1]["what"] == "TopicCreated"


# -- encounters -----------------------------------------------------------------------------------


def look(room, seconds):
    room.clock.advance(seconds * 1_000_000)
    room.encounters.look()
    room.audit.settle()


def test_logins_and_refusals_that_are_alike_are_one_line_with_their_number(room):
    peer = room.peer("10.0.0.1:5")
    for number in range(7):
        room.encounters.not_logged_in(peer.session, "alice", f"reason {number % 2}")
    room.encounters.denied(peer.session, AccessDenied("no", "read", "topic t"))
    look(room, 9)
    assert room.told("login.refused") == []
    look(room, 2)
    [line] = room.told("login.refused")
    assert (line["principal"], line["address"], line["count"]) == ("alice", "10.0.0.1", 7)
    assert line["details"] == ["reason 0", "reason 1"]
    assert line["since"] <= line["time"]
    [line] = room.told("access.denied")
    assert line["details"] == ["read topic t"]


def test_a_stranger_cannot_make_it_say_more_than_a_line_a_second_and_what_is_left_out_is_counted(room):
    sessions = [room.peer(f"10.0.{n // 250}.{n % 250}:5").session for n in range(600)]
    before = len(room.lines())
    for _ in range(60):
        for number, session in enumerate(sessions):
            room.encounters.not_logged_in(session, f"user{number}", "wrong")
        look(room, 10)
    lines = room.lines()[before:]
    told = sum(line.get("count", 0) for line in lines)
    assert len(lines) <= 60 + 600 + 60
    assert len(room.encounters._strangers._table) <= audit.MOST_KEPT
    kept = sum(alike.count for alike in room.encounters._strangers._table.values())
    assert told + kept == 60 * 600


def test_users_have_lines_of_their_own_whatever_strangers_do(room):
    stranger, peer = room.peer("10.9.9.9:1"), room.peer("10.0.0.1:5")
    for number in range(5_000):
        room.encounters.not_logged_in(stranger.session, f"user{number}", "wrong")
    room.encounters.logged_in(peer.session)
    look(room, 11)
    assert len(room.told("login")) == 1


def test_a_session_that_is_closed_is_told_with_who_did_it(room):
    other = room.peer("10.0.0.7:9")
    number = other.session.number
    administrator(room).ask(m.CloseSession, number, "ann", "it hangs")
    room.write()
    [line] = room.told("session.closed")
    assert (line["session"], line["user_address"], line["why"]) == (number, "10.0.0.7:9", "it hangs")
    assert line["principal"] == "@admin"
    assert line["through"]


def test_the_host_is_what_stands_before_the_port():
    assert [audit.host_of(peer) for peer in ("10.0.0.1:5", "[::1]:7", "unix:3", "x")] == [
        "10.0.0.1", "[::1]", "unix", "x",
    ]  # fmt: skip
