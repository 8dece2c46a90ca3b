"""Watching a broker from outside: health and metrics over HTTP. ``docs/operations.md`` tells how."""
