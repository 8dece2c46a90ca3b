"""The clients of a drill are processes that send, read, relay and run transactions, and write every answer down."""
