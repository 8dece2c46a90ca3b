"""The same shop as most are built, with ``transaction.on_commit(task.delay)``: for `make drill-shop ARGS=--naive`."""
