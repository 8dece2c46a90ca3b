"""Test requests that decide and carry what was not sent before: all of it or nothing is taken, whatever is wrong."""

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.constants import KIB, MIB
from journal.formats import frame
from journal.formats.compression import compressor
from journal.records.group_entries import GroupPositions, PartitionOffset
from journal.transaction_states import State, Totals
from journal.transactions.limits import TransactionLimits
from tests.broker.transactions.transaction_scene import OTHER, XID, add, totals, values
from tests.support.broker_room import Room, frames, refused
from tests.support.builders import small_files
from tests.support.thoroughness import examples
from txbroker.wire import messages as commands

KINDS = ["commit", "prepare"]


def decide(peer, kind, serial, *runs, positions=(), data=None, **named):
    """Commit in one phase, or prepare, with (partition, values) as content."""
    content = [frames(*each) for _, each in runs]
    carried = {
        "runs": [(partition, len(run)) for (partition, _), run in zip(runs, content, strict=True)],
        "positions": list(positions),
        "data": b"".join(content) if data is None else data,
        **named,
    }
    if kind == "prepare":
        return peer.ask(commands.Prepare, serial, carried.pop("xid", XID), **carried)
    return peer.ask(commands.Commit, serial=serial, **carried)


def finish(peer, kind, serial):
    """The second phase, if the first was a prepare."""
    if kind == "prepare":
        assert isinstance(peer.ask(commands.Commit, peer.session.number, serial), commands.Committed)


def moved(group, *offsets):
    return GroupPositions(group, group.encode() * 16, [PartitionOffset(*each) for each in offsets])


def position(room, group, partition):
    found = room.peer().ask(commands.FetchOffsets, group, [partition])
    return found.offsets[0].offset


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def parts(room):
    return room.topic(partitions=2)


@pytest.mark.parametrize("kind", KINDS)
class TestContent:
    def test_goes_to_several_partitions_and_moves_groups_all_at_once(self, room, parts, kind):
        one, two = parts
        room.peer().send(one, b"before")
        peer = room.peer()
        answer = decide(peer, kind, 1, (one, [b"a"]), (two, [b"b", b"c"]), positions=[moved("g", (one, 1))])
        if kind == "prepare":
            assert isinstance(answer, commands.Done)
            assert values(room, two) == []
            assert position(room, "g", one) is None
        finish(peer, kind, 1)
        assert values(room, one) == [b"before", b"a"]
        assert values(room, two) == [b"b", b"c"]
        assert position(room, "g", one) == 1
        outcome = peer.ask(commands.AskOutcome, serial=1)
        assert [(p.partition, p.base_offset, p.count) for p in outcome.placements] == [
            (one, 1, 1),
            (two, 0, 2),
        ]

    def test_may_go_to_one_partition_in_several_runs(self, room, parts, kind):
        peer = room.peer()
        decide(peer, kind, 1, (parts[0], [b"a"]), (parts[1], [b"x"]), (parts[0], [b"b"]))
        finish(peer, kind, 1)
        assert values(room, parts[0]) == [b"a", b"b"]

    def test_follows_what_was_added_before(self, room, parts, kind):
        one, two = parts
        peer = room.peer()
        add(peer, 1, two, b"1", xid=XID if kind == "prepare" else None)
        add(peer, 1, one, b"2")
        decide(peer, kind, 1, (one, [b"3"]), (two, [b"4"]), totals=totals([b"1"], [b"2"]))
        finish(peer, kind, 1)
        assert (values(room, one), values(room, two)) == ([b"2", b"3"], [b"1", b"4"])

    def test_may_be_positions_alone(self, room, parts, kind):
        room.peer().send(parts[0], b"a")
        peer = room.peer()
        decide(peer, kind, 1, positions=[moved("g", (parts[0], 1)), moved("h", (parts[0], 0))])
        finish(peer, kind, 1)
        assert [position(room, group, parts[0]) for group in ("g", "h")] == [1, 0]

    def test_is_there_after_a_start(self, room, parts, kind):
        one, two = parts
        peer = room.peer()
        decide(peer, kind, 1, (one, [b"a"]), (two, [b"b"]), positions=[moved("g", (one, 0))])
        room.restart()
        if kind == "prepare":
            assert room.peer().ask(commands.Commit, xid=XID).placements
        assert (values(room, one), values(room, two)) == ([b"a"], [b"b"])
        assert position(room, "g", one) == 0

    def test_that_comes_again_is_answered_as_the_first_time(self, room, parts, kind):
        peer = room.peer()
        content = ((parts[0], [b"a"]), (parts[1], [b"b"]))
        answers = [decide(peer, kind, 1, *content, positions=[moved("g", (parts[0], 0))]) for _ in range(2)]
        assert msgspec.structs.replace(answers[1], correlation=0) == msgspec.structs.replace(
            answers[0], correlation=0
        )
        finish(peer, kind, 1)
        assert values(room, parts[0]) == [b"a"]

    def test_that_is_another_one_under_the_same_number_is_refused(self, room, parts, kind):
        peer = room.peer()
        decide(peer, kind, 1, (parts[0], [b"a"]))
        for other in ([b"b"], [b"a", b"a"]):
            assert "used twice" in refused(decide(peer, kind, 1, (parts[0], other)), "ContentMismatch")
        finish(peer, kind, 1)
        assert values(room, parts[0]) == [b"a"]

    def test_of_a_serial_that_has_passed_is_called_rolled_back(self, room, parts, kind):
        peer = room.peer()
        decide(peer, "commit", 2, (parts[0], [b"a"]))
        refused(decide(peer, kind, 1, (parts[0], [b"b"])), "TransactionRolledBack")
        assert values(room, parts[0]) == [b"a"]


