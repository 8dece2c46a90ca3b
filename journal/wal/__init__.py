"""The write-ahead log: the journal's files as they are written, and where they end at a start."""
