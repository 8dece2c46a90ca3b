"""Test that compressed batches stay as sent in the broker, its journal, its logs and the tools that read or repair
these.

Seen to fail: with resync bounded by a header for each message, a repair gave up whole segments behind a damaged batch;
with the topic's setting not passed on to transactions, what a send may do an add may not.
"""

import json
import sys

import pytest
from click.testing import CliRunner
from crc32c import crc32c

import journal
from journal import check
from journal.engine.settings import JournalSettings
from journal.formats import frame
from journal.formats.compression import CODECS, SIZE, compressor
from journal.formats.frame import COMPRESSION, HEADER, HEADER_BYTES
from journal.formats.index import MAX_GAP
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.repair import diagnose
from journal.transaction_states import Totals
from journal.vfs.filesystem import OSFilesystem
from journal.xid import Xid
from tests.repair.repair_checks import is_repaired, oldest_log
from tests.repair.repair_scene import held, named
from tests.support.broker_room import Room as BrokerRoom
from tests.support.broker_room import refused
from tests.support.engine_room import Room, damage
from txbroker.cli import command_line
from txbroker.wire import messages as commands

NAMES = [codec.name for codec in CODECS.values()]
by_name = pytest.mark.parametrize("name", NAMES)
TIME = 1_357_034_400_000_000
MISSING = {codec.name: codec.module for codec in CODECS.values()}


def values_of(number, count=50):
    return [b"batch %d message %d " % (number, n) + b"." * 60 for n in range(count)]


def batch(name, values, count=None):
    """A compressed wrapper of these messages."""
    packer = compressor(name)
    run = b"".join(frame.encode_inner(n, value, TIME) for n, value in enumerate(values))
    return frame.encode_wrapper(
        packer.pack(run), len(values) if count is None else count, TIME, packer.number
    )


def broken(name, count=2):
    """What no reader can open, though its checksum is right."""
    number = compressor(name).number
    return frame.encode_wrapper(SIZE.pack(100) + b"no such thing", count, TIME, number)


# -- the broker --------------------------------------------------------------------------------------


def sent(peer, number, data, **named):
    return peer.ask(commands.Send, number, data=data, **named)


def fetched(peer, number, offset=0):
    correlation = peer.tell(commands.Fetch, [(number, offset, 0)], 1 << 20)
    answers = [(answer, data) for answer, data in zip(peer.answers, peer.data, strict=True)]
    return next(data for answer, data in answers if answer.correlation == correlation)


@by_name
def test_a_broker_keeps_a_batch_as_it_came_over_flushes_and_restarts(name):
    room = BrokerRoom()
    [number] = room.topic()
    data = batch(name, values_of(0))
    for expected in (0, 50):
        assert sent(room.peer(), number, data).base_offset == expected
    for step in (lambda: None, room.flush, room.restart):
        step()
        found = fetched(room.peer(), number)
        assert len(found) == 2 * len(data)
        assert frame.unstamped(found) == data * 2, "all but the offset and the append time, which are stamped"
        assert [m.value for m in frame.decode_run(found, 20)] == (values_of(0) * 2)[20:]
        assert frame.decode_run(fetched(room.peer(), number, 75), 75)[0].value == values_of(0)[25]


@by_name
def test_a_batch_sent_again_has_the_effect_of_one_and_sequences_count_its_messages(name):
    room = BrokerRoom()
    [number] = room.topic()
    peer = room.peer()
    producer = peer.ask(commands.OpenProducer, "me").producer_id
    named = {"producer_id": producer, "epoch": 0}
    first, second = batch(name, values_of(0)), batch(name, values_of(1))
    assert sent(peer, number, first, sequence=0, **named).base_offset == 0
    assert sent(peer, number, second, sequence=50, **named).base_offset == 50
    room.restart()
    peer = peer.again()
    assert sent(peer, number, second, sequence=50, **named).base_offset == 50
    assert sent(peer, number, first, sequence=101, **named).error == "SequenceOutOfOrder"
    assert sent(peer, number, first, sequence=100, **named).base_offset == 100


@by_name
def test_a_transaction_takes_it_and_shows_it_at_its_commit(name):
    room = BrokerRoom()
    numbers = room.topic(partitions=2)
    peer, data = room.peer(), batch(name, values_of(0))
    xid = Xid(1, b"g", b"b")
    for number in numbers:
        peer.tell(commands.Add, 1, number, xid, data=data)
    totals = Totals(100, 2, crc32c(data, crc32c(data)))
    assert isinstance(peer.ask(commands.Prepare, 1, xid, totals), commands.Done)
    room.restart()
    assert fetched(room.peer(), numbers[0]) == b""
    room.peer().ask(commands.Commit, 0, 0, xid)
    for number in numbers:
        assert [m.value for m in frame.decode_run(fetched(room.peer(), number))] == values_of(0)


