"""Reading: batches and streams of messages, from the files of a data directory or from a live broker."""
