"""The folds of clients: producers, consumer groups, the data's identity; and the table of all folds."""
