from journal.constants import MIB
from journal.progress import Meter
from journal.recovery.start import recover
from journal.testing import ManualClock
from tests.support.engine_room import SMALL, Room


def meter_of(total, things=""):
    clock, said = ManualClock(), []
    return clock, said, Meter(clock, said.append, "replaying", total, things)


def test_it_says_that_a_stage_begins_and_then_how_far_how_fast_and_how_long():
    clock, said, meter = meter_of(512 * MIB)
    for _ in range(64):
        meter.advance(MIB)
        clock.advance(10_000)
    assert said[0] == "replaying: 0 % of 512 MiB"
    assert said[-1] == "replaying: 11 % of 512 MiB, 100 MiB/s, 5 s left"
    assert len(said) == 16


def test_things_are_counted_by_their_name():
    clock, said, meter = meter_of(10_000, "partitions")
    for _ in range(1000):
        meter.advance(1)
        clock.advance(100)
    assert said == [
        "replaying: 0 % of 10,000 partitions",
        "replaying: 2 % of 10,000 partitions, 10,000 partitions/s, 1 s left",
        "replaying: 5 % of 10,000 partitions, 10,000 partitions/s, 1 s left",
        "replaying: 7 % of 10,000 partitions, 10,000 partitions/s, 1 s left",
    ]


def test_nothing_to_do_is_said_without_dividing_by_it():
    _, said, meter = meter_of(0)
    meter.advance(0)
    assert said == ["replaying: 0 % of 0 MiB"]


def test_a_start_says_how_far_it_is_in_each_of_its_stages():
    room = Room()
    room.topic(partitions=300)
    room.checkpoint()
    while len(room.journals()) < 3:
        room.send(bytes(40_000))
    said = []
    recover(room.inner.kill_clone(), room.clock, SMALL, progress=said.append)
    for stage in (
        "reading journal file 3 of 3",
        "comparing logs with the checkpoint: 85 % of 300",
        "replaying the journal: 0 %",
    ):
        assert any(line.startswith(stage) for line in said), (stage, said)
