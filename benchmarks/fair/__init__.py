"""The benchmark of fairness: what a client has of the broker while others take all they can get."""
