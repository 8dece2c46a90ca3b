"""``make example-shop``: the shop, with a PostgreSQL and a broker of its own, until Ctrl-C."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from demo.premises import new_folder, remove
from examples.shop.drill.customers import Answer, Customers
from examples.shop.drill.drill import settle
from examples.shop.drill.facts import collect
from examples.shop.drill.judgement import Fault, judge
from examples.shop.drill.premises import FAILURES, Premises


@click.command()
@click.option("--seconds", type=float, help="How long the shop is open (default: until Ctrl-C).")
@click.option(
    "--rate", default=1.0, show_default=True, help="Orders a second of the customer that comes by itself."
)
@click.option("--naive", is_flag=True, help="Open the shop that sends its tasks by on_commit.")
def main(seconds: float | None, rate: float, naive: bool) -> None:
    """Open the shop, have somebody order, close it, and look whether each order and each task is there once."""
    folder = new_folder(Path("build/example-shop"))
    click.echo(f"Logs and the broker's data: {folder}")
    try:
        with Premises(folder, naive) as premises:
            click.echo(f"http://127.0.0.1:{premises.web_port}/ is the shop; Ctrl-C closes it")
            click.echo(f"psql '{premises.database_url}'")
            click.echo(f".venv/bin/txbroker --broker {premises.broker.address} queues list")
            customers = Customers(premises.web_port, seed=0, count=1, rate=rate)
            try:
                customers.start()
                stay_open(premises, seconds)
            finally:
                customers.stop()
            settle(premises)
            facts = collect(premises, customers)
    except FAILURES as error:
        raise click.ClickException("\n".join([str(error), *getattr(error, "__notes__", ())])) from error
    faults = [
        each for each in judge(facts) if each[0] is not Fault.ORDER_UNASKED
    ]  # you may have ordered, too
    for fault, which in faults:
        click.echo(f"{fault.value}: {which}")
    known = len(customers.numbers(Answer.ACKNOWLEDGED))
    click.echo(f"{known} orders acknowledged to the customer, {len(facts.orders)} rows of orders")
    if faults:
        sys.exit(1)
    click.echo("Each order and each of its tasks is there once, and nothing is in doubt.")
    remove(folder)


def stay_open(premises: Premises, seconds: float | None) -> None:
    """Return after so many seconds, or at Ctrl-C."""
    began = time.monotonic()
    try:
        while seconds is None or time.monotonic() - began < seconds:
            time.sleep(0.2)
            premises.check()
    except KeyboardInterrupt:
        click.echo("closing the shop")


if __name__ == "__main__":
    main()
