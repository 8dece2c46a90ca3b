"""The commands that make, copy, read or repair a data directory."""
