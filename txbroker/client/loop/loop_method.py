"""Methods that are the same on both event loops, and have the type that each loop gives: a ``Future``, a ``Deferred``.

They run the core's operations themselves, without the wrapper of :mod:`txbroker.client.core.client_method`: a send is
5 % shorter so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from txbroker.client.consumer.delivery import Delivery, Source
from txbroker.client.core.client_method import ClientMethod, PartMethod, PartOf
from txbroker.client.core.results import Message

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Take(NamedTuple, Generic[T_co]):
    """What to take: once it is its turn at ``source``, or None by ``end`` of the core's clock, what ``hand_out`` makes.

    That is made in one step with going on.
    """

    source: Source
    end: float
    hand_out: Callable[[Delivery | None], T_co]


class Takes(Protocol[T_contra, R_co]):
    """A connection on an event loop, which makes ``R`` of what takes ``T``."""

    def take(self, begin: Callable[[], Take[T_contra]], /) -> R_co:
        """Take messages. What ``begin`` raises is what the call fails with."""


class TakingMethod(Protocol[P, T_co]):
    """A method of a transaction or a consumer that takes ``T``."""

    def __get__(self, client: PartOf[Takes[T_co, R]], kind: type | None = None, /) -> Callable[P, R]:
        """The method of one transaction or consumer."""


def loop_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> ClientMethod[P, T]:
    """Have a connection's method typed as what the connection's ``run`` gives."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def loop_part_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> PartMethod[P, T]:
    """Have a transaction's or a consumer's method typed as what the connection's ``run`` gives."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def taking_method(method: Callable[Concatenate[S, P], Awaitable[T]]) -> TakingMethod[P, T]:
    """Have a transaction's or a consumer's method typed as what the connection's ``take`` gives."""
    found: Any = method
    return found  # type: ignore[no-any-return]


def one_of(delivery: Delivery | None) -> Message | None:
    """Hand out the next message; None at the end."""
    return None if delivery is None else delivery.one()
