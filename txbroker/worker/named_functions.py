"""Functions that are named as ``module:function``, as on the command line."""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from txbroker.errors import WrongValue


def function_named(what: str, name: str) -> Callable[..., Any]:
    """Return the function ``module:function``; the current folder is looked through first, as by ``python -m``.

    Raises WrongValue, which says what is missing. If the module itself raises, the error has its traceback as text.
    """
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise WrongValue(f"{what} is {name!r}; it must be MODULE:FUNCTION, like tasks:bill; nothing was done")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: Any = _imported(what, module)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            close = difflib.get_close_matches(part, dir(found), 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise WrongValue(
                f"{what} is {name!r}, but {module!r} has no {part!r}{hint}; nothing was done"
            ) from None
    if not callable(found):
        raise WrongValue(
            f"{what} is {name!r}, which is of type {type(found).__name__}; it must be a function; nothing was done"
        )
    function: Callable[..., Any] = found
    return function


def _imported(what: str, module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise WrongValue(
                f"{what} is to be found in the module {module!r}, but there is no module {error.name!r} in "
                f"{Path.cwd()} nor where else Python looks (PYTHONPATH, installed packages); nothing was done"
            ) from None
        raise _failed(what, module, error) from error
    except Exception as error:
        raise _failed(what, module, error) from error


def _failed(what: str, module: str, error: Exception) -> WrongValue:
    found = WrongValue(
        f"{what} is to be found in the module {module!r}, which cannot be imported: {type(error).__name__}: {error}; "
        "nothing was done"
    )
    found.add_note("".join(traceback.format_exception(type(error), error, _of_module(error.__traceback__))))
    return found


def _of_module(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without our own frames and those of the import system."""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name != __file__ and "importlib" not in name:
            return trace
        trace = trace.tb_next
    return None
