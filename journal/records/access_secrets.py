"""The secrets in records and rows about users and rules, and how these are shown without them."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from journal.records.access_entries import AccessRow, ScramVerifier, User
from journal.records.access_records import AccessSet, UserSet

HIDDEN: Final = "hidden"
"""Stands for what nobody may see: what a password is proven by, and the key of the logins."""

_Shown = TypeVar("_Shown")


def without_secrets(value: _Shown) -> _Shown:
    """Return a record, or a row of a checkpoint, with :data:`HIDDEN` in the place of its secrets, to be shown.

    What has none is returned as it is.
    """
    match value:
        case UserSet():
            return replace(value, user=without_secrets(value.user))
        case User(scram=ScramVerifier()):
            return replace(value, scram=HIDDEN)
        case AccessSet() | AccessRow():
            return replace(value, key=HIDDEN)
    return value
