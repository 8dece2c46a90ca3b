"""The meaning of requests: sessions, dispatch, sends, fetches, transactions, groups, and the order of turns."""
