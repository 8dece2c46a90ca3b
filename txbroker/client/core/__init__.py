"""The core of every client, without input or output: calls and their answers, loss and repetition, names, options."""
