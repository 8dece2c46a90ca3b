"""The bytes of everything on disk, and nothing else: frames, records, headers, indexes, checkpoints, names of files."""