SPOILT = {
    "bytes": (lambda one: {"data": b"x" * 50, "runs": [(one, 50)]}, "MessageTooLarge"),
    "more bytes than runs": (lambda one: {"data": frames(b"a") + b"x"}, "InvalidFrame"),
    "fewer bytes than runs": (lambda one: {"data": frames(b"a"), "runs": [(one, 10_000)]}, "InvalidFrame"),
    "an empty run": (lambda one: {"data": b"", "runs": [(one, 0)]}, "InvalidFrame"),
    "bytes and no runs": (lambda one: {"data": frames(b"a"), "runs": []}, "InvalidFrame"),
    "another partition": (lambda one: {"data": frames(b"a"), "runs": [(99, len(frames(b"a")))]}, "UnknownPartition"),
    "the archive": (lambda one: {"data": frames(b"a"), "runs": [(1, len(frames(b"a")))]}, "InvalidName"),
    "a frame over its topic's limit": (lambda one: {"data": frames(b"w" * 400)}, "MessageTooLarge"),
    "a position that is not there": (lambda one: {"positions": [moved("g", (one, 99))]}, "OffsetOutOfRange"),
    "a position of another generation": (lambda one: {"positions": [moved("g", (one, 0, 7))]}, "GenerationFenced"),
    "a group without a name": (lambda one: {"positions": [moved("", (one, 0))]}, "InvalidName"),
    "too many messages": (lambda one: {"data": frames(*[b""] * 9)}, "TransactionTooLarge"),
    "an operator's": (lambda one: {"operator": True, "by": "me", "why": "so"}, "TransactionConflict"),
    "another xid": (lambda one: {"xid": OTHER}, "TransactionConflict"),
}  # fmt: skip


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "begun"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_refusal_is_the_contents_own_error_and_nothing_of_the_transaction_stays(spoilt, kind, begun):
    room = Room(small_files(outcome_archive=True, limits=TransactionLimits(messages=8)))
    one, two = room.topic(partitions=2, max_message_bytes=300)
    wrong, error = SPOILT[spoilt]
    wrong = wrong(one)
    is_conflict = error == "TransactionConflict"
    if (spoilt == "an operator's" and kind == "prepare") or (spoilt == "another xid" and not begun):
        return  # there is no such request, or it is a right one
    peer = room.peer()
    named = {}
    if begun:
        add(peer, 1, two, b"before", xid=XID if kind == "prepare" or spoilt == "another xid" else None)
        named = {"totals": totals([b"before"])}
    if "data" in wrong and "runs" not in wrong:
        wrong["runs"] = [(one, len(frames(b"a")) if "more bytes" in spoilt else len(wrong["data"]))]
    content = [] if "data" in wrong else [(one, [b"a"])]
    refused(decide(peer, kind, 1, *content, **named, **wrong), error)
    assert (values(room, one), values(room, two)) == ([], [])
    live = room.engine.transactions.live
    if is_conflict and begun:
        assert [each.state for each in live.values()] == [State.ACTIVE], "a conflict changes nothing"
        return
    assert not live
    if not is_conflict:
        refused(decide(peer, kind, 1, (one, [b"a"]), **named), "TransactionRolledBack")
    assert isinstance(decide(peer, kind, 2, (one, [b"b"]), xid=OTHER), commands.Done | commands.Committed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", [None, totals([b"b"]), totals([b"a"], [b"a"])])
def test_what_was_added_before_must_be_what_the_request_says(room, parts, kind, said):
    peer = room.peer()
    add(peer, 1, parts[0], b"a")
    refused(decide(peer, kind, 1, (parts[0], [b"c"]), totals=said), "ContentMismatch")
    assert not room.engine.transactions.live
    assert values(room, parts[0]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_adds_that_never_came_are_missed(room, parts, kind):
    refused(decide(room.peer(), kind, 1, (parts[0], [b"c"]), totals=totals([b"a"])), "ContentMismatch")
    assert values(room, parts[0]) == []


def test_an_xid_that_another_has_is_refused_before_anything_changes(room, parts):
    first, second = room.peer(), room.peer()
    decide(first, "prepare", 1, (parts[0], [b"a"]))
    for serial, kind in enumerate(KINDS, 1):
        refused(decide(second, kind, serial, (parts[0], [b"b"]), xid=XID), "TransactionConflict")
    assert decide(second, "commit", 3, (parts[0], [b"c"]), xid=OTHER).placements
    assert second.ask(commands.AskOutcome, xid=OTHER).state is State.COMMITTED
    assert values(room, parts[0]) == [b"c"]


def test_the_commit_of_a_prepared_one_may_carry_its_content_again_and_no_other(room, parts):
    peer = room.peer()
    decide(peer, "prepare", 1, (parts[0], [b"a"]))
    refused(decide(peer, "commit", 1, (parts[0], [b"b"])), "ContentMismatch")
    assert decide(peer, "commit", 1, (parts[0], [b"a"])).placements
    assert values(room, parts[0]) == [b"a"]


def test_a_commit_of_another_sessions_number_commits_nothing(room, parts):
    first, second = room.peer(), room.peer()
    answer = decide(second, "commit", 1, (parts[0], [b"a"]), session=first.session.number)
    refused(answer, "TransactionConflict")
    assert values(room, parts[0]) == []


def test_compressed_content_is_bounded_over_all_runs():
    """Each run may open to as much as a request may; together they may not."""
    room = Room(small_files())
    one, two = room.topic(partitions=2)
    zstd = compressor("zstd", None)
    piece = b"".join(frame.encode_inner(n, b"0" * KIB, 1, None, None) for n in range(900))
    wrapper = frame.encode_wrapper(zstd.pack(piece), 900, 1, zstd.number)
    run = wrapper * 4
    peer = room.peer()
    answer = peer.ask(commands.Commit, serial=1, runs=[(one, len(run))], data=run)
    assert answer.placements
    refused(
        peer.ask(commands.Commit, serial=2, runs=[(one, len(run)), (two, len(run))], data=run * 2),
        "MessageTooLarge",
    )


def test_what_finds_no_memory_is_tried_again_under_its_serial():
    """Its serial was claimed by the first try; so the second was told that it had passed."""
    room = Room(small_files(pool_bytes=4 * MIB))
    one, two = room.topic(partitions=2)
    held = [room.engine.allocator.allocate(64 * KIB) for _ in range(58)]
    peer = room.peer()
    for kind, serial in (("commit", 1), ("prepare", 2)):
        request = (kind, serial, (one, [b"a" * 200 * KIB]), (two, [b"b" * 200 * KIB]))
        assert decide(peer, *request) is None, "it waits"
        if serial == 1:
            assert (values(room, one), values(room, two)) == ([], [])
    for each in held:
        each.release()
    room.broker.parked_requests.move()
    room.engine.sync()
    first, second = peer.answers[-2:]
    assert isinstance(first, commands.Committed)
    assert isinstance(second, commands.Done)
    assert [len(values(room, each)) for each in (one, two)] == [1, 1]


def test_what_finds_no_memory_in_the_end_is_refused_and_rolls_back_what_had_begun():
    room = Room(small_files(pool_bytes=4 * MIB))
    one, two = room.topic(partitions=2)
    peer = room.peer()
    add(peer, 1, one, b"before")
    held = [room.engine.allocator.allocate(64 * KIB) for _ in range(58)]
    before = totals([b"before"])
    assert decide(peer, "commit", 2, (one, [b"a" * 200 * KIB]), (two, [b"b" * 200 * KIB])) is None
    for _ in range(3):
        room.flush()
    room.engine.sync()
    refused(peer.answers[-1], "MemoryExhausted")
    for each in held:
        each.release()
    assert decide(peer, "commit", 1, totals=before).placements
    refused(decide(peer, "commit", 2, (one, [b"a"])), "TransactionRolledBack")


def test_what_finds_memory_for_some_of_its_partitions_only_keeps_none():
    """Each such request kept some for good, in partitions that nothing was in: a few, and there was none left."""
    room = Room(small_files(pool_bytes=4 * MIB))
    parts = room.topic(partitions=6)
    peer, serial = room.peer(), 0
    before = room.engine.allocator.available()
    for first in parts[:-1]:
        serial += 1
        decide(peer, "commit", serial, (first, [b"a" * MIB]), (parts[-1], [b"b" * 4 * MIB]))
        for _ in range(3):
            room.flush()
        refused(peer.answers[-1], "MemoryExhausted")
    assert room.engine.allocator.available() == before
    assert decide(peer, "commit", serial + 1, *((each, [b"c" * 100 * KIB]) for each in parts)).placements


def test_more_positions_than_a_request_may_list_are_refused_before_they_are_looked_at(room, parts):
    groups = [moved("gh"[number % 2], *[(parts[0], 0)] * 2000) for number in range(3)]
    for kind, serial in (("commit", 1), ("prepare", 2)):
        said = refused(decide(room.peer(), kind, serial, positions=groups), "LimitExceeded")
        assert "6000 positions" in said


CONTENT = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from([b"", b"a", b"b" * 300]), min_size=1, max_size=3)),
    min_size=1,
    max_size=6,
)


