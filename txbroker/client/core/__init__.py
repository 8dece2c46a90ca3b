"""The core of every client, without input or output."""
