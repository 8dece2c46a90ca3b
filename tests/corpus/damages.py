"""Damages of a directory: bits, sectors and ends of files; and files that are missing, old, twice there or
exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

from journal.testing import MemoryFilesystem
from tests.corpus.places import Layout, Place, laid_out
from tests.corpus.worlds import RECIPES, World, made

SECTOR = 512
OF_BYTES = ("flip", "flips", "zeros", "noise", "sector", "tear", "truncate")
"""Damages of a place, by what they do to its bytes; the last two to all behind it as well."""
OF_FILES = ("remove", "older", "foreign", "copied over the next", "exchanged with the next")


class Damage(NamedTuple):
    """``seed`` chooses where in a place, and which bits. ``place`` is an alias for damages of files."""

    kind: str
    place: str
    seed: int


class Case(NamedTuple):
    """A directory and what is done to it, in this order."""

    world: str
    damages: tuple[Damage, ...]

    def __str__(self) -> str:
        return f"{self.world}: " + "; ".join(f"{d.kind} of {d.place} ({d.seed})" for d in self.damages)


@cache
def layout_of(name: str, seed: int = 1) -> Layout:
    return laid_out(made(name, seed))


def damaged(case: Case) -> MemoryFilesystem:
    """The directory after the damages. Raises ``KeyError`` for a place that it no longer has."""
    world, layout = made(case.world), layout_of(case.world)
    disk = world.store.disk()
    for damage in case.damages:
        if damage.kind in OF_BYTES:
            _hurt_bytes(disk, layout.places[damage.place], damage)
        else:
            paths = {layout.alias(path): path for path in layout.files}
            _hurt_file(disk, case.world, world, layout, paths[damage.place], damage.kind)
    return disk


def _hurt_bytes(disk: MemoryFilesystem, place: Place, damage: Damage) -> None:
    random = Random(f"{damage.kind} {damage.place} {damage.seed}")
    file = disk.open(place.path)
    size = file.size()
    if place.position >= size:
        return  # an earlier damage has cut it off
    at = min(size - 1, place.position + random.randrange(place.length))
    match damage.kind:
        case "flip" | "flips":
            for _ in range(1 if damage.kind == "flip" else 3):
                [byte] = file.read(at, 1)
                file.write_some(at, [bytes([byte ^ 1 << random.randrange(8)])])
                at = min(size - 1, place.position + random.randrange(place.length))
        case "zeros" | "noise":
            length = min(place.length, size - place.position)
            new = bytes(length) if damage.kind == "zeros" else random.randbytes(length)
            file.write_some(place.position, [new])
        case "sector":
            start = at // SECTOR * SECTOR
            file.write_some(start, [bytes(min(SECTOR, size - start))])
        case "tear":
            file.write_some(at, [bytes(size - at)])
        case "truncate":
            file.truncate(at)


def _hurt_file(disk: MemoryFilesystem, name: str, world: World, layout: Layout, path: str, kind: str) -> None:
    match kind:
        case "remove":
            disk.unlink(path)
        case "older":
            _put(disk, path, world.older.get(path))
        case "foreign":
            alias = layout.alias(path)
            other = layout_of(name, 2)
            there = {other.alias(each): data for each, data in other.files.items()}
            _put(disk, path, there.get(alias))
        case "copied over the next" | "exchanged with the next":
            ending = path.rpartition(".")[2]
            alike = sorted(each for each in layout.files if each.endswith(ending))
            following = alike[(alike.index(path) + 1) % len(alike)]
            mine, its = layout.files[path], layout.files[following]
            _put(disk, following, mine)
            if kind == "exchanged with the next":
                _put(disk, path, its)
        case _:
            raise ValueError(kind)


def _put(disk: MemoryFilesystem, path: str, data: bytes | None) -> None:
    """Make that the file's bytes; None removes it."""
    if disk.exists(path):
        disk.unlink(path)
    if data is not None:
        disk.open(path, create=True).write_some(0, [data])


def drawn(count: int) -> Iterator[Case]:
    """So many different cases, those of the journal's files in the first place; always the same."""
    random = Random(17)
    seen: set[Case] = set()
    while len(seen) < count:
        name = random.choice(list(RECIPES))
        layout = layout_of(name)
        number = random.choice((1, 1, 1, 1, 2))
        case = Case(name, tuple(_drawn(random, layout) for _ in range(number)))
        if case not in seen:
            seen.add(case)
            yield case


def _drawn(random: Random, layout: Layout) -> Damage:
    if random.random() < 0.25:
        files = sorted(
            layout.alias(path) for path in layout.files if path not in ("lock", "ballast") and _is_kept(path)
        )
        return Damage(random.choice(OF_FILES), random.choice(files), 0)
    wanted = random.random() < 0.8
    in_journal = [
        name for name, place in layout.places.items() if place.path.startswith("journal/") == wanted
    ]
    return Damage(random.choice(OF_BYTES), random.choice(sorted(in_journal)), random.randrange(4))


def _is_kept(path: str) -> bool:
    return re.search("spare|recycled", path) is None
