"""The benchmark of `txbroker.atomic` measures a row and a message in one block, beside the alternatives."""
