"""Makes the decision table in every database that is migrated; docs/atomic.md describes its rows."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from txbroker.databases.adapters import adapter
from txbroker.databases.adapters.adapter import run
from txbroker.databases.tables import identity


def make(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001
    """Make the table with ``txbroker.create_decision_table``, not by Django: its identity says where it was made."""
    connection = schema_editor.connection
    connection.ensure_connection()
    run(identity.create(adapter.adapt(connection.connection)))


class Migration(migrations.Migration):
    """The migration. It is not atomic, because the driver commits. Made twice it changes nothing; it is not reversed,
    because its rows may decide.
    """

    atomic = False
    operations = [migrations.RunPython(make, migrations.RunPython.noop)]  # noqa: RUF012 - Django's way
