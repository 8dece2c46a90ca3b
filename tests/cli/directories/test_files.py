"""The commands that read a data directory without a broker."""

import base64
import errno
import json
import os
import re
import shutil

import pytest
from click.testing import CliRunner

import journal.embedded
from journal.engine.settings import JournalSettings
from journal.errors import DirectoryLocked
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid
from txbroker.cli import command_line
from txbroker.cli.directory.data_directory import files_that_stay
from txbroker.cli.exits import Exit, Failure

SMALL = JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 20, low_water_bytes=0)


@pytest.fixture
def directory(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders", partitions=2)
        log.append("orders", b"one")
        with log.transaction() as tx:
            tx.append("orders", b"two")
    return tmp_path / "data"


def run(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_find_reads_a_directory_without_a_broker_and_touches_nothing(directory):
    with journal.embedded.open_log(directory, SMALL) as log:
        log.append("orders", b"three", key=b"42", id="order-3", partition=1)
        log.append("orders", b"four", key=b"42", partition=1)
    before = contents(directory)
    result = run("find", "orders", "--key", "42", "--data", directory, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = [json.loads(line) for line in result.output.splitlines()]
    assert [(each["partition"], each["value"], each["id"]) for each in found] == [
        (1, "three", "order-3"), (1, "four", None)
    ]  # fmt: skip
    assert (
        len(run("find", "orders", "--key", "42", "--id", "order-3", "--data", directory).output.splitlines())
        == 1
    )
    assert run("find", "orders", "--key", "42", "--partition", "0", "--data", directory).exit_code == Exit.NO
    missing = run("find", "payments", "--key", "42", "--data", directory)
    assert (missing.exit_code, "has no topic payments" in missing.stderr) == (Exit.NO, True)
    assert run("find", "orders", "--key", "42", "--partition", "7", "--data", directory).exit_code == Exit.NO
    assert contents(directory) == before


def test_find_says_of_a_directory_that_was_not_closed_that_it_does_not_see_everything(tmp_path):
    log = journal.embedded.open_log(tmp_path / "data", SMALL)
    log.create_topic("orders")
    log.append("orders", b"one", key=b"42")
    log.engine.housekeeping.checkpoint_inline()
    log.append("orders", b"two", key=b"42")
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    log.close()
    result = run("find", "orders", "--key", "42", "--data", tmp_path / "killed")
    assert len(result.stdout.splitlines()) == 1
    assert "what it took after its newest checkpoint is not searched" in result.stderr


def test_find_in_damage_says_so(directory):
    flip(segment(directory), 64 + 28)
    result = run("find", "orders", "--key", "x", "--data", directory)
    assert (result.exit_code, "fails its checksum" in result.stderr) == (Exit.CORRUPT, True)


def segment(directory):
    [path] = directory.glob("partitions/orders-0.*/*.log")
    return path


def test_a_sound_directory_is_told_to_be_sound_and_is_not_touched(directory):
    before = contents(directory)
    for level in ("--quick", "--deep", None):
        result = run("verify", directory, *([level] if level else []))
        assert (result.exit_code, "No damage found" in result.output) == (0, True), result.output
    said = json.loads(run("verify", directory, "--deep", "--json").output)
    assert (said["damaged"], said["findings"], said["level"]) == (False, [], "deep")
    assert said["checked"]["journal_files"] == said["checked"]["checkpoints"] == 1
    assert said["checked"]["messages"] == said["checked"]["placed"] == 2
    assert said["checked"]["committed"] == said["checked"]["compared"] == 1
    assert contents(directory) == before


def test_a_directory_whose_broker_is_at_work_is_refused_with_advice(directory):
    with journal.embedded.open_log(directory, SMALL):
        result = run("verify", directory)
    assert (result.exit_code, "is locked by process" in result.output) == (Exit.UNREACHABLE, True)
    assert "'txbroker status' says what its scrubber found" in result.output
    assert run("verify", directory).exit_code == 0


def test_nobody_begins_to_write_while_files_are_checked_and_the_checker_is_named(directory):
    lock = OSFilesystem(directory).read_lock("lock")
    try:
        assert run("verify", directory).exit_code == 0, "several may read"
        with pytest.raises(DirectoryLocked, match=f"locked by process {os.getpid()}"):
            journal.embedded.open_log(directory, SMALL)
    finally:
        lock.release()
    journal.embedded.open_log(directory, SMALL).close()


def test_a_copy_on_a_medium_that_cannot_be_written_to_is_checked(directory):
    (directory / "lock").unlink()
    for path in [*directory.rglob("*"), directory]:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        assert run("verify", directory, "--deep").exit_code == 0
        assert not (directory / "lock").exists()
    finally:
        for path in [directory, *directory.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)


def test_damage_is_named_and_the_exit_code_says_so(directory):
    flip(segment(directory), 64 + 28)
    result = run("verify", directory, "--json")
    said = json.loads(result.output)
    [finding] = said["findings"]
    assert (result.exit_code, said["damaged"]) == (Exit.CORRUPT, True)
    assert "1 place is damaged. Nothing was changed." in run("verify", directory).output
    assert finding["affects"] == {"topic": "orders", "partition": 0, "first_offset": 0, "last_offset": 0}
    assert (finding["file"], finding["position"], finding["damage"]) == (
        str(segment(directory).relative_to(directory)), 64, True,
    )  # fmt: skip
    shown = run("verify", directory).output
    assert "fails its checksum" in shown
    assert "orders-0, offset 0" in shown
    assert f"txbroker repair {directory}" in shown


def test_the_journal_is_dumped_record_by_record(directory):
    lines = [json.loads(line) for line in run("dump", directory, "--json").output.splitlines()]
    kinds = [line["record"] for line in lines]
    assert kinds == [
        "Started",
        "TopicCreated",
        "Messages",
        "TransactionAdded",
        "TransactionCommitted",
        "Mark",
    ]
    assert lines[1]["topic"] == "orders"
    assert len(base64.b64decode(lines[0]["nonce"])) == 16
    later = run("dump", directory, "--from-lsn", lines[4]["lsn"]).output.splitlines()
    assert [line.split()[1] for line in later] == kinds[4:]


def test_a_partition_is_dumped_frame_by_frame_with_the_damaged_one_marked(directory):
    flip(segment(directory), 64 + 28)
    result = run("dump", directory, "--partition", "orders-0")
    assert result.exit_code == Exit.CORRUPT
    first, second = result.output.splitlines()
    assert re.fullmatch(
        r"DAMAGED partitions/orders-0\.\d+/0+\.log at byte 64: .+ \(affects orders-0, offset 0\)", first
    )
    assert second.startswith("1 messages=1")


def test_a_partition_that_is_not_there_is_answered_with_no(directory):
    result = run("dump", directory, "--partition", "orders-7")
    assert (result.exit_code, "no segments of a partition 'orders-7'" in result.output) == (Exit.NO, True)


def test_another_directory_is_not_taken_for_a_broker_s(tmp_path):
    result = run("verify", tmp_path)
    assert (result.exit_code, "is not a data directory" in result.output) == (Exit.USAGE, True)


KINDS = {
    "journal/*.journal": '"record":"TopicCreated"',
    "partitions/orders-0.1/*.log": '"offset":1,"messages":1',
    "checkpoints/*.checkpoint": '"section":"Stores"',
}


@pytest.mark.parametrize("pattern", KINDS)
def test_a_single_file_of_each_kind_is_dumped_wherever_it_lies(directory, tmp_path, pattern):
    [path] = directory.glob(pattern)
    result = run("dump", path, "--json")
    assert (result.exit_code, KINDS[pattern] in result.output) == (0, True), result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    copy = shutil.copy(path, tmp_path)
    copied = [json.loads(line) for line in run("dump", copy, "--json").output.splitlines()]
    assert [{**line, "file": ""} for line in lines] == [{**line, "file": ""} for line in copied]
    assert len(run("dump", path).output.splitlines()) == len(lines)


def test_the_frames_of_a_staged_file_are_dumped(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders")
        tx = log.transaction()
        tx.append("orders", b"one", key=b"k")
        tx.append("orders", b"two")
        tx.prepare(Xid(1, b"g", b""))
        for _ in range(2):
            log.append("orders", b"x")
            log.engine.housekeeping.checkpoint_inline()
    [path] = (tmp_path / "data/staged").iterdir()
    header, first, value, second, _ = run("dump", path, "--values").output.splitlines()
    assert re.match(r"staged file transaction=\d+-1 salt=\d+$", header)
    assert first.startswith("0 messages=1")
    assert (value, second.split()[0]) == ("    0  k: one", "1")
    flip(path, 36 + 40)
    result = run("dump", path)
    assert (result.exit_code, result.output.splitlines()[1].split()[0]) == (Exit.CORRUPT, "DAMAGED")
    assert len(result.output.splitlines()) == 3, "what follows the damage is shown"


def test_a_transaction_is_dumped_under_the_names_that_operators_look_for(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders")
        tx = log.transaction()
        tx.append("orders", b"one")
        tx.prepare(Xid(7, b"order-42", b"shop"))
    lines = [json.loads(line) for line in run("dump", tmp_path / "data", "--json").output.splitlines()]
    [prepared] = [line for line in lines if line["record"] == "TransactionPrepared"]
    assert prepared["xid"] == "7:order-42:shop"
    [shown] = [line for line in run("dump", tmp_path / "data").output.splitlines() if "Prepared" in line]
    assert f"transaction={prepared['session']}-{prepared['serial']} " in shown
    assert "xid=7:order-42:shop " in shown
    assert " owner= " not in shown, "what is empty says nothing"


def test_the_entries_of_indexes_are_dumped_with_the_damaged_one_marked(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders")
        for _ in range(6):
            log.append("orders", bytes(20_000))
    for suffix in ("index", "time"):
        [path] = (tmp_path / "data").glob(f"partitions/orders-0.1/*.{suffix}")
        lines = [json.loads(line) for line in run("dump", path, "--json").output.splitlines()]
        assert [line["offset"] for line in lines] == [1, 2, 3, 4, 5]
        assert all(line["sound"] for line in lines)
        later = run("dump", path, "--from-offset", 3, "--limit", 2, "--json").output.splitlines()
        assert [json.loads(line)["offset"] for line in later] == [3, 4]
        flip(path, 1)
        assert "fails its checksum" in run("dump", path).output


def test_a_dump_begins_and_ends_where_it_is_told_to(directory):
    path = segment(directory)
    header = run("dump", path, "--limit", 1).output
    assert re.match(r"segment nonce=[0-9a-f]{32} start=1 partition=1 base_offset=0 salt=\d+$", header)
    assert run("dump", path, "--from-offset", 1).output.startswith("1 messages=1")
    assert len(run("dump", path, "--limit", 1).output.splitlines()) == 1


def test_values_are_shown_when_they_are_asked_for(directory):
    path = segment(directory)
    assert "one" not in run("dump", path).output
    assert [line.strip() for line in run("dump", path, "--values").output.splitlines()[2::2]] == [
        "0  one", "1  two",
    ]  # fmt: skip
    said = [json.loads(line) for line in run("dump", directory, "--values", "--json").output.splitlines()]
    assert [v["value"] for line in said for v in line.get("values", ())] == ["one", "two"]


def test_a_dump_goes_on_behind_damage_and_says_so(tmp_path):
    with journal.embedded.open_log(tmp_path / "data", SMALL) as log:
        log.create_topic("orders")
        for number in range(4):
            log.append("orders", b"value %d" % number)
    [path] = (tmp_path / "data/journal").glob("*.journal")
    lines = [json.loads(line) for line in run("dump", path, "--json").output.splitlines()]
    flip(path, lines[4]["position"] + 28)
    damaged = run("dump", path, "--json")
    found = [json.loads(line) for line in damaged.output.splitlines()]
    assert damaged.exit_code == Exit.CORRUPT
    assert [line["lsn"] for line in found if line.get("beyond_damage")] == [line["lsn"] for line in lines[5:]]
    assert [line["lsn"] for line in found[1:4]] == [line["lsn"] for line in lines[1:4]]
    assert [line["problem"] for line in found if line.get("damage")], found
    # the length of a frame: the next one is found by what a header looks like
    log = segment(tmp_path / "data")
    flip(log, 64 + 3)
    frames = [json.loads(line) for line in run("dump", log, "--json").output.splitlines()][1:]
    assert [line.get("offset") for line in frames] == [None, 1, 2, 3]
    assert frames[0]["affects"] == {"topic": "orders", "partition": 0, "first_offset": 0, "last_offset": 0}


def test_a_file_that_holds_nothing_to_dump_is_named(directory):
    result = run("dump", directory / "witness")
    assert (result.exit_code, "by its name it is no journal file, segment" in result.output) == (
        Exit.USAGE,
        True,
    )
    result = run("dump", segment(directory), "--partition", "orders-0")
    assert result.exit_code == Exit.USAGE


def test_a_file_that_goes_away_meanwhile_is_explained(directory, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory", "journal/x")

    monkeypatch.setattr("journal.check.verify", gone)
    result = run("verify", directory)
    assert (result.exit_code, "is a broker running on it?" in result.output) == (Exit.UNREACHABLE, True)


@pytest.mark.parametrize("command", [("verify",), ("verify", "--deep"), ("repair",), ("dump",)])
@pytest.mark.parametrize("name", ["journal", "checkpoints", "partitions/orders-0.*"])
def test_what_lies_where_it_does_not_belong_is_named_and_no_traceback(directory, command, name):
    """A file where a directory belongs, as a failed restore leaves it."""
    [path, *_] = sorted(directory.glob(name))
    shutil.rmtree(path)
    path.write_text("")
    result = run(*command, directory)
    assert isinstance(result.exception, SystemExit | None), result.exception
    if command != ("dump",) or name.startswith("journal"):
        assert result.exit_code == Exit.CORRUPT
        assert path.name in result.output
        assert "nothing was changed" in result.output
        assert "restore what was there from a copy" in result.output


@pytest.mark.parametrize("name", ["checkpoints/*", "journal/*.journal", "an index", "witness"])
def test_a_file_that_cannot_be_read_is_reported_and_all_others_are_checked(directory, name):
    """It is a directory here, for a test that runs as root may read every file."""
    segment(directory).with_suffix(".time").touch()  # a short segment has no index files, or both
    [path, *_] = sorted(directory.glob(name)) or [segment(directory).with_suffix(".index")]
    path.unlink(missing_ok=True)
    path.mkdir()
    flip(segment(directory), 64 + 28)
    result = run("verify", "--deep", directory)
    assert (result.exit_code, "Traceback" in result.output) == (Exit.CORRUPT, False)
    assert re.search(
        rf"{path.relative_to(directory)} .* UNREADABLE .* cannot be read: Is a directory", result.output
    )
    assert "1 file cannot be read, so what is in there is not known" in result.output
    if "checkpoint" not in name:  # nothing else tells of segments
        assert f"{segment(directory).relative_to(directory)} " in result.output
    refused = run("repair", directory)
    assert (refused.exit_code, "take all that is in there for lost" in refused.output) == (Exit.CORRUPT, True)
    assert "Nothing was changed" in refused.output


def test_files_that_may_not_be_read_are_another_users(directory):
    with (
        pytest.raises(Failure, match=r"Permission denied.*as the user that the broker runs as") as caught,
        files_that_stay("d"),
    ):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "journal/1.journal")
    assert caught.value.exit_code == Exit.UNREACHABLE
