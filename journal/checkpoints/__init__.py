"""Checkpoints: the rows of their folds, and which one a start stands on."""
