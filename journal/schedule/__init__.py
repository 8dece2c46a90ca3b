"""The schedule at work: messages that are due go to their partitions, others are taken back (decision 0054)."""
