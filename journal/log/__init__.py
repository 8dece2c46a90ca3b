"""A partition's log: its tail in memory, its segments, reads, flushes, retention; and the catalog of all logs."""
