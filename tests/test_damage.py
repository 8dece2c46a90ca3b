"""Whatever becomes of a file, a start gives the truth, or says what it cannot. Never a wrong message, never silence.

A small store with one of everything (`tests/damaged_store.py`) is damaged in every way, and each time opened, read from
end to end, and its prepared transactions committed. Bits that carry nothing are listed, and asserted to carry nothing.

Seen to fail: with the checksum of staged adds not compared (two staged files swapped brought wrong messages), with a
segment's first frame not compared (two segments swapped gave wrong messages), with the witness not asked (a newest file
removed, an end of zeros), with the size in a file's header not compared (a newest file cut), with damaged group headers
taken for tears, with the notes about header copies left out, with times taken from clients when an index is made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from random import Random
from struct import unpack_from

import pytest

from journal.checkpoint import read_checkpoint
from journal.constants import BLOCK
from journal.errors import CorruptData, CorruptJournal
from journal.testing import MemoryFilesystem
from tests.damaged_store import BIG, DamagedStore, Found, Verdict, built, judged, wrong
from tests.engine_room import Room, contents

FILE_HEADER = 56
GROUP_HEADER = 40
STRIDE_IN_PAYLOAD = 499
"""Of the large payloads one bit in so many bytes is turned: they are covered by one checksum like the small ones."""


class Case:
    """The store before the damage: its files, and the truth."""

    def __init__(self) -> None:
        self.store: DamagedStore = built()
        self.files = contents(self.store.disk())
        verdict = judged(self.store.disk())
        assert verdict.silent, verdict
        assert verdict.found is not None
        self.truth: Found = verdict.found
        assert wrong(verdict, self.truth, self.store) == ""

    def turned(self, path: str, bit: int) -> Verdict:
        """The verdict on the store with one bit turned."""
        disk = self.store.disk()
        place = bit // 8
        put(disk, path, place, bytes([self.files[path][place] ^ 1 << bit % 8]))
        return self.judged(disk)

    def judged(self, disk: MemoryFilesystem) -> Verdict:
        """The verdict; nothing that was given may be wrong."""
        verdict = judged(disk)
        assert wrong(verdict, self.truth, self.store) == ""
        return verdict

    @property
    def journals(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".journal"))

    @property
    def needed(self) -> list[str]:
        """The journal files that a start from the newest checkpoint reads."""
        newest = max(lsn_of(path) for path in self.files if path.endswith(".checkpoint"))
        first = max(lsn_of(path) for path in self.journals if lsn_of(path) <= newest + 1)
        return [path for path in self.journals if lsn_of(path) >= first]


@cache
def case() -> Case:
    return Case()


def lsn_of(path: str) -> int:
    return int(re.findall(r"\d{32}", path)[-1])


def put(disk: MemoryFilesystem, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.write_some(position, [data])
    file.force()


# -- which bytes say something, told from the documents and not from the code that reads them ----------------------


def telling(path: str) -> list[range]:
    """The ranges of a file's bytes that a start, or a read, must find undamaged."""
    data = case().files[path]
    kind = path.rpartition(".")[2]
    if path in case().needed:
        return [range(FILE_HEADER), range(BLOCK, BLOCK + FILE_HEADER), *groups(data)]
    if kind in ("checkpoint", "staged", "index", "time") or path == "witness":
        return [range(len(data))]
    if kind == "log" and "/gone-" not in path:
        return frames_of(path, data)
    return []  # lock, ballast, spare and recycled files, journal below the newest checkpoint, deleted topics


