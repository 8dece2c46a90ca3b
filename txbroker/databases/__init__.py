"""One transaction for rows of a database and messages of the broker. ``docs/atomic.md`` has protocol and proof."""
