"""What consumer groups finish and read: its judge, and the fetches that are read for groups."""
