"""The newest checkpoint of a data directory, for programs that only read it."""

from __future__ import annotations

from pathlib import Path

from journal.checkpoints.rows import read_sound
from journal.errors import CorruptData, StorageUnavailable, UnknownFormat
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.repair_notes import RESTORE_UNFINISHED
from journal.formats.store_state import StoreState
from journal.vfs.filesystem import OSFilesystem
from journal.walks.checkpoint_walk import checkpoint_lsns
from spark.source.logs import Log

VERIFY = "'txbroker verify DIR' says what else is damaged, a copy of the file mends it"


class NoCheckpoint(StorageUnavailable):
    """A data directory has no checkpoint yet, or none that is sound: where its logs end is not known."""


def log_of(store: StoreState) -> Log:
    """Return a log as a checkpoint has it: up to where all logs show the same transactions."""
    end = max(store.end_offset, store.start_offset)
    size = sum(segment.size for segment in store.segments)
    return Log(store.topic, store.index, store.number, store.start_offset, end, size, tuple(store.segments))


def newest_checkpoint(path: str) -> Checkpoint:
    """Return the newest sound checkpoint of a data directory; raises if it cannot be read."""
    filesystem = OSFilesystem(path)
    for _ in range(5):  # a running broker may replace them between listing and reading
        try:
            if filesystem.exists(filenames.REPAIR_PLAN):
                raise StorageUnavailable(
                    f"a repair of {path} has been begun and not ended, so its files are half the old ones and half the "
                    "new; nothing was read. 'txbroker repair DIR' ends it"
                )
            if filesystem.exists(filenames.RESTORE):
                raise StorageUnavailable(f"{path}: {RESTORE_UNFINISHED}")
            lsns = checkpoint_lsns(filesystem)
            damage: CorruptData | OSError | None = None
            for lsn in reversed(lsns):
                try:
                    return read_sound(filesystem, lsn)
                except FileNotFoundError:
                    raise
                except (CorruptData, OSError) as error:  # such as a directory in its place
                    damage = damage or error
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageUnavailable(
                f"the data directory {path} cannot be read: {error.strerror}; nothing was read. It must be there, at "
                "the same path and readable, for the driver and for every executor"
            ) from error
        if damage is not None:
            # A checkpoint of another version may be sound.
            unjudged = StorageUnavailable if isinstance(damage, UnknownFormat) else NoCheckpoint
            raise unjudged(f"none of the {len(lsns)} checkpoints in {path} can be read: {damage}. {VERIFY}")
        break
    raise _none(path)


def _none(path: str) -> StorageUnavailable:
    place = Path(path)
    if not place.is_dir():
        return StorageUnavailable(
            f"there is no directory {path}; nothing was read. Give the data directory of a broker, at the same path "
            "for the driver and for every executor"
        )
    if not (place / filenames.JOURNAL_DIRECTORY).is_dir():
        return StorageUnavailable(
            f"{path} is no data directory of txbroker; nothing was read. Its --data is what is wanted"
        )
    return NoCheckpoint(
        f"{path} has no checkpoint yet, so where its logs end is not known; nothing was read. A broker writes one a "
        "minute, and when it is stopped: start it, or read from it with the option broker"
    )