@by_name
@pytest.mark.parametrize("kind", ["send", "add"])
def test_what_cannot_be_opened_or_lies_is_refused_unless_the_topic_says_otherwise(name, kind):
    room = BrokerRoom()
    [strict], [lax] = room.topic("strict"), room.topic("lax", check_compressed=0)
    peer = room.peer()

    def give(number, data):
        if kind == "send":
            return sent(peer, number, data)
        give.serial += 1
        return peer.ask(commands.Add, give.serial, number, data=data)

    give.serial = 0
    for data in (broken(name), batch(name, values_of(0), 51)):
        assert "nothing was stored" in refused(give(strict, data), "InvalidFrame")
        answer = give(lax, data)
        assert answer is None if kind == "add" else isinstance(answer, commands.Sent)
    too_many = broken(name, 3)  # 100 bytes have no room for three
    assert "says 3 messages in 100 bytes" in refused(give(lax, too_many), "InvalidFrame")


@by_name
def test_a_broker_without_the_package_refuses_by_name_and_a_topic_may_do_without(name, monkeypatch):
    room = BrokerRoom()
    [strict], [lax] = room.topic("strict"), room.topic("lax", check_compressed=0)
    data = batch(name, values_of(0))
    monkeypatch.setitem(sys.modules, MISSING[name], None)
    said = refused(sent(room.peer(), strict, data), "CompressionUnavailable")
    assert "frame at 0 is compressed; nothing was stored" in said
    assert f"pip install 'txbroker[{name}]'" in said
    assert sent(room.peer(), lax, data).base_offset == 0
    room.flush()
    room.restart()
    assert len(fetched(room.peer(), lax)) == len(data), "and serves it"


def test_a_topics_limit_counts_what_comes_out():
    room = BrokerRoom()
    [number] = room.topic(max_message_bytes=2000)
    data = batch("zstd", values_of(0))
    assert len(data) < 2000
    assert "the limit is 2000" in refused(sent(room.peer(), number, data), "MessageTooLarge")


# -- the engine and its files ------------------------------------------------------------------------


def filled(name, batches=60, **settings):
    """A log whose oldest batches are in segments and nowhere else; some plain messages between them."""
    room = Room()
    room.topic("t", 1, segment_bytes=65_536, **settings)
    for number in range(batches):
        values = values_of(number, 600)
        room.engine.append(room.store(), batch(name, values), len(values))
        room.engine.sync()
        if number % 3 == 0:
            room.send(b"plain %d" % number)
        if number % 10 == 9:
            room.checkpoint()
    return room


@pytest.mark.sampled
@by_name
def test_the_same_is_read_after_a_crash_from_the_journal_and_from_segments(name):
    room = filled(name)
    before = room.values()
    assert len(before) == 60 * 600 + 20
    for seed in range(3):
        assert room.crashed(seed).values() == before
    assert room.killed().values() == before
    assert room.stopped().values() == before


