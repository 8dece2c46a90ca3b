"""Test damaged, torn and missing files: losses are named, all else is read, and nothing is invented."""

import logging

import pytest

import journal
from journal.errors import StorageUnavailable
from journal.formats import frame
from spark.source.files import Directory
from spark.source.logs import Log, Losses, MessagesLost, Slice, lost
from spark.source.message_heads import UnsoundBlock, read_heads
from spark.source.messages import heads_of
from tests.spark.damages.forger import altered
from tests.spark.directories import append, fill, flip, segments
from tests.spark.source.test_planning import options_of, planned, read
from tests.support.builders import small_files

pytestmark = pytest.mark.slow


def offsets(path, **options):
    return [row["offset"] for row in read(options_of(path, **options))]


@pytest.fixture
def path(tmp_path):
    """5,000 messages in segments of about 760."""
    fill(tmp_path / "d", 5000)
    return tmp_path / "d"


def first_of(file):
    return int(file.stem)


def test_a_damaged_message_is_named_with_its_place_and_what_to_do(path):
    second = segments(path)[1]
    flip(second, 9000)
    with pytest.raises(MessagesLost) as caught:
        offsets(path)
    told = str(caught.value)
    first = first_of(second)
    assert caught.value.first == first + 100
    assert caught.value.last == first + 199, "a wrapper has one checksum"
    assert (
        f"t-0: offsets {first + 100} to {first + 199} cannot be read: partitions/t-0.1/{second.name}" in told
    )
    assert "is damaged at byte 8508: the frame of offset" in told
    assert "'txbroker verify DIR' says what else is damaged" in told
    assert "with failOnDataLoss=false what is lost is skipped" in told


def test_damage_behind_what_was_asked_for_does_not_matter(path):
    second = segments(path)[1]
    flip(second, 9000)
    first = first_of(second) + 100
    assert offsets(path, endingOffsets=f'{{"t": {{"0": {first}}}}}') == list(range(first))
    assert offsets(path, startingOffsets=f'{{"t": {{"0": {first + 100}}}}}') == list(range(first + 100, 5000))


def test_what_is_damaged_can_be_skipped_with_a_warning_and_all_else_is_read(path, caplog):
    second = segments(path)[1]
    first = first_of(second)
    flip(second, 9000)
    with caplog.at_level(logging.WARNING, "txbroker.spark"):
        found = offsets(path, failOnDataLoss="false")
    assert found == [n for n in range(5000) if not first + 100 <= n < first + 200]
    assert f"t-0: offsets {first + 100} to {first + 199} cannot be read" in caplog.text


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_damaged_header_costs_no_more_than_up_to_the_next_entry_of_the_index(path, at):
    second = segments(path)[1]
    first = first_of(second)
    flip(second, 64 + 2 * 8444 + at)  # the length or the offset of the third wrapper
    found = offsets(path, failOnDataLoss="false")
    missing = sorted(set(range(5000)) - set(found))
    assert missing == list(range(first + 200, missing[-1] + 1))
    assert len(missing) <= 600
    assert found == sorted(found)


def test_a_segment_that_is_shorter_than_the_checkpoint_says_is_damage(path):
    second, third = segments(path)[1:3]
    size = second.stat().st_size
    with second.open("r+b") as file:
        file.truncate(size - 5000)
    with pytest.raises(
        MessagesLost, match=f"offsets {first_of(third) - 100} to {first_of(third) - 1} cannot be read"
    ):
        offsets(path)
    found = offsets(path, failOnDataLoss="false")
    assert found == [n for n in range(5000) if not first_of(third) - 100 <= n < first_of(third)]


def test_a_segment_of_another_place_is_not_read_for_this_one(path):
    second, third = segments(path)[1:3]
    second.write_bytes(third.read_bytes())
    with pytest.raises(MessagesLost, match="it is the segment of partition number 1 from offset 1400 on"):
        offsets(path)


def test_a_segment_that_somebody_has_removed_is_missed(path):
    second, third = segments(path)[1:3]
    second.unlink()
    with pytest.raises(MessagesLost, match="is gone, though no retention took it"):
        offsets(path)
    assert offsets(path, failOnDataLoss="false") == [*range(first_of(second)), *range(first_of(third), 5000)]


