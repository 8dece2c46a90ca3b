"""Transactions that come whole are carried out to the same records, answers and state in one go as one by one."""

from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.formats.record import PartitionOffset
from journal.transaction import Totals, Xid
from journal.transactions.limits import TransactionLimits
from tests.broker.whole_scene import OTHER, SMALL, XID, Door, whole
from tests.support.broker_room import frames
from tests.support.thoroughness import examples
from txbroker.wire.codec import encode
from txbroker.wire.messages import Add, AddOffsets, Cancel, Commit, Fetch, Prepare, Refused, Rollback, Send

VALUES = st.lists(st.sampled_from([b"", b"a", b"bb" * 30, b"c" * 300]), min_size=1, max_size=5)
"""Runs that fit into the limits, and some that do not."""
GROUP = bytes(16)
LONG = 3_600_000_000
"""µs that a fetch waits, which no test lets pass: what answers it is a message, or that it is cancelled."""


ODD = (
    "messages", "requests", "checksum", "no totals", "xid", "commit xid", "operator", "own number", "other session",
    "seen ahead", "seen behind", "seen more since", "other serial", "seen below 0", "commit seen below 0", "torn",
    "long xid", "late xid", "commit named", "commit misnamed",
    "add seen own", "commit seen ahead", "commit seen own", "last seen ahead", "last seen own", "last seen below 0",
)  # fmt: skip
"""What may be unusual about a transaction."""


@st.composite
def requests(draw):
    """A client's requests, of which many are whole transactions, and many have something unusual about them."""
    made = []
    serial = 0
    for correlation in range(100, 100 + 10 * draw(st.integers(1, 8)), 10):
        serial += draw(st.sampled_from([1, 1, 1, 1, 2, 0, -1]))
        kind = draw(
            st.sampled_from(
                ["whole"] * 6
                + ["phases"] * 6
                + ["two adds", "offsets", "prepare", "rollback", "send"]
                + ["fetch"] * 2
                + ["cancel"] * 2
            )
        )
        what = draw(st.sampled_from([""] * len(ODD) + list(ODD)))
        place, seen = draw(st.sampled_from([0, 0, 1, 9])), draw(st.integers(0, 3))
        made.append(Drawn(kind, correlation, serial, place, frames(*draw(VALUES)), what, seen))
    return made


class Drawn(NamedTuple):
    kind: str
    correlation: int
    serial: int
    place: int
    run: bytes
    what: str
    behind: int


