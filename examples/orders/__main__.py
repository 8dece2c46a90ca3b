"""``make example-orders`` runs the shop until it is stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import psycopg

from demo.premises import new_folder, remove
from demo.program import ProgramFailed
from examples.orders.compare import collect, compare
from examples.orders.drill import settle
from examples.orders.premises import FAILURES, Premises


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="How long the shop is open.")
@click.option("--rate", default=10.0, show_default=True, help="Orders per second.")
def main(seconds: float, rate: float) -> None:
    """Open the shop, show its progress, close it and compare rows with messages."""
    folder = new_folder(Path("build/example-orders"))
    click.echo(f"Logs and the broker's data: {folder}")
    try:
        with Premises(folder, producers=1, rate=rate) as premises:
            click.echo(f"psql '{premises.database_url}'")
            click.echo(f".venv/bin/txbroker --broker {premises.broker.address} tail orders --follow")
            watch(premises, seconds)
            settle(premises)
            facts = collect(premises.database_url, premises.broker.address, premises.producers[0].lines())
    except (*FAILURES, ProgramFailed) as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from error
    faults = compare(facts)
    for fault, which in faults:
        click.echo(f"{fault.value}: {which}")
    click.echo(
        f"{len(facts.orders)} orders, {len(facts.order_messages)} messages of orders, {len(facts.invoices)} "
        f"invoices, {len(facts.invoice_messages)} messages of invoices: {'they differ' if faults else 'they agree'}"
    )
    if faults:
        sys.exit(1)
    remove(folder)


def watch(premises: Premises, seconds: float) -> None:
    """Print a line each second."""
    premises.wait_for_business()
    with psycopg.connect(premises.database_url, autocommit=True) as database:
        for second in range(round(seconds)):
            time.sleep(1.0)
            premises.check()
            counts = database.execute(
                "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM invoices)"
            ).fetchone()
            click.echo("{:3} s: {} orders, {} invoices".format(second + 1, *(counts or ("?", "?"))))


if __name__ == "__main__":
    main()
