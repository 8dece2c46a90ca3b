"""The names of files and directories as memory and the disk have them, and which of them a power cut may leave.

Every creation, rename and removal is a :class:`Change`: a node gets a place, or loses its own. Until one of
its directories is forced it may survive a power cut or not, whatever becomes of the others; but a file that
is merely renamed always has exactly one of its names, so some changes need earlier ones.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from journal.testing.pages import Content


class Directory:
    """A directory; :class:`Table` knows what is in it."""


Node = Content | Directory
Place = tuple[Directory, str]


@dataclass(eq=False, slots=True)
class Change:
    """``node`` goes from ``source`` (None: it is new) to ``target`` (None: it is removed)."""

    node: Node
    source: Place | None
    target: Place | None
    needs: list[Change]
    """Changes that have survived if this one has; without them it would take a name still in use."""

    def places(self) -> list[Place]:
        """Return the places that the change takes or leaves."""
        return [place for place in (self.source, self.target) if place is not None]

    def touches(self, directory: Directory) -> bool:
        """Return whether forcing ``directory`` makes this change durable."""
        return any(place[0] is directory for place in self.places())


class Table:
    """The table of names: which node has which place."""

    def __init__(self, root: Directory) -> None:
        self.root = root
        self.entries: dict[Directory, dict[str, Node]] = {root: {}}
        self.places: dict[Node, Place] = {}

    def apply(self, change: Change) -> None:
        """Take the node from wherever it is to its target, in place of what is there."""
        before = self.places.pop(change.node, None)
        if before is not None:
            del self.entries[before[0]][before[1]]
        if change.target is not None:
            directory, name = change.target
            entries = self.entries.setdefault(directory, {})
            displaced = entries.get(name)
            if displaced is not None:
                del self.places[displaced]
            entries[name] = change.node
            self.places[change.node] = change.target
        if isinstance(change.node, Directory):
            self.entries.setdefault(change.node, {})

    def copy(self, twin: Callable[[Node], Node]) -> Table:
        """Return the same table over other nodes; ``twin`` gives a node's copy."""
        other = Table(_directory(twin(self.root)))
        for directory, entries in self.entries.items():
            copied = _directory(twin(directory))
            other.entries[copied] = {name: twin(node) for name, node in entries.items()}
            other.places.update((node, (copied, name)) for name, node in other.entries[copied].items())
        return other

    def reachable(self) -> Table:
        """Return a table of the same nodes, without those in directories that are gone."""
        other = Table(self.root)
        directories = [self.root]
        for directory in directories:
            for name, node in sorted(self.entries[directory].items()):
                other.apply(Change(node, None, (directory, name), []))
                if isinstance(node, Directory):
                    directories.append(node)
        return other

    def files(self, directory: Directory) -> Iterator[Content]:
        """Return every file below a directory, in the order of their paths."""
        for _, node in sorted(self.entries[directory].items()):
            if isinstance(node, Content):
                yield node
            else:
                yield from self.files(node)

    def find(self, path: str) -> Node | None:
        """Return the node at ``path``. Raises ENOENT or ENOTDIR for a parent that is none."""
        if not path:
            return self.root
        directory, name = self.place(path)
        return self.entries[directory].get(name)

    def place(self, path: str) -> Place:
        """Return the directory and the name in it that ``path`` means, whether or not anything has it."""
        directory = self.root
        *parents, name = path.split("/")
        for parent in parents:
            node = self.entries[directory].get(parent)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if not isinstance(node, Directory):
                raise os_error(errno.ENOTDIR, path)
            directory = node
        return directory, name


class Names:
    """The current table, the durable one, and the changes between them in their order."""

    def __init__(self, disk: Table | None = None) -> None:
        self._disk = Table(Directory()) if disk is None else disk
        self.now = self._disk.reachable()
        self._pending: list[Change] = []

    def change(self, node: Node, target: Place | None) -> None:
        """Make, move or remove a node."""
        source = self.now.places.get(node)
        change = Change(node, source, target, self._needs(node, source, target))
        self.now.apply(change)
        self._pending.append(change)

    def force(self, directory: Directory) -> None:
        """Make the names in ``directory`` durable.

        After a move between directories that takes earlier changes elsewhere with it, of the same files and
        places: left behind, they would undo it later.
        """
        forced: set[Change] = set()
        involved: set[Node | Place] = set()
        for change in reversed(self._pending):
            mine: set[Node | Place] = {change.node, *change.places()}
            if change in forced or change.touches(directory) or not involved.isdisjoint(mine):
                forced.add(change)
                forced.update(change.needs)
                involved |= mine
        for change in self._pending:
            if change in forced:
                self._disk.apply(change)
                change.needs.clear()  # otherwise every change would keep all before it in memory
        self._pending = [change for change in self._pending if change not in forced]

    def contents(self) -> list[Content]:
        """Return every file that has a name."""
        return [node for node in self.now.places if isinstance(node, Content)]

    def copy(self) -> Names:
        """Return the same names over copies of all files: what a new process finds."""
        twin = _Twins()
        other = Names(self._disk.copy(twin))
        other.now = self.now.copy(twin)
        changes: dict[Change, Change] = {}
        for old in self._pending:
            changes[old] = Change(
                twin(old.node),
                _place_twin(old.source, twin),
                _place_twin(old.target, twin),
                [changes[need] for need in old.needs if need in changes],
            )
        other._pending = list(changes.values())
        return other

    def cut_power(self, random: Random, survive: float) -> None:
        """Make names and files what a power cut may leave; all of it is durable then."""
        survivors: set[Change] = set()
        for change in reversed(self._pending):
            if change in survivors or survive == 1 or (survive and random.random() < survive):
                survivors.add(change)
                survivors.update(change.needs)
        for change in self._pending:
            if change in survivors:
                self._disk.apply(change)
        self._pending.clear()
        self.now = self._disk.reachable()
        for file in self.now.files(self.now.root):
            file.cut_power(random, survive)

    def _needs(self, node: Node, source: Place | None, target: Place | None) -> list[Change]:
        """Return the changes that this one needs: those of its places, of its directory, and the one that made it."""
        needs: list[Change] = []
        for place in (source, target):
            leavers = [change for change in self._pending if place and change.source == place]
            needs.extend(leavers[-1:])
        if isinstance(node, Directory):
            needs.extend(change for change in self._pending if change.source and change.source[0] is node)
        moved = source is not None and target is not None and source[0] is not target[0]
        if target is not None and (moved or isinstance(node, Directory)):
            needs.extend(change for change in self._pending if change.node is target[0])
        return needs


def os_error(number: int, path: str) -> OSError:
    """Return the error that a system call on ``path`` would raise."""
    return OSError(number, os.strerror(number), path)


class _Twins:
    """Copies of nodes, each made when it is first needed."""

    def __init__(self) -> None:
        self._made: dict[Node, Node] = {}

    def __call__(self, node: Node) -> Node:
        made = self._made.get(node)
        if made is None:
            made = self._made[node] = node.copy() if isinstance(node, Content) else Directory()
        return made


def _place_twin(place: Place | None, twin: Callable[[Node], Node]) -> Place | None:
    return (_directory(twin(place[0])), place[1]) if place else None


def _directory(node: Node) -> Directory:
    assert isinstance(node, Directory)
    return node
