"""The bytes of all on disk but records, and nothing else: frames, segments, indexes, checkpoints, names of files."""
