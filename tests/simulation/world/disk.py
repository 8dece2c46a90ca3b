"""Acts on the disk, and checks of it, beside what the broker itself does."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from journal.errors import CorruptJournal
from journal.formats.checkpoint import read_checkpoint
from journal.formats.envelope import LOGS
from journal.formats.filenames import DIRECTORIES
from journal.records.record import Mark
from journal.testing import MemoryFilesystem
from journal.wal.writer import RECYCLED_FILES
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN

if TYPE_CHECKING:
    from tests.simulation.world.world import World


def rot(world: World, random: Random) -> None:
    """Damage something of which there is a second copy: the newest of two checkpoints, or an index."""
    disk = world.disk
    names = [
        f"checkpoints/{name}" for name in disk.list_directory("checkpoints") if name.endswith("checkpoint")
    ]
    paths = names[-1:] if len(names) > 1 and all(_is_sound(disk, name) for name in names[-2:]) else []
    for directory in disk.list_directory("partitions"):
        files = disk.list_directory(f"partitions/{directory}")
        paths += [f"partitions/{directory}/{name}" for name in files if not name.endswith(".log")]
    if paths:
        path = random.choice(paths[:1] if random.random() < 0.5 else paths)
        world.count(f"rotten {path.split('/')[0]}")
        world.say(f"{path} has rotten")
        file = disk.open(path)
        file.write_some(random.randrange(file.size() or 1), [b"rotten"])
        file.force()


def _is_sound(disk: MemoryFilesystem, path: str) -> bool:
    try:
        read_checkpoint(disk, int(path.split("/")[1].partition(".")[0]))
    except CorruptJournal:
        return False
    return True


def check_leftovers(world: World) -> None:
    """At rest, some checkpoints later, nothing is left of what nobody needs."""
    engine = world.engine
    for number in range(4):
        world.reactor.pass_time(1_000_000 + number)
        world.pump()  # a policy may just have decided something large
        engine.accept(Mark(engine.now()))
        engine.housekeeping.request_checkpoint()  # type: ignore[attr-defined]
        world.serving.flusher.want()
        world.pump()
    found = {name: len(world.disk.list_directory(name)) for name in DIRECTORIES}
    most = {
        "journal": 3 + RECYCLED_FILES,
        "checkpoints": 2 + world.counts["rotten checkpoints"],  # a damaged one stays up to the next start
        "staged": sum(each.state == OPEN for each in world.model.transactions.values()),
        "partitions": 1
        + sum(len(each.partitions or range(3)) for each in world.topics.topics if not each.gone)
        + world.topics.most_dead_partitions()
        + (LOGS + 1 if world.schedules else 0)
        + (len(world.queues.partitions) + 1 if world.amqp_clients else 0),  # and what waits at the exchange
    }
    require(all(found[name] <= most[name] for name in found), f"at most {most} files", found)
