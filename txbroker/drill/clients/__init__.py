"""The clients of a drill: processes that send, read, relay and run transactions, and write down what they were told."""
