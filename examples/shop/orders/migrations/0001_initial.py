"""The tables of ``models.py``."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


def step(name: str, *more: tuple[str, Any]) -> Any:
    """Return the table of what a task does for an order."""
    fields = [
        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
        ("order", models.UUIDField(db_index=True)),
        ("done_at", models.DateTimeField(auto_now_add=True)),
        *more,
    ]
    return migrations.CreateModel(name=name, fields=fields, options={"abstract": False})


class Migration(migrations.Migration):
    """All tables."""

    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("spent_cents", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("name", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("cents", models.IntegerField()),
                ("stock", models.IntegerField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("number", models.UUIDField(primary_key=True, serialize=False)),
                ("customer", models.CharField(max_length=40)),
                ("product", models.CharField(max_length=40)),
                ("cents", models.IntegerField()),
                ("placed_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
        ),
        step("Charge", ("customer", models.CharField(max_length=40)), ("cents", models.IntegerField())),
        step("Parcel"),
        step("Letter"),
        step("Suggestion"),
    ]
