"""Test records that do not follow those before them, with valid checksums: every reader of the journal names them."""

import re

import pytest

from journal.check import JournalEntry, Level, verify, walk_journal
from journal.errors import CorruptJournal, Irreparable
from journal.records.access_entries import Right
from journal.records.group_entries import MAX_ATTEMPTS, MAX_PAUSE
from journal.records.record import Messages
from journal.repair import diagnose
from tests.repair.repair_scene import repaired
from tests.support.damage import forged_queues
from tests.support.damage.forged_records import (
    GROUP_ID,
    REFUSED,
    TOLD,
    UNREADABLE,
    commit,
    forged,
    grown,
    prepare,
    retrying,
    rule,
    scene,
    stamped,
    started,
    switched,
    user,
    verifier,
)
from tests.support.engine_room import contents
from txbroker.cli.directory.dump_lines import line_json, line_text

CHECKPOINT = pytest.mark.parametrize("checkpoint", [False, True], ids=["whole", "checkpoint"])


def damages(filesystem, level):
    return [each for each in verify(filesystem, level) if not each.harmless]


@CHECKPOINT
def test_sound_records_of_these_kinds_are_taken(checkpoint):
    at = scene(checkpoint)
    for records in (
        [commit()],
        [commit((1, 3), (2, 1), (1, 4))],
        [prepare()],
        [prepare(1, 2, 1)],
        [grown(at, 2, 3), commit((1, 3), (3, 0)), grown(at, 3, 4, partitions=2)],
        [retrying(1), retrying(MAX_ATTEMPTS, MAX_PAUSE, 0), retrying(group="z", group_id=GROUP_ID)],
        [user(scram=verifier()), rule(Right.READ), rule(Right.READ, Right.WRITE), rule(), user(), switched()],
        [switched(1), switched(1, on=True), rule(Right.READ, holder="role:a"), user(roles=["a"] * 16)],
    ):
        filesystem = forged(at, *records)
        assert damages(filesystem, Level.DEEP) == []
        started(filesystem)


@CHECKPOINT
@pytest.mark.parametrize("what", forged_queues.SOUND)
def test_sound_records_of_queues_are_taken(what, checkpoint):
    at = scene(checkpoint)
    filesystem = forged(at, *forged_queues.SOUND[what](at))
    assert damages(filesystem, Level.DEEP) == []
    dumped(filesystem)
    started(filesystem)
    assert damages(filesystem, Level.DEEP) == []


@pytest.mark.sampled(32)
@CHECKPOINT
@pytest.mark.parametrize("what", REFUSED | forged_queues.REFUSED)
def test_what_does_not_follow_the_records_before_is_refused_named_and_cut_off(what, checkpoint):
    at = scene(checkpoint)
    filesystem = forged(at, *(REFUSED | forged_queues.REFUSED)[what](at))
    with pytest.raises(CorruptJournal, match=r"Nothing was changed|No record was changed") as refused:
        started(filesystem.kill_clone())
    assert refused.value.path
    for level in (Level.QUICK, Level.DEEP):
        [named] = [each for each in damages(filesystem, level) if each.refused]
        assert named.path.startswith("journal/")
        assert named.position
        assert named.affects.first_lsn is not None
    dumped(filesystem)
    diagnosis = repaired(filesystem)
    assert diagnosis.lost
    assert damages(filesystem, Level.DEEP) == []
    started(filesystem)


def test_messages_in_partitions_that_a_topic_got_later_are_named_by_topic_also_behind_other_damage():
    at = scene(checkpoint=True)
    sent = [(Messages(3, base, 1, 10**9), stamped(base, b"v")) for base in (0, 5)]
    second_identity = REFUSED["a second identity"](at)
    told = damages(forged(at, *second_identity, grown(at, 2, 3), *sent), Level.DEEP)
    [gap] = [each for each in told if "places messages from offset 5 on" in each.problem]
    assert (gap.affects.topic, gap.affects.partition) == ("t", 2)


@pytest.mark.parametrize("what", UNREADABLE | forged_queues.UNREADABLE)
def test_what_has_no_form_of_a_record_is_named_and_no_repair_drops_it(what):
    at = scene()
    filesystem = forged(at, *(UNREADABLE | forged_queues.UNREADABLE)[what](at))
    before = contents(filesystem)
    for refuse in (lambda: started(filesystem.kill_clone()), lambda: diagnose(filesystem)):
        with pytest.raises((CorruptJournal, Irreparable), match=r"of a kind or form that is not known here"):
            refuse()
    assert contents(filesystem) == before
    for level in (Level.QUICK, Level.DEEP):
        [named] = damages(filesystem, level)
        assert re.search(
            r"form that is not known here: (Expected `(int` [<>]= -?\d|(str|bytes|array)` (of length|matching))"
            r"|Invalid enum value [\d'])",
            named.problem,
        )
    dumped(filesystem)


@pytest.mark.parametrize("what", TOLD | forged_queues.TOLD)
def test_what_says_otherwise_than_it_holds_is_told_by_a_deep_verification(what):
    at = scene()
    filesystem = forged(at, *(TOLD | forged_queues.TOLD)[what](at))
    started(filesystem.kill_clone())
    assert damages(filesystem, Level.DEEP)
    assert not [each for each in damages(filesystem, Level.DEEP) if each.refused]
    dumped(filesystem)


def dumped(filesystem):
    """Every record and all damage can be printed."""
    for each in walk_journal(filesystem, beyond=True):
        assert line_text(each, values=True)
        assert isinstance(each, JournalEntry) == ("lsn" in line_json(each))
