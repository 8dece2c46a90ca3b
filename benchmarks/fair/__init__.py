"""The benchmark of fairness measures what a client gets of the broker while others take all they can."""
