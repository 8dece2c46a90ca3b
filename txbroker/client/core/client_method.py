"""Methods that every client has: written once, as coroutines of the core, and run by each client in its own way.

A call of the blocking client returns the result; a call on an event loop returns an awaitable. Type checkers know which
one: the type of a method follows from how the client declares ``run``, which makes ``T``, a ``Future[T]`` or a
``Deferred[T]`` of a coroutine that ends with ``T``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from txbroker.client.core.promise import Promise

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Runs(Protocol[T_contra, R_co]):
    """A client's connection, which makes ``R`` of an operation that ends with ``T``."""

    def run(self, operation: Coroutine[Promise[Any], None, T_contra], /) -> R_co:
        """Run an operation of the core."""


class PartOf(Protocol[T_co]):
    """A transaction or a consumer of a connection ``T``."""

    @property
    def _connection(self) -> T_co:
        """The connection that runs its operations."""


class ClientMethod(Protocol[P, T_co]):
    """A method of a connection whose operation ends with ``T``."""

    def __get__(self, client: Runs[T_co, R], kind: type | None = None, /) -> Callable[P, R]:
        """Return the method of one connection."""


class PartMethod(Protocol[P, T_co]):
    """A method of a transaction or a consumer whose operation ends with ``T``."""

    def __get__(self, client: PartOf[Runs[T_co, R]], kind: type | None = None, /) -> Callable[P, R]:
        """Return the method of one transaction or consumer."""


def client_method(
    operation: Callable[Concatenate[S, P], Coroutine[Promise[Any], None, T]],
) -> ClientMethod[P, T]:
    """Return a method of a connection for a function that makes its operation."""

    @wraps(operation)
    def method(client: Any, *args: P.args, **choices: P.kwargs) -> Any:
        return client.run(operation(client, *args, **choices))

    found: Any = method
    return found  # type: ignore[no-any-return]


def part_method(
    operation: Callable[Concatenate[S, P], Coroutine[Promise[Any], None, T]],
) -> PartMethod[P, T]:
    """Return a method of a transaction or a consumer for a function that makes its operation."""

    @wraps(operation)
    def method(client: Any, *args: P.args, **choices: P.kwargs) -> Any:
        return client._connection.run(operation(client, *args, **choices))

    found: Any = method
    return found  # type: ignore[no-any-return]
