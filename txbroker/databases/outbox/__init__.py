"""Blocks that only send: their messages lie in the database until the broker has them. ``docs/outbox.md`` tells how."""
