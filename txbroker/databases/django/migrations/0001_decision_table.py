"""Makes the decision table in every database that is migrated; docs/atomic.md says what stands in it."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from txbroker.databases import identity
from txbroker.databases.adapters import adapter
from txbroker.databases.adapters.adapter import run


def make(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """Past Django, as ``txbroker.create_decision_table`` does: its identity says where it was made."""
    connection = schema_editor.connection
    connection.ensure_connection()
    run(identity.create(adapter.adapt(connection.connection)))


class Migration(migrations.Migration):
    """Not atomic: the driver commits. Made twice it changes nothing; it is not unmade, for its rows may decide."""

    atomic = False
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]  # noqa: RUF012 - Django's way
