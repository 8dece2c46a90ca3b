"""The package that logins by password need. It is imported when one is made: it takes 0.15 s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbroker.errors import Misuse

if TYPE_CHECKING:
    from types import ModuleType


def scramp() -> ModuleType:
    """Return the package scramp; raises ``Misuse`` if it is not installed."""
    try:
        import scramp
    except ImportError as error:
        raise Misuse(
            f"a login by password needs the package scramp, which is not installed ({error}); nothing was sent. "
            "Install it: pip install 'txbroker[login]'"
        ) from error
    module: ModuleType = scramp
    return module
