"""The steps that may happen next in a history of queues, each with its weight."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.queues import declaration_steps, message_steps, rest_steps, transaction_steps
from tests.queues.queue_world import World

OPERATIONS: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "declare queue": (4, declaration_steps.declare_queue),
    "delete queue": (2, declaration_steps.delete_queue),
    "purge": (2, declaration_steps.purge),
    "declare exchange": (2, declaration_steps.declare_exchange),
    "delete exchange": (2, declaration_steps.delete_exchange),
    "bind": (6, declaration_steps.bind),
    "unbind": (2, declaration_steps.unbind),
    "publish": (14, message_steps.publish),
    "publish once": (8, message_steps.publish_once),
    "take": (16, message_steps.take),
    "cancel": (1, message_steps.cancel),
    "acknowledge": (8, message_steps.acknowledge),
    "return": (8, message_steps.return_some),
    "settle again": (2, message_steps.settle_again),
    "give back": (4, message_steps.give_back),
    "leave": (2, message_steps.leave),
    "add": (8, transaction_steps.add),
    "end own": (8, transaction_steps.end_own),
    "decide": (8, transaction_steps.decide),
    "mistake": (1, message_steps.mistake),
}
"""What clients do, each with its weight; several may be sent before a force."""

AT_REST: dict[str, tuple[int, Callable[[World, Random], None]]] = {
    "come": (8, rest_steps.come),
    "open producer": (2, rest_steps.open_producer),
    "take little": (2, rest_steps.take_little),
    "time": (6, rest_steps.pass_time),
    "take late": (2, rest_steps.take_late),
    "checkpoint": (3, rest_steps.checkpoint),
    "flush": (2, rest_steps.flush),
    "stop": (1, rest_steps.stop),
    "look around": (3, rest_steps.look_around),
}
"""What happens with nothing unforced, each with its weight."""
