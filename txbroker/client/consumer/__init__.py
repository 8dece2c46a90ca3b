"""Reading: consumers, what they are handed, and messages received in transactions."""
