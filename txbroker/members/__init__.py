"""Members of consumer groups: who is there, which partitions each of them has, and how a partition changes hands."""
