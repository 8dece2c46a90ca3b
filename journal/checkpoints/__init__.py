"""Checkpoints: the rows of their folds, and the choice of the one that a start uses."""
