"""Logins: how a connection proves whose it is, and how the broker judges that, without a wire, a loop or a thread."""