def groups(data: bytes) -> Iterator[range]:
    """The groups of a journal file, headers and records, without the rest of their last block."""
    position, lsn = 2 * BLOCK, 0
    while data[position : position + 4] == b"TXBG":
        length, _, first = unpack_from(">IIQ", data, position + 8)
        if first < lsn:
            return  # left by an earlier use of the file
        lsn = first
        yield range(position, position + GROUP_HEADER + length)
        position += -(-(GROUP_HEADER + length) // BLOCK) * BLOCK


def frames_of(path: str, data: bytes) -> list[range]:
    """All bytes of frames that are in the log; of those below its start what leads to the next one."""
    start = next(case().truth.logs[name][0] for name in case().truth.logs if f"/{name}/" in path)
    position, found = 0, []
    while position < len(data):
        [length, _, offset] = unpack_from(">IIQ", data, position)
        if offset >= start:
            found.append(range(position, position + length))
        else:
            found += [range(position + low, position + high) for low, high in ((0, 4), (8, 16), (24, 28))]
        position += length
    return found


def is_hint(path: str) -> bool:
    """Whether a file only leads to what is checked: an entry that no look-up needed may be damaged unnoticed."""
    return path.endswith((".index", ".time"))


def bits(path: str) -> list[int]:
    """Every bit of the file that says something; of large payloads one now and then."""
    data = case().files[path]
    large = [range(at, at + len(BIG)) for at in places(data, BIG)]
    found = []
    for part in telling(path):
        for byte in part:
            if not any(byte in payload for payload in large):
                found += range(byte * 8, byte * 8 + 8)
            elif byte % STRIDE_IN_PAYLOAD == 0:
                found.append(byte * 8 + byte % 8)
    return found


def places(data: bytes, piece: bytes) -> Iterator[int]:
    at = data.find(piece)
    while at >= 0:
        yield at
        at = data.find(piece, at + len(piece))


def check_turned(path: str, bit: int) -> None:
    verdict = case().turned(path, bit)
    assert not verdict.silent or is_hint(path), f"bit {bit % 8} of byte {bit // 8} of {path}"
    if verdict.refused is not None:
        assert isinstance(verdict.refused, CorruptData)
        assert verdict.refused.path == path
        assert f"at {verdict.refused.position}" in str(verdict.refused)
    assert {error.path for error in verdict.errors} <= {path}


# -- every bit ------------------------------------------------------------------------------------------------------

CHUNKS = 12


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_bit_that_says_something_is_missed_when_it_is_turned(chunk):
    everything = [
        (path, bit) for path in sorted(case().files) if "checkpoints/" not in path for bit in bits(path)
    ]
    assert len(everything) > 15_000
    for path, bit in everything[chunk::CHUNKS]:
        check_turned(path, bit)


def test_a_bit_here_and_there_is_missed_when_it_is_turned():
    for path in sorted(case().files):
        for bit in bits(path)[::203]:
            check_turned(path, bit)


def test_every_turned_bit_of_a_checkpoint_is_seen_by_who_reads_it():
    for path in [path for path in case().files if path.endswith(".checkpoint")]:
        disk = case().store.disk()
        data = case().files[path]
        for bit in range(8 * len(data)):
            put(disk, path, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
            with pytest.raises(CorruptJournal) as caught:
                read_checkpoint(disk, lsn_of(path))
            assert caught.value.path == path
            put(disk, path, bit // 8, data[bit // 8 : bit // 8 + 1])
        read_checkpoint(disk, lsn_of(path))


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["older", "newest"])
def test_a_turned_bit_in_any_byte_of_a_checkpoint_is_made_up_for_and_told(which):
    path = sorted(path for path in case().files if path.endswith(".checkpoint"))[which]
    for byte in range(len(case().files[path])):
        verdict = case().turned(path, byte * 8 + byte % 8)
        assert verdict.refused is None
        assert any(path in note for note in verdict.notes)


# -- what carries nothing -------------------------------------------------------------------------------------------


def silent_bytes(path: str) -> list[range]:
    """What is left of a file when what says something is taken out."""
    found, position = [], 0
    for part in sorted(telling(path), key=lambda part: part.start):
        found.append(range(position, part.start))
        position = part.stop
    found.append(range(position, len(case().files[path])))
    return [part for part in found if part]


def test_the_bytes_that_carry_nothing_are_just_these():
    """Padding of headers and groups, files that nothing needs, frames below a log's start but for their lengths."""
    found = {re.sub(r"\d{5,}", "N", path) for path in case().files if silent_bytes(path)}
    assert found == {
        "ballast",
        "journal/N.journal",
        "journal/N.recycled",
        "journal/spare.next",
        "partitions/b-0.3/N.log",
        "partitions/gone-0.4/N.log",
    }
    whole = {path for path in case().files if case().files[path] and not telling(path)}
    assert {path for path in whole if path.endswith(".journal")} == set(case().journals) - set(case().needed)


def test_all_of_them_turned_at_once_change_nothing():
    for mask in (0x01, 0xFF):
        disk = case().store.disk()
        for path, data in case().files.items():
            for part in silent_bytes(path):
                put(disk, path, part.start, bytes(byte ^ mask for byte in data[part.start : part.stop]))
        assert case().judged(disk).silent


@pytest.mark.parametrize("seed", range(3))
def test_each_of_them_alone_changes_nothing(seed):
    random = Random(seed)
    for path in sorted(case().files):
        for part in silent_bytes(path):
            for _ in range(3):
                assert case().turned(path, random.randrange(part.start * 8, part.stop * 8)).silent


# -- whole files ----------------------------------------------------------------------------------------------------


def empty(disk: MemoryFilesystem, path: str) -> None:
    disk.open(path).truncate(0)


def zeros(disk: MemoryFilesystem, path: str) -> None:
    put(disk, path, 0, bytes(len(case().files[path])))


def cut(share: float):
    def change(disk: MemoryFilesystem, path: str) -> None:
        disk.open(path).truncate(int(share * used(case().files[path])))

    return change


def zeros_from(share: float):
    def change(disk: MemoryFilesystem, path: str) -> None:
        data = case().files[path]
        start = int(share * used(data))
        put(disk, path, start, bytes(len(data) - start))

    return change


def used(data: bytes) -> int:
    """Where what a file says ends; the end of a file that is zeros throughout."""
    if data.startswith(b"TXBJRNL"):
        return max((group.stop for group in groups(data)), default=FILE_HEADER)
    return len(data.rstrip(b"\0")) or len(data)


DAMAGES = {
    "missing": lambda disk, path: disk.unlink(path),
    "empty": empty,
    "cut to 1/4": cut(0.25),
    "cut to 3/4": cut(0.75),
    "cut by a byte": lambda disk, path: disk.open(path).truncate(used(case().files[path]) - 1),
    "zeros": zeros,
    "zeros from 1/2": zeros_from(0.5),
    "zeros at the end": zeros_from(0.95),
}
REFUSED, TOLD, READ, NOTHING = "refused", "repaired and told", "that read fails", "nothing needs it"
KINDS: dict[str, dict[str, str]] = {
    "newest journal": dict.fromkeys(DAMAGES, REFUSED),
    "needed journal": dict.fromkeys(DAMAGES, REFUSED),
    "journal for the older checkpoint": dict.fromkeys(DAMAGES, NOTHING),
    "newest checkpoint": dict.fromkeys(DAMAGES, TOLD),
    "older checkpoint": {**dict.fromkeys(DAMAGES, TOLD), "missing": NOTHING},
    "segment": {
        **dict.fromkeys(DAMAGES, REFUSED),
        "zeros": READ,
        "zeros from 1/2": READ,
        "zeros at the end": READ,
    },
    "segment of a deleted topic": dict.fromkeys(DAMAGES, NOTHING),
    "offset index": dict.fromkeys(DAMAGES, TOLD),
    "time index": {**dict.fromkeys(DAMAGES, TOLD), "zeros at the end": NOTHING},
    "staged file": dict.fromkeys(DAMAGES, READ),
    "spare": dict.fromkeys(DAMAGES, NOTHING),
    "recycled": dict.fromkeys(DAMAGES, NOTHING),
    "ballast": dict.fromkeys(DAMAGES, NOTHING),
    "witness": dict.fromkeys(DAMAGES, TOLD),
}
"""What becomes of each kind of damage to each kind of file. docs/recovery.md says the same in words."""


def kind_of(path: str) -> str:
    files = case().files
    kind = path.rpartition(".")[2]
    if kind == "journal":
        if path not in case().needed:
            return "journal for the older checkpoint"
        return "newest journal" if path == case().journals[-1] else "needed journal"
    if kind == "checkpoint":
        newest = max(other for other in files if other.endswith(".checkpoint"))
        return "newest checkpoint" if path == newest else "older checkpoint"
    if kind == "log":
        return "segment of a deleted topic" if "/gone-" in path else "segment"
    named = {"index": "offset index", "time": "time index", "staged": "staged file", "next": "spare"}
    return named.get(kind, kind)


def outcome(verdict: Verdict) -> str:
    if verdict.refused is not None:
        return REFUSED
    if verdict.errors:
        return READ
    return TOLD if verdict.notes else NOTHING


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_becomes_of_a_damaged_file_is_as_documented(kind, damage):
    paths = [path for path, data in case().files.items() if data and kind_of(path) == kind]
    assert paths
    for path in paths:
        disk = case().store.disk()
        DAMAGES[damage](disk, path)
        if contents(disk).get(path) == case().files[path]:
            continue  # the end of that file is zeros already
        verdict = case().judged(disk)
        assert outcome(verdict) == KINDS[kind][damage], (path, verdict.refused, verdict.notes)
        said = [str(verdict.refused), *verdict.notes, *map(str, verdict.errors)]
        if outcome(verdict) != NOTHING:
            assert any(path.rpartition(".")[0] in each for each in said), said


def test_every_kind_of_file_that_there_is_has_its_row():
    kinds = {kind_of(path) for path, data in case().files.items() if data}
    assert kinds == set(KINDS)


def swappable() -> list[tuple[str, str]]:
    by_kind: dict[str, list[str]] = {}
    for path, data in sorted(case().files.items()):
        kind = path.rpartition(".")[2]
        if data and kind not in ("ballast", "witness"):
            by_kind.setdefault("journal" if kind in ("next", "recycled") else kind, []).append(path)
    return [pair for paths in by_kind.values() for pair in combinations(paths, 2)]


def test_swapped_files_of_a_kind_give_no_wrong_message_and_are_missed():
    pairs = swappable()
    assert len(pairs) > 40
    for one, other in pairs:
        disk = case().store.disk()
        disk.rename(one, "aside")
        disk.rename(other, one)
        disk.rename("aside", other)
        verdict = case().judged(disk)
        if telling(one) or telling(other):
            assert not verdict.silent, (one, other)


def test_a_file_that_lies_under_the_name_of_another_gives_no_wrong_message_and_is_missed():
    for one, other in swappable():
        for source, target in ((one, other), (other, one)):
            disk = case().store.disk()
            disk.rename(source, target)
            verdict = case().judged(disk)
            if telling(source) or telling(target):
                assert not verdict.silent, (source, target)


def test_without_any_checkpoint_a_journal_that_does_not_reach_back_to_the_beginning_is_refused():
    disk = case().store.disk()
    for path in case().files:
        if path.startswith("checkpoints/"):
            disk.unlink(path)
    refused = case().judged(disk).refused
    assert isinstance(refused, CorruptJournal)
    assert f"{refused.path} is missing" in str(refused)


@pytest.mark.parametrize("directory", ["a-0.1", "b-0.3", "twins-0.5"])
def test_a_partitions_directory_that_is_missing_is_refused(directory):
    disk = case().store.disk()
    for path in case().files:
        if f"/{directory}/" in path:
            disk.unlink(path)
    disk.remove_directory(f"partitions/{directory}")
    verdict = case().judged(disk)
    assert verdict.refused is not None
    assert directory in str(verdict.refused)


def test_the_lock_file_says_nothing_so_its_loss_changes_nothing():
    for change in (lambda disk: disk.unlink("lock"), lambda disk: put(disk, "lock", 0, b"\xff" * 100)):
        disk = case().store.disk()
        change(disk)
        assert case().judged(disk).silent


# -- what cannot be told --------------------------------------------------------------------------------------------


def test_a_turned_bit_in_the_last_group_before_anything_proves_it_is_told_though_it_looks_like_a_tear():
    """The one case in which something acknowledged can be lost, by damage; a log line says where it was."""
    room = Room()
    room.topic()
    room.send(b"proven")
    room.send(b"the very last")
    [path] = [path for path in contents(room.inner) if path.endswith(".journal")]
    group = list(groups(contents(room.inner)[path]))[-1]
    for bit in range((group.start + GROUP_HEADER) * 8, group.stop * 8):
        disk = room.inner.crash_clone(0, survive=1.0)
        [old] = disk.open(path).read(bit // 8, 1)
        put(disk, path, bit // 8, bytes([old ^ 1 << bit % 8]))
        after = Room(disk)
        assert after.values() == [b"proven"]
        assert f"{path} was torn at {group.start}" in after.engine.report.notes[0]


# -- a larger store, at random ---------------------------------------------------------------------------------------


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
