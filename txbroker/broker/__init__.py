"""What requests mean: sessions, dispatch, sends, fetches, transactions, groups, and whose turn it is."""
