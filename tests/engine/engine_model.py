"""The engine model: what a directory must hold after a list of decisions. It shares no code with the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.settings import TopicSettings

Number = tuple[int, int]


@dataclass
class Live:
    """An undecided transaction."""

    xid: str = ""
    adds: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def prepared(self) -> bool:
        return bool(self.xid)


@dataclass
class State:
    """Logs by partition number, topics by name, transactions by number."""

    logs: dict[int, list[bytes]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    topics: dict[str, list[int]] = field(default_factory=dict)
    settings: dict[str, TopicSettings] = field(default_factory=dict)
    """Those of topics whose settings were altered."""
    next_partition: int = 1
    live: dict[Number, Live] = field(default_factory=dict)
    outcomes: dict[Number, str] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    ended: list[tuple[Number, str, list[tuple[int, bytes]]]] = field(default_factory=list)
    """Every transaction that ended: how, and what it had. An archive has them all, in this order."""

    def create(self, name: str, partitions: int) -> None:
        self.topics[name] = []
        self.grow(name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        numbers = list(range(self.next_partition, self.next_partition + partitions))
        self.next_partition += partitions
        self.topics[name] += numbers
        for number in numbers:
            self.logs[number] = []
            self.starts[number] = 0

    def delete(self, name: str) -> None:
        self.settings.pop(name, None)
        for number in self.topics.pop(name):
            del self.logs[number], self.starts[number]

    def alter(self, name: str, settings: TopicSettings, more: int = 0) -> None:
        assert name in self.topics
        self.settings[name] = settings
        self.grow(name, more)

    def send(self, partition: int, base: int, values: list[bytes]) -> None:
        assert base == len(self.logs[partition]), "offsets are dense"
        self.logs[partition] += values

    def start_at(self, partition: int, offset: int) -> None:
        self.starts[partition] = offset

    def add(self, number: Number, partition: int, value: bytes) -> None:
        self.live.setdefault(number, Live()).adds.append((partition, value))

    def prepare(self, number: Number, xid: str) -> None:
        self.live.setdefault(number, Live()).xid = xid

    def commit(self, number: Number, seen: int) -> None:
        adds = self.live.pop(number).adds
        self.ended.append((number, "committed", adds))
        for partition, value in adds:
            self.logs[partition].append(value)
        session = number[0]
        if seen > self.seen.get(session, 0):
            self.seen[session] = seen
            for other in [n for n in self.outcomes if n[0] == session and n[1] <= seen]:
                self.outcomes[other] = "forgotten"
        self.outcomes[number] = "committed"

    def rollback(self, number: Number) -> None:
        self.ended.append((number, "rolled back", self.live.pop(number).adds))
        self.outcomes[number] = "rolled back"

    def forget(self, number: Number) -> None:
        self.outcomes[number] = "forgotten"
        self.seen[number[0]] = max(number[1], self.seen.get(number[0], 0))

    def restart(self) -> None:
        for number in sorted(n for n, t in self.live.items() if not t.prepared):
            self.ended.append((number, "rolled back", self.live.pop(number).adds))
            self.outcomes[number] = "presumed"

    def mark(self) -> None:
        """Nothing happens."""


Decision = tuple[int, str, tuple[object, ...]]
"""LSN, name of a method of :class:`State`, its arguments."""


class History:
    """All decisions in the order of their LSNs. A crash cuts its end; nothing else ever changes it."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def note(self, lsn: int, what: str, *arguments: object) -> None:
        assert not self.decisions or lsn > self.decisions[-1][0], "no LSN is used twice, and they grow"
        self.decisions.append((lsn, what, arguments))

    def cut(self, end: int) -> list[Decision]:
        """Keep what lies below ``end``; return what is gone."""
        kept = [decision for decision in self.decisions if decision[0] < end]
        lost = self.decisions[len(kept) :]
        self.decisions = kept
        return lost

    def upto(self, lsn: int) -> State:
        """The state after all decisions at or below that LSN."""
        state = State()
        for at, what, arguments in self.decisions:
            if at > lsn:
                break
            getattr(state, what)(*_copied(arguments))
        return state


def _copied(arguments: tuple[object, ...]) -> list[object]:
    return [list(value) if isinstance(value, list) else value for value in arguments]