def state_after(deeds):
    """Logs, outcomes and positions of a broker, live and after a start, when each (kind, sent, added) is decided.

    The first ``added`` of what is sent in it go as adds, the others with the request.
    """
    room = Room(small_files(outcome_archive=True))
    parts = room.topic(partitions=3)
    peer = room.peer()
    for serial, (kind, sent, added) in enumerate(deeds, 1):
        before = Totals(0, 0, 0)
        for place, some in sent[:added]:
            add(peer, serial, parts[place], *some)
            checksum = crc32c(frames(*some), before.checksum)
            before = Totals(before.messages + len(some), before.requests + 1, checksum)
        rest = [(parts[place], some) for place, some in sent[added:]]
        named = {"totals": before} if before.requests else {}
        name = msgspec.structs.replace(XID, global_id=b"%d" % serial)
        answer = decide(peer, kind, serial, *rest, xid=name if kind == "prepare" else None, **named)
        assert isinstance(answer, commands.Committed | commands.Done), answer
        finish(peer, kind, serial)
    seen = []
    for _ in range(2):
        outcomes = [
            (each.number, each.placements, each.messages, each.bytes, each.checksum, each.xid)
            for each in room.engine.transactions.outcomes.by_number.values()
        ]
        seen += [[values(room, each) for each in parts], outcomes]
        room.restart()
    return seen


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), CONTENT, st.integers(0, 6)), min_size=1, max_size=4))
def test_it_makes_no_difference_what_was_added_before_and_what_came_with_the_request(deeds):
    added = [(kind, sent, len(sent)) for kind, sent, _ in deeds]
    assert state_after(deeds) == state_after(added)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_again_after_its_topic_is_gone_is_answered_as_the_first_time(room, kind):
    [one] = room.topic()
    peer = room.peer()
    first = decide(peer, kind, 1, (one, [b"a"]))
    finish(peer, kind, 1)
    assert isinstance(peer.ask(commands.DeleteTopic, "orders", room.topic_id()), commands.Done)
    if kind == "commit":
        assert decide(peer, kind, 1, (one, [b"a"])).placements == first.placements
        refused(decide(peer, kind, 1, (one, [b"b"])), "ContentMismatch")
        refused(decide(peer, kind, 1, data=b"torn" * 11, runs=[(one, 44)]), "InvalidFrame")
    else:
        refused(decide(peer, kind, 1, (one, [b"a"])), "TransactionCommitted")


def test_a_run_of_negative_length_is_refused(room, parts):
    run = frames(b"a")
    answer = decide(
        room.peer(), "commit", 1, data=run, runs=[(parts[0], 2 * len(run)), (parts[0], -len(run))]
    )
    refused(answer, "InvalidFrame")
