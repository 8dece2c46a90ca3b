"""Damage bits and blocks of a larger store at random: no start gives a wrong message."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from journal.testing import MemoryFilesystem
from tests.support.damage.damage_scene import put, used
from tests.support.damage.damaged_store import DamagedStore, Found, judged, wrong
from tests.support.engine_room import contents


@cache
def large() -> tuple[DamagedStore, Found]:
    """Some 2 MiB of messages of all sizes in 12 partitions with many segments, and transactions of all kinds."""
    random = Random(11)
    store = DamagedStore(MemoryFilesystem())
    for name in "xyz":
        store.topic(name, 4, segment_bytes=40_000)
    for number in range(260):
        kind = random.random()
        value = random.randbytes(random.choice((5, 40, 700, 6_000, 22_000)))
        if kind < 0.7:
            store.send(random.randint(1, 12), *[value] * random.choice((1, 1, 1, 4)))
        else:
            begun = store.begin(*((random.randint(1, 12), value[:3000]) for _ in range(3)))
            if kind < 0.8:
                begun.prepare(f"p{number}")
            else:
                begun.commit() if kind < 0.95 else begun.rollback()
            store.settle()
        if number % 60 == 59:
            store.checkpoint()
        if number % 150 == 149:
            store = store.restarted()
    store.idle()
    verdict = judged(store.disk())
    assert verdict.silent, verdict
    assert verdict.found is not None
    return store, verdict.found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_turned_bits_and_lost_blocks_in_a_larger_store_give_no_wrong_message(seed):
    random = Random(seed)
    store, truth = large()
    files = contents(store.disk())
    paths = sorted(path for path in files if files[path] and path != "ballast")
    noticed = 0
    for _ in range(40):
        disk = store.disk()
        path = random.choice(paths)
        data = files[path]
        place = random.randrange(used(data))
        if random.random() < 0.7:
            put(disk, path, place, bytes([data[place] ^ 1 << random.randrange(8)]))
        else:
            start = place // 512 * 512
            put(disk, path, start, bytes(min(random.choice((512, 4096)), len(data) - start)))
        verdict = judged(disk)
        assert wrong(verdict, truth, store) == "", (path, place)
        noticed += not verdict.silent
    assert noticed > 10
