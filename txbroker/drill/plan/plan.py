"""The plan is what a drill's processes get: the drill's name, its topics, and how its clients behave."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.wire.dead_letters import dead_topic_of

PLAN_FILE: Final = "plan.json"
LEDGERS: Final = "ledgers"

SOURCE: Final = "orders"
SINK: Final = "relayed"
PROBE: Final = "probe"
SHAPE: Final = {SOURCE: 4, "payments": 2, SINK: 4, PROBE: 1}
"""Topics of a drill, without its name, and their partitions. The relay reads SOURCE and writes SINK; the first message
after every start goes to PROBE."""

WRITTEN: Final = (SOURCE, "payments")
"""The topics that senders and transactors write to."""

TASKS: Final = "tasks"
HANDLED: Final = "handled"
DEAD: Final = dead_topic_of(TASKS)
WORK_SHAPE: Final = {TASKS: 4, HANDLED: 4, DEAD: 4}
"""Further topics of a drill with workers: the feeder writes TASKS, the workers' handlers HANDLED, the broker DEAD."""

LATER: Final = "later"
SCHEDULE_SHAPE: Final = {LATER: 2}
"""Further topics of a drill with schedulers: what they send for later."""

FANOUT: Final = "fanout"
LEFT: Final = "left"
RIGHT: Final = "right"
FOLLOW_UPS: Final = "follow-ups"
DEAD_LETTERS: Final = "dead-letters"
QUEUES: Final = (LEFT, RIGHT, FOLLOW_UPS, DEAD_LETTERS)
"""The queues of a drill with such clients, without its name. Nobody takes anything from DEAD_LETTERS before the end."""

WAYS: Final = {FANOUT: (LEFT, RIGHT), FOLLOW_UPS: (FOLLOW_UPS,)}
"""The queues that a message gets into: through the fanout exchange, or through the default one, by the queue's name."""

DELIVERY_LIMIT: Final = 5
"""How often a message of LEFT or RIGHT may be returned; after that it goes to DEAD_LETTERS."""

POLICY: Final = RetryPolicy(attempts=5, pause=0.1, longest=0.5)
"""How the workers' group tries a message again. More attempts than a message that is to succeed fails on purpose: each
worker that dies with it costs one."""

FORMAT_ID: Final = 0x6472696C
"""The format id of drills' xids: a drill touches no other transaction."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan is written by the drill and read by its clients. Times in seconds, sizes in bytes.

    ``rate`` is the largest number of messages per second of one client, 0 for no limit. ``two_phase`` is the share of
    transactions in two phases. ``large``: some transactions are larger than one turn can apply. ``compression``: each
    connection of a client takes one of these ways by chance, "none" among them. ``workers`` is how many there are; one
    that is silent for ``session_timeout`` loses its partitions. ``schedulers`` is how many send messages for later,
    due within twice ``furthest``; ``queuers`` how many publish to queues and take from them, ``amqp`` how many do so
    over AMQP, at ``amqp_port``.
    """

    name: str
    seed: int
    url: str
    folder: str
    timeout: float = 3.0
    rate: float = 300.0
    two_phase: float = 0.5
    large: bool = False
    largest: int
    compression: tuple[str, ...] = ("none",)
    workers: int = 0
    session_timeout: float = 2.0
    schedulers: int = 0
    furthest: float = 8.0
    queuers: int = 0
    amqp: int = 0
    amqp_port: int = 0

    def topic(self, short: str) -> str:
        """Return the topic's full name."""
        return f"{self.name}-{short}"

    def queue(self, short: str) -> str:
        """Return the full name of a queue, or of the fanout exchange."""
        return f"{self.name}-{short}"

    @property
    def has_queues(self) -> bool:
        """Return whether there are clients that use queues."""
        return self.queuers + self.amqp > 0

    @property
    def shape(self) -> dict[str, int]:
        """Return the topics of this drill, without its name, and their partitions."""
        return SHAPE | (WORK_SHAPE if self.workers else {}) | (SCHEDULE_SHAPE if self.schedulers else {})

    @property
    def layout(self) -> list[tuple[str, int]]:
        """Return topic and index of every partition; a *place* is a number in this list."""
        return [(self.topic(short), index) for short, count in self.shape.items() for index in range(count)]

    def places(self, *shorts: str) -> list[int]:
        """Return the places of these topics."""
        wanted = {self.topic(short) for short in shorts}
        return [place for place, (topic, _) in enumerate(self.layout) if topic in wanted]

    @property
    def group(self) -> str:
        """Return the name of the relay's consumer group."""
        return f"{self.name}-relay"

    @property
    def work_group(self) -> str:
        """Return the name of the workers' consumer group."""
        return f"{self.name}-work"

    @property
    def ledgers(self) -> Path:
        """Return the folder of the ledgers."""
        return Path(self.folder) / LEDGERS

    def write(self) -> None:
        """Write the plan where the clients look for it."""
        self.ledgers.mkdir(parents=True, exist_ok=True)
        (Path(self.folder) / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self)))


def read_plan(folder: Path) -> Plan:
    """Return the plan in a drill's folder."""
    return msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
