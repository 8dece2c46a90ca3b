"""The meaning of requests: dispatch, waiting requests, and those of people and tools about the whole broker."""
