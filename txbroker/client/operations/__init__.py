"""What every client can ask of a broker about topics, groups and transactions, written once for all."""
