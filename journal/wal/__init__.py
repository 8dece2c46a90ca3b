"""The write-ahead log: writing and reading the journal's files, and finding their end at a start."""
