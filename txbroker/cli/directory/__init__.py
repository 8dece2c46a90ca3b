"""Data directories on the command line: found and held still, and what lies in their files, as lines."""
