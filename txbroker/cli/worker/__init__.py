"""Workers on the command line: their signals, their log, and which partitions each of several processes reads."""
