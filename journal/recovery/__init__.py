"""A start: from the files of a data directory to an engine that goes on."""
