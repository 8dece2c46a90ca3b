"""A process in which what only Linux or only POSIX has is missing. As a plugin of pytest: ``-p
tests.support.elsewhere``.

It is no other system: paths, sockets and the standard library's own ways stay Linux's. What it shows is that the code
that was imported after it asks for none of these.
"""

import asyncio
import mmap
import os
import select
import socket
import sys
from typing import Any, NoReturn

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
OF_OS = (
    "O_CLOEXEC", "O_DIRECTORY", "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "fork", "forkpty",
    "posix_fadvise", "pwritev", "register_at_fork", "statvfs",
)  # fmt: skip
OF_SELECT = ("epoll", "poll")


def over_loopback(family: int = 0, kind: int = 0, protocol: int = 0) -> tuple[socket.socket, socket.socket]:
    """Return a pair of sockets as Python makes one on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def missing(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("not on this loop")


class Loop(asyncio.SelectorEventLoop):
    """An event loop without the calls that Windows' loop does not have."""

    add_reader = add_writer = add_signal_handler = missing
    create_unix_connection = create_unix_server = missing


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


def take_away() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    places: list[tuple[Any, tuple[str, ...]]] = [
        (os, OF_OS),
        (select, OF_SELECT),
        (socket, ("AF_UNIX",)),
        (mmap, tuple(name for name in vars(mmap) if name.startswith(("MAP_", "PROT_", "MADV_")))),
    ]
    for place, names in places:
        for name in names:
            vars(place).pop(name, None)
    socket.socketpair = over_loopback  # type: ignore[assignment]
    asyncio.set_event_loop_policy(Policy())


def pytest_report_header() -> str:
    return f"missing in this process: {', '.join(OF_OS)}, {', '.join(MODULES)}, AF_UNIX, poll"


take_away()
