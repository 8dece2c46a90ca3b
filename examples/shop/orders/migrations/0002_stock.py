"""What the shop begins with."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations

CUSTOMERS = ("ann", "bob", "cleo", "dan", "eve")
PRODUCTS = {
    "tea": (450, 1_000_000),
    "cake": (320, 1_000_000),
    "cup": (1_250, 1_000_000),
    "unicorn": (9_900, 0),
}


def fill(apps: Any, _: Any) -> None:
    """Write the rows."""
    customer, product = apps.get_model("orders", "Customer"), apps.get_model("orders", "Product")
    customer.objects.bulk_create(customer(name=name) for name in CUSTOMERS)
    product.objects.bulk_create(
        product(name=name, cents=cents, stock=stock) for name, (cents, stock) in PRODUCTS.items()
    )


class Migration(migrations.Migration):
    """Customers, and products."""

    dependencies: ClassVar = [("orders", "0001_initial")]
    operations: ClassVar = [migrations.RunPython(fill, migrations.RunPython.noop)]
