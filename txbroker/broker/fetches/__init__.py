"""Fetches and other requests that read: messages by offset, time, key and tag, in steps, and pins of files."""
