"""A small shop: orders and invoices in PostgreSQL, messages in txbroker, each row together with its message."""
