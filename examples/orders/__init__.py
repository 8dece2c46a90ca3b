"""A small shop as an example: orders and invoices in PostgreSQL, each row committed together with its message."""
