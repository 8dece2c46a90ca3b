"""One transaction for rows of a database and messages of the broker. ``docs/atomic.md`` has the protocol and its proof."""
