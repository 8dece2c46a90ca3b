"""The broker's own folds over the journal: producers, consumer groups, its identity."""
