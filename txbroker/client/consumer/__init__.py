"""Reading: consumers, the messages that they hand out, and messages received in transactions."""
