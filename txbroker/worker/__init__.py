"""A worker runs a handler for each message of a group: several at once, in order, each finished by itself."""