@by_name
def test_retention_and_the_time_index_go_by_frames_as_they_are(name):
    room = Room()
    room.topic("t", 1, segment_bytes=65_536, retention_bytes=100_000)
    times = []
    for number in range(120):
        room.clock.advance(1_000_000)
        values = values_of(number, 600)
        times.append((room.engine.now(), room.engine.append(room.store(), batch(name, values), 600)))
        room.engine.sync()
        if number % 10 == 9:
            room.checkpoint()
    assert room.engine.housekeeping.retain(room.engine.now()) == 1
    room.engine.sync()
    store = room.store()
    assert 100_000 <= store.total_bytes < 100_000 + 65_536 + 10_000, "of the bytes that it takes, compressed"
    assert store.start_offset % 600 == 0, "segments begin with a batch"
    length = len(batch(name, values_of(0, 600)))
    early = 600 * (MAX_GAP // length + 1)
    for at, base in times:
        if base > store.start_offset:
            found = store.offset_for_time(at)
            assert base - early <= found <= base, "never late, and early by what an entry of the index covers"
            assert found % 600 == 0


@pytest.mark.sampled
@by_name
@pytest.mark.parametrize("where", [3, 40, 200])
def test_of_a_damaged_segment_one_batch_is_lost_and_reading_goes_on_behind_it(name, where):
    """At byte 3 the length lies: then nothing proves any more whose the frames around it are."""
    room = filled(name)
    before = held(room)
    filesystem = room.inner.kill_clone()
    log = oldest_log(filesystem)
    file = filesystem.open(log)
    length = HEADER.unpack(file.read(SEGMENT_HEADER_BYTES, HEADER_BYTES))[0]
    assert length < 600 * HEADER_BYTES / 3
    damage(filesystem, log, SEGMENT_HEADER_BYTES + length + HEADER_BYTES + len(b"plain 0") + where)
    if where == 3:
        gone, *kept = [loss.text for loss in diagnose(filesystem, accept_unproven=True).lost]
        assert gone == "t-0: offsets 601 to 1200 (600 messages)"
        assert kept
        assert all(text.endswith(": kept all the same") for text in kept)
    diagnosis, after, room = is_repaired((filesystem, before), filesystem)
    lost = named(diagnosis)[0]["t", 0]
    assert (lost > set(range(601, 1201))) if where == 3 else (lost == set(range(601, 1201)))
    assert [n for n, value in enumerate(after.values["t", 0]) if value is None] == sorted(lost)


# -- the embedded log, and the tools -----------------------------------------------------------------


@pytest.fixture(params=NAMES)
def directory(request, tmp_path):
    """A data directory with two compressed batches and a plain message; and the codec's name."""
    settings = JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 22, low_water_bytes=0)
    with journal.open(tmp_path / "data", settings) as log:
        log.create_topic("t", check_compressed=0)
        store = log.engine.catalog.topic("t").partitions[0]
        for number in range(2):
            log.engine.append(store, batch(request.param, values_of(number)), 50)
        log.engine.sync()
        log.append("t", b"plain")
    return tmp_path / "data", request.param


@pytest.mark.sampled
def test_an_embedded_log_is_read_from_anywhere(directory):
    path, _ = directory
    with journal.open(path) as log:
        everything = [message.value for message in log.read("t")]
        assert everything == [*values_of(0), *values_of(1), b"plain"]
        for offset in (0, 1, 49, 50, 77, 100):
            assert [message.value for message in log.read("t", offset)] == everything[offset:]
            assert next(iter(log.read("t", offset))).offset == offset


def run(*arguments):
    return CliRunner().invoke(command_line, [str(argument) for argument in arguments])


def dumped(path):
    said = run("dump", path, "--partition", "t-0", "--values", "--json").output
    return [json.loads(line) for line in said.splitlines()]


def test_verify_and_dump_see_what_is_in_the_batches(directory):
    path, _ = directory
    said = json.loads(run("verify", path, "--deep", "--json").output)
    assert (said["damaged"], said["checked"]["messages"]) == (False, 101)
    lines = dumped(path)
    shown = [value for line in lines for value in line["values"]]
    assert [value["value"].encode() for value in shown] == [*values_of(0), *values_of(1), b"plain"]
    assert [value["offset"] for value in shown] == list(range(101))
    assert lines[0]["flag"] & COMPRESSION


def test_without_the_package_a_dump_says_so_and_shows_the_rest_and_verify_says_what_to_install(
    directory, monkeypatch
):
    path, name = directory
    monkeypatch.setitem(sys.modules, MISSING[name], None)
    lines = dumped(path)
    assert [f"txbroker[{name}]" in line.get("undecodable", "") for line in lines] == [True, True, False]
    assert lines[2]["values"][0]["value"] == "plain"
    deep = run("verify", path, "--deep")
    assert deep.exit_code == 3
    assert f"pip install 'txbroker[{name}]'" in deep.stderr
    assert run("verify", path).exit_code == 0, "who does not look inside does not need it"


@by_name
def test_verify_finds_a_batch_that_was_stored_unopened_and_cannot_be_opened(name, tmp_path):
    settings = JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 22, low_water_bytes=0)
    with journal.open(tmp_path / "data", settings) as log:
        log.create_topic("t", check_compressed=0)
        store = log.engine.catalog.topic("t").partitions[0]
        log.engine.append(store, broken(name), 2)
        log.engine.append(store, batch(name, values_of(0), 51), 51)
        log.engine.sync()
    found = json.loads(run("verify", tmp_path / "data", "--deep", "--json").output)
    problems = [each["problem"] for each in found["findings"]]
    assert any("cannot be opened by" in problem for problem in problems)
    assert any("says 51 messages, it holds 50" in problem for problem in problems)
    entries = list(check.walk_segment(OSFilesystem(tmp_path / "data"), *_first_segment(tmp_path / "data")))
    assert [entry.messages for entry in entries] == [2, 51]


def _first_segment(path):
    [log] = path.glob("partitions/t-0.*/*.log")
    return str(log.relative_to(path)), 0
