"""The write-ahead log: the journal's files as they are written and read, and where they end at a start."""