def encoded(door, each):
    """Its requests, as bytes each."""
    kind, correlation, serial, place, run, what, behind = each
    partition = door.partitions[place] if place < 2 else 999
    session = {"own number": door.protocol.session.number, "other session": 77}.get(what, 0)
    count = run_count(run)
    run = run[:-1] if what == "torn" else run
    usual = max(0, serial - 1 - behind)
    seen = {"seen ahead": serial + 1, "seen below 0": -1, "seen more since": 0, "add seen own": serial}.get(
        what, usual
    )
    commit_seen = {
        "seen behind": 0,
        "commit seen below 0": -1,
        "commit seen ahead": serial + 1,
        "commit seen own": serial,
        "add seen own": usual,
        "seen below 0": 0,
        "seen more since": serial - 1,
    }.get(what, seen)
    total = Totals(count + (what == "messages"), 1 + (what == "requests"), crc32c(run) ^ (what == "checksum"))
    add = encode(Add(correlation, serial, partition, XID if what == "xid" else None, seen), run)
    ends = serial + (what == "other serial")
    xid, stated = XID if what == "commit xid" else None, None if what == "no totals" else total
    commit = encode(
        Commit(correlation + 1, session, ends, xid, stated, commit_seen, what == "operator", "me", "why")
    )
    if kind == "phases":
        return in_two_phases(each, add, partition, run, seen, commit_seen, session, total)
    if kind == "fetch":
        return [encode(Fetch(correlation, [(partition, behind // 3, 0)], max_wait=LONG))]
    if kind == "cancel":
        return [encode(Cancel(0, correlation - 10 * (1 + behind)))]
    if kind == "two adds":
        return [add, add, commit]
    if kind == "offsets":
        return [encode(AddOffsets(correlation + 2, serial, "g", [], id=GROUP)), commit]
    if kind == "prepare":
        return [add, encode(Prepare(correlation + 3, serial, XID, total, seen)), commit]
    if kind == "rollback":
        return [add, encode(Rollback(correlation + 4, 0, serial))]
    if kind in ("two adds, phases", "offsets, phases"):
        xid, twice = Xid(1, b"x%d" % serial, b""), kind.startswith("two")
        add = encode(Add(correlation, serial, partition, xid, seen), run)
        offsets = encode(
            AddOffsets(correlation + 2, serial, "g", [PartitionOffset(partition, 0)], xid, seen, GROUP)
        )
        sums = Totals(count * (1 + twice), 2, crc32c(run * (1 + twice)))
        second = Commit(correlation + 1, 0, serial, seen=seen)
        prepare = encode(Prepare(correlation + 3, serial, xid, sums, seen))
        return [add, add if twice else offsets, prepare, encode(second)]
    if kind == "add, send":
        return [add, encode(Send(correlation + 5, partition), run), commit]
    if kind == "send":
        return [encode(Send(correlation + 5, partition), run)]
    return [add, commit]


def in_two_phases(each, add, partition, run, seen, commit_seen, session, total):
    """An add, its prepare, and the commit of what is prepared."""
    what, correlation, serial = each.what, each.correlation, each.serial
    shared = {"xid": XID, "commit xid": XID, "long xid": Xid(1, b"x" * 65, b"")}
    xid = shared.get(what, Xid(1, b"x%d" % serial, b""))
    before = {"late xid": None, "commit xid": OTHER}.get(what, xid)
    if what != "torn":
        add = encode(Add(correlation, serial, partition, before, seen), run)
    ends = serial + (what == "other serial")
    first_seen = seen if what == "no totals" else commit_seen
    last_seen = {"last seen ahead": serial + 1, "last seen own": serial, "last seen below 0": -1}.get(
        what, commit_seen
    )
    return [
        add,
        encode(Prepare(correlation + 1, ends, xid, total, first_seen)),
        encode(
            Commit(
                correlation + 2, session, serial, {"commit named": xid, "commit misnamed": OTHER}.get(what),
                total if what == "no totals" else None, last_seen, what == "operator", "me", "why",
            )
        ),
    ]  # fmt: skip


def run_count(run):
    """How many frames there seem to be."""
    count = position = 0
    while position + 4 <= len(run):
        position += int.from_bytes(run[position : position + 4], "big")
        count += 1
    return count


def same_either_way(drawn, reads, **settings):
    """Assert that it is: in reads of whole transactions, and in reads of a request each."""
    together, apart = Door(**settings), Door(long_way=True, **settings)
    in_one = together.read(*reads(together, drawn))
    one_by_one = apart.read(*read_one_by_one(apart, drawn))
    assert sorted(in_one, key=str) == sorted(one_by_one, key=str)
    assert together.records == apart.records
    assert together.state() == apart.state()
    together.room.restart()
    apart.room.restart()
    assert together.state()[:2] == apart.state()[:2]


def test_a_fetch_that_is_given_up_is_answered_once_in_either_way():
    """Cancelled while it hangs, when what it waits for is queued, when it is answered, twice, and never."""
    drawn = [
        Drawn("fetch", 10, 0, 1, b"", "", 0),
        Drawn("whole", 20, 1, 0, frames(b"a"), "", 0),
        Drawn("cancel", 20, 0, 0, b"", "", 0),
        Drawn("cancel", 20, 0, 0, b"", "", 0),
        Drawn("fetch", 30, 0, 0, b"", "", 0),
        Drawn("whole", 40, 2, 0, frames(b"b"), "", 0),
        Drawn("cancel", 40, 0, 0, b"", "", 0),
        Drawn("fetch", 50, 0, 1, b"", "", 0),
    ]
    for reads in (read_each, read_all):
        same_either_way(drawn, reads)
        door = Door()
        answers = [answer.correlation for answer in door.read(*reads(door, drawn))]
        assert sorted(answers) == [10, 21, 30, 41]  # and 50 hangs on
        answers = door.read(encode(Cancel(0, 50)), encode(Cancel(0, 50)))
        assert [answer.correlation for answer in answers] == [50]


def read_each(door, drawn):
    return [b"".join(encoded(door, each)) for each in drawn]


def read_apart(door, drawn):
    """The commit of what is prepared in a read of its own, as clients send it."""
    reads = [encoded(door, each) for each in drawn]
    return [part for parts in reads for part in (b"".join(parts[:2]), b"".join(parts[2:]))]


def read_one_by_one(door, drawn):
    return [part for each in drawn for part in encoded(door, each)]


def read_all(door, drawn):
    return [b"".join(read_each(door, drawn))]


@pytest.mark.slow
@given(requests(), st.sampled_from([read_each, read_apart, read_all]), st.booleans(), st.booleans())
@settings(max_examples=examples(80))
def test_in_one_go_gives_what_one_by_one_gives(drawn, reads, archive, limited):
    same_either_way(drawn, reads, outcome_archive=archive, limits=SMALL if limited else TransactionLimits())


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("kind", ["whole", "phases"])
@pytest.mark.parametrize(("archive", "more"), [(False, 0), (False, 1), (True, 1)])
def test_so_does_what_is_unusual(what, kind, archive, more):
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a"), what if n == 2 else "", 0) for n in range(1, 3 + more)]
    for reads in (read_each, read_apart):
        same_either_way(drawn, reads, outcome_archive=archive)


@pytest.mark.parametrize(
    "kind",
    [
        "two adds", "offsets", "prepare", "rollback", "send", "add, send", "two adds, phases", "offsets, phases",
    ],
)  # fmt: skip
def test_so_does_what_else_begins_with_an_add(kind):
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a"), "", 0) for n in range(1, 4)]
    for reads in (read_each, read_all, read_one_by_one):
        same_either_way(drawn, reads)


@pytest.mark.parametrize("kind", ["whole", "phases"])
def test_so_does_what_is_longer_than_a_message_of_its_topic_may_be(kind):
    limit = len(frames(b"a" * 100))
    drawn = [Drawn(kind, 10 * n, n, 0, frames(b"a" * (99 + n)), "", 0) for n in range(1, 3)]
    same_either_way(drawn, read_each, max_message_bytes=limit)


@pytest.mark.parametrize("serials", [(2, 1), (1, 1), (0,), (3, 2, 4), ((1 << 63) - 1, 1 << 63), (1, 2, 3, 2)])
def test_so_do_serials_that_do_not_count_up(serials):
    for behind in (0, 9):
        drawn = [
            Drawn("whole", 10 * n, each, 0, frames(b"a"), "", behind) for n, each in enumerate(serials, 1)
        ]
        same_either_way(drawn, read_each)
        same_either_way([each._replace(kind="phases") for each in drawn], read_apart)


@pytest.mark.parametrize(
    "limits",
    [
        TransactionLimits(transactions=0), TransactionLimits(messages=1), TransactionLimits(bytes=50),
        TransactionLimits(requests=0), TransactionLimits(total_messages=1), TransactionLimits(total_bytes=50),
    ],
)  # fmt: skip
def test_so_does_what_is_over_a_limit(limits):
    for kind in ("whole", "phases"):
        same_either_way([Drawn(kind, 10, 1, 0, frames(b"a", b"b"), "", 0)], read_each, limits=limits)


def test_what_is_refused_one_by_one_is_refused_in_one_go_with_the_same_words():
    door = Door()
    [refused, rolled_back] = door.read(whole(1, 999, b"a"))
    assert isinstance(refused, Refused)
    assert refused.error == "UnknownPartition"
    assert rolled_back.error == "ContentMismatch"
