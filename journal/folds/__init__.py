"""The folds of clients: producers, consumer groups, streams, the data's identity; and the table of all folds."""
