"""Transactions on the command line: which are meant, how they are shown, and how they are ended by hand."""
