"""Faults in backups and restores, each of which their tests must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_CREATION, _CONTENTS = "journal/backup/creation.py", "journal/backup/contents.py"
_STORE, _MANIFEST = "journal/backup/object_store.py", "journal/backup/manifest.py"
_RESTORING, _PRUNING = "journal/backup/restoring.py", "journal/backup/pruning.py"
_START, _STARTS = "journal/recovery/start.py", "journal/log/start_history.py"
_FILESYSTEM, _OWNERSHIP = "journal/vfs/filesystem.py", "txbroker/cli/directory/ownership.py"
_REFUSALS, _LAYOUT = "journal/transactions/refusals.py", "journal/backup/layout.py"

TESTS: Final = (
    "tests/cli/directories/test_backup.py",
    "tests/cli/directories/test_backup_owners.py",
    "tests/backup",
)
"""What must find them."""

MUTANTS: Final = (
    # -- the cut
    Mutant(
        "a journal file is copied to its end",
        _CONTENTS,
        "length = min(last.end if",
        "length = min(bytes_of.size if",
    ),
    Mutant(
        "the cut is where the journal ends now",
        _CONTENTS,
        "if is_newest and each.next_lsn > cut:",
        "if False:",
    ),
    Mutant(
        "the journal below the checkpoint's LSN is left out",
        _CONTENTS,
        "checkpoint.header.needed_from, cut",
        "checkpoint.header.lsn, cut",
    ),
    Mutant(
        "a segment is copied as long as it is now",
        _CONTENTS,
        "yield Piece(path, segment.size, segment.size, proof)",
        "yield from _whole(filesystem, path)",
    ),
    Mutant("a staged file is left out", _CONTENTS, "        if row.file_entries:", "        if False:"),
    Mutant(
        "the witness of a moment ago is enough",
        _CONTENTS,
        "Witness(end.header.first_lsn, end.lsn, checkpoint_lsn, end.header.salt)",
        "Witness(1, 0, 0, 0)",
    ),
    Mutant(
        "an unfinished restore is backed up",
        _CONTENTS,
        "        if filesystem.exists(mark):",
        "        if False:",
    ),
    # -- the hold
    Mutant(
        "files that were released meanwhile are as good",
        _CREATION,
        "if not self._hold.release():",
        "if not self._hold.release() and False:",
    ),
    Mutant(
        "nobody looks whether the files are held",
        _CREATION,
        "self._pace.look = self._hold.check",
        "self._pace.look = None",
    ),
    Mutant(
        "what is gone because it was released is damage",
        _CREATION,
        "            hold.check()\n            if isinstance",
        "            if isinstance",
    ),
    Mutant(
        "the files are never released",
        _CREATION,
        "    finally:\n        hold.release()\n",
        "    finally:\n        pass\n",
    ),
    Mutant("any directory is the broker's", _CREATION, "found.nonce != hold.nonce", "False"),
    # -- the store
    Mutant(
        "an object is a hard link",
        _STORE,
        "                    self._copy(file, target, piece, digest)",
        "                    os = __import__('os')\n"
        "                    os.unlink(self._filesystem.root / scratch)\n"
        "                    os.link(source.root / piece.path, self._filesystem.root / scratch)",
    ),
    Mutant(
        "an object is named by its length",
        _STORE,
        "        return found.hexdigest()\n\n    def _is_there",
        '        return f"{piece.length:064x}"\n\n    def _is_there',
    ),
    Mutant("bytes are not compared with the checkpoint", _STORE, "checksum != proof.expected", "False"),
    Mutant(
        "what is there is taken for what its name says",
        _STORE,
        "not self._verify or digest_of",
        "True or digest_of",
    ),
    Mutant(
        "objects are not forced",
        _STORE,
        "self._filesystem.force_files([file for file, _, _ in waiting])",
        "pass",
    ),
    Mutant(
        "the names of objects are not forced",
        _STORE,
        "            self._filesystem.force_directory(folder)",
        "            pass",
    ),
    Mutant("a manifest is not forced", _MANIFEST, "        file.force()\n", "        pass\n"),
    Mutant(
        "the name of a manifest is not forced",
        _MANIFEST,
        "    filesystem.force_directory(layout.MANIFESTS)\n",
        "",
    ),
    Mutant("any manifest is believed", _MANIFEST, "sha256(packed).hexdigest().encode() != digest", "False"),
    Mutant(
        "what was left is not swept",
        _CREATION,
        "            sweep(backups)\n            try:\n",
        "            try:\n",
    ),
    Mutant(
        "what a failure leaves stays",
        _CREATION,
        "                sweep(backups)\n                raise",
        "                raise",
    ),
    Mutant(
        "two work in a directory of backups",
        _CREATION,
        "lock = layout.lock(backups)",
        'lock = backups.lock("objects/lock")',
    ),
    # -- prune
    Mutant("prune forces no names", _PRUNING, "    backups.force_directory(layout.MANIFESTS)\n", ""),
    Mutant(
        "objects of a backup whose manifest cannot be read are swept",
        _PRUNING,
        "    except CorruptBackup:\n        return\n",
        "    except CorruptBackup:\n        manifests = []\n",
    ),
    Mutant(
        "objects that no backup needs are not swept",
        _PRUNING,
        "    _remove_unneeded(backups, _needed(manifests))\n",
        "",
    ),
    Mutant("prune removes what is needed", _PRUNING, "if digest not in needed:", "if True:"),
    Mutant(
        "prune keeps the oldest",
        _PRUNING,
        "in reversed(layout.backup_names(backups)):",
        "in layout.backup_names(backups):",
    ),
    Mutant(
        "prune does not look whose data they are",
        _PRUNING,
        "if self._sound.get(manifest.identity, 0) < keep:",
        "if sum(self._sound.values()) < keep:",
    ),
    Mutant("prune counts backups without their objects", _PRUNING, "if wrong is None:", "if True:"),
    Mutant(
        "prune takes a list that cannot be read for one of no data",
        _PRUNING,
        "            if not self._sound or any(",
        "            if not self._sound and any(",
    ),
    Mutant(
        "the newest backup is restored, whosever it is", _RESTORING, "if len(newest_of) > 1:", "if False:"
    ),
    Mutant(
        "an identity in the journal alone is not found",
        _CONTENTS,
        "                if not fold.identity:",
        "                if False:",
    ),
    # -- the restore
    Mutant("a backup is not proven before", _RESTORING, "    prove(backups, manifest.objects(), pace)\n", ""),
    Mutant(
        "the mark is not forced",
        _RESTORING,
        '    target.force_directory("")\n\n\ndef _started',
        "\n\ndef _started",
    ),
    Mutant("there is no mark", _RESTORING, "        _mark(target, manifest.name)\n", ""),
    Mutant(
        "a start goes past the mark",
        _START,
        "filesystem.exists(filenames.RESTORE) and restored",
        "False and restored",
    ),
    Mutant("the mark stays", _RESTORING, "    target.unlink(filenames.RESTORE)\n", ""),
    Mutant("copies are not forced", _RESTORING, "        self._target.force_files(self._unforced)\n", ""),
    Mutant(
        "the names of copies are not forced",
        _RESTORING,
        "            target.force_directory(folder)\n",
        "            pass\n",
    ),
    Mutant("files keep no zeros behind the cut", _RESTORING, "if stored.size > stored.length:", "if False:"),
    Mutant("a backup is restored over other files", _RESTORING, "    if there:\n", "    if False:\n"),
    Mutant("a rate bounds nothing", "journal/backup/pace.py", "+ size / self._rate", "+ 0 / self._rate"),
    # -- whose files they are
    Mutant(
        "root's files are root's",
        _FILESYSTEM,
        "        self._owner = owner\n",
        "        self._owner = None\n",
    ),
    Mutant("files of others are in nobody's way", _OWNERSHIP, "    if foreign:\n", "    if False:\n"),
    Mutant(
        "what may not be read is damaged",
        _STORE,
        "        except PermissionError:\n            raise  # that",
        "        except ZeroDivisionError:\n            raise  # that",
    ),
    # -- the new time line
    Mutant(
        "the start number is not raised",
        _START,
        "1 if restored is Restored.NOT else 1 + RESTORED_STARTS",
        "1",
    ),
    Mutant(
        "nothing says that it was restored",
        _START,
        "first_lsn, restored)\n        if self",
        "first_lsn)\n        if self",
    ),
    Mutant("starts of the lost time line are known", _STARTS, "            self._nonces.clear()\n", ""),
    Mutant(
        "a checkpoint forgets that it was restored",
        _STARTS,
        "StartRow(number, nonce, *restored)",
        "StartRow(number, nonce)",
    ),
    Mutant(
        "a restored rollback is taken",
        _REFUSALS,
        "    if not starts.is_restored(number.session) or",
        "    if True or",
    ),
    Mutant(
        "all that is prepared is taken for restored",
        _STARTS,
        "session >> 32 < self.restored",
        "self.restored > 0",
    ),
    Mutant(
        "a copy takes commits",
        _REFUSALS,
        "cause is Cause.CLIENT and not starts.as_copy",
        "cause is Cause.CLIENT",
    ),
    Mutant(
        "a copy is no copy",
        _RESTORING,
        "Restored.COPY if as_copy else Restored.REPLACEMENT",
        "Restored.REPLACEMENT",
    ),
)
