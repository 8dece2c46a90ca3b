"""Workers on the command line: their signals and their log."""
