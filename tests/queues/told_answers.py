"""Answers as the broker tells them, compared with what the model says that they must be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from journal.formats import frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from tests.queues.model.queue_model import Answer, Given, Ticket
from tests.queues.model.routing_model import Died, Message
from tests.queues.queue_room import Client
from tests.simulation.model.log_model import require


@dataclass
class Asked:
    """A request that may not have been answered yet, and what its answer must be: None for none."""

    client: Client
    correlation: int
    text: str
    answer: Answer | Ticket | None
    records: int

    @property
    def wanted(self) -> Answer | None:
        """What it is to be answered by now."""
        return self.answer.answer if isinstance(self.answer, Ticket) else self.answer

    @property
    def after(self) -> int:
        """How many records were made before its answer."""
        return self.answer.records if isinstance(self.answer, Ticket) else self.records


def told(asked: Asked, answer: Any, data: bytes) -> None:
    """Compare an answer with what it must be."""
    kind, *wanted = asked.wanted or ("nothing",)
    if kind == "Done" and wanted and getattr(answer, "error", "") in wanted:
        return
    require(type(answer).__name__ == kind, f"{asked.wanted} to {asked.text}", answer)
    match kind:
        case "Refused":
            require(answer.error in wanted[0], f"{asked.wanted} to {asked.text}", answer)
        case "Sent":
            require([answer.base_offset] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "QueueDeclared":
            require([answer.partition, answer.ready] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Counted":
            require([answer.messages] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "ExchangeDeclared":
            require([answer.number] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Committed":
            found = {each.partition: (each.base_offset, each.count) for each in answer.placements}
            require([found] == wanted, f"{asked.wanted} to {asked.text}", answer)
        case "Taken":
            _taken(asked, wanted[0], answer, data)


class Delivered(NamedTuple):
    """A message of an answer, without headers of its own. ``again``: it may have been delivered before. ``appended`` is
    when it came to its queue, by the wall clock.
    """

    partition: int
    offset: int
    message: Message
    attempts: int
    again: bool
    appended: int


def _taken(asked: Asked, wanted: Sequence[Given], answer: Any, data: bytes) -> None:
    given = given_of(answer, data)
    same = [
        (each.partition, each.offset, each.message._replace(headers=()), each.attempts) for each in wanted
    ]
    require(same == [each[:4] for each in given], f"{wanted} to {asked.text}", given)
    for want, each in zip(wanted, given, strict=True):
        may_be = {0: (False,), 1: (False, True), 2: (True,)}[want.seen]
        require(each.again in may_be, f"{want} is told to have been delivered: {may_be}", answer)


def given_of(answer: Any, data: bytes) -> list[Delivered]:
    """Return the messages of an answer."""
    found = [each for piece, _ in frame.decode_pieces(data, 0) for each in piece]
    offsets = [offset for first, count in answer.runs for offset in range(first, first + count)]
    require([each.offset for each in found] == offsets, "the frames that the answer tells of", answer)
    again = {o for first, count in answer.redelivered for o in range(first, first + count)}
    attempts = dict(answer.attempts)
    require(attempts.keys() | again <= set(offsets), "told of what is given", answer)
    where = answer.partition
    return [
        Delivered(
            where,
            each.offset,
            message_of(each),
            attempts.get(each.offset, 0),
            each.offset in again,
            each.appended,
        )
        for each in found
    ]


def message_of(each: frame.Message) -> Message:
    """Return a message as the model has it, without headers of its own."""
    deaths = json.loads(each.header("txbroker.deaths") or b"[]")
    died = tuple(Died(queue, cause, count) for queue, cause, count, *_ in deaths)
    priority = int(each.header("txbroker.priority") or 0)
    expiration, delay = (
        None if said is None else int(said) for said in map(each.header, ("txbroker.expiration", "x-delay"))
    )
    return Message(each.value or b"", (each.key or b"").decode(), (), expiration, died, priority, delay)


def offsets_in_bytes(offsets: Sequence[int], base: int) -> bytes:
    """Return a set of offsets relative to a base; nothing for none."""
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return encode_offsets(found, base) if offsets else b""


def set_in_bytes(offsets: Sequence[int]) -> tuple[bytes, int]:
    """Return a set of offsets relative to its lowest, and that."""
    return offsets_in_bytes(offsets, min(offsets)), min(offsets)