class TestWhileBeingRead:
    """The plan was made; then something happens, and the tasks begin."""

    def test_what_retention_takes_meanwhile_is_said_with_where_the_log_begins_now(self, path):
        plan = planned(options_of(path))
        with journal.open(path, small_files()) as log:
            log.trim("t", 3000)
            for _ in range(3):  # files go when no checkpoint that is kept refers to them
                append(log, range(5000, 5001))
                log.engine.housekeeping.checkpoint_inline()
        assert first_of(segments(path)[0]) > 0, "files have gone"
        with pytest.raises(
            MessagesLost, match="since the query was planned retention has taken all below offset 3000"
        ):
            read(options_of(path), plan=plan)
        skipping = options_of(path, failOnDataLoss="false")
        assert [row["offset"] for row in read(skipping, plan=plan)] == list(range(3000, 5000))

    def test_a_topic_that_is_deleted_meanwhile_is_said_to_be(self, path):
        from journal.records.record import TopicDeleted

        plan = planned(options_of(path))
        with journal.open(path, small_files()) as log:
            log.engine.accept(TopicDeleted("t", log.engine.now()))
            log.engine.sync()
            log.create_topic("t")
            for _ in range(3):
                log.append("t", b"of another topic")
                log.engine.housekeeping.checkpoint_inline()
        with pytest.raises(MessagesLost, match="the topic has been deleted since the query was planned"):
            read(options_of(path), plan=plan)
        assert read(options_of(path, failOnDataLoss="false"), plan=plan) == []

    def test_what_is_appended_meanwhile_is_not_read_by_this_query(self, path):
        plan = planned(options_of(path))
        with journal.open(path, small_files()) as log:
            append(log, range(5000, 6000))
        assert [row["offset"] for row in read(options_of(path), plan=plan)] == list(range(5000))

    def test_a_file_without_rights_is_no_loss_but_an_error_that_says_so(self, path, monkeypatch):
        from journal.vfs.filesystem import OSFilesystem

        plan = planned(options_of(path))
        opened = OSFilesystem.open

        def refused(self, name, create=False, writable=True):
            assert not writable, "a read never opens a file for writing"
            if name.endswith(".log"):
                raise PermissionError(13, "Permission denied", name)
            return opened(self, name, create, writable)

        monkeypatch.setattr(OSFilesystem, "open", refused)
        with pytest.raises(
            StorageUnavailable, match=r"which holds offsets of t-0 from 0 on, cannot be read: Permission"
        ):
            read(options_of(path, failOnDataLoss="false"), plan=plan)


def test_nothing_in_the_directory_is_changed_by_reading_it(path):
    def state():
        return {
            file: (file.stat().st_mtime_ns, file.stat().st_size, file.stat().st_ino)
            for file in path.rglob("*")
        }

    segments(path)[1].with_suffix(".index").unlink()
    before = state()
    read(options_of(path))
    Directory(str(path)).close()
    assert state() == before


class HalfAFrame:
    """A log of one message whose bytes end within it, as a broker gives them that cannot count."""

    def cursor(self, part):
        return self

    def read(self, offset, most):
        return frame.encode(b"whole", 0)[:-1], offset

    def damaged(self, fault):
        return lost(LOG, fault.offset, fault.offset, str(fault))

    def close(self):
        pass


LOG = Log("t", 0, 1, 0, 1, 41)


def test_bytes_without_one_whole_frame_are_a_loss_and_no_endless_loop():
    with pytest.raises(MessagesLost, match="t-0: offset 0 cannot be read: no frame of offset 0 is there"):
        list(heads_of(HalfAFrame(), Slice(LOG, 0, 1), Losses(True)))
    assert [list(heads.offset) for heads in heads_of(HalfAFrame(), Slice(LOG, 0, 1), Losses(False))] == []


def test_wrappers_of_nothing_or_with_attributes_of_their_own_are_damage():
    inner = frame.encode_inner(0, b"v", 0)
    assert list(read_heads(frame.encode_wrapper(inner, 1, 0), 0)[0].offset) == [0]
    attributed = altered(frame.encode_wrapper(inner, 1, 0), 40, (1).to_bytes(4, "big"))
    for data in (frame.encode_wrapper(b"", 0, 0), attributed):
        with pytest.raises(UnsoundBlock, match="the wrapper of offset 0 does not hold the"):
            read_heads(data, 0)
